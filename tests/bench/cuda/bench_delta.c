/* Speed of the gated delta net's operations on one GPU at Qwen3.5's heads (32 value heads of 128;
 * 32 and 16 key heads), 4,096 to 131,072 tokens, against three limits of the rule:
 * - bandwidth: every input read and every output written once, at the speed of a device copy of
 *   this run;
 * - tensor cores: the products of the chunked form, causal halves, with those that the backward
 *   recomputes, at the best rate of a large bf16 product on an H200 (788 TFLOP/s);
 * - chain: a chunk's state needs 16 products one after another (8 over keys, 4 over tokens, 4 into
 *   the state), backward another 16, at the latency of such a product measured in this run.
 * Then single kernels over one segment, with chains of 1, 2 and 4 warps a block. Median of the runs
 * after warm-up, by events; queries and keys are unit vectors made by delta_input of random data.
 * Prints; judges nothing. Exits 77 without a GPU. */
#include "tests/bench/cuda/bench.h"
#include "tests/bench/cuda/latency.h"

#include "executor/backend/cuda/kernels.h"

#include <stdio.h>
#include <string.h>

enum { DIM = 128, CONV = 4, CHAIN = 1 << 14 };
static const double product_rate = 788e12;

/* One case's tensors. */
struct delta {
    struct delta_input_gradient input;
    struct delta_rule_gradient rule;
    struct gated_norm_gradient norm;
    struct kernel_delta_args args;
    int chain; /* products of the latency chain */
    float *sink;
    double product_seconds;
    uint64_t workspace_bytes, states_bytes;
};

/* The case under way: run functions get no more than struct bench. */
static struct delta now;

static int64_t tokens_of(void)
{
    return now.rule.forward.tokens;
}

static int run_copy(struct bench *b, const struct operands *o)
{
    return b->ops->copy(ON, o->a, o->b, (uint64_t)1 << 31, &b->diags);
}

static int run_chain(struct bench *b, const struct operands *o)
{
    (void)o;
    return cuda_check(latency_chain(b->cuda->streams[STREAM_COMPUTE], now.chain, now.sink), "chain",
                      &b->diags);
}

static int run_input(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->delta_input(ON, &now.input.forward, &b->diags);
}

static int run_input_backward(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->delta_input_backward(ON, &now.input, &b->diags);
}

static int run_norm(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->gated_norm(ON, &now.norm.forward, &b->diags);
}

static int run_norm_backward(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->gated_norm_backward(ON, &now.norm, &b->diags);
}

static int run_rule(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->delta_rule(ON, &now.rule.forward, &b->diags);
}

static int run_rule_backward(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->delta_rule_backward(ON, &now.rule, &b->diags);
}

static int run_states_backward(struct bench *b, const struct operands *o)
{
    struct delta_rule_gradient alone = now.rule;
    (void)o;
    alone.states_only = true;
    return b->ops->delta_rule_backward(ON, &alone, &b->diags);
}

