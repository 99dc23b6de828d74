#include "tests/unit/cuda/cases.h"

#include <string.h>

struct heads {
    int heads, kv_heads, head_dim, rotary_dim;
    int64_t rows, tokens;
    bool norms, gated, runs;
};

static const struct heads shapes[] = {
    { 4, 2, 128, 128, 203, 203, true, false, false }, { 2, 1, 64, 64, 90, 45, false, false, false },
    { 16, 2, 256, 64, 40, 20, true, true, false },    { 3, 3, 96, 32, 33, 11, true, false, false },
    { 4, 2, 16, 16, 24, 12, true, false, true },      { 4, 2, 16, 8, 24, 12, true, true, false },
};

/* Rows of q | (gates) | k | v; positions of the second shape's runs are far out. */
static struct rope rope_of(const struct heads *h)
{
    int64_t each = h->gated ? 2 * h->head_dim : h->head_dim;
    int64_t q = h->heads * each, kv = (int64_t)h->kv_heads * h->head_dim;
    struct rope r = { .rows = h->rows,
                      .tokens = h->tokens,
                      .heads = h->heads,
                      .kv_heads = h->kv_heads,
                      .head_dim = h->head_dim,
                      .rotary_dim = h->rotary_dim,
                      .theta = 1e6,
                      .norm_eps = 1e-6,
                      .qkv_stride = q + 2 * kv,
                      .k_offset = q,
                      .q_head_stride = h->gated ? each : 0,
                      .norm_zero_centred = h->gated };
    if (h->runs) {
        r.run_tokens = h->tokens / 2;
        r.run_first[0] = 1000;
        r.run_first[1] = 130000;
    }
    return r;
}

static void name(struct pair *p, const char *operation, const struct heads *h)
{
    pair_case(p, operation, "%lld rows, %d/%d x %d, rotary %d%s%s", (long long)h->rows, h->heads,
              h->kv_heads, h->head_dim, h->rotary_dim, h->norms ? ", norms" : "",
              h->gated ? ", gated" : "");
}

static void forward(struct pair *p, const struct heads *h)
{
    struct rope r = rope_of(h);
    name(p, "rope", h);
    struct array qkv = pair_random(p, KIND_BF16, r.rows * r.qkv_stride, 1);
    struct array q_norm = pair_random(p, KIND_BF16, r.head_dim, 1);
    struct array k_norm = pair_random(p, KIND_BF16, r.head_dim, 1);
    struct array q = pair_poison(p, KIND_BF16, r.rows * r.heads * r.head_dim);
    struct array k = pair_poison(p, KIND_BF16, r.rows * r.kv_heads * r.head_dim);
    struct rope sides[SIDES] = { r, r };
    for (int i = 0; i < SIDES; i++) {
        sides[i].qkv = qkv.at[i];
        sides[i].q_norm = h->norms ? q_norm.at[i] : NULL;
        sides[i].k_norm = h->norms ? k_norm.at[i] : NULL;
        sides[i].q = q.at[i];
        sides[i].k = k.at[i];
    }
    PAIR_RUN(p, rope, &sides[side]);
    pair_compare(p, "q", &q, ROUNDED);
    pair_compare(p, "k", &k, ROUNDED);
}

static void backward(struct pair *p, const struct heads *h)
{
    struct rope r = rope_of(h);
    name(p, "rope_backward", h);
    struct array qkv = pair_random(p, KIND_BF16, r.rows * r.qkv_stride, 1);
    struct array q_norm = pair_random(p, KIND_BF16, r.head_dim, 1);
    struct array k_norm = pair_random(p, KIND_BF16, r.head_dim, 1);
    struct array dqkv = pair_random(p, KIND_BF16, r.rows * r.qkv_stride, 1);
    struct array dq_norm = pair_random(p, KIND_FP32, r.head_dim, 1);
    struct array dk_norm = pair_random(p, KIND_FP32, r.head_dim, 1);
    struct rope_gradient sides[SIDES];
    memset(sides, 0, sizeof sides);
    for (int i = 0; i < SIDES; i++) {
        sides[i].forward = r;
        sides[i].forward.qkv = qkv.at[i];
        sides[i].forward.q_norm = h->norms ? q_norm.at[i] : NULL;
        sides[i].forward.k_norm = h->norms ? k_norm.at[i] : NULL;
        sides[i].dqkv = dqkv.at[i];
        sides[i].dq_norm = dq_norm.at[i];
        sides[i].dk_norm = dk_norm.at[i];
        sides[i].grad_type = DTYPE_FP32;
    }
    PAIR_RUN(p, rope_backward, &sides[side]);
    pair_compare(p, "dqkv", &dqkv, ROUNDED);
    pair_compare(p, "dq_norm", &dq_norm, SUMMED);
    pair_compare(p, "dk_norm", &dk_norm, SUMMED);
}

void cases_rope(struct pair *p)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        forward(p, &shapes[i]);
        backward(p, &shapes[i]);
    }
}
