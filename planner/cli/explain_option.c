/* explain_option.c - explain for options of other engines: the key that each is, from the tables
 * that export and check use. */
#include "base/layout/key.h"
#include "base/text.h"
#include "planner/cli/explain.h"
#include "planner/launch/launch.h"

#include <string.h>

enum { TEXT_BYTES = 512 };

/* Hyphens are as good as underscores; a section in front may be left out. */
static bool same_name(const char *option, size_t length, const char *name)
{
    const char *dot = memchr(option, '.', length);
    size_t i = 0;
    for (; i < length && name[i]; i++) {
        char a = option[i] == '-' ? '_' : option[i], b = name[i] == '-' ? '_' : name[i];
        if (a != b)
            break;
    }
    if (i == length && !name[i])
        return true;
    return dot && same_name(dot + 1, length - (size_t)(dot + 1 - option), name);
}

static bool has_name(const struct launch_row *row, const char *name)
{
    name += strspn(name, "-");
    for (int s = 0; s < LAUNCH_SAYS && row->says[s]; s++)
        if (same_name(row->says[s], strcspn(row->says[s], "="), name))
            return true;
    return false;
}

/* Keys of --set, and facts that options of rankfit state. */
static const char *meaning_of(const char *key)
{
    static const char *const others[][2] = {
        { "seq", "sequence length: --seq" },
        { "global_batch", "sequences of one step: --global-batch" },
        { "local_batch", "sequences per data-parallel rank: micro_batch, with pp above 1 all "
                         "micro-batches" },
        { "d_rep", "copies of the sharded state: dp / fsdp" },
        { "chunk_layers", "layers per chunk: vpp is layers / (pp x this)" },
        { "first_layers", "layers of the first stage: stage_layers" },
        { "last_layers", "layers of the last stage: stage_layers" },
    };
    int row = choice_key_find(key);
    if (row >= 0)
        return choice_keys[row].help;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i][0], key) == 0)
            return others[i][1];
    return NULL;
}

/* "sharding=zero1", or "tp" where any value is the same number. */
static void append_key(const struct launch_row *row, char *text, size_t *used)
{
    char word[96];
    size_t length = 0;
    word[0] = '\0';
    text_append(word, sizeof word, &length, "%s%s%s", row->key, row->value ? "=" : "",
                row->value ? row->value : "");
    const char *at = strstr(text, word);
    size_t bytes = strlen(word);
    if (at && (!at[bytes] || at[bytes] == ','))
        return;
    text_append(text, TEXT_BYTES, used, "%s%s", *used > 0 ? ", " : "", word);
}

bool explain_option(const char *name, const struct prediction *prediction, struct json *ret)
{
    char keys[TEXT_BYTES] = "", engines[TEXT_BYTES] = "";
    size_t keys_used = 0, engines_used = 0;
    const char *meaning = NULL;
    (void)prediction;
    for (size_t t = 0; t < launch_target_count; t++) {
        const struct launch_row *row;
        bool here = false;
        for (size_t i = 0; (row = launch_row_at(&launch_targets[t], i)); i++) {
            if (!meaning_of(row->key) || !has_name(row, name))
                continue;
            append_key(row, keys, &keys_used);
            meaning = meaning ? meaning : meaning_of(row->key);
            here = true;
        }
        if (here)
            text_append(engines, sizeof engines, &engines_used, "%s%s",
                        engines_used > 0 ? ", " : "", launch_targets[t].name);
    }
    if (!meaning)
        return false;
    json_put_text(ret, "kind", "option");
    json_put_text(ret, "name", name);
    json_put_text(ret, "meaning", meaning);
    json_put_text(ret, "here", keys);
    json_put_text(ret, "engines", engines);
    return true;
}

/* Spellings that hints suggest: those of the first targets. */
const char *explain_option_name(size_t index)
{
    for (size_t t = 0; t < launch_target_count; t++) {
        const struct launch_row *row;
        for (size_t i = 0; (row = launch_row_at(&launch_targets[t], i)); i++)
            if (meaning_of(row->key) && row->says[0] && !strchr(row->says[0], '=') && index-- == 0)
                return row->says[0];
    }
    return NULL;
}
