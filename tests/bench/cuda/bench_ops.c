/* Speed of the CUDA backend's operations at the shapes of Qwen3-30B-A3B (hidden 2048, 32/4 heads x
 * 128, 128 experts top-8 of width 768, vocabulary 151,936) with 32,768 tokens: GB/s of the bytes
 * that must move, against a device-to-device copy of the same run, or TFLOP/s. Median of the runs
 * after warm-up, by events; random data. Prints; judges nothing. Exits 77 without a GPU. */
#include "executor/backend/cuda/cuda.h"
#include "tests/support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKENS = 32768,
    HIDDEN = 2048,
    HEADS = 32,
    KV_HEADS = 4,
    HEAD = 128,
    Q = HEADS * HEAD,
    KV = KV_HEADS * HEAD,
    QKV = Q + 2 * KV,
    EXPERTS = 128,
    TOP_K = 8,
    WIDTH = 768,
    VOCAB = 151936,
    TILE = 512,
    ROUTED = TOKENS * TOP_K,
    RUNS = 11,
    PIECE = 1 << 24
};

struct bench {
    struct backend *backend;
    struct cuda *cuda;
    const struct backend_ops *ops;
    cudaEvent_t start, stop;
    struct diag_list diags;
    double copy; /* bytes a second */
    uint16_t *piece;
    void *held[48];
    int held_count;
    int64_t offsets[EXPERTS + 1];
};

/* What an operation runs on; each case uses what it needs. */
struct operands {
    void *a, *b, *c, *d, *e, *f, *g;
};

struct bench_case {
    const char *name, *shape;
    double bytes, operations; /* one of them */
    int (*run)(struct bench *b, const struct operands *o);
};

