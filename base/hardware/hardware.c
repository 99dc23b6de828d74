#include "base/hardware/hardware.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BYTE_RATE "bytes/s"
#define FLOP_RATE "FLOP/s"
#define FRACTION "fraction"
#define SECONDS "s"
#define BYTES "bytes"

#define ROW(key, type, min, max, required, unit, meaning)                                          \
    {                                                                                              \
#key, type, offsetof(struct hardware, key), min, max, required, unit, meaning, false,      \
            false                                                                                  \
    }
#define FINE(key, min, max, unit, meaning)                                                         \
    {                                                                                              \
#key, HARDWARE_REAL, offsetof(struct hardware, key), min, max, false, unit, meaning, true, \
            false                                                                                  \
    }
#define RATE(key, required, meaning)                                                               \
    ROW(key, HARDWARE_REAL, 1e8, 1e14, required, BYTE_RATE, meaning)
/* Times are divided by these. */
#define SHARE(key, meaning) ROW(key, HARDWARE_REAL, 0.001, 1.0, true, FRACTION, meaning)
#define HELD(key, required, meaning)                                                               \
    {                                                                                              \
#key, HARDWARE_BYTES, offsetof(struct hardware, key), 0.0, 68719476736.0, required, BYTES, \
            meaning, false, true                                                                   \
    }

