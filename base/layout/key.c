#include "base/layout/key.h"
#include "base/layout/stage_list.h"
#include "base/layout/trained.h"
#include "base/text.h"
#include "base/units.h"

#include <stddef.h>
#include <string.h>

#define LAYOUT_INT(name, low, high, help_text)                                                     \
    {                                                                                              \
#name, KEY_INT, offsetof(struct choices, layout.name), low, high, NULL, 0, true,           \
            help_text, false                                                                       \
    }
#define PRIMITIVE(name, type, low, high, help_text)                                                \
    {                                                                                              \
#name, type, offsetof(struct choices, primitives.name), low, high, NULL, 0, false,         \
            help_text, false                                                                       \
    }
#define PRIMITIVE_NAMED(name, type, names, count, help_text)                                       \
    {                                                                                              \
#name, type, offsetof(struct choices, primitives.name), 0, 0, names, count, false,         \
            help_text, false                                                                       \
    }
/* Those that came after plan files were about. */
#define YOUNGER(name, type, low, high, help_text)                                                  \
    {                                                                                              \
#name, type, offsetof(struct choices, primitives.name), low, high, NULL, 0, false,         \
            help_text, true                                                                        \
    }
#define YOUNGER_NAMED(name, type, names, count, help_text)                                         \
    {                                                                                              \
#name, type, offsetof(struct choices, primitives.name), 0, 0, names, count, false,         \
            help_text, true                                                                        \
    }

enum { ALL = -1, MAX_DEGREE = LAYOUT_MAX_RANKS };

