#include "planner/cli/command.h"

#include <string.h>

/* In the order of the FOR_... bits of options.h. */
const struct command commands[] = {
    { "plan", "", 0, 0, "which layout fits: the recommended one, with every reason and price",
      "Derives the layout of a training step for a model on machines, and predicts memory, time "
      "and MFU. Exits 1 when nothing fits.",
      command_plan },
    { "budget", "[PLAN]", 0, 1, "what is in each rank's memory: item by item, with formulas",
      "Shows what every rank holds, of a plan file or of the layout derived from the same options "
      "as rankfit plan takes.",
      command_budget },
    { "run", "[PLAN]", 0, 1, "run the training step and measure it",
      "Runs a plan file, or the layout derived from the options, on local ranks through MPI or "
      "under the launcher that started rankfit; shows predicted and measured memory side by side.",
      command_run },
    { "compare", "PLAN MEASUREMENT|LOG", 2, 2,
      "was the prediction true: predicted against measured",
      "Compares a plan with the measurement of its run, item by item, or with the log of another "
      "engine: memory and time that Megatron-LM or torchtitan print, torch.cuda.memory_summary, "
      "nvidia-smi, or PyTorch's message that memory is out. Exits 1 when a figure is out of "
      "tolerance.",
      command_compare },
    { "explain", "NAME [PLAN]", 1, 2, "what a key, item, rule, primitive, model or machine means",
      "Tells meaning, formula, symbols and source of a name; with a plan file, its numbers too.",
      command_explain },
    { "list", "models|hardware|recipes|keys|items|primitives|rules|facts|validation", 1, 1,
      "what rankfit knows", "Lists what can be named.", command_list },
    { "pair", "KEY=VALUE", 1, 1, "a primitive against its reference: loss, gradients, peak, time",
      "Runs the same small job twice, with a primitive such as moe=chunked and with its reference, "
      "and compares loss, final hidden states, every gradient, peak and time. Without options: "
      "tiny-moe on 2 processes of this machine, 128 tokens. Exits 1 when they differ by more than "
      "the pair allows.",
      command_pair },
    { "rehearse", "[PLAN]", 0, 1, "run one rank of a plan for any world in one process",
      "One process plays a rank: its tensors and its computation are real; collectives fill "
      "buffers of true size and take the time that the plan's machines would need, and what other "
      "ranks route here is drawn from the profile. Losses are no result. Shows predicted and "
      "measured memory of the rank side by side.",
      command_rehearse },
    { "calibrate", "[POINTS]", 0, 1, "measure this machine and write its hardware file",
      "Times products, attention, passes, copies and, with --gpus 2 or more, collectives; asks "
      "what "
      "context, libraries and communicators hold; fits the forms of step time and shows how well "
      "they are met. Values that are not measured are those of the base file, --hardware. With a "
      "points file of an earlier run: fits it again.",
      command_calibrate },
    { "search", "", 0, 0, "the best of all layouts, and how far the derived one is from it",
      "Looks at every legal layout: factorizations, interleaving, micro-batches, shard widths, "
      "chunks, loss, recompute of the first N layers, offload; skips only what is proved to be no "
      "better. -o writes the best as a plan file. Exits 1 when nothing fits.",
      command_search },
    { "sweep", "", 0, 0, "what fits over several numbers of GPUs and sequence lengths",
      "Derives a layout for every pair of --gpus and --seq, each a list such as 8,16,32 and "
      "32K,128K, and shows them in a table. Exits 1 when nothing fits anywhere.",
      command_sweep },
    { "grid", "", 0, 0, "which degrees fit: tp and cp against pp and ep, with recompute or without",
      "Marks every combination of tp, cp, pp and ep by what its best settings need to fit. Exits 1 "
      "when nothing fits.",
      command_grid },
    { "validate", "[SET|FILE]", 0, 1,
      "predictions against the measured and published figures that ship",
      "Holds rankfit against published figures and measurements: of one set (`rankfit list "
      "validation`), of a file of one's own, or of all sets. Exits 1 when a set does not hold.",
      command_validate },
    { "export", "PLAN --to NAME", 1, 1,
      "a plan as the launch file of another engine or a scheduler",
      "Writes the options of another engine, an sbatch script or an mpirun line for a "
      "plan file, to standard output or to -o FILE. Settings that the engine cannot express are "
      "listed in comments, with the setting that it runs instead and the memory that this costs.",
      command_export },
    { "check", "FILE|-- LINE", 0, 1, "does the launch file or command line that I have fit",
      "Reads a shell script, command line, TOML or YAML file of another engine, or a scheduler's "
      "script of rankfit, and judges exactly that layout: degrees that are not given are 1. "
      "Standard "
      "input is -. Options given to rankfit win over those of the launch. Exits 1 when the launch "
      "is illegal or does not fit, 2 when it cannot be read.",
      command_check, true },
};
const size_t command_count = sizeof commands / sizeof *commands;

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

unsigned command_bit(const struct command *command)
{
    return 1u << (command - commands);
}