const struct hardware_key hardware_keys[] = {
    ROW(name, HARDWARE_TEXT, 0, 0, true, NULL, "what --hardware calls it"),
    ROW(gpu, HARDWARE_TEXT, 0, 0, true, NULL, "the part's own name"),
    ROW(host, HARDWARE_BOOL, 0, 0, false, NULL, "ranks are processes that share one memory"),
    ROW(memory_bytes, HARDWARE_BYTES, 268435456.0, 17592186044416.0, true, BYTES,
        "memory that the device gives a program (cudaMemGetInfo's total)"),
    RATE(memory_bytes_per_second, true, "device memory, read plus written"),
    ROW(bf16_flops_per_second, HARDWARE_REAL, 1e9, 2e16, true, FLOP_RATE, "dense bf16 peak"),
    ROW(cores, HARDWARE_INT, 0, 65536, false, "cores", "processor cores that host ranks share"),
    ROW(gpus_per_node, HARDWARE_INT, 1, 1024, true, "GPUs", "GPUs of one host"),
    ROW(domain_gpus, HARDWARE_INT, 1, 1024, true, "GPUs",
        "GPUs that reach each other at link speed"),
    RATE(link_bytes_per_second, true, "inside the domain, one direction, a GPU"),
    RATE(peer_link_bytes_per_second, false,
         "to one peer of the domain, where links join pairs and no switch does"),
    RATE(network_bytes_per_second, true, "between domains, one direction, a GPU"),
    RATE(host_link_bytes_per_second, true, "to or from pinned host memory, one direction, a GPU"),
    ROW(host_memory_bytes, HARDWARE_BYTES, 268435456.0, 281474976710656.0, true, BYTES,
        "host memory of a node"),
    SHARE(gemm_efficiency, "dense matmuls of at least 8192 rows, of the bf16 peak"),
    SHARE(expert_gemm_efficiency, "grouped matmuls at 512 rows an expert or more"),
    SHARE(attention_forward_efficiency, "causal attention forward, half the square counted"),
    SHARE(attention_backward_efficiency, "the same backward, at 2.5 x the forward's FLOPs"),
    SHARE(memory_efficiency, "elementwise kernels, of the memory's rate"),
    SHARE(gather_efficiency, "all-gather and reduce-scatter, of the link"),
    SHARE(exchange_efficiency, "all-to-all, of the link"),
    SHARE(network_efficiency, "collectives across domains, of the network"),
    ROW(collective_latency_seconds, HARDWARE_REAL, 0.0, 0.01, true, SECONDS,
        "least time of one collective"),
    ROW(launch_seconds, HARDWARE_REAL, 0.0, 0.001, true, SECONDS, "host cost of one kernel"),
    ROW(exchange_overlap, HARDWARE_REAL, 0.0, 1.0, false, FRACTION,
        "share of a chunked exchange that hides behind expert matmuls"),
    ROW(delta_rule_seconds_per_token, HARDWARE_REAL, 0.0, 0.1, false, SECONDS,
        "delta rule forward, a token of one layer of 32 value heads x 128 x 128"),
    HELD(context_bytes, true, "the driver's context of a process"),
    HELD(modules_bytes, false, "loaded kernels"),
    HELD(library_bytes, false, "library handles and what they keep"),
    ROW(workspace_bytes, HARDWARE_BYTES, 0.0, 68719476736.0, false, BYTES,
        "scratch of the matmul library, inside the arena"),
    HELD(communicator_first_bytes, true,
         "the first communicator of a process, without its channel buffers"),
    HELD(exchange_first_bytes, false,
         "what the first exchange of the first communicator adds once"),
    HELD(communicator_next_bytes, true, "each further communicator, without channel buffers"),
    HELD(channel_bytes, true, "buffers of one ring channel"),
    ROW(ring_channels, HARDWARE_INT, 0, 64, true, "channels", "channels of a ring collective"),
    HELD(exchange_peer_bytes, true, "buffers for each peer of a communicator that exchanges"),
    FINE(gemm_call_seconds, 0, 0.01, SECONDS, "a dense matmul, beside its FLOPs and bytes"),
    FINE(gemm_traffic_share, 0, 8, FRACTION,
         "of a dense matmul's operands at the memory's rate, beside its FLOPs"),
    FINE(expert_gemm_call_seconds, 0, 0.01, SECONDS,
         "one expert's matmul, beside its FLOPs and bytes"),
    FINE(expert_gemm_traffic_share, 0, 8, FRACTION,
         "of the experts' operands at the memory's rate, beside their FLOPs"),
    FINE(attention_head64_factor, 0.05, 4, FRACTION, "attention forward, head dim 64 over 128"),
    FINE(attention_head256_factor, 0.05, 4, FRACTION, "attention forward, head dim 256 over 128"),
    FINE(attention_backward_head64_factor, 0.05, 4, FRACTION,
         "attention backward, head dim 64 over 128"),
    FINE(attention_backward_head256_factor, 0.05, 4, FRACTION,
         "attention backward, head dim 256 over 128"),
    FINE(attention_half_tokens, 0, 65536, "tokens",
         "sequence at which attention reaches half of its efficiency"),
    FINE(attention_fade_tokens, 1024, 1e9, "tokens",
         "keys at which attention forward would be half as fast; the loss ends at 131072"),
    FINE(sustained_share, 0.3, 1, FRACTION,
         "of the FLOP rates of short runs, what power and heat leave of them through a step"),
    FINE(delta_chain_share, 0, 1, FRACTION,
         "share of the delta rule's time with 32 heads that fewer heads do not shorten"),
    FINE(delta_backward_factor, 0.5, 20, FRACTION, "delta rule backward over forward"),
    FINE(delta_backward_chain_share, 0, 1, FRACTION,
         "share of its backward with 32 heads that fewer heads do not shorten"),
    FINE(gemm_launch_seconds, 0, 0.001, SECONDS, "host cost of one matmul"),
    FINE(elementwise_call_seconds, 0, 0.01, SECONDS, "an elementwise kernel, beside its bytes"),
    FINE(optimizer_efficiency, 0.01, 1, FRACTION, "AdamW's passes, of the memory's rate"),
    FINE(scatter_efficiency, 0.01, 1, FRACTION, "reduce-scatter, of the link"),
    FINE(gather_contention, 0, 1, FRACTION,
         "of a gather or reduce-scatter that hides, what the computation beside it loses"),
    FINE(exchange_latency_seconds, 0, 0.01, SECONDS, "least time of one all-to-all"),
    FINE(host_link_both_bytes_per_second, 1e8, 1e14, BYTE_RATE,
         "to and from pinned host memory at once, each direction, a GPU"),
    FINE(copy_exchange_efficiency, 0.01, 1, FRACTION,
         "all-to-all on the copy engines, of the link"),
    FINE(copy_exchange_overlap, 0.01, 1, FRACTION,
         "share of a chunked exchange on the copy engines that hides behind expert matmuls"),
    { "copy_exchange_bytes", HARDWARE_BYTES, offsetof(struct hardware, copy_exchange_bytes), 0,
      68719476736.0, false, BYTES, "what an exchange on the copy engines takes of the device", true,
      false },
    { "held_assumed", HARDWARE_BOOL, offsetof(struct hardware, held_assumed), 0, 0, false, NULL,
      "context, libraries and communicators were measured on another part", true, false },
};
const size_t hardware_key_count = sizeof hardware_keys / sizeof *hardware_keys;

