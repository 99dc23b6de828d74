/* write.c - launch files from settings: values that the target lacks are replaced first, then the
 * rows of its table are written in their order. */
#include "base/text.h"
#include "planner/launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "@tp" is the value of tp, taken as 1 where it is not there. */
static const char *resolve(const struct launch_settings *settings, const char *value)
{
    if (value[0] != '@')
        return value;
    const char *other = launch_get(settings, value + 1);
    return other ? other : "1";
}

/* Equal as text, or as numbers: 1e-5 and 1e-05. */
static bool same_value(const char *a, const char *b)
{
    char *a_end, *b_end;
    if (strcmp(a, b) == 0)
        return true;
    double x = strtod(a, &a_end), y = strtod(b, &b_end);
    return a_end != a && b_end != b && !*a_end && !*b_end && x == y;
}

/* The first row of the key that has the value; *ret_known: whether the key has any row. */
static const struct launch_row *row_of(const struct launch_target *target,
                                       const struct launch_settings *settings, const char *key,
                                       const char *value, bool *ret_known)
{
    const struct launch_row *row;
    *ret_known = false;
    for (size_t i = 0; (row = launch_row_at(target, i)); i++) {
        if (strcmp(row->key, key) != 0)
            continue;
        *ret_known = true;
        if (!row->value || same_value(resolve(settings, row->value), value))
            return row;
    }
    return NULL;
}

/* Facts of a model that no option states, but every file of the target implies or ignores. */
static bool is_implied(const char *key, const char *value)
{
    static const char *const implied[] = {
        "model.schema",        "model.name",
        "model.title",         "model.architecture",
        "model.mtp_trained",   "model.vision_trained",
        "model.vision_frozen", "model.moe.normalize_top_k",
    };
    for (size_t i = 0; i < sizeof implied / sizeof *implied; i++)
        if (strcmp(implied[i], key) == 0)
            return true;
    return strcmp(value, "false") == 0 || strcmp(value, "0") == 0;
}

/* MLA gives the widths of the heads; kv-channels and query groups say nothing then. */
static bool is_of_latents(const struct launch_settings *settings, const char *key)
{
    return launch_get(settings, "model.latent.kv_rank") &&
           (strcmp(key, "model.attention.kv_heads") == 0 ||
            strcmp(key, "model.attention.head_dim") == 0 ||
            strcmp(key, "model.attention.rotary_fraction") == 0);
}

static bool states_models(const struct launch_target *target)
{
    const struct launch_row *row;
    for (size_t i = 0; (row = launch_row_at(target, i)); i++)
        if (strncmp(row->key, "model.", 6) == 0)
            return true;
    return false;
}

static void add_gap(struct launch_gaps *gaps, const char *key, const char *value,
                    const char *instead, const char *note)
{
    if (gaps->count < LAUNCH_GAPS_MAX)
        gaps->items[gaps->count++] = (struct launch_gap){ key, value, instead, note };
}

static bool is_model_fact(const char *key)
{
    return strncmp(key, "model.", 6) == 0;
}

/* Whether the setting stays; false drops it. */
static bool replace_one(const struct launch_target *target, struct launch_settings *settings,
                        struct launch_setting *setting, struct launch_gaps *gaps)
{
    bool known, fact = is_model_fact(setting->key);
    if (!launch_applies(settings, setting->key) || is_of_latents(settings, setting->key))
        return false;
    const struct launch_row *row = row_of(target, settings, setting->key, setting->value, &known);
    if (row && row->instead) {
        const char *instead = resolve(settings, row->instead);
        if (!same_value(instead, setting->value))
            add_gap(gaps, setting->key, setting->value, instead, row->note);
        setting->value = instead;
        return instead[0] != '\0';
    }
    if (!row && strcmp(setting->key, "model_name") == 0 && known)
        add_gap(gaps, setting->key, setting->value, NULL,
                "no configuration of that model ships with the engine");
    if (!row && fact && states_models(target) && !is_implied(setting->key, setting->value))
        add_gap(gaps, setting->key, setting->value, NULL,
                "no option states this fact of the model");
    return row != NULL || !fact;
}

