#include "tests/bench/cuda/bench.h"

#include "tests/support/random.h"

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

RUN(squares, sum_squares(ON, INT64_C(1) << 28, o->a, DTYPE_FP32, &b->sink, &b->diags))
RUN(squares_bf16, sum_squares(ON, INT64_C(1) << 29, o->a, DTYPE_BF16, &b->sink, &b->diags))
RUN(loss, cross_entropy(ON, TILE, VOCAB, o->a, o->b, 1e-5F, o->c, &b->sink, &b->diags))

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
    struct operands o = { bench_random(b, UINT64_C(1) << 31),
                          bench_random(b, UINT64_C(1) << 31),
                          bench_memory(b, UINT64_C(1) << 30),
                          bench_memory(b, UINT64_C(1) << 30),
                          bench_memory(b, UINT64_C(1) << 29),
                          NULL,
                          NULL };
    (void)cudaMemset(o.c, 0, UINT64_C(1) << 30);
    (void)cudaMemset(o.d, 0, UINT64_C(1) << 30);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bench_case c = cases[i];
        c.bytes = i == 0 ? c.bytes : bytes_each[i] * count;
        bench_measure(b, &c, &o);
    }
    bench_release(b);
}

static void bench_norms(struct bench *b)
{
    const double row = 2.0 * TOKENS * HIDDEN, qkv = 2.0 * TOKENS * (Q + KV);
    const struct bench_case norms[] = {
        { "rmsnorm", "32768 x 2048", 2 * row, 0, run_norm },
        { "rmsnorm_backward", "32768 x 2048, added", 4 * row, 0, run_norm_backward },
    };
    struct operands o = { bench_random(b, (uint64_t)row),
                          bench_random(b, (uint64_t)row),
                          bench_random(b, UINT64_C(2) * HIDDEN),
                          bench_random(b, (uint64_t)row),
                          bench_memory(b, UINT64_C(4) * HIDDEN),
                          NULL,
                          NULL };
    struct operands forward = { o.a, o.c, o.d, NULL, NULL, NULL, NULL };
    bench_measure(b, &norms[0], &forward);
    bench_measure(b, &norms[1], &o);
    bench_release(b);

    const struct bench_case ropes[] = {
        { "rope", "32768, 32/4 x 128, norms", 2 * qkv, 0, run_rope },
        { "rope_backward", "32768, 32/4 x 128, norms", 3 * qkv, 0, run_rope_backward },
    };
    const uint64_t fused = UINT64_C(2) * TOKENS * QKV;
    struct operands r = { bench_random(b, fused), bench_memory(b, fused), bench_memory(b, fused),
                          bench_random(b, 256),   bench_random(b, fused), bench_memory(b, 512),
                          bench_memory(b, 512) };
    bench_measure(b, &ropes[0], &r);
    bench_measure(b, &ropes[1], &r);
    bench_release(b);
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
    void *map = bench_indices(b, slots, ROUTED);
    struct operands o = { bench_random(b, (uint64_t)routed),
                          map,
                          bench_random(b, (uint64_t)routed),
                          bench_random(b, UINT64_C(4) * ROUTED),
                          bench_memory(b, UINT64_C(4) * ROUTED),
                          NULL,
                          NULL };
    for (int i = 0; i < 4; i++)
        bench_measure(b, &moves[i], &o);
    bench_release(b);

    const struct bench_case gates[] = {
        { "swiglu", "262144 x 768, weighted", 1.5 * up, 0, run_swiglu },
        { "swiglu_backward", "262144 x 768, weighted", 2.5 * up, 0, run_swiglu_backward },
        { "router", "32768, top 8 of 128", 2 * probs, 0, run_router },
        { "router_backward", "32768, top 8 of 128", 2 * probs, 0, run_router_backward },
        { "sort_choices", "262144 of 128, with read", 3 * 4.0 * ROUTED, 0, run_sort },
    };
    struct operands g = { bench_random(b, (uint64_t)up),
                          bench_random(b, UINT64_C(4) * ROUTED),
                          bench_random(b, (uint64_t)up),
                          bench_memory(b, UINT64_C(4) * ROUTED),
                          bench_memory(b, (uint64_t)probs),
                          NULL,
                          NULL };
    for (int i = 0; i < 2; i++)
        bench_measure(b, &gates[i], &g);
    struct operands r = { bench_random(b, (uint64_t)probs),
                          bench_memory(b, UINT64_C(4) * ROUTED),
                          bench_memory(b, UINT64_C(4) * ROUTED),
                          bench_random(b, UINT64_C(4) * ROUTED),
                          bench_memory(b, (uint64_t)probs),
                          NULL,
                          NULL };
    for (int i = 2; i < 5; i++)
        bench_measure(b, &gates[i], &r);
    bench_release(b);
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
    void *tokens = bench_indices(b, ids, TOKENS);
    struct operands o = { tokens,
                          bench_random(b, UINT64_C(2) * VOCAB * HIDDEN),
                          bench_random(b, (uint64_t)row),
                          bench_memory(b, UINT64_C(4) * VOCAB * HIDDEN),
                          NULL,
                          NULL,
                          NULL };
    bench_measure(b, &cases[0], &o);
    bench_measure(b, &cases[1], &o);
    struct operands loss = { bench_random(b, (uint64_t)(4 * tile)),
                             tokens,
                             bench_memory(b, (uint64_t)(2 * tile)),
                             NULL,
                             NULL,
                             NULL,
                             NULL };
    bench_measure(b, &cases[2], &loss);
    bench_release(b);
}

void bench_rows(struct bench *b, int32_t *choices, const int32_t *slots)
{
    bench_flat(b);
    bench_norms(b);
    bench_routed(b, slots);
    bench_vocabulary(b, choices);
}