static void *field(struct hardware *hardware, const struct hardware_key *key)
{
    return (char *)hardware + key->offset;
}

static const void *field_of(const struct hardware *hardware, const struct hardware_key *key)
{
    return (const char *)hardware + key->offset;
}

static bool in_range(const struct hardware_key *key, double value)
{
    return value >= key->min && value <= key->max;
}

/* The usual slip behind a number that is out of range: a unit's prefix. NULL: no idea. */
static const char *likely_cause(const struct hardware_key *key, double value)
{
    static const struct {
        const char *unit, *key; /* key: of this one alone; NULL: of all */
        double below;           /* values that the slip would leave */
        double factor;
        const char *cause;
    } slips[] = {
        { BYTE_RATE, "network_bytes_per_second", 1e4, 0.125e9,
          "it looks like Gb/s; write bytes per second, 50e9 for 400 Gb/s" },
        { BYTE_RATE, NULL, 20, 1e12,
          "it looks like TB/s; write bytes per second, 3.35e12 for 3.35 TB/s" },
        { BYTE_RATE, NULL, 1e5, 1e9,
          "it looks like GB/s; write bytes per second, 450e9 for 450 GB/s" },
        { FLOP_RATE, NULL, 20, 1e15,
          "it looks like PFLOP/s; write FLOP/s, 2.25e15 for 2.25 PFLOP/s" },
        { FLOP_RATE, NULL, 1e5, 1e12,
          "it looks like TFLOP/s; write FLOP/s, 989e12 for 989 TFLOP/s" },
        { FRACTION, NULL, 2, 0.5, "a share is at most 1; is it of another peak, or a percentage?" },
        { FRACTION, NULL, 101, 0.01, "it looks like a percentage; write 0.72 for 72 %" },
        { SECONDS, NULL, 1e4, 1e-6, "it looks like microseconds; write seconds, 10e-6 for 10 us" },
        { BYTES, NULL, 5000, 1e9, "it looks like GB; write the unit, as in 80GB or 80GiB" },
        { BYTES, NULL, 1e7, 1048576.0, "it looks like MiB; write the unit, as in 81559MiB" },
    };

    for (size_t i = 0; key->unit && i < sizeof slips / sizeof *slips; i++)
        if (!strcmp(slips[i].unit, key->unit) && value < slips[i].below &&
            (!slips[i].key || !strcmp(slips[i].key, key->key)) &&
            in_range(key, value * slips[i].factor))
            return slips[i].cause;
    return NULL;
}

static int out_of_range(const struct hardware_key *key, const char *text, double value,
                        struct pos at, struct diag_list *reterr)
{
    const char *cause = likely_cause(key, value);
    const char *unit = key->unit && strcmp(key->unit, FRACTION) != 0 ? key->unit : "";
    char least[32], most[32];

    if (key->type == HARDWARE_BYTES)
        diag_error(reterr, at, "%s is %s, outside %s to %s", key->key, text,
                   units_format_gib(least, sizeof least, (uint64_t)key->min, 2),
                   units_format_gib(most, sizeof most, (uint64_t)key->max, 2));
    else
        diag_error(reterr, at, "%s is %s, outside %g to %g%s%s", key->key, text, key->min, key->max,
                   *unit ? " " : "", unit);
    return cause ? diag_hint(reterr, "%s", cause)
                 : diag_hint(reterr, "%s: %s", key->key, key->meaning);
}

