/* match.c - options as settings: for each key the row whose options are all given, the one with
 * most of them first. */
#include "base/text.h"
#include "base/units.h"
#include "planner/launch/read.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_number(const char *a, const char *b)
{
    char *a_end, *b_end;
    double x = strtod(a, &a_end), y = strtod(b, &b_end);
    return a_end != a && b_end != b && !*a_end && !*b_end && x == y;
}

/* Python and YAML write true in several ways. */
static bool same_value(const char *said, const char *row)
{
    if (strcmp(said, row) == 0 || same_number(said, row))
        return true;
    if (strcmp(row, "false") == 0)
        return strcmp(said, "False") == 0;
    return strcmp(row, "true") == 0 && (strcmp(said, "True") == 0 || said[0] == '\0');
}

static bool is_off(const char *value)
{
    static const char *const words[] = { "false", "False", "null", "None", "none" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], value) == 0)
            return true;
    return false;
}

/* The last one counts, as in the engines' own parsers. */
static struct launch_said *find(struct launch_file *file, const char *name, size_t length)
{
    for (size_t i = file->said_count; i-- > 0;)
        if (strncmp(file->said[i].name, name, length) == 0 && !file->said[i].name[length])
            return &file->said[i];
    return NULL;
}

/* The option of `says` as given; NULL: it is absent or has another value. */
static struct launch_said *said_of(struct launch_file *file, const char *says)
{
    size_t length = strcspn(says, "=");
    struct launch_said *said = find(file, says, length);
    if (!said)
        return NULL;
    if (!says[length])
        return is_off(said->value) ? NULL : said;
    if (says[length + 1] == '#')
        return is_off(said->value) ? NULL : said;
    return same_value(said->value, says + length + 1) ? said : NULL;
}

/* How many options of a row are given, all of them; -1 where one is missing. */
static int matched(struct launch_file *file, const struct launch_row *row)
{
    int count = 0;
    for (; count < LAUNCH_SAYS && row->says[count]; count++)
        if (!said_of(file, row->says[count]))
            return -1;
    return count;
}

/* A row with `instead` states only that something is missing; nothing that is said means it. */
static const struct launch_row *best_row(struct launch_file *file, const char *key)
{
    const struct launch_row *row, *best = NULL;
    int most = -1;
    for (size_t i = 0; (row = launch_row_at(file->target, i)); i++) {
        int count = strcmp(row->key, key) == 0 && !row->instead ? matched(file, row) : -1;
        if (count > most && (count > 0 || row->value)) {
            most = count;
            best = row;
        }
    }
    return best;
}

/* The first time that a key stands in the table. */
static bool is_first(const struct launch_target *target, const struct launch_row *of)
{
    const struct launch_row *row;
    for (size_t i = 0; (row = launch_row_at(target, i)); i++)
        if (strcmp(row->key, of->key) == 0)
            return row == of;
    return false;
}

static int put_key(struct launch_file *file, const char *key, struct diag_list *reterr)
{
    const struct launch_row *row = best_row(file, key);
    const char *value = row ? row->value : NULL;
    struct pos at = file->at;
    if (!row)
        return 0;
    for (int s = 0; s < LAUNCH_SAYS && row->says[s]; s++) {
        const struct launch_said *said = said_of(file, row->says[s]);
        if (strchr(row->says[s], '#')) {
            value = said->value;
            at = said->at;
        } else if (s == 0) {
            at = said->at;
        }
    }
    return value && value[0] ? launch_put(&file->settings, key, value, at, reterr) : 0;
}

/* "@tp" takes the value of tp, once all keys are there. */
static void resolve_references(struct launch_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++)
        if (settings->items[i].value[0] == '@') {
            const char *value = launch_get(settings, settings->items[i].value + 1);
            settings->items[i].value = value ? value : "1";
        }
}

/* An option that some row has. */
static void mark_matched(struct launch_file *file)
{
    const struct launch_row *row;
    for (size_t i = 0; (row = launch_row_at(file->target, i)); i++)
        for (int s = 0; s < LAUNCH_SAYS && row->says[s]; s++)
            for (size_t n = 0; n < file->said_count; n++) {
                size_t length = strcspn(row->says[s], "=");
                struct launch_said *said = &file->said[n];
                if (strncmp(said->name, row->says[s], length) == 0 && !said->name[length])
                    said->matched = true;
            }
}

static bool is_listed(const char *const *words, const char *name)
{
    for (const char *const *word = words; word && *word; word++) {
        size_t length = strlen(*word);
        if ((*word)[length - 1] == '*' ? strncmp(*word, name, length - 1) == 0
                                       : strcmp(*word, name) == 0)
            return true;
    }
    return false;
}

static bool is_neutral(const struct launch_target *target, const char *name)
{
    return is_listed(target->neutral, name) || is_listed(target->more_neutral, name);
}