int launch_replace(const struct launch_target *target, struct launch_settings *settings,
                   struct launch_gaps *ret, struct diag_list *reterr)
{
    size_t kept = 0;
    (void)reterr;
    ret->count = 0;
    for (size_t i = 0; i < settings->count; i++) {
        struct launch_setting setting = settings->items[i];
        if (target->tables[0] && !replace_one(target, settings, &settings->items[i], ret))
            setting.key = NULL;
        else
            setting = settings->items[i];
        /* Keys behind this one look others up: a dropped one keeps its place until the end. */
        if (setting.key)
            settings->items[i] = setting;
        else
            settings->items[i].key = "";
    }
    for (size_t i = 0; i < settings->count; i++)
        if (settings->items[i].key[0])
            settings->items[kept++] = settings->items[i];
    settings->count = kept;
    return 0;
}

/* Options to write, in order, each once. */
enum { OPTIONS_MAX = 128, OPTION_BYTES = 2200 };
struct written {
    size_t count;
    char options[OPTIONS_MAX][OPTION_BYTES];
};

static void add_option(struct written *written, const char *says, const char *value)
{
    char text[OPTION_BYTES] = "";
    size_t used = 0;
    const char *mark = strchr(says, '#');
    int before = mark ? (int)(mark - says) : (int)strlen(says);
    text_append(text, sizeof text, &used, "%.*s%s", before, says, mark ? value : "");
    for (size_t i = 0; i < written->count; i++)
        if (strcmp(written->options[i], text) == 0)
            return;
    if (written->count < OPTIONS_MAX)
        (void)text_copy(written->options[written->count++], OPTION_BYTES, text);
}

/* "num-experts" as a condition of a fact is written with its number by the fact's own row. */
static bool is_written(const struct written *written, const char *says)
{
    size_t length = strlen(says);
    for (size_t i = 0; i < written->count; i++)
        if (strncmp(written->options[i], says, length) == 0 &&
            (written->options[i][length] == '=' || !written->options[i][length]))
            return true;
    return false;
}

static void collect(const struct launch_target *target, const struct launch_settings *settings,
                    struct written *ret)
{
    const struct launch_row *row;
    ret->count = 0;
    for (size_t i = 0; (row = launch_row_at(target, i)); i++) {
        bool known;
        const char *value = launch_get(settings, row->key);
        if (!value || row != row_of(target, settings, row->key, value, &known))
            continue;
        for (int s = 0; s < LAUNCH_SAYS && row->says[s]; s++)
            if (strpbrk(row->says[s], "=#") || !is_written(ret, row->says[s]))
                add_option(ret, row->says[s], value);
    }
}

static bool is_plain_value(const char *text)
{
    char *end;
    (void)strtod(text, &end);
    return (end != text && !*end) || strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
}