static int parse_real(const char *text, double *ret)
{
    char *end;
    *ret = strtod(text, &end);
    return end == text || *end || !isfinite(*ret) ? -1 : 0;
}

/* A size with a unit, or a number that may be written 85.5e9. */
static int parse_bytes(const char *text, uint64_t *ret)
{
    double real;
    if (units_parse_bytes(text, ret) == 0)
        return 0;
    if (parse_real(text, &real) || real < 0 || real > 9e18 || floor(real) < real)
        return -1;
    *ret = (uint64_t)real;
    return 0;
}

/* How a number is written whose unit is not part of it. */
static const char *way_to_write(const struct hardware_key *key)
{
    static const char *const ways[][2] = {
        { BYTE_RATE, "write bytes per second without a unit, 3.35e12 for 3.35 TB/s" },
        { FLOP_RATE, "write FLOP/s without a unit, 989e12 for 989 TFLOP/s" },
        { FRACTION, "write a share of 1, 0.72 for 72 %" },
        { SECONDS, "write seconds without a unit, 10e-6 for 10 us" },
    };
    for (size_t i = 0; key->unit && i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(ways[i][0], key->unit))
            return ways[i][1];
    return NULL;
}

static int wrong_type(const struct hardware_key *key, const char *text, const char *wanted,
                      struct pos at, struct diag_list *reterr)
{
    const char *way = key->type == HARDWARE_REAL ? way_to_write(key) : NULL;
    diag_error(reterr, at, "%s is \"%s\", not %s", key->key, text, wanted);
    return way ? diag_hint(reterr, "%s", way) : diag_hint(reterr, "%s: %s", key->key, key->meaning);
}

static int store_text(struct hardware *hardware, const struct hardware_key *key, const char *text,
                      struct pos at, struct diag_list *reterr)
{
    if (!*text)
        return wrong_type(key, text, "a name", at, reterr);
    if (text_copy(field(hardware, key), sizeof hardware->name, text))
        return diag_error(reterr, at, "%s is longer than %zu characters", key->key,
                          sizeof hardware->name - 1);
    return 0;
}
_Static_assert(sizeof((struct hardware *)0)->name == sizeof((struct hardware *)0)->gpu,
               "store_text knows one length");

static int store_bool(struct hardware *hardware, const struct hardware_key *key, const char *text,
                      struct pos at, struct diag_list *reterr)
{
    bool value = !strcmp(text, "true");
    if (!value && strcmp(text, "false") != 0)
        return wrong_type(key, text, "true or false", at, reterr);
    memcpy(field(hardware, key), &value, sizeof value);
    return 0;
}

static int store_int(struct hardware *hardware, const struct hardware_key *key, const char *text,
                     struct pos at, struct diag_list *reterr)
{
    int64_t number;
    if (hardware->host && !strcmp(text, "detect"))
        number = hardware_host_cores();
    else if (units_parse_int(text, INT32_MIN, INT32_MAX, &number))
        return wrong_type(key, text, "a whole number", at, reterr);
    if (!in_range(key, (double)number))
        return out_of_range(key, text, (double)number, at, reterr);
    int value = (int)number;
    memcpy(field(hardware, key), &value, sizeof value);
    return 0;
}

static int store_bytes(struct hardware *hardware, const struct hardware_key *key, const char *text,
                       struct pos at, struct diag_list *reterr)
{
    uint64_t value;
    bool detected = hardware->host && !strcmp(text, "detect");

    if (detected)
        value = hardware_host_memory();
    else if (parse_bytes(text, &value))
        return wrong_type(key, text, "a size in bytes", at, reterr);
    if (!in_range(key, (double)value))
        return out_of_range(key, text, (double)value, at, reterr);
    memcpy(field(hardware, key), &value, sizeof value);
    return 0;
}

static int store_real(struct hardware *hardware, const struct hardware_key *key, const char *text,
                      struct pos at, struct diag_list *reterr)
{
    double value;
    if (parse_real(text, &value))
        return wrong_type(key, text, "a plain number", at, reterr);
    if (!in_range(key, value))
        return out_of_range(key, text, value, at, reterr);
    memcpy(field(hardware, key), &value, sizeof value);
    return 0;
}