static void *memory(struct bench *b, uint64_t bytes)
{
    void *block = NULL;
    if (cudaMalloc(&block, bytes) != cudaSuccess) {
        printf("no memory for %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    b->held[b->held_count++] = block;
    return block;
}

static void release(struct bench *b)
{
    while (b->held_count > 0)
        (void)cudaFree(b->held[--b->held_count]);
}

/* Random bf16 between -1 and 1 (a tenth of it in the exponent's low bits), or the same bits read as
 * fp32: numbers of every size below 1. */
static void *random_memory(struct bench *b, uint64_t bytes)
{
    char *block = memory(b, bytes);
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        uint64_t left = bytes - at < PIECE ? bytes - at : PIECE;
        (void)cudaMemcpy(block + at, b->piece, left, cudaMemcpyHostToDevice);
    }
    return block;
}

static void *indices(struct bench *b, const int32_t *values, uint64_t count)
{
    void *block = memory(b, count * 4);
    (void)cudaMemcpy(block, values, count * 4, cudaMemcpyHostToDevice);
    return block;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Seconds of the median run; 0 with a line where it fails. */
static double seconds(struct bench *b, const struct bench_case *c, const struct operands *o)
{
    float times[RUNS];
    cudaStream_t stream = b->cuda->streams[STREAM_COMPUTE];
    for (int i = -2; i < RUNS; i++) {
        (void)cudaEventRecord(b->start, stream);
        if (c->run(b, o) != 0) {
            printf("%-22s %-30s failed\n", c->name, c->shape);
            diag_list_print(stdout, &b->diags);
            memset(&b->diags, 0, sizeof b->diags);
            return 0;
        }
        (void)cudaEventRecord(b->stop, stream);
        if (cudaEventSynchronize(b->stop) != cudaSuccess) {
            printf("%-22s %-30s %s\n", c->name, c->shape, cudaGetErrorString(cudaGetLastError()));
            return 0;
        }
        if (i >= 0)
            (void)cudaEventElapsedTime(&times[i], b->start, b->stop);
    }
    qsort(times, RUNS, sizeof times[0], by_value);
    return 1e-3 * (double)times[RUNS / 2];
}

static void measure(struct bench *b, const struct bench_case *c, const struct operands *o)
{
    double time = seconds(b, c, o);
    if (time <= 0)
        return;
    printf("%-22s %-30s %9.3f ms ", c->name, c->shape, 1e3 * time);
    if (c->operations > 0)
        printf("%8.0f TFLOP/s\n", c->operations / time * 1e-12);
    else
        printf("%8.0f GB/s %5.0f %%\n", c->bytes / time * 1e-9,
               b->copy > 0 ? 100 * c->bytes / time / b->copy : 100.0);
    if (strcmp(c->name, "copy") == 0)
        b->copy = c->bytes / time;
    (void)fflush(stdout);
}

#define RUN(name, ...)                                                                             \
    static int run_##name(struct bench *b, const struct operands *o)                               \
    {                                                                                              \
        return b->ops->__VA_ARGS__;                                                                \
    }
#define ON b->backend, STREAM_COMPUTE

RUN(copy, copy(ON, o->a, o->b, UINT64_C(1) << 31, &b->diags))
RUN(norm, rmsnorm(ON, TOKENS, HIDDEN, 1e-6, o->a, o->b, o->c, &b->diags))
RUN(norm_backward, rmsnorm_backward(ON, TOKENS, HIDDEN, 1e-6, o->a, o->b, o->c, o->d, true, o->e,
                                    DTYPE_FP32, &b->diags))
RUN(swiglu, swiglu(ON, ROUTED, WIDTH, o->a, o->b, o->c, &b->diags))
RUN(swiglu_backward, swiglu_backward(ON, ROUTED, WIDTH, o->c, o->b, o->a, o->d, &b->diags))
RUN(scatter, scatter_rows(ON, TOKENS, TOP_K, HIDDEN, o->a, o->b, o->c, o->d, o->e, &b->diags))
RUN(gather, gather_rows(ON, ROUTED, HIDDEN, o->a, o->b, o->c, o->d, o->e, &b->diags))
RUN(spread, spread_rows(ON, ROUTED, HIDDEN, o->a, o->b, o->c, o->d, o->e, &b->diags))
RUN(combine, combine_rows(ON, TOKENS, TOP_K, HIDDEN, o->c, o->b, o->a, o->a, o->d, o->e, &b->diags))
RUN(embed, embed(ON, TOKENS, HIDDEN, o->a, o->b, o->c, &b->diags))
RUN(embed_backward, embed_backward(ON, TOKENS, HIDDEN, o->a, o->c, o->d, DTYPE_FP32, &b->diags))
RUN(add, add(ON, INT64_C(1) << 28, o->a, o->b, DTYPE_FP32, &b->diags))
RUN(to_bf16, to_bf16(ON, INT64_C(1) << 28, o->a, o->b, &b->diags))

static double sink; /* of sums that nothing reads */
RUN(squares, sum_squares(ON, INT64_C(1) << 28, o->a, DTYPE_FP32, &sink, &b->diags))
RUN(squares_bf16, sum_squares(ON, INT64_C(1) << 29, o->a, DTYPE_BF16, &sink, &b->diags))
RUN(loss, cross_entropy(ON, TILE, VOCAB, o->a, o->b, 1e-5F, o->c, &sink, &b->diags))

static int run_router(struct bench *b, const struct operands *o)
{
    const struct router r = { TOKENS, EXPERTS, TOP_K, true, o->a, o->b, o->c, false };
    return b->ops->router(ON, &r, &b->diags);
}

static int run_router_backward(struct bench *b, const struct operands *o)
{
    const struct router r = { TOKENS, EXPERTS, TOP_K, true, o->a, o->b, o->c, false };
    return b->ops->router_backward(ON, &r, o->d, o->e, &b->diags);
}

static int run_sort(struct bench *b, const struct operands *o)
{
    int64_t counts[EXPERTS];
    return b->ops->sort_choices(ON, TOKENS, TOP_K, EXPERTS, o->b, o->d, counts, &b->diags);
}

static struct rope rope_of(const struct operands *o)
{
    return (struct rope){ .rows = TOKENS,
                          .tokens = TOKENS,
                          .heads = HEADS,
                          .kv_heads = KV_HEADS,
                          .head_dim = HEAD,
                          .rotary_dim = HEAD,
                          .theta = 1e6,
                          .norm_eps = 1e-6,
                          .q_norm = o->d,
                          .k_norm = o->d,
                          .qkv = o->a,
                          .qkv_stride = QKV,
                          .k_offset = Q,
                          .q = o->b,
                          .k = o->c };
}

static int run_rope(struct bench *b, const struct operands *o)
{
    const struct rope r = rope_of(o);
    return b->ops->rope(ON, &r, &b->diags);
}

static int run_rope_backward(struct bench *b, const struct operands *o)
{
    const struct rope_gradient r = { .forward = rope_of(o),
                                     .dqkv = o->e,
                                     .dq_norm = o->f,
                                     .dk_norm = o->g,
                                     .grad_type = DTYPE_FP32 };
    return b->ops->rope_backward(ON, &r, &b->diags);
}

static int run_adamw(struct bench *b, const struct operands *o)
{
    const struct adamw a = { INT64_C(1) << 28,
                             o->a,
                             DTYPE_FP32,
                             o->b,
                             o->c,
                             o->d,
                             o->e,
                             1.0F,
                             1e-6F,
                             0.9F,
                             0.95F,
                             1e-8F,
                             0.1F,
                             5 };
    return b->ops->adamw(ON, &a, &b->diags);
}

static void bench_flat(struct bench *b)
{
    const double count = (double)(1 << 28);
    static const struct bench_case cases[] = {
        { "copy", "2 GiB", 2 * 2147483648.0, 0, run_copy },
        { "add", "2^28 fp32", 0, 0, run_add },
        { "to_bf16", "2^28", 0, 0, run_to_bf16 },
        { "sum_squares", "2^28 fp32", 0, 0, run_squares },
        { "sum_squares", "2^29 bf16", 0, 0, run_squares_bf16 },
        { "adamw", "2^28, fp32 gradient", 0, 0, run_adamw },
    };
    static const double bytes_each[] = { 0, 12, 6, 4, 4, 30 };
    struct operands o = { random_memory(b, UINT64_C(1) << 31),
                          random_memory(b, UINT64_C(1) << 31),
                          memory(b, UINT64_C(1) << 30),
                          memory(b, UINT64_C(1) << 30),
                          memory(b, UINT64_C(1) << 29),
                          NULL,
                          NULL };
    (void)cudaMemset(o.c, 0, UINT64_C(1) << 30);
    (void)cudaMemset(o.d, 0, UINT64_C(1) << 30);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bench_case c = cases[i];
        c.bytes = i == 0 ? c.bytes : bytes_each[i] * count;
        measure(b, &c, &o);
    }
    release(b);
}

static void bench_rows(struct bench *b)
{
    const double row = 2.0 * TOKENS * HIDDEN, qkv = 2.0 * TOKENS * (Q + KV);
    const struct bench_case norms[] = {
        { "rmsnorm", "32768 x 2048", 2 * row, 0, run_norm },
        { "rmsnorm_backward", "32768 x 2048, added", 4 * row, 0, run_norm_backward },
    };
    struct operands o = { random_memory(b, (uint64_t)row),
                          random_memory(b, (uint64_t)row),
                          random_memory(b, UINT64_C(2) * HIDDEN),
                          random_memory(b, (uint64_t)row),
                          memory(b, UINT64_C(4) * HIDDEN),
                          NULL,
                          NULL };
    struct operands forward = { o.a, o.c, o.d, NULL, NULL, NULL, NULL };
    measure(b, &norms[0], &forward);
    measure(b, &norms[1], &o);
    release(b);

    const struct bench_case ropes[] = {
        { "rope", "32768, 32/4 x 128, norms", 2 * qkv, 0, run_rope },
        { "rope_backward", "32768, 32/4 x 128, norms", 3 * qkv, 0, run_rope_backward },
    };
    const uint64_t fused = UINT64_C(2) * TOKENS * QKV;
    struct operands r = { random_memory(b, fused), memory(b, fused),        memory(b, fused),
                          random_memory(b, 256),   random_memory(b, fused), memory(b, 512),
                          memory(b, 512) };
    measure(b, &ropes[0], &r);
    measure(b, &ropes[1], &r);
    release(b);
}

/* Choices of distinct experts, uniform; slots in expert order; the experts' loads. */
static void fill_routes(struct bench *b, int32_t *choices, int32_t *slots)
{
    uint64_t seed = 3;
    int64_t place[EXPERTS] = { 0 };
    for (int64_t i = 0; i < ROUTED; i++) {
        int64_t row = i / TOP_K * TOP_K;
        bool again = true;
        while (again) {
            choices[i] = (int32_t)random_below(&seed, EXPERTS);
            again = false;
            for (int64_t j = row; j < i; j++)
                again = again || choices[j] == choices[i];
        }
        place[choices[i]]++;
    }
    b->offsets[0] = 0;
    for (int e = 0; e < EXPERTS; e++) {
        b->offsets[e + 1] = b->offsets[e] + place[e];
        place[e] = b->offsets[e];
    }
    for (int64_t i = 0; i < ROUTED; i++)
        slots[i] = (int32_t)place[choices[i]]++;
}

static void bench_routed(struct bench *b, const int32_t *slots)
{
    const double row = 2.0 * TOKENS * HIDDEN, routed = 2.0 * ROUTED * HIDDEN;
    const double probs = 4.0 * TOKENS * EXPERTS, up = 4.0 * ROUTED * WIDTH;
    const struct bench_case moves[] = {
        { "scatter_rows", "32768 x 8 x 2048", row + routed, 0, run_scatter },
        { "gather_rows", "262144 x 2048", 2 * routed, 0, run_gather },
        { "spread_rows", "262144 x 2048", 2 * routed, 0, run_spread },
        { "combine_rows", "32768 x 8 x 2048", 2 * row + routed, 0, run_combine },
    };
    void *map = indices(b, slots, ROUTED);
    struct operands o = { random_memory(b, (uint64_t)routed),
                          map,
                          random_memory(b, (uint64_t)routed),
                          random_memory(b, UINT64_C(4) * ROUTED),
                          memory(b, UINT64_C(4) * ROUTED),
                          NULL,
                          NULL };
    for (int i = 0; i < 4; i++)
        measure(b, &moves[i], &o);
    release(b);

    const struct bench_case gates[] = {
        { "swiglu", "262144 x 768, weighted", 1.5 * up, 0, run_swiglu },
        { "swiglu_backward", "262144 x 768, weighted", 2.5 * up, 0, run_swiglu_backward },
        { "router", "32768, top 8 of 128", 2 * probs, 0, run_router },
        { "router_backward", "32768, top 8 of 128", 2 * probs, 0, run_router_backward },
        { "sort_choices", "262144 of 128, with read", 3 * 4.0 * ROUTED, 0, run_sort },
    };
    struct operands g = { random_memory(b, (uint64_t)up),
                          random_memory(b, UINT64_C(4) * ROUTED),
                          random_memory(b, (uint64_t)up),
                          memory(b, UINT64_C(4) * ROUTED),
                          memory(b, (uint64_t)probs),
                          NULL,
                          NULL };
    for (int i = 0; i < 2; i++)
        measure(b, &gates[i], &g);
    struct operands r = { random_memory(b, (uint64_t)probs),
                          memory(b, UINT64_C(4) * ROUTED),
                          memory(b, UINT64_C(4) * ROUTED),
                          random_memory(b, UINT64_C(4) * ROUTED),
                          memory(b, (uint64_t)probs),
                          NULL,
                          NULL };
    for (int i = 2; i < 5; i++)
        measure(b, &gates[i], &r);
    release(b);
}

static void bench_vocabulary(struct bench *b, int32_t *ids)
{
    const double row = 2.0 * TOKENS * HIDDEN, tile = (double)TILE * VOCAB;
    uint64_t seed = 4;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)random_below(&seed, VOCAB);
    const struct bench_case cases[] = {
        { "embed", "32768 x 2048", 2 * row, 0, run_embed },
        { "embed_backward", "32768 x 2048, fp32", 5 * row, 0, run_embed_backward },
        { "cross_entropy", "512 x 151936", 6 * tile, 0, run_loss },
    };
    void *tokens = indices(b, ids, TOKENS);
    struct operands o = { tokens,
                          random_memory(b, UINT64_C(2) * VOCAB * HIDDEN),
                          random_memory(b, (uint64_t)row),
                          memory(b, UINT64_C(4) * VOCAB * HIDDEN),
                          NULL,
                          NULL,
                          NULL };
    measure(b, &cases[0], &o);
    measure(b, &cases[1], &o);
    struct operands loss = { random_memory(b, (uint64_t)(4 * tile)),
                             tokens,
                             memory(b, (uint64_t)(2 * tile)),
                             NULL,
                             NULL,
                             NULL,
                             NULL };
    measure(b, &cases[2], &loss);
    release(b);
}

