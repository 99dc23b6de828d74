#include "tests/bench/cuda/bench.h"

#include <stdio.h>

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
    { "gemm head, 512", "forward, fp32", GEMM_FORWARD, TILE, VOCAB, HIDDEN, DTYPE_FP32, false,
      false },
    { "gemm head, 512", "input", GEMM_INPUT, TILE, VOCAB, HIDDEN, DTYPE_BF16, false, false },
    { "gemm head, 512", "weight, fp32 added", GEMM_WEIGHT, TILE, VOCAB, HIDDEN, DTYPE_FP32, true,
      false },
    { "gemm head, 2048", "forward, fp32", GEMM_FORWARD, INT64_C(4) * TILE, VOCAB, HIDDEN,
      DTYPE_FP32, false, false },
    { "gemm head, 2048", "input", GEMM_INPUT, INT64_C(4) * TILE, VOCAB, HIDDEN, DTYPE_BF16, false,
      false },
    { "gemm head, 2048", "weight, fp32 added", GEMM_WEIGHT, INT64_C(4) * TILE, VOCAB, HIDDEN,
      DTYPE_FP32, true, false },
    { "gemm head, 4096", "forward, fp32", GEMM_FORWARD, INT64_C(8) * TILE, VOCAB, HIDDEN,
      DTYPE_FP32, false, false },
    { "gemm head, 4096", "input", GEMM_INPUT, INT64_C(8) * TILE, VOCAB, HIDDEN, DTYPE_BF16, false,
      false },
    { "gemm head, 4096", "weight, fp32 added", GEMM_WEIGHT, INT64_C(8) * TILE, VOCAB, HIDDEN,
      DTYPE_FP32, true, false },
    { "experts up", "forward", GEMM_FORWARD, ROUTED, UP, HIDDEN, DTYPE_BF16, false, true },
    { "experts up", "input", GEMM_INPUT, ROUTED, UP, HIDDEN, DTYPE_BF16, false, true },
    { "experts up", "weight, fp32 added", GEMM_WEIGHT, ROUTED, UP, HIDDEN, DTYPE_FP32, true, true },
    { "experts down", "forward", GEMM_FORWARD, ROUTED, HIDDEN, WIDTH, DTYPE_BF16, false, true },
    { "experts down", "input", GEMM_INPUT, ROUTED, HIDDEN, WIDTH, DTYPE_BF16, false, true },
    { "experts down", "weight, fp32 added", GEMM_WEIGHT, ROUTED, HIDDEN, WIDTH, DTYPE_FP32, true,
      true },
};

static int run_product(struct bench *b, const struct operands *o)
{
    const struct product *p = b->product;
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
                      .accumulate = p->accumulate,
                      .plan_rows = p->n == VOCAB ? p->m : 0 };
    if (!p->experts)
        return b->ops->gemm(ON, &g, &b->diags);
    const struct expert_gemm e = { g, EXPERTS, b->offsets, p->n * p->k };
    return b->ops->expert_gemm(ON, &e, &b->diags);
}

void bench_products(struct bench *b)
{
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const struct product *p = b->product = &products[i];
        int64_t weight = p->n * p->k * (p->experts ? EXPERTS : 1);
        bool forward = p->form == GEMM_FORWARD, is_weight = p->form == GEMM_WEIGHT;
        int64_t c = is_weight ? weight : p->m * (forward ? p->n : p->k);
        struct operands o = {
            .a = bench_random(b, (uint64_t)(2 * p->m * (forward ? p->k : p->n))),
            .b = bench_random(b, (uint64_t)(2 * (is_weight ? p->m * p->k : weight))),
            .c = bench_random(b, (uint64_t)c * dtype_bytes(p->c_type)),
        };
        const double operations = 2.0 * (double)p->m * (double)p->n * (double)p->k;
        const struct bench_case one = { p->name, p->shape, 0, operations, run_product };
        bench_measure(b, &one, &o);
        bench_release(b);
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

static int run_attention(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->attention(ON, &b->attention.forward, &b->diags);
}

static int run_attention_backward(struct bench *b, const struct operands *o)
{
    (void)o;
    return b->ops->attention_backward(ON, &b->attention, &b->diags);
}

/* The last quarter of the queries against every key, gradients of keys added to sums: what a rank
 * of two runs of gathered keys. */
static void make_part(struct bench *b, struct attention_gradient *g)
{
    int64_t width = (int64_t)2 * g->forward.kv_heads * g->forward.head_dim;
    g->forward.key_tokens = TOKENS;
    g->forward.tokens = TOKENS / 4;
    g->forward.first_query = TOKENS - TOKENS / 4;
    g->forward.v = g->forward.k + width / 2;
    g->forward.k_stride = g->forward.v_stride = g->sum_stride = width;
    g->dk_sum = bench_random(b, (uint64_t)(TOKENS * width) * sizeof(float));
    g->dv_sum = g->dk_sum + width / 2;
}

void bench_attention(struct bench *b)
{
    static const int shapes[][4] = {
        { 32, 4, 128, 0 }, { 16, 2, 256, 0 }, { 64, 8, 64, 0 }, { 32, 4, 128, 1 }
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int heads = shapes[i][0], kv_heads = shapes[i][1], head_dim = shapes[i][2];
        uint64_t q = UINT64_C(2) * TOKENS * (uint64_t)(heads * head_dim);
        uint64_t fused = UINT64_C(2) * TOKENS * (uint64_t)((heads + 2 * kv_heads) * head_dim);
        struct operands o = { bench_random(b, q),
                              bench_random(b, q),
                              bench_random(b, fused),
                              bench_memory(b, q),
                              bench_memory(b, fused),
                              bench_memory(b, UINT64_C(8) * TOKENS * 64),
                              NULL };
        b->attention = attention_of(&o, heads, kv_heads, head_dim);
        if (shapes[i][3])
            make_part(b, &b->attention);
        uint64_t bytes = b->ops->attention_workspace_bytes(b->backend, &b->attention.forward);
        b->attention.workspace = bench_memory(b, bytes ? bytes : 16);
        char shape[48];
        (void)snprintf(shape, sizeof shape, "%lld, %d/%d x %d, +%llu",
                       (long long)b->attention.forward.tokens, heads, kv_heads, head_dim,
                       (unsigned long long)bytes);
        /* The last quarter's rows hold 7 sixteenths of the triangle. */
        const double all = 2.0 * heads * (double)TOKENS * TOKENS * head_dim;
        const double work = shapes[i][3] ? all * 7 / 16 : all;
        const struct bench_case forward = { "attention", shape, 0, work, run_attention };
        const struct bench_case backward = { "attention_backward", shape, 0, 2.5 * work,
                                             run_attention_backward };
        bench_measure(b, &forward, &o);
        bench_measure(b, &backward, &o);
        bench_release(b);
    }
}
