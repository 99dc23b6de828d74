/* delta.c - the gated delta rule, forward and backward, by length and heads. */
#include "executor/calibrate/bench.h"

#include <stdio.h>

enum { CONV = 4 };

struct shape {
    int key_heads, value_heads, dim;
    int64_t tokens;
};

static const struct shape device_shapes[] = {
    { 16, 32, 128, 2048 },  { 16, 32, 128, 8192 }, { 16, 32, 128, 32768 }, { 16, 32, 128, 131072 },
    { 32, 32, 128, 32768 }, { 2, 4, 128, 32768 },  { 4, 8, 128, 8192 },    { 4, 8, 128, 32768 },
    { 8, 16, 128, 8192 },   { 8, 16, 128, 32768 }, { 16, 64, 128, 8192 },  { 16, 64, 128, 32768 },
};
static const struct shape host_shapes[] = {
    { 2, 4, 16, 256 }, { 2, 4, 16, 1024 }, { 4, 8, 16, 512 },  { 4, 8, 32, 512 },
    { 2, 4, 64, 256 }, { 2, 4, 64, 1024 }, { 2, 4, 128, 256 }, { 2, 4, 128, 512 },
};

static int run_forward(struct bench *b, void *operation)
{
    const struct delta_rule_gradient *g = operation;
    return b->ops->delta_rule(b->backend, STREAM_COMPUTE, &g->forward, b->errors);
}

static int run_backward(struct bench *b, void *operation)
{
    return b->ops->delta_rule_backward(b->backend, STREAM_COMPUTE, operation, b->errors);
}

/* The rule's inputs as a layer makes them, of random rows `p` of queries, keys, values, b and a:
 * queries and keys must be unit vectors. */
static struct delta_input input_of(const struct delta_heads *h, int64_t tokens, const bf16 *p,
                                   const bf16 *weights)
{
    int64_t channels = delta_channels(h), keys = (int64_t)h->key_heads * h->key_dim;
    int64_t each = h->value_heads / h->key_heads;
    return (struct delta_input){ .heads = *h,
                                 .columns = { .k = keys,
                                              .v = 2 * keys,
                                              .b = channels,
                                              .a = channels + h->value_heads,
                                              .key_step = h->key_dim,
                                              .value_step = each * h->value_dim,
                                              .gate_step = each },
                                 .runs = 1,
                                 .width = CONV,
                                 .tokens = tokens,
                                 .p = p,
                                 .p_stride = channels + 2 * (int64_t)h->value_heads,
                                 .conv = { weights, weights, weights },
                                 .log_rate = weights,
                                 .step = weights };
}

/* Tensors of one shape; the rows that inputs are made of give their place to the gradient. False
 * where they do not fit, and -1 in *ret_status where an operation fails. */
static bool prepare(struct bench *b, const struct shape *s, struct delta_rule_gradient *ret,
                    int *ret_status)
{
    const struct delta_heads h = { s->key_heads, s->value_heads, s->dim, s->dim };
    int64_t t = s->tokens, gates = t * h.value_heads, values = gates * h.value_dim;
    int64_t channels = delta_channels(&h);
    bf16 *p = bench_take_bf16(b, t * (channels + 2 * (int64_t)h.value_heads));
    bf16 *weights = bench_take_bf16(b, channels * CONV);
    struct delta_input input = input_of(&h, t, p, weights);
    input.qkv = bench_take_bf16(b, t * channels);
    input.decay = bench_take_float(b, gates);
    input.beta = bench_take_float(b, gates);
    struct delta_rule rule = { .heads = h,
                               .runs = 1,
                               .tokens = t,
                               .qkv = input.qkv,
                               .decay = input.decay,
                               .beta = input.beta,
                               .o = bench_take_bf16(b, values),
                               .states = bench_take_float(b, delta_segments(t) *
                                                                 delta_state_elements(&h)) };
    rule.workspace = bench_take(b, b->ops->delta_workspace_bytes(b->backend, &rule, true));
    *ret = (struct delta_rule_gradient){ .forward = rule,
                                         .d_o = bench_take_bf16(b, values),
                                         .d_qkv = p,
                                         .d_decay = bench_take_float(b, gates),
                                         .d_beta = bench_take_float(b, gates) };
    if (!p || !weights || !input.qkv || !input.decay || !input.beta || !rule.o || !rule.states ||
        !rule.workspace || !ret->d_o || !ret->d_decay || !ret->d_beta)
        return false;
    *ret_status = b->ops->delta_input(b->backend, STREAM_COMPUTE, &input, b->errors);
    return *ret_status == 0;
}

static int measure(struct bench *b, const struct shape *s)
{
    struct delta_rule_gradient g;
    double state = (double)s->value_heads * s->dim * s->dim;
    struct point forward = { .kind = POINT_DELTA_FORWARD,
                             .name = "delta forward",
                             .heads = s->value_heads,
                             .kv_heads = s->key_heads,
                             .head_dim = s->dim,
                             .tokens = s->tokens,
                             .flops = 8 * state * (double)s->tokens };
    struct point backward = forward;
    backward.kind = POINT_DELTA_BACKWARD;
    (void)snprintf(backward.name, sizeof backward.name, "delta backward");
    backward.flops = 2 * forward.flops;
    int ret = 0;
    if (bench_wants(b, backward.flops, 0) && prepare(b, s, &g, &ret)) {
        ret = bench_time(b, run_forward, &g, false, &forward);
        if (ret == 0)
            ret = bench_time(b, run_backward, &g, false, &backward);
    }
    bench_clear(b);
    return ret;
}

int bench_delta(struct bench *b)
{
    bool host = b->calibration->host;
    const struct shape *shapes = host ? host_shapes : device_shapes;
    size_t count = host ? sizeof host_shapes / sizeof *host_shapes
                        : sizeof device_shapes / sizeof *device_shapes;
    for (size_t i = 0; i < count; i++)
        if (measure(b, &shapes[i]) != 0)
            return -1;
    return 0;
}