struct product {
    const char *name, *shape;
    enum gemm_form form;
    int64_t m, n, k;
    enum dtype c_type;
    bool accumulate, experts;
};

static const struct product products[] = {
    { "gemm qkv", "forward", GEMM_FORWARD, TOKENS, QKV, HIDDEN, DTYPE_BF16, false, false },
    { "gemm qkv", "input", GEMM_INPUT, TOKENS, QKV, HIDDEN, DTYPE_BF16, false, false },
    { "gemm qkv", "weight, fp32 added", GEMM_WEIGHT, TOKENS, QKV, HIDDEN, DTYPE_FP32, true, false },
    { "gemm qkv", "weight, bf16 added", GEMM_WEIGHT, TOKENS, QKV, HIDDEN, DTYPE_BF16, true, false },
    { "gemm output", "forward", GEMM_FORWARD, TOKENS, HIDDEN, Q, DTYPE_BF16, false, false },
    { "gemm output", "forward, added", GEMM_FORWARD, TOKENS, HIDDEN, Q, DTYPE_BF16, true, false },
    { "gemm output", "weight, fp32 added", GEMM_WEIGHT, TOKENS, HIDDEN, Q, DTYPE_FP32, true,
      false },
    { "gemm router", "forward, fp32", GEMM_FORWARD, TOKENS, EXPERTS, HIDDEN, DTYPE_FP32, false,
      false },
    { "gemm router", "weight, fp32 added", GEMM_WEIGHT, TOKENS, EXPERTS, HIDDEN, DTYPE_FP32, true,
      false },
    { "gemm head tile", "forward, fp32", GEMM_FORWARD, TILE, VOCAB, HIDDEN, DTYPE_FP32, false,
      false },
    { "gemm head tile", "input", GEMM_INPUT, TILE, VOCAB, HIDDEN, DTYPE_BF16, false, false },
    { "gemm head tile", "weight, fp32 added", GEMM_WEIGHT, TILE, VOCAB, HIDDEN, DTYPE_FP32, true,
      false },
    { "experts up", "forward", GEMM_FORWARD, ROUTED, 2 * WIDTH, HIDDEN, DTYPE_BF16, false, true },
    { "experts up", "input", GEMM_INPUT, ROUTED, 2 * WIDTH, HIDDEN, DTYPE_BF16, false, true },
    { "experts up", "weight, fp32 added", GEMM_WEIGHT, ROUTED, 2 * WIDTH, HIDDEN, DTYPE_FP32, true,
      true },
    { "experts down", "forward", GEMM_FORWARD, ROUTED, HIDDEN, WIDTH, DTYPE_BF16, false, true },
    { "experts down", "input", GEMM_INPUT, ROUTED, HIDDEN, WIDTH, DTYPE_BF16, false, true },
    { "experts down", "weight, fp32 added", GEMM_WEIGHT, ROUTED, HIDDEN, WIDTH, DTYPE_FP32, true,
      true },
};