static void write_comments(const char *head, FILE *out)
{
    for (const char *line = head; line && *line;) {
        size_t length = strcspn(line, "\n");
        (void)fprintf(out, length > 0 ? "# %.*s\n" : "#\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

/* An argument of the shell, quoted where it must be. */
static void write_word(const char *text, FILE *out)
{
    (void)fprintf(out, strpbrk(text, " *|()[]+'\"$&;<>") ? "'%s'" : "%s", text);
}

/* The command in front of the options, and its program. */
static void write_starter(const struct launch_target *target,
                          const struct launch_settings *settings, FILE *out)
{
    const char *nodes = launch_get(settings, "nodes"), *node = launch_get(settings, "node_gpus");
    if (target->starter == START_TORCHRUN)
        (void)fprintf(out,
                      "torchrun --nnodes %s --nproc-per-node %s --node-rank \"${NODE_RANK:-0}\" "
                      "\\\n    --master-addr \"${MASTER_ADDR:-localhost}\" --master-port "
                      "\"${MASTER_PORT:-29500}\" \\\n    ",
                      nodes, node);
    else if (target->starter == START_ENVIRONMENT)
        (void)fprintf(out,
                      "NNODES=%s NPROC_PER_NODE=%s NODE_RANK=\"${NODE_RANK:-0}\" \\\n    "
                      "MASTER_ADDR=\"${MASTER_ADDR:-localhost}\" \\\n    ",
                      nodes, node);
    (void)fputs(target->program, out);
}

/* " --name value" or " name=value", each in a line of its own. */
static void write_options(const struct launch_target *target, const struct written *written,
                          FILE *out)
{
    bool overrides = target->form == LAUNCH_OVERRIDES;
    for (size_t i = 0; i < written->count; i++) {
        char name[OPTION_BYTES], spelled[256];
        const char *value = strchr(written->options[i], '=');
        size_t length = value ? (size_t)(value - written->options[i]) : strlen(written->options[i]);
        (void)snprintf(name, sizeof name, "%.*s", (int)length, written->options[i]);
        launch_spell(target, name, spelled, sizeof spelled);
        /* Hydra adds a key to a free-form group with ++. */
        (void)fprintf(out, " \\\n    %s%s",
                      !overrides                      ? "--"
                      : strstr(spelled, ".override_") ? "++"
                                                      : "",
                      spelled);
        if (value || target->values)
            (void)fputc(overrides ? '=' : ' ', out);
        write_word(value ? value + 1 : target->values ? "true" : "", out);
    }
    (void)fputs(" \\\n    \"$@\"\n", out);
}

/* Sections in the order of their first option. */
static void write_toml(const struct written *written, FILE *out)
{
    bool done[OPTIONS_MAX] = { false };
    for (size_t i = 0; i < written->count; i++) {
        size_t section = strcspn(written->options[i], ".");
        if (done[i])
            continue;
        (void)fprintf(out, "\n[%.*s]\n", (int)section, written->options[i]);
        for (size_t j = i; j < written->count; j++) {
            const char *option = written->options[j], *value = strchr(option, '=');
            if (strncmp(option, written->options[i], section + 1) != 0 || !value)
                continue;
            const char *name = option + section + 1;
            (void)fprintf(out, is_plain_value(value + 1) ? "%.*s = %s\n" : "%.*s = \"%s\"\n",
                          (int)(value - name), name, value + 1);
            done[j] = true;
        }
    }
}

static void write_scheduler(const struct launch_target *target,
                            const struct launch_settings *settings, const char *plan_path,
                            FILE *out)
{
    const char *nodes = launch_get(settings, "nodes"), *node = launch_get(settings, "node_gpus");
    if (strcmp(target->name, "slurm") == 0) {
        (void)fprintf(out, "#SBATCH --nodes=%s\n#SBATCH --ntasks-per-node=%s\n", nodes, node);
        if (!launch_get(settings, "host"))
            (void)fprintf(out, "#SBATCH --gpus-per-node=%s\n", node);
        (void)fputs("#SBATCH --exclusive\n\nsrun --mpi=pmix rankfit run ", out);
    } else {
        (void)fprintf(out,
                      "mpirun -n %s --hostfile \"${HOSTFILE:-hosts}\" --map-by ppr:%s:node "
                      "--bind-to none \\\n    rankfit run ",
                      launch_get(settings, "gpus"), node);
    }
    write_word(plan_path, out);
    (void)fputs(" \"$@\"\n", out);
}

char *launch_write(const struct launch_target *target, const struct launch_settings *settings,
                   const char *head, const char *plan_path)
{
    char *text = NULL;
    size_t bytes = 0;
    struct written *written = calloc(1, sizeof *written);
    FILE *out = written ? open_memstream(&text, &bytes) : NULL;
    if (!out) {
        free(written);
        return NULL;
    }
    collect(target, settings, written);
    if (target->form != LAUNCH_TOML)
        (void)fputs("#!/bin/bash\n", out);
    write_comments(head, out);
    if (target->form == LAUNCH_TOML)
        write_toml(written, out);
    else if (target->form == LAUNCH_SCHEDULER)
        write_scheduler(target, settings, plan_path, out);
    else {
        write_starter(target, settings, out);
        write_options(target, written, out);
    }
    free(written);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
