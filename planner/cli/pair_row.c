#include "planner/cli/pair_row.h"

#include "base/text.h"
#include "planner/cli/glossary.h"

#include <stdio.h>
#include <string.h>

/* What agrees: a replayed layer is the same arithmetic again. Shards, tiles and runs of tokens
 * change the order in which fp32 gradients are summed. Strips, gathered keys and bf16 sums round
 * differently. */
const struct pair_row pair_rows[] = {
    { "loss", "loss", "full", "linear_ce", AGREE_ORDERED, false, { { 0 } }, { { 0 } } },
    { "loss",
      "vocab_strip",
      "0",
      "128",
      AGREE_ROUNDED,
      false,
      { { "loss", "linear_ce" } },
      { { "loss", "linear_ce" } } },
    { "loss",
      "logits_dtype",
      "fp32",
      "bf16",
      AGREE_ROUNDED,
      false,
      { { "loss", "full" } },
      { { "loss", "full" } } },
    { "loss",
      "loss_tile_tokens",
      "512",
      "128",
      AGREE_ORDERED,
      false,
      { { "loss", "linear_ce" } },
      { { "loss", "linear_ce" } } },
    { "moe",
      "moe",
      "plain",
      "chunked",
      AGREE_ORDERED,
      false,
      { { "moe_chunks", "2" } },
      { { "moe_chunks", "1" }, { "wgrad_delay", "0" } } },
    { "moe",
      "moe_chunks",
      "1",
      "4",
      AGREE_ORDERED,
      false,
      { { "moe", "chunked" } },
      { { "moe", "plain" }, { "wgrad_delay", "0" } } },
    { "moe",
      "wgrad_delay",
      "0",
      "1",
      AGREE_ORDERED,
      false,
      { { "moe", "chunked" }, { "moe_chunks", "4" } },
      { { "moe", "chunked" } } },
    { "moe", "ep", "1", "2", AGREE_ORDERED, true, { { 0 } }, { { 0 } } },
    { "recompute",
      "recompute",
      "none",
      "full",
      AGREE_EXACT,
      false,
      { { "recompute_layers", "all" } },
      { { "recompute_layers", "all" } } },
    { "recompute",
      "recompute_layers",
      "all",
      "1",
      AGREE_EXACT,
      false,
      { { "recompute", "full" } },
      { { "recompute", "full" } } },
    { "recompute",
      "keep_attention",
      "0",
      "1",
      AGREE_EXACT,
      false,
      { { "recompute", "full" } },
      { { "recompute", "full" } } },
    { "state", "sharding", "replicated", "fsdp", AGREE_ORDERED, false, { { 0 } }, { { 0 } } },
    { "state", "grad_dtype", "fp32", "bf16", AGREE_ROUNDED, false, { { 0 } }, { { 0 } } },
    { "state",
      "prefetch_units",
      "0",
      "1",
      AGREE_EXACT,
      false,
      { { "sharding", "fsdp" } },
      { { "sharding", "fsdp" } } },
    { "state",
      "comm_streams",
      "1",
      "2",
      AGREE_EXACT,
      false,
      { { "sharding", "fsdp" } },
      { { "sharding", "fsdp" } } },
    { "context",
      "context",
      "none",
      "allgather_kv",
      AGREE_ROUNDED,
      true,
      { { "cp", "2" } },
      { { "cp", "1" } } },
    { "context", "attention_deterministic", "0", "1", AGREE_ROUNDED, false, { { 0 } }, { { 0 } } },
    { "optimizer", "offload", "none", "optimizer", AGREE_EXACT, false, { { 0 } }, { { 0 } } },
};
const size_t pair_row_count = sizeof pair_rows / sizeof *pair_rows;

const struct pair_row *pair_row_find(const char *key, size_t length)
{
    for (size_t i = 0; i < pair_row_count; i++)
        if (strlen(pair_rows[i].key) == length && strncmp(pair_rows[i].key, key, length) == 0)
            return &pair_rows[i];
    return NULL;
}

enum { MAX_NAMES = 64, NAME_BYTES = 48 };

struct names {
    size_t count;
    char text[MAX_NAMES][NAME_BYTES];
};

static void add_name(struct names *names, const char *key, const char *value)
{
    if (names->count < MAX_NAMES)
        (void)snprintf(names->text[names->count++], NAME_BYTES, "%s=%s", key, value);
}

/* Every value that the glossary has of a key with a pair, and both values of each row. */
static void fill_names(struct names *ret)
{
    ret->count = 0;
    for (size_t i = 0; i < pair_row_count; i++) {
        add_name(ret, pair_rows[i].key, pair_rows[i].other);
        add_name(ret, pair_rows[i].key, pair_rows[i].reference);
    }
    for (size_t i = 0; i < primitive_info_count; i++)
        if (pair_row_find(primitive_infos[i].key, strlen(primitive_infos[i].key)))
            add_name(ret, primitive_infos[i].key, primitive_infos[i].value);
}

static void unknown(const char *name, struct diag_list *reterr)
{
    struct names names;
    const char *list[MAX_NAMES];
    char keys[256] = "";
    size_t used = 0;

    fill_names(&names);
    for (size_t i = 0; i < names.count; i++)
        list[i] = names.text[i];
    for (size_t i = 0; i < pair_row_count; i++)
        text_append(keys, sizeof keys, &used, "%s%s", i ? ", " : "", pair_rows[i].key);
    const char *nearest = text_nearest(name, list, names.count);
    diag_error(reterr, (struct pos){ 0 }, "'%s' has no pair", name);
    if (nearest)
        diag_hint(reterr, "did you mean %s? pairs are KEY=VALUE with one of: %s", nearest, keys);
    else
        diag_hint(reterr, "pairs are KEY=VALUE with one of: %s", keys);
}

const struct pair_row *pair_row_of(const char *name, const char **ret_value,
                                   struct diag_list *reterr)
{
    size_t length = strcspn(name, "=");
    const struct pair_row *row = pair_row_find(name, length);

    if (row && name[length] == '=' && name[length + 1]) {
        *ret_value = name + length + 1;
        return row;
    }
    unknown(name, reterr);
    return NULL;
}