static const struct product *under_way; /* of run_product */

static int run_product(struct bench *b, const struct operands *o)
{
    const struct product *p = under_way;
    bool forward = p->form == GEMM_FORWARD;
    struct gemm g = { .form = p->form,
                      .m = p->m,
                      .n = p->n,
                      .k = p->k,
                      .a = o->a,
                      .b = o->b,
                      .c = o->c,
                      .c_type = p->c_type,
                      .a_stride = forward ? p->k : p->n,
                      .b_stride = p->k,
                      .c_stride = forward ? p->n : p->k,
                      .accumulate = p->accumulate };
    if (!p->experts)
        return b->ops->gemm(ON, &g, &b->diags);
    const struct expert_gemm e = { g, EXPERTS, b->offsets, p->n * p->k };
    return b->ops->expert_gemm(ON, &e, &b->diags);
}

static void bench_products(struct bench *b)
{
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const struct product *p = under_way = &products[i];
        int64_t weight = p->n * p->k * (p->experts ? EXPERTS : 1);
        bool forward = p->form == GEMM_FORWARD, is_weight = p->form == GEMM_WEIGHT;
        int64_t c = is_weight ? weight : p->m * (forward ? p->n : p->k);
        struct operands o = {
            .a = random_memory(b, (uint64_t)(2 * p->m * (forward ? p->k : p->n))),
            .b = random_memory(b, (uint64_t)(2 * (is_weight ? p->m * p->k : weight))),
            .c = random_memory(b, (uint64_t)c * dtype_bytes(p->c_type)),
        };
        const double operations = 2.0 * (double)p->m * (double)p->n * (double)p->k;
        const struct bench_case one = { p->name, p->shape, 0, operations, run_product };
        measure(b, &one, &o);
        release(b);
    }
}

