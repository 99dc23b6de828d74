/* exact.c - a layout as it was spelled out: every degree that was not named is 1, every primitive
 * off; and, where that was not asked for, the keys whose values are a choice of the planner. */
#include "planner/derive/derive.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* The plain value of a key, and the key that decides it when that was named instead; NULL: none. */
struct plain {
    const char *key, *value, *unless;
};

static const struct plain plain_values[] = {
    { "tp", "1", NULL },
    { "pp", "1", "stage_layers" },
    { "vpp", "1", NULL },
    { "cp", "1", NULL },
    { "ep", "1", NULL },
    { "etp", "1", NULL },
    { "sharding", "replicated", NULL },
    { "recompute", "full", NULL }, /* see plain_recompute */
    { "keep_attention", "0", NULL },
    { "loss", "full", "vocab_group" },
    { "moe", "plain", "moe_chunks" },
    { "moe_chunks", "1", "moe" },
    { "prefetch_units", "1", NULL }, /* these two where the sharding has them */
    { "comm_streams", "1", NULL },
    { "exchange", "sm", NULL },
    { "offload", "none", NULL },
    { "loss_tile_tokens", "512", NULL },
};

static void fix(struct fixed_choices *fixed, const char *key, const char *value)
{
    struct diag_list ignored = { .count = 0 };
    if (!choice_is_fixed(fixed, key))
        (void)choice_set(fixed, key, value, (struct pos){ 0 }, &ignored);
}

static void fix_width(struct fixed_choices *fixed, const char *key, int gpus, int ranks)
{
    char text[16];
    if (ranks < 1 || gpus % ranks != 0)
        return; /* legality names the fault */
    (void)snprintf(text, sizeof text, "%d", gpus / ranks);
    fix(fixed, key, text);
}

/* None, unless a key was named that only full recompute has. */
static const char *plain_recompute(const struct fixed_choices *fixed)
{
    bool full =
        choice_is_fixed(fixed, "recompute_layers") || choice_is_fixed(fixed, "keep_attention");
    return full ? "full" : "none";
}

static bool needs_sharding(const char *key)
{
    return !strcmp(key, "prefetch_units") || !strcmp(key, "comm_streams");
}

void question_fix_exactly(struct question *q)
{
    struct fixed_choices *fixed = &q->fixed;
    const struct fixed_choices named = *fixed;
    const struct layout *l = &fixed->values.layout;
    bool sharded =
        choice_is_fixed(&named, "sharding") && named.values.primitives.sharding == SHARDING_FSDP;
    for (size_t i = 0; i < sizeof plain_values / sizeof *plain_values; i++) {
        const struct plain *p = &plain_values[i];
        const char *value = strcmp(p->key, "recompute") ? p->value : plain_recompute(&named);
        bool has = sharded || !needs_sharding(p->key);
        if (has && (!p->unless || !choice_is_fixed(&named, p->unless)))
            fix(fixed, p->key, value);
    }
    if (choice_is_fixed(fixed, "pp")) {
        fix_width(fixed, "fsdp", q->gpus, l->tp * l->pp * l->cp);
        fix_width(fixed, "e_fsdp", q->gpus, l->etp * l->ep * l->pp);
    }
    if (l->cp > 1)
        fix(fixed, "context", "allgather_kv");
}

void question_list_chosen(const struct question *q, const struct choices *choices, char *ret,
                          size_t size)
{
    const struct primitives *p = &choices->primitives;
    size_t used = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < sizeof plain_values / sizeof *plain_values; i++) {
        const char *key = plain_values[i].key;
        char value[64];
        int row = choice_key_find(key);
        if (row < 0 || choice_is_fixed(&q->fixed, key) || !strcmp(key, "loss_tile_tokens") ||
            (!strcmp(key, "prefetch_units") && p->sharding != SHARDING_FSDP) ||
            (!strcmp(key, "comm_streams") && p->sharding < SHARDING_ZERO2))
            continue;
        choice_format(choices, row, value, sizeof value);
        const char *plain = strcmp(key, "recompute") ? plain_values[i].value : "none";
        if (strcmp(value, plain) != 0)
            text_append(ret, size, &used, "%s%s=%s", used > 0 ? " " : "", key, value);
    }
}