#define KERNEL(name, call)                                                                         \
    static int run_##name(struct bench *b, const struct operands *o)                               \
    {                                                                                              \
        (void)o;                                                                                   \
        return cuda_check(call(b->cuda->streams[STREAM_COMPUTE], &now.args), #name, &b->diags);    \
    }
KERNEL(squares, kernel_delta_squares)
KERNEL(forward, kernel_delta_forward)
KERNEL(states, kernel_delta_states_backward)
KERNEL(gradient, kernel_delta_gradient)

static struct delta_columns columns_of(const struct delta_heads *h)
{
    int64_t keys = (int64_t)h->key_heads * DIM, values = (int64_t)h->value_heads * DIM;
    int64_t each = h->value_heads / h->key_heads, all = 2 * keys + 2 * values;
    return (struct delta_columns){ .q = 0,
                                   .k = keys,
                                   .v = 2 * keys,
                                   .z = 2 * keys + values,
                                   .b = all,
                                   .a = all + h->value_heads,
                                   .key_step = DIM,
                                   .value_step = each * DIM,
                                   .gate_step = each };
}

static void make_input(struct bench *b, const struct delta_heads *h, int64_t tokens)
{
    int64_t channels = delta_channels(h), heads = h->value_heads;
    int64_t stride = channels + heads * (DIM + 2);
    uint64_t rows = (uint64_t)tokens, gates = rows * (uint64_t)heads * 4;
    bf16 *conv = bench_random(b, (uint64_t)(channels * CONV * 2));
    float *d_conv = bench_random(b, (uint64_t)(channels * CONV * 4));
    struct delta_input *f = &now.input.forward;
    *f = (struct delta_input){ .heads = *h,
                               .columns = columns_of(h),
                               .runs = 1,
                               .width = CONV,
                               .tokens = tokens,
                               .p = bench_random(b, rows * (uint64_t)stride * 2),
                               .p_stride = stride,
                               .log_rate = bench_random(b, 256),
                               .step = bench_random(b, 256),
                               .qkv = bench_memory(b, rows * (uint64_t)channels * 2),
                               .decay = bench_memory(b, gates),
                               .beta = bench_memory(b, gates) };
    now.input.d_qkv = bench_random(b, rows * (uint64_t)channels * 2);
    now.input.d_decay = bench_random(b, gates);
    now.input.d_beta = bench_random(b, gates);
    now.input.d_p = bench_memory(b, rows * (uint64_t)stride * 2);
    now.input.d_log_rate = bench_random(b, 256);
    now.input.d_step = bench_random(b, 256);
    now.input.grad_type = DTYPE_FP32;
    int64_t keys = (int64_t)h->key_heads * DIM * CONV;
    for (int kind = 0; kind < 3; kind++) {
        f->conv[kind] = conv + kind * keys;
        now.input.d_conv[kind] = d_conv + kind * keys;
    }
}

static void make_rule(struct bench *b, const struct delta_heads *h, int64_t tokens)
{
    uint64_t gates = (uint64_t)tokens * (uint64_t)h->value_heads;
    const struct delta_input *in = &now.input.forward;
    struct delta_rule *f = &now.rule.forward;
    now.states_bytes = (uint64_t)(delta_segments(tokens) * delta_state_elements(h)) * sizeof(float);
    *f = (struct delta_rule){ .heads = *h,
                              .runs = 1,
                              .tokens = tokens,
                              .qkv = in->qkv,
                              .decay = in->decay,
                              .beta = in->beta,
                              .o = bench_memory(b, gates * DIM * 2),
                              .states = bench_memory(b, now.states_bytes) };
    now.workspace_bytes = b->ops->delta_workspace_bytes(b->backend, f, true);
    f->workspace = bench_memory(b, now.workspace_bytes);
    now.rule.d_o = bench_random(b, gates * DIM * 2);
    now.rule.d_qkv = bench_memory(b, (uint64_t)(tokens * delta_channels(h)) * 2);
    now.rule.d_decay = bench_memory(b, gates * 4);
    now.rule.d_beta = bench_memory(b, gates * 4);
    now.norm = (struct gated_norm_gradient){ .forward = { .heads = *h,
                                                          .columns = in->columns,
                                                          .rows = tokens,
                                                          .p_stride = in->p_stride,
                                                          .eps = 1e-6,
                                                          .o = f->o,
                                                          .p = in->p,
                                                          .weight = bench_random(b, 256),
                                                          .on = bench_memory(b, gates * DIM * 2) },
                                             .d_o = bench_random(b, gates * DIM * 2),
                                             .d_p = now.input.d_p,
                                             .d_weight = bench_random(b, 512),
                                             .grad_type = DTYPE_FP32 };
}

/* Least seconds of the rule by each limit. */
struct limits {
    double bandwidth, products, chain;
};

static struct limits limits_of(const struct bench *b, const struct delta_heads *h, bool backward)
{
    double tokens = (double)tokens_of(), chunks = tokens / DELTA_CHUNK;
    double gates = 8.0 * h->value_heads, channels = (double)delta_channels(h);
    double values = (double)h->value_heads * DIM, bytes = 0;
    double wide = 2.0 * DELTA_CHUNK * DIM * DIM, half = (double)DELTA_CHUNK * DELTA_CHUNK * DIM;
    double forward = h->value_heads * (3 * wide + 2 * half) + h->key_heads * 2 * half;
    double back = h->value_heads * (8 * wide + 9 * half) + h->key_heads * 2 * half;
    bytes = tokens * (backward ? 2 * (2 * channels + gates) + 2 * values
                               : 2 * channels + gates + 2 * values);
    return (struct limits){ .bandwidth = (bytes + (double)now.states_bytes) / b->copy,
                            .products = chunks * (backward ? back : forward) / product_rate,
                            .chain = chunks * 16 * (backward ? 2 : 1) * now.product_seconds };
}

static double time_of(struct bench *b, const char *name,
                      int (*run)(struct bench *b, const struct operands *o))
{
    const struct bench_case c = { name, "", 0, 0, run };
    const struct operands none = { 0 };
    return bench_seconds(b, &c, &none);
}

static double print_rule(struct bench *b, const struct delta_heads *h, const char *name,
                         bool backward)
{
    double seconds = time_of(b, name, backward ? run_rule_backward : run_rule);
    const struct limits least = limits_of(b, h, backward);
    if (seconds <= 0)
        return 0;
    printf("%7lld %2d/%2d %-17s %8.3f ms   bandwidth %7.3f ms %3.0f %%   tensor cores %7.3f ms "
           "%3.0f %%   chain %7.3f ms %3.0f %%\n",
           (long long)tokens_of(), h->key_heads, h->value_heads, name, 1e3 * seconds,
           1e3 * least.bandwidth, 100 * least.bandwidth / seconds, 1e3 * least.products,
           100 * least.products / seconds, 1e3 * least.chain, 100 * least.chain / seconds);
    (void)fflush(stdout);
    return seconds;
}

/* An operation that reads and writes so many bytes. */
static void print_pass(struct bench *b, const char *name, double bytes,
                       int (*run)(struct bench *b, const struct operands *o))
{
    double seconds = time_of(b, name, run);
    if (seconds > 0)
        printf("%7lld       %-17s %8.3f ms   %3.0f %% of the copy's speed\n",
               (long long)tokens_of(), name, 1e3 * seconds, 100 * bytes / seconds / b->copy);
}

static void print_passes(struct bench *b, const struct delta_heads *h)
{
    double tokens = (double)tokens_of(), channels = (double)delta_channels(h);
    double values = (double)h->value_heads * DIM;
    print_pass(b, "input", tokens * 4 * channels, run_input);
    print_pass(b, "input backward", tokens * 6 * channels, run_input_backward);
    print_pass(b, "gated norm", tokens * 6 * values, run_norm);
    print_pass(b, "norm backward", tokens * 10 * values, run_norm_backward);
}

/* A segment in buffers of its own. */
static void make_segment(struct bench *b, const struct delta_heads *h)
{
    enum { CHUNKS = DELTA_SEGMENT / DELTA_CHUNK };
    uint64_t cells = (uint64_t)CHUNKS * (uint64_t)h->value_heads;
    uint64_t square = UINT64_C(2) * DELTA_CHUNK * DELTA_CHUNK;
    float *states = bench_memory(b, (uint64_t)delta_state_elements(h) * sizeof(float));
    now.args = (struct kernel_delta_args){ .tokens = DELTA_SEGMENT,
                                           .chunks = CHUNKS,
                                           .runs = 1,
                                           .key_heads = h->key_heads,
                                           .value_heads = h->value_heads,
                                           .qkv = now.rule.forward.qkv,
                                           .decay = now.rule.forward.decay,
                                           .beta = now.rule.forward.beta,
                                           .inverse = bench_memory(b, cells * square),
                                           .scores = bench_memory(b, cells * square),
                                           .gates = bench_memory(b, cells * 1024),
                                           .to = states,
                                           .behind = bench_memory(b, cells * square * 4),
                                           .d_o = now.rule.d_o,
                                           .d_qkv = now.rule.d_qkv,
                                           .d_decay = now.rule.d_decay,
                                           .d_beta = now.rule.d_beta };
}

static void print_kernel(struct bench *b, const char *name,
                         int (*run)(struct bench *b, const struct operands *o))
{
    double seconds = time_of(b, name, run);
    printf("   %-10s %d warps %9.1f us per segment, %6.3f us per chunk\n", name, now.args.warps,
           1e6 * seconds, 1e6 * seconds * DELTA_CHUNK / DELTA_SEGMENT);
}

static void print_kernels(struct bench *b, const struct delta_heads *h)
{
    bf16 *before =
        bench_memory(b, (uint64_t)delta_state_elements(h) * 2 * (DELTA_SEGMENT / DELTA_CHUNK));
    printf("kernels, %d/%d heads, one segment\n", h->key_heads, h->value_heads);
    print_kernel(b, "squares", run_squares);
    for (int warps = 1; warps <= 4; warps *= 2) {
        now.args.warps = warps;
        now.args.before = NULL;
        now.args.o = now.rule.forward.o;
        print_kernel(b, "outputs", run_forward);
        now.args.before = before;
        print_kernel(b, "keeping", run_forward);
        now.args.before = NULL;
        now.args.o = NULL;
        print_kernel(b, "ends", run_forward);
        print_kernel(b, "backward", run_states);
    }
    now.args.before = before;
    print_kernel(b, "gradient", run_gradient);
}

static void measure(struct bench *b, const struct delta_heads *h, int64_t tokens, bool all)
{
    make_input(b, h, tokens);
    make_rule(b, h, tokens);
    if (run_input(b, NULL) != 0)
        return;
    double forward = print_rule(b, h, "forward", false);
    double backward = print_rule(b, h, "backward", true);
    double alone = time_of(b, "states", run_states_backward);
    printf("%7lld %2d/%2d both %.3f ms; states alone backward %.3f ms; workspace %.0f MiB, kept "
           "states %.0f MiB\n",
           (long long)tokens, h->key_heads, h->value_heads, 1e3 * (forward + backward), 1e3 * alone,
           (double)now.workspace_bytes / 1048576, (double)now.states_bytes / 1048576);
    if (all) {
        print_passes(b, h);
        make_segment(b, h);
        print_kernels(b, h);
    }
    bench_release(b);
}

/* The copy's speed, and the seconds of one product of a chain, over which nothing else counts. */
static void measure_machine(struct bench *b)
{
    enum { GIB = 1 << 30 };
    struct operands o = { bench_memory(b, UINT64_C(2) * GIB),
                          bench_random(b, UINT64_C(2) * GIB),
                          NULL,
                          NULL,
                          NULL,
                          NULL,
                          NULL };
    const struct bench_case copy = { "copy", "2 GiB", 4.0 * GIB, 0, run_copy };
    bench_measure(b, &copy, &o);
    now.sink = bench_memory(b, 128);
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        now.chain = CHAIN << i;
        seconds[i] = time_of(b, "chain", run_chain);
    }
    now.product_seconds = (seconds[1] - seconds[0]) / CHAIN;
    printf("a product that needs the one before: %.1f ns\n", 1e9 * now.product_seconds);
    bench_release(b);
}

int main(void)
{
    static struct bench b;
    static const struct {
        struct delta_heads heads;
        int64_t tokens;
        bool all;
    } cases[] = {
        { { 32, 32, DIM, DIM }, 4096, false },   { { 16, 32, DIM, DIM }, 4096, false },
        { { 16, 32, DIM, DIM }, 32768, true },   { { 32, 32, DIM, DIM }, 32768, true },
        { { 4, 8, DIM, DIM }, 32768, false },    { { 16, 32, DIM, DIM }, 131072, false },
        { { 32, 32, DIM, DIM }, 131072, false },
    };
    int status = bench_open(&b);
    if (status == 0)
        measure_machine(&b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && status == 0; i++)
        measure(&b, &cases[i].heads, cases[i].tokens, cases[i].all);
    bench_close(&b);
    return status;
}
