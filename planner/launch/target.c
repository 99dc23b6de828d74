/* target.c - the engines and schedulers whose launch files are written and read. */
#include "base/text.h"
#include "planner/launch/rows.h"

#include <string.h>

const struct launch_target launch_targets[] = {
    { .name = "megatron",
      .title = "Megatron-LM",
      .version = "Megatron Core 0.15",
      .engine = "megatron",
      .form = LAUNCH_ARGUMENTS,
      .program = "pretrain_gpt.py",
      .signs = { "pretrain_gpt.py", "pretrain_mamba.py", "pretrain_vlm.py" },
      .tables = { megatron_rows, megatron_pretrain_rows, megatron_model_rows },
      .older = megatron_older,
      .clashes = megatron_clashes,
      .neutral = megatron_neutral,
      .unjudged = megatron_unjudged },
    { .name = "torchtitan",
      .title = "torchtitan",
      .version = "torchtitan 0.2",
      .engine = "torchtitan",
      .form = LAUNCH_TOML,
      .program = "torchtitan.train",
      .signs = { "torchtitan.train", "torchtitan/train.py", "run_train.sh" },
      .underscores = true,
      .tables = { torchtitan_rows },
      .older = torchtitan_older,
      .clashes = torchtitan_clashes,
      .neutral = torchtitan_neutral,
      .unjudged = torchtitan_unjudged },
    { .name = "megatron-bridge",
      .title = "Megatron-Bridge",
      .version = "Megatron-Bridge 0.4",
      .engine = "megatron",
      .form = LAUNCH_OVERRIDES,
      .program = "scripts/training/run_recipe.py --recipe \"${RECIPE:?the recipe}\"",
      .signs = { "run_recipe.py", "train.sh" },
      .underscores = true,
      .values = true,
      .prefix = "model.",
      .tables = { bridge_rows, megatron_rows, megatron_pretrain_rows },
      .names = bridge_names,
      .clashes = megatron_clashes,
      .neutral = bridge_neutral,
      .more_neutral = megatron_neutral,
      .unjudged = megatron_unjudged },
    { .name = "verl",
      .title = "verl (Megatron actor)",
      .version = "verl 0.7",
      .engine = "megatron",
      .form = LAUNCH_OVERRIDES,
      .starter = START_OPTIONS,
      .program = "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer",
      .signs = { "verl.trainer.main_ppo", "main_ppo.py" },
      .underscores = true,
      .values = true,
      .prefix = "actor_rollout_ref.actor.megatron.",
      .tables = { verl_rows, megatron_rows },
      .names = verl_names,
      .clashes = verl_clashes,
      .neutral = verl_neutral,
      .more_neutral = megatron_neutral,
      .unjudged = verl_unjudged,
      .more_unjudged = megatron_unjudged },
    { .name = "slime",
      .title = "slime",
      .version = "slime 0.2",
      .engine = "megatron",
      .form = LAUNCH_ARGUMENTS,
      .starter = START_OPTIONS,
      .program = "python3 train.py",
      .signs = { "train.py", "train_async.py" },
      .tables = { slime_rows, megatron_rows, megatron_model_rows },
      .older = megatron_older,
      .clashes = megatron_clashes,
      .neutral = slime_neutral,
      .more_neutral = megatron_neutral,
      .unjudged = slime_unjudged,
      .more_unjudged = megatron_unjudged },
    { .name = "ms-swift",
      .title = "ms-swift (megatron sft)",
      .version = "ms-swift 4",
      .engine = "megatron",
      .form = LAUNCH_ARGUMENTS,
      .starter = START_ENVIRONMENT,
      .program = "megatron sft",
      .signs = { "megatron" },
      .underscores = true,
      .values = true,
      .tables = { swift_rows, megatron_rows },
      .names = swift_names,
      .older = swift_older,
      .clashes = megatron_clashes,
      .neutral = swift_neutral,
      .more_neutral = megatron_neutral,
      .unjudged = megatron_unjudged },
    { .name = "slurm",
      .title = "Slurm (sbatch)",
      .version = "Slurm 22.05",
      .engine = "rankfit",
      .form = LAUNCH_SCHEDULER,
      .signs = { "srun" } },
    { .name = "mpirun",
      .title = "Open MPI (mpirun)",
      .version = "Open MPI 4.1",
      .engine = "rankfit",
      .form = LAUNCH_SCHEDULER,
      .signs = { "mpirun" } },
};
const size_t launch_target_count = sizeof launch_targets / sizeof *launch_targets;

const struct launch_target *launch_find(const char *name)
{
    for (size_t i = 0; i < launch_target_count; i++)
        if (strcmp(launch_targets[i].name, name) == 0)
            return &launch_targets[i];
    return NULL;
}

void launch_names(char *ret, size_t size)
{
    const char *names[16];
    size_t count = 0, used = 0;
    for (; count < launch_target_count && count < sizeof names / sizeof *names; count++)
        names[count] = launch_targets[count].name;
    ret[0] = '\0';
    text_append_names(ret, size, &used, names, count);
}

const struct launch_row *launch_row_at(const struct launch_target *target, size_t index)
{
    for (int t = 0; t < LAUNCH_TABLES && target->tables[t]; t++)
        for (const struct launch_row *row = target->tables[t]; row->key; row++)
            if (index-- == 0)
                return row;
    return NULL;
}

void launch_spell(const struct launch_target *target, const char *option, char *ret, size_t size)
{
    size_t used = 0;
    ret[0] = '\0';
    for (const struct launch_name *name = target->names; name && name->option; name++)
        if (strcmp(name->option, option) == 0) {
            text_append(ret, size, &used, "%s", name->here);
            return;
        }
    text_append(ret, size, &used, "%s%s", target->prefix ? target->prefix : "", option);
    for (char *at = ret + (target->prefix ? strlen(target->prefix) : 0); target->underscores && *at;
         at++)
        *at = *at == '-' ? '_' : *at;
}