static struct attention_gradient attention_of(const struct operands *o, int heads, int kv_heads,
                                              int head_dim)
{
    int64_t q = (int64_t)heads * head_dim, kv = (int64_t)kv_heads * head_dim, row = q + 2 * kv;
    bf16 *fused = o->c, *gradient = o->e;
    return (struct attention_gradient){ .forward = { .sequences = 1,
                                                     .heads = heads,
                                                     .kv_heads = kv_heads,
                                                     .head_dim = head_dim,
                                                     .tokens = TOKENS,
                                                     .q = o->a,
                                                     .k = o->b,
                                                     .v = fused + q + kv,
                                                     .q_stride = q,
                                                     .k_stride = kv,
                                                     .v_stride = row,
                                                     .o = o->d,
                                                     .lse = o->f },
                                        .d_o = o->c,
                                        .dq = gradient,
                                        .dk = gradient + q,
                                        .dv = gradient + q + kv,
                                        .dq_stride = row,
                                        .dk_stride = row,
                                        .dv_stride = row,
                                        .delta = (float *)o->f + (int64_t)TOKENS * heads,
                                        .workspace = o->g };
}

static struct attention_gradient attention_under_way;

static int run_attention(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->attention(ON, &attention_under_way.forward, &b->diags);
}

static int run_attention_backward(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->attention_backward(ON, &attention_under_way, &b->diags);
}