const struct choice_key choice_keys[] = {
    LAYOUT_INT(tp, 1, MAX_DEGREE, "tensor parallel degree of the dense parts"),
    LAYOUT_INT(pp, 1, LAYOUT_MAX_STAGES, "pipeline stages"),
    LAYOUT_INT(vpp, 1, 64, "layer chunks a stage (interleaved schedule)"),
    LAYOUT_INT(cp, 1, MAX_DEGREE, "ranks that share one sequence"),
    LAYOUT_INT(ep, 1, MAX_DEGREE, "ranks that share the experts of a layer"),
    LAYOUT_INT(etp, 1, MAX_DEGREE, "tensor parallel degree inside one expert"),
    LAYOUT_INT(fsdp, 1, MAX_DEGREE, "data-parallel ranks that share one copy of the dense state"),
    LAYOUT_INT(e_fsdp, 1, MAX_DEGREE, "ranks that share one copy of the expert state, beside ep"),
    LAYOUT_INT(micro_batch, 1, 1 << 20, "sequences in one micro-batch of one data-parallel rank"),
    { "stage_layers", KEY_COUNT_LIST, offsetof(struct choices, layout.stage_layers), 1, 4096, NULL,
      0, true, "layers of each pipeline stage, first to last, separated by commas", false },
    PRIMITIVE_NAMED(sharding, KEY_ENUM, sharding_names, SHARDING_COUNT,
                    "what the shard groups split: nothing, master and moments, or all state"),
    PRIMITIVE_NAMED(grad_dtype, KEY_ENUM, dtype_names, DTYPE_COUNT, "dtype of gradients"),
    PRIMITIVE_NAMED(recompute, KEY_ENUM, recompute_names, RECOMPUTE_COUNT,
                    "what the backward computes again"),
    PRIMITIVE(recompute_layers, KEY_INT_OR_ALL, 0, 4096,
              "first N layers of each stage that recompute, or all"),
    PRIMITIVE_NAMED(loss, KEY_ENUM, loss_names, LOSS_COUNT, "how logits and loss are computed"),
    PRIMITIVE_NAMED(logits_dtype, KEY_ENUM, dtype_names, DTYPE_COUNT,
                    "dtype of materialized logits"),
    PRIMITIVE_NAMED(moe, KEY_ENUM, moe_names, MOE_COUNT, "schedule of the expert layers"),
    PRIMITIVE(moe_chunks, KEY_INT, 1, 1024, "token chunks of one expert layer"),
    PRIMITIVE(moe_cap_tokens, KEY_COUNT, 0, (int64_t)1 << 32,
              "tokens a source sends per chunk at most (capped); 0: no cap"),
    PRIMITIVE(wgrad_delay, KEY_INT_OR_ALL, 0, 1024,
              "chunks by which expert weight gradients are put off, or all"),
    PRIMITIVE_NAMED(context, KEY_ENUM, context_names, CONTEXT_COUNT,
                    "how softmax attention shares a sequence"),
    PRIMITIVE_NAMED(linear_context, KEY_ENUM, linear_context_names, LINEAR_CONTEXT_COUNT,
                    "how linear attention shares a sequence"),
    PRIMITIVE(prefetch_units, KEY_INT, 0, 64, "units of weights gathered ahead of use"),
    PRIMITIVE(comm_streams, KEY_INT, 1, 2,
              "1: gathers and reduce-scatters share a stream; 2: each has its own"),
    PRIMITIVE_NAMED(offload, KEY_FLAGS, offload_names, OFFLOAD_COUNT,
                    "what lives in host memory: none, or names separated by commas"),
    PRIMITIVE(sco_host_bytes, KEY_BYTES, 0, INT64_MAX,
              "host memory of a rank for offloaded checkpoints"),
    PRIMITIVE(bucket_params, KEY_COUNT, 1, (int64_t)1 << 40,
              "parameters in one bucket of the offloaded optimizer"),
    PRIMITIVE(slots, KEY_INT, 1, 16, "optimizer buckets on the device at a time"),
    PRIMITIVE(vocab_group, KEY_INT, 1, MAX_DEGREE,
              "ranks that share the vocabulary under ring_dtp; 1: none"),
    PRIMITIVE(vocab_strip, KEY_INT, 0, 1 << 28,
              "vocabulary entries linear_ce visits at a time, each twice; 0: all, in one visit"),
    YOUNGER_NAMED(exchange, KEY_ENUM, exchange_names, EXCHANGE_COUNT,
                  "what moves the rows of an expert exchange: kernels, or the copy engines"),
    YOUNGER(loss_tile_tokens, KEY_INT, 1, 1 << 20,
            "tokens whose logits, or their gradient, linear_ce and full make at a time"),
    YOUNGER(latent_head_block, KEY_INT, 0, 4096,
            "heads whose keys and values are expanded from gathered latents at a time; 0: all"),
    YOUNGER(attention_deterministic, KEY_INT, 0, 1,
            "1: attention's backward sums in one order, the same bits every time"),
    YOUNGER(tokens_per_gpu, KEY_COUNT, 0, (int64_t)1 << 32,
            "tokens of a micro-batch per rank, whose row has this x cp; 0: micro_batch x seq"),
    YOUNGER_NAMED(rl, KEY_FLAGS, rl_names, RL_COUNT,
                  "passes of reinforcement learning beside the step: none, or names separated by "
                  "commas"),
    YOUNGER_NAMED(reference_weights, KEY_ENUM, reference_weights_names, REFERENCE_COUNT,
                  "where the reference model of rl=reference lives between its passes"),
    YOUNGER_NAMED(packing, KEY_ENUM, packing_names, PACKING_COUNT,
                  "how pieces of --lengths are padded: each to 2 x cp, or each to cp x lcm(2, tp)"),
    YOUNGER_NAMED(optimizer, KEY_ENUM, optimizer_names, OPTIMIZER_COUNT,
                  "what updates the matrices of the layers; all else is AdamW's"),
    YOUNGER_NAMED(moments_dtype, KEY_ENUM, dtype_names, DTYPE_COUNT,
                  "dtype of the optimizer's moments"),
    YOUNGER_NAMED(master, KEY_ENUM, master_names, MASTER_COUNT,
                  "master weights: fp32, or none: updates are rounded into the bf16 weights"),
    YOUNGER(lora_rank, KEY_INT, 0, 1 << 16,
            "rank of the low-rank adapters that alone are trained; 0: no adapters"),
    YOUNGER_NAMED(lora_targets, KEY_FLAGS, lora_names, LORA_COUNT,
                  "which matrices have adapters under lora_rank"),
    YOUNGER_NAMED(frozen, KEY_FLAGS, component_names, FREEZABLE_COMPONENTS,
                  "components whose weights are held and not trained: none, or names separated by "
                  "commas"),
    YOUNGER(
        keep_attention, KEY_INT, 0, 1,
        "1: recomputed layers keep attention's outputs, and their replay does not attend again"),
};
const size_t choice_key_count = sizeof choice_keys / sizeof *choice_keys;
_Static_assert(sizeof choice_keys / sizeof *choice_keys <= CHOICE_KEYS_MAX, "one bit a key");
_Static_assert(sizeof(enum sharding) == sizeof(int) && sizeof(enum dtype) == sizeof(int),
               "KEY_ENUM is read and written as an int");