static int store(struct hardware *hardware, const struct hardware_key *key, const char *text,
                 struct pos at, struct diag_list *reterr)
{
    switch (key->type) {
    case HARDWARE_TEXT:
        return store_text(hardware, key, text, at, reterr);
    case HARDWARE_BOOL:
        return store_bool(hardware, key, text, at, reterr);
    case HARDWARE_INT:
        return store_int(hardware, key, text, at, reterr);
    case HARDWARE_BYTES:
        return store_bytes(hardware, key, text, at, reterr);
    case HARDWARE_REAL:
        return store_real(hardware, key, text, at, reterr);
    }
    return -1;
}

/* The scalar of a plain value or of {value, source, confidence}. */
static const struct node *value_node(const struct hardware_key *key, const struct node *node,
                                     struct diag_list *reterr)
{
    static const char *const known[] = { "value", "source", "confidence" };
    const char *confidence = NULL;

    if (node->kind == NODE_LIST) {
        diag_error(reterr, node->at, "%s must be a value, found a list", key->key);
        return NULL;
    }
    if (node->kind != NODE_MAP)
        return node;
    if (node_check_keys(node, known, sizeof known / sizeof *known, reterr))
        return NULL;
    if (node_text(node, "confidence", &confidence, reterr) < 0)
        return NULL;
    if (confidence && (strlen(confidence) != 1 || !strchr("ABCD", *confidence))) {
        diag_error(reterr, node_get(node, "confidence")->at, "confidence of %s is \"%s\"", key->key,
                   confidence);
        diag_hint(reterr, "A: measured or the maker's; B: two sources agree; C: one source; "
                          "D: an estimate");
        return NULL;
    }
    const struct node *value = node_get(node, "value");
    if (!value || !value->text) {
        diag_error(reterr, node->at, "%s has no plain value", key->key);
        return NULL;
    }
    return value;
}

static int check_known(const struct node *root, struct diag_list *reterr)
{
    const char *known[sizeof hardware_keys / sizeof *hardware_keys];
    for (size_t i = 0; i < hardware_key_count; i++)
        known[i] = hardware_keys[i].key;
    return node_check_keys(root, known, hardware_key_count, reterr);
}

/* Of a GPU's file that does not say so itself: one of the values held has less than confidence A.
 */
static bool rests_on_another_part(const struct node *root, const struct hardware *hardware)
{
    bool ret = false;
    for (size_t i = 0; i < hardware_key_count && !hardware->host; i++) {
        const struct node *node = node_get(root, hardware_keys[i].key);
        const struct node *confidence =
            hardware_keys[i].held && node ? node_get(node, "confidence") : NULL;
        ret = ret || (confidence && confidence->text && strcmp(confidence->text, "A") != 0);
    }
    return ret;
}

int hardware_from_node(const struct node *root, struct hardware *ret, struct diag_list *reterr)
{
    int rc = 0;

    memset(ret, 0, sizeof *ret);
    if (root->kind != NODE_MAP)
        return diag_error(reterr, root->at, "a hardware file is a map of keys, found %s",
                          node_kind_name(root->kind));
    if (check_known(root, reterr))
        rc = -1;
    for (size_t i = 0; i < hardware_key_count; i++) {
        const struct hardware_key *key = &hardware_keys[i];
        const struct node *node = node_get(root, key->key);
        if (!node) {
            if (key->required && (!ret->host || key->type == HARDWARE_TEXT))
                rc = diag_error(reterr, root->at, "%s is missing: %s", key->key, key->meaning);
            continue;
        }
        const struct node *value = value_node(key, node, reterr);
        if (!value || store(ret, key, value->text, value->at, reterr))
            rc = -1;
    }
    if (!node_get(root, "held_assumed"))
        ret->held_assumed = rests_on_another_part(root, ret);
    return rc;
}

static int load(const char *name_or_path, bool all_doubts, struct hardware *ret,
                struct diag_list *reterr)
{
    char path[4096];
    struct tree tree = { 0 };
    int rc;