static void bench_attention(struct bench *b)
{
    static const int shapes[][3] = { { 32, 4, 128 }, { 16, 2, 256 }, { 64, 8, 64 } };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int heads = shapes[i][0], kv_heads = shapes[i][1], head_dim = shapes[i][2];
        uint64_t q = UINT64_C(2) * TOKENS * (uint64_t)(heads * head_dim);
        uint64_t fused = UINT64_C(2) * TOKENS * (uint64_t)((heads + 2 * kv_heads) * head_dim);
        struct operands o = { random_memory(b, q),
                              random_memory(b, q),
                              random_memory(b, fused),
                              memory(b, q),
                              memory(b, fused),
                              memory(b, UINT64_C(8) * TOKENS * 64),
                              NULL };
        attention_under_way = attention_of(&o, heads, kv_heads, head_dim);
        uint64_t bytes =
            b->ops->attention_workspace_bytes(b->backend, &attention_under_way.forward);
        attention_under_way.workspace = memory(b, bytes ? bytes : 16);
        char shape[40];
        (void)snprintf(shape, sizeof shape, "32768, %d/%d x %d, +%.0f MiB", heads, kv_heads,
                       head_dim, (double)bytes / 1048576);
        const double work = 2.0 * heads * (double)TOKENS * TOKENS * head_dim;
        const struct bench_case forward = { "attention", shape, 0, work, run_attention };
        const struct bench_case backward = { "attention_backward", shape, 0, 2.5 * work,
                                             run_attention_backward };
        measure(b, &forward, &o);
        measure(b, &backward, &o);
        release(b);
    }
}

static int bench_open(struct bench *b)
{
    uint64_t seed = 1;
    memset(b, 0, sizeof *b);
    b->backend = backend_cuda_open(0, &b->diags);
    b->piece = malloc(PIECE);
    if (!b->backend || !b->piece) {
        diag_list_print(stdout, &b->diags);
        return 77;
    }
    b->cuda = (struct cuda *)b->backend;
    b->ops = b->backend->ops;
    /* Sign and fraction at random, exponents of 2^-1 to 2^-8. */
    for (int i = 0; i < PIECE / 2; i++) {
        uint64_t bits = random_next(&seed);
        b->piece[i] = (uint16_t)((bits & 0x807f) | (119 + (bits >> 20) % 8) << 7);
    }
    void *workspace = NULL;
    if (cudaMalloc(&workspace, b->ops->workspace_bytes(b->backend)) != cudaSuccess ||
        cudaEventCreate(&b->start) != cudaSuccess || cudaEventCreate(&b->stop) != cudaSuccess)
        return 1;
    b->ops->set_workspace(b->backend, workspace);
    return 0;
}

int main(void)
{
    static struct bench b;
    int32_t *choices = malloc(ROUTED * sizeof *choices), *slots = malloc(ROUTED * sizeof *slots);
    int status = choices && slots ? bench_open(&b) : 1;
    if (status != 0)
        return status;
    fill_routes(&b, choices, slots);
    bench_flat(&b);
    bench_rows(&b);
    bench_routed(&b, slots);
    bench_vocabulary(&b, choices);
    bench_products(&b);
    bench_attention(&b);
    printf("device memory in use %.0f MiB\n", (double)b.ops->device_bytes(b.backend) / 1048576);
    b.ops->close(b.backend);
    free(b.piece);
    free(choices);
    free(slots);
    return 0;
}