/* One value of any type, outside struct choices. */
union value {
    int number;
    unsigned flags;
    uint64_t size;
    int list[LAYOUT_MAX_STAGES];
};

static size_t value_size(const struct choice_key *key)
{
    switch (key->type) {
    case KEY_BYTES:
    case KEY_COUNT:
        return sizeof(uint64_t);
    case KEY_COUNT_LIST:
        return sizeof(int[LAYOUT_MAX_STAGES]);
    case KEY_INT:
    case KEY_ENUM:
    case KEY_FLAGS:
    case KEY_INT_OR_ALL:
        break;
    }
    return sizeof(int);
}

static void value_read(const struct choices *choices, const struct choice_key *key,
                       union value *ret)
{
    memcpy(ret, (const char *)choices + key->offset, value_size(key));
}

static void value_write(struct choices *choices, const struct choice_key *key,
                        const union value *value)
{
    memcpy((char *)choices + key->offset, value, value_size(key));
}

int choice_key_find(const char *key)
{
    for (size_t i = 0; i < choice_key_count; i++)
        if (!strcmp(choice_keys[i].key, key))
            return (int)i;
    return -1;
}

bool choice_is_fixed(const struct fixed_choices *fixed, const char *key)
{
    int row = choice_key_find(key);
    return fixed && row >= 0 && (fixed->set >> row & 1) != 0;
}

struct pos choice_pos(const struct fixed_choices *fixed, const char *key)
{
    if (!choice_is_fixed(fixed, key))
        return (struct pos){ 0 };
    return fixed->at[choice_key_find(key)];
}

void choices_apply(const struct fixed_choices *fixed, struct choices *ret)
{
    for (size_t i = 0; i < choice_key_count; i++) {
        union value value;
        if (!(fixed->set >> i & 1))
            continue;
        value_read(&fixed->values, &choice_keys[i], &value);
        value_write(ret, &choice_keys[i], &value);
    }
}

/* "a, b or c" */
static void list_names(const struct choice_key *key, char *ret, size_t size)
{
    size_t used = 0;
    ret[0] = '\0';
    text_append_names(ret, size, &used, key->names, (size_t)key->name_count);
}

static int name_index(const struct choice_key *key, const char *text, size_t length)
{
    for (int i = 0; i < key->name_count; i++)
        if (strlen(key->names[i]) == length && !strncmp(key->names[i], text, length))
            return i;
    return -1;
}

static int parse_flags(const struct choice_key *key, const char *text, unsigned *ret)
{
    unsigned flags = 0;

    if (!strcmp(text, "none")) {
        *ret = 0;
        return 0;
    }
    for (const char *part = text;; part++) {
        size_t length = strcspn(part, ",");
        int index = name_index(key, part, length);
        if (index < 0)
            return -1;
        flags |= 1U << index;
        part += length;
        if (!*part)
            break;
    }
    *ret = flags;
    return 0;
}