    if (file_find_data("hardware", name_or_path, path, sizeof path, reterr))
        return -1;
    rc = tree_read_file(&tree, path, reterr);
    if (rc == 0)
        rc = hardware_from_node(tree.root, ret, reterr);
    if (rc == 0)
        rc = hardware_doubts(ret, tree.root, all_doubts, reterr);
    tree_done(&tree);
    return rc;
}

int hardware_load(const char *name_or_path, struct hardware *ret, struct diag_list *reterr)
{
    return load(name_or_path, false, ret, reterr);
}

int hardware_check(const char *name_or_path, struct hardware *ret, struct diag_list *reterr)
{
    return load(name_or_path, true, ret, reterr);
}

static void put_value(struct json *map, const struct hardware *hardware,
                      const struct hardware_key *key)
{
    const void *at = field_of(hardware, key);
    bool truth;
    int number;
    uint64_t bytes;
    double real;

    switch (key->type) {
    case HARDWARE_TEXT:
        json_put_text(map, key->key, at);
        break;
    case HARDWARE_BOOL:
        memcpy(&truth, at, sizeof truth);
        json_put_bool(map, key->key, truth);
        break;
    case HARDWARE_INT:
        memcpy(&number, at, sizeof number);
        json_put_int(map, key->key, number);
        break;
    case HARDWARE_BYTES:
        memcpy(&bytes, at, sizeof bytes);
        json_put_u64(map, key->key, bytes);
        break;
    case HARDWARE_REAL:
        memcpy(&real, at, sizeof real);
        json_put_number(map, key->key, real);
        break;
    }
}

/* What a host's file left out stays out: a zero there means unknown, and is out of range. So does
 * a fine key that is 0, as absent ones are. */
static bool is_said(const struct hardware *hardware, const struct hardware_key *key)
{
    static const char zeros[sizeof(double)];
    size_t size = key->type == HARDWARE_INT    ? sizeof(int)
                  : key->type == HARDWARE_BOOL ? sizeof(bool)
                                               : sizeof(double);

    if (key->type == HARDWARE_TEXT || (key->type == HARDWARE_BOOL && !key->fine) ||
        (key->type != HARDWARE_BOOL && !key->fine && in_range(key, 0.0)))
        return true;
    return memcmp(field_of(hardware, key), zeros, size) != 0;
}

struct json *hardware_to_json(const struct hardware *hardware)
{
    struct json *ret = json_map();
    for (size_t i = 0; i < hardware_key_count; i++)
        if (is_said(hardware, &hardware_keys[i]))
            put_value(ret, hardware, &hardware_keys[i]);
    return ret;
}

bool hardware_number(const struct hardware *hardware, const struct hardware_key *key, double *ret)
{
    const void *at = field_of(hardware, key);
    int number;
    uint64_t bytes;

    if (key->type == HARDWARE_TEXT || key->type == HARDWARE_BOOL || !is_said(hardware, key))
        return false;
    if (key->type == HARDWARE_INT) {
        memcpy(&number, at, sizeof number);
        *ret = number;
    } else if (key->type == HARDWARE_BYTES) {
        memcpy(&bytes, at, sizeof bytes);
        *ret = (double)bytes;
    } else {
        memcpy(ret, at, sizeof *ret);
    }
    return true;
}

int hardware_set(struct hardware *hardware, const char *key, const char *value, struct pos at,
                 struct diag_list *reterr)
{
    const char *names[sizeof hardware_keys / sizeof *hardware_keys];

    for (size_t i = 0; i < hardware_key_count; i++) {
        if (!strcmp(hardware_keys[i].key, key))
            return store(hardware, &hardware_keys[i], value, at, reterr);
        names[i] = hardware_keys[i].key;
    }
    diag_error(reterr, at, "unknown key hardware.%s", key);
    const char *near = text_nearest(key, names, hardware_key_count);
    if (near)
        return diag_hint(reterr, "did you mean hardware.%s?", near);
    return diag_hint(reterr, "`rankfit list keys` shows all keys");
}