static const char *effect_in(const char *const *words, const char *name)
{
    for (const char *const *word = words; word && *word; word += 2)
        if (strcmp(word[0], name) == 0)
            return word[1];
    return NULL;
}

static const char *unjudged(const struct launch_target *target, const char *name)
{
    const char *effect = effect_in(target->unjudged, name);
    return effect ? effect : effect_in(target->more_unjudged, name);
}

static void sort_out(struct launch_file *file)
{
    for (size_t i = 0; i < file->said_count; i++) {
        const struct launch_said *said = &file->said[i];
        const char *effect = unjudged(file->target, said->name);
        if (effect && !is_off(said->value) && file->note_count < LAUNCH_NOTES_MAX)
            file->notes[file->note_count++] =
                (struct launch_note){ said->written, effect, said->at };
        else if (!said->matched && is_neutral(file->target, said->name))
            file->neutral_count++;
        else if (!said->matched && !effect)
            file->unknown[file->unknown_count++] = said;
    }
}

/* "NAME", "NAME=VALUE", "NAME>N"; "!" in front negates. *ret_at: where it is said. */
static bool holds(struct launch_file *file, const char *condition, struct pos *ret_at)
{
    bool negated = condition[0] == '!', ret = false;
    condition += negated;
    size_t length = strcspn(condition, "=>");
    const struct launch_said *said = find(file, condition, length);
    if (said && !is_off(said->value)) {
        const char *value = condition[length] ? condition + length + 1 : NULL;
        ret = !value                     ? true
              : condition[length] == '>' ? atof(said->value) > atof(value)
                                         : same_value(said->value, value);
        if (ret && !negated)
            *ret_at = said->at;
    }
    return ret != negated;
}

static void check_clashes(struct launch_file *file)
{
    enum { MOST = sizeof file->clashes / sizeof *file->clashes };
    for (const struct launch_clash *clash = file->target->clashes; clash && clash->why; clash++) {
        bool all = true;
        struct pos at = file->at;
        for (int i = 0; i < 3 && clash->when[i]; i++)
            all = all && holds(file, clash->when[i], &at);
        if (all && file->clash_count < MOST) {
            file->clashes[file->clash_count] = clash;
            file->clash_at[file->clash_count++] = at;
        }
    }
}

/* The same option twice with different values: the engine takes the last. */
static void note_repeats(struct launch_file *file)
{
    for (size_t i = 0; i < file->said_count; i++)
        for (size_t j = i + 1; j < file->said_count; j++) {
            const struct launch_said *first = &file->said[i], *second = &file->said[j];
            if (strcmp(first->name, second->name) != 0 || strcmp(first->value, second->value) == 0)
                continue;
            const char *text =
                pool_printf(&file->pool, "given as %s and as %s: the last one counts", first->value,
                            second->value);
            if (text && file->note_count < LAUNCH_NOTES_MAX)
                file->notes[file->note_count++] =
                    (struct launch_note){ second->written, text, second->at };
        }
}

static int put_gpus(struct launch_file *file, struct diag_list *reterr)
{
    char text[32];
    int gpus = file->gpus;
    if (gpus == 0 && file->node_gpus > 0)
        gpus = file->node_gpus * (file->nodes > 0 ? file->nodes : 1);
    if (gpus == 0)
        return 0;
    (void)snprintf(text, sizeof text, "%d", gpus);
    return launch_put(&file->settings, "gpus", text, file->at, reterr);
}

int launch_match(struct launch_file *file, struct diag_list *reterr)
{
    const struct launch_row *row;
    for (size_t i = 0; (row = launch_row_at(file->target, i)); i++)
        if (is_first(file->target, row) && put_key(file, row->key, reterr) != 0)
            return -1;
    resolve_references(&file->settings);
    mark_matched(file);
    note_repeats(file);
    sort_out(file);
    check_clashes(file);
    return put_gpus(file, reterr);
}

static int put_product(struct launch_settings *settings, const char *key, int64_t value,
                       struct pos at, struct diag_list *reterr)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    return launch_put(settings, key, text, at, reterr);
}

static void drop(struct launch_settings *settings, const char *key)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0) {
            settings->items[i] = settings->items[--settings->count];
            return;
        }
}

static struct pos place(const struct launch_settings *settings, const char *key)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0)
            return settings->items[i].at;
    return (struct pos){ 0 };
}