static int parse_size(const struct choice_key *key, const char *text, uint64_t *ret)
{
    if (!strcmp(text, "0"))
        *ret = 0;
    else if (key->type == KEY_BYTES ? units_parse_bytes(text, ret) : units_parse_tokens(text, ret))
        return -1;
    return *ret < (uint64_t)key->min || *ret > (uint64_t)key->max ? -1 : 0;
}

static int parse_number(const struct choice_key *key, const char *text, int *ret)
{
    int64_t number;
    if (key->type == KEY_INT_OR_ALL && !strcmp(text, "all")) {
        *ret = ALL;
        return 0;
    }
    if (units_parse_int(text, key->min, key->max, &number))
        return -1;
    *ret = (int)number;
    return 0;
}

/* 0, or -1 when the text is no value of the key. */
static int parse_value(const struct choice_key *key, const char *text, union value *ret)
{
    memset(ret, 0, sizeof *ret);
    switch (key->type) {
    case KEY_INT:
    case KEY_INT_OR_ALL:
        return parse_number(key, text, &ret->number);
    case KEY_ENUM:
        ret->number = name_index(key, text, strlen(text));
        return ret->number < 0 ? -1 : 0;
    case KEY_FLAGS:
        return parse_flags(key, text, &ret->flags);
    case KEY_COUNT_LIST:
        return stage_list_parse(text, (int)key->max, ret->list, NULL);
    case KEY_BYTES:
    case KEY_COUNT:
        return parse_size(key, text, &ret->size);
    }
    return -1;
}

void choice_key_values(const struct choice_key *key, char *ret, size_t size)
{
    char names[200];
    size_t used = 0;

    ret[0] = '\0';
    list_names(key, names, sizeof names);
    switch (key->type) {
    case KEY_INT:
        text_append(ret, size, &used, "a whole number from %lld to %lld", (long long)key->min,
                    (long long)key->max);
        break;
    case KEY_INT_OR_ALL:
        text_append(ret, size, &used, "a whole number from %lld to %lld, or all",
                    (long long)key->min, (long long)key->max);
        break;
    case KEY_ENUM:
        text_append(ret, size, &used, "%s", names);
        break;
    case KEY_FLAGS:
        text_append(ret, size, &used, "none, or one or more of %s, with commas between", names);
        break;
    case KEY_COUNT_LIST:
        text_append(
            ret, size, &used,
            "one whole number of at least %lld a stage, as in 12,12,11 or 12*2,11, or a layout "
            "string, as in Et*12|t*12|t*11L",
            (long long)key->min);
        break;
    case KEY_BYTES:
        text_append(ret, size, &used, "a size such as 64GiB or a number of bytes");
        break;
    case KEY_COUNT:
        text_append(ret, size, &used, "a count from %lld to %lld; K and M are 2^10 and 2^20",
                    (long long)key->min, (long long)key->max);
        break;
    }
}

/* What others call a value that is here: names of dtypes, stages of ZeRO. */
static const char *translated(const struct choice_key *key, const char *text)
{
    static const char *const words[][2] = { { "zero0", "replicated" }, { "ddp", "replicated" },
                                            { "zero3", "fsdp" },       { "bfloat16", "bf16" },
                                            { "float32", "fp32" },     { "float", "fp32" } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i][0]) && name_index(key, words[i][1], strlen(words[i][1])) >= 0)
            return words[i][1];
    return NULL;
}

/* The value that may be meant; NULL: none. */
static const char *nearest_value(const struct choice_key *key, const char *text)
{
    const char *ret = NULL;
    if (key->type == KEY_ENUM || key->type == KEY_FLAGS)
        ret = translated(key, text);
    if (!ret && (key->type == KEY_ENUM || (key->type == KEY_FLAGS && !strchr(text, ','))))
        ret = text_nearest(text, key->names, (size_t)key->name_count);
    return ret;
}