/* Layers per chunk, and layers of the first and last stage, as vpp and stage_layers. */
static int complete_stages(struct launch_settings *settings, int layers, struct diag_list *reterr)
{
    int pp = launch_number(settings, "pp", 1), chunk = launch_number(settings, "chunk_layers", 0);
    int first = launch_number(settings, "first_layers", 0);
    int last = launch_number(settings, "last_layers", 0);
    int inner = pp - (first > 0) - (last > 0), rest = layers - first - last;
    char text[4 * LAYOUT_MAX_STAGES] = "";
    size_t used = 0;
    if (layers > 0 && chunk > 0 && pp > 0 && layers % (pp * chunk) == 0 &&
        put_product(settings, "vpp", layers / (pp * chunk), place(settings, "chunk_layers"),
                    reterr) != 0)
        return -1;
    if (first + last == 0 || pp > LAYOUT_MAX_STAGES || inner < 1 || rest < inner ||
        rest % inner != 0)
        return 0;
    for (int stage = 0; stage < pp; stage++) {
        bool is_first = stage == 0 && first > 0, is_last = stage == pp - 1 && last > 0;
        text_append(text, sizeof text, &used, "%s%d", stage > 0 ? "," : "",
                    is_first  ? first
                    : is_last ? last
                              : rest / inner);
    }
    return launch_put(settings, "stage_layers", text,
                      place(settings, first > 0 ? "first_layers" : "last_layers"), reterr);
}

/* Data-parallel ranks, of known numbers; 0: they do not divide the world. */
static int data_parallel(const struct launch_settings *settings)
{
    int64_t model_ranks = (int64_t)launch_number(settings, "pp", 1) *
                          launch_number(settings, "tp", 1) * launch_number(settings, "cp", 1);
    int gpus = launch_number(settings, "gpus", 0);
    return model_ranks > 0 && gpus % model_ranks == 0 ? (int)(gpus / model_ranks) : 0;
}

/* Prompt and response of post-training share a sequence; a mini-batch counts prompts. */
static int complete_samples(struct launch_settings *settings, struct diag_list *reterr)
{
    int prompt = launch_number(settings, "prompt", 0), n = launch_number(settings, "responses", 1);
    const char *key = launch_get(settings, "seq") ? "seq" : "response";
    int tokens = launch_number(settings, key, 0),
        batch = launch_number(settings, "global_batch", 0);
    struct pos at = place(settings, key);
    drop(settings, "prompt");
    drop(settings, "responses");
    /* A micro-batch of a number of tokens is one row. */
    if (launch_number(settings, "tokens_per_gpu", 0) > 0 &&
        put_product(settings, "micro_batch", 1, place(settings, "tokens_per_gpu"), reterr) != 0)
        return -1;
    if (tokens > 0 && (prompt > 0 || strcmp(key, "response") == 0) &&
        put_product(settings, "seq", (int64_t)tokens + prompt, at, reterr) != 0)
        return -1;
    drop(settings, "response");
    return n > 1 && batch > 0 ? put_product(settings, "global_batch", (int64_t)batch * n,
                                            place(settings, "global_batch"), reterr)
                              : 0;
}

/* torchtitan's shard degree, -1 for the rest, and batches per data-parallel rank. */
static int complete_torchtitan(struct launch_settings *settings, struct diag_list *reterr)
{
    int shards = launch_number(settings, "fsdp", 0), copies = launch_number(settings, "d_rep", 1);
    int64_t product = (int64_t)launch_number(settings, "pp", 1) * launch_number(settings, "tp", 1) *
                      launch_number(settings, "cp", 1) * copies * shards;
    const char *local = launch_get(settings, "local_batch");
    if (!launch_get(settings, "gpus") && shards > 0 && product <= LAYOUT_MAX_RANKS &&
        put_product(settings, "gpus", product, place(settings, "fsdp"), reterr) != 0)
        return -1;
    if (!local)
        return 0;
    bool stages = launch_number(settings, "pp", 1) > 1;
    const char *micro = stages ? launch_get(settings, "stage_micro_batch") : local;
    if (launch_put(settings, "micro_batch", micro ? micro : "1",
                   place(settings, stages ? "stage_micro_batch" : "local_batch"), reterr) != 0)
        return -1;
    int64_t batch = (int64_t)launch_number(settings, "local_batch", 1) * data_parallel(settings);
    const char *global = launch_get(settings, "global_batch");
    bool given = global && strcmp(global, "-1") != 0;
    return given || batch == 0 ? 0
                               : put_product(settings, "global_batch", batch,
                                             place(settings, "local_batch"), reterr);
}

int launch_complete(struct launch_settings *settings, int layers, struct diag_list *reterr)
{
    if (complete_samples(settings, reterr) != 0 || complete_stages(settings, layers, reterr) != 0 ||
        complete_torchtitan(settings, reterr) != 0)
        return -1;
    const char *global = launch_get(settings, "global_batch");
    if (global && strcmp(global, "-1") == 0)
        drop(settings, "global_batch");
    int64_t batch = (int64_t)launch_number(settings, "micro_batch", 1) * data_parallel(settings);
    if (launch_get(settings, "global_batch") || batch == 0)
        return 0;
    return put_product(settings, "global_batch", batch, place(settings, "micro_batch"), reterr);
}