static int bad_value(const struct choice_key *key, const char *text, struct pos at,
                     struct diag_list *reterr)
{
    char takes[240], fault[STAGE_FAULT_BYTES] = "";
    const char *near = nearest_value(key, text);
    union value unused;

    choice_key_values(key, takes, sizeof takes);
    if (key->type == KEY_COUNT_LIST)
        (void)stage_list_parse(text, (int)key->max, unused.list, fault);
    diag_error(reterr, at, "%s=%s is not a value of %s%s%s", key->key, text, key->key,
               *fault ? ": " : "", fault);
    if (near)
        return diag_hint(reterr, "did you mean %s? %s takes %s", near, key->key, takes);
    return diag_hint(reterr, "%s takes %s", key->key, takes);
}

static int unknown_key(const char *key, struct pos at, struct diag_list *reterr)
{
    const char *names[CHOICE_KEYS_MAX];
    for (size_t i = 0; i < choice_key_count; i++)
        names[i] = choice_keys[i].key;
    const char *near = text_nearest(key, names, choice_key_count);

    diag_error(reterr, at, "unknown key %s", key);
    if (near)
        return diag_hint(reterr, "did you mean %s?", near);
    return diag_hint(reterr, "`rankfit list keys` shows all keys");
}

int choice_parse(struct choices *choices, int row, const char *text, struct pos at,
                 struct diag_list *reterr)
{
    union value parsed;
    if (parse_value(&choice_keys[row], text, &parsed))
        return bad_value(&choice_keys[row], text, at, reterr);
    value_write(choices, &choice_keys[row], &parsed);
    return 0;
}

int choice_set(struct fixed_choices *fixed, const char *key, const char *value, struct pos at,
               struct diag_list *reterr)
{
    union value parsed, before;
    int row = choice_key_find(key);

    if (row < 0)
        return unknown_key(key, at, reterr);
    const struct choice_key *info = &choice_keys[row];
    if (parse_value(info, value, &parsed))
        return bad_value(info, value, at, reterr);
    if (fixed->set >> row & 1) {
        char first[512];
        value_read(&fixed->values, info, &before);
        if (!memcmp(&before, &parsed, value_size(info)))
            return 0;
        choice_format(&fixed->values, row, first, sizeof first);
        diag_error(reterr, at, "%s is set twice: %s=%s and %s=%s", key, key, first, key, value);
        return diag_hint(reterr, "keep one of the two");
    }
    value_write(&fixed->values, info, &parsed);
    fixed->set |= (uint64_t)1 << row;
    fixed->at[row] = at;
    return 0;
}

static void format_flags(const struct choice_key *key, unsigned flags, char *ret, size_t size)
{
    size_t used = 0;
    if (!flags)
        text_append(ret, size, &used, "none");
    for (int i = 0; i < key->name_count; i++)
        if (flags & 1U << i)
            text_append(ret, size, &used, "%s%s", used ? "," : "", key->names[i]);
}

void choice_format(const struct choices *choices, int row, char *ret, size_t size)
{
    const struct choice_key *key = &choice_keys[row];
    union value value;
    size_t used = 0;

    value_read(choices, key, &value);
    ret[0] = '\0';
    switch (key->type) {
    case KEY_INT:
        text_append(ret, size, &used, "%d", value.number);
        break;
    case KEY_INT_OR_ALL:
        if (value.number == ALL)
            text_append(ret, size, &used, "all");
        else
            text_append(ret, size, &used, "%d", value.number);
        break;
    case KEY_ENUM:
        text_append(ret, size, &used, "%s", key->names[value.number]);
        break;
    case KEY_FLAGS:
        format_flags(key, value.flags, ret, size);
        break;
    case KEY_COUNT_LIST:
        for (int i = 0; i < LAYOUT_MAX_STAGES && value.list[i]; i++)
            text_append(ret, size, &used, "%s%d", i ? "," : "", value.list[i]);
        break;
    case KEY_BYTES:
    case KEY_COUNT:
        text_append(ret, size, &used, "%llu", (unsigned long long)value.size);
        break;
    }
}
