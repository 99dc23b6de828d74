/* The inputs of the delta rule and the norm that follows it, against the host: convolutions with
 * and without a halo, queries, keys and values apart and head by head, heads that are read four
 * elements at a time and others; tails; the gated norm. */
#include "tests/unit/cuda/cases.h"

struct shape {
    struct delta_heads heads;
    int runs, tokens, width;
    bool joint, halo; /* joint: a key head's queries, keys, values and gates side by side */
    enum dtype type;
};

static struct delta_columns columns_of(const struct delta_heads *h, bool joint)
{
    int64_t each = h->value_heads / h->key_heads, keys = (int64_t)h->key_heads * h->key_dim;
    int64_t values = (int64_t)h->value_heads * h->value_dim, key = h->key_dim;
    int64_t share = each * h->value_dim, group = 2 * (key + share), all = 2 * (keys + values);
    if (joint)
        return (struct delta_columns){ 0,          key,   2 * key, 2 * key + share, all,
                                       all + each, group, group,   2 * each };
    return (struct delta_columns){
        0, keys, 2 * keys, 2 * keys + values, all, all + h->value_heads, key, share, each
    };
}

static int64_t stride_of(const struct delta_heads *h)
{
    return delta_channels(h) + (int64_t)h->value_heads * (h->value_dim + 2);
}

struct tensors {
    struct array p, halo, conv, log_rate, step, qkv, decay, beta;
    struct array d_qkv, d_decay, d_beta, d_p, d_halo, d_conv, d_log_rate, d_step;
};

static struct tensors tensors_of(struct pair *p, const struct shape *s)
{
    const struct delta_heads *h = &s->heads;
    int64_t rows = (int64_t)s->runs * s->tokens, channels = delta_channels(h);
    int64_t halos = (int64_t)s->runs * (s->width - 1) * channels, gates = rows * h->value_heads;
    enum kind grad = s->type == DTYPE_FP32 ? KIND_FP32 : KIND_BF16;
    return (struct tensors){
        .p = pair_random(p, KIND_BF16, rows * stride_of(h), 1),
        .halo = pair_random(p, KIND_BF16, halos, 1),
        .conv = pair_random(p, KIND_BF16, channels * s->width, 0.5),
        .log_rate = pair_random(p, KIND_BF16, h->value_heads, 1),
        .step = pair_random(p, KIND_BF16, h->value_heads, 1),
        .qkv = pair_poison(p, KIND_BF16, rows * channels),
        .decay = pair_poison(p, KIND_FP32, gates),
        .beta = pair_poison(p, KIND_FP32, gates),
        .d_qkv = pair_random(p, KIND_BF16, rows * channels, 1),
        .d_decay = pair_random(p, KIND_FP32, gates, 1),
        .d_beta = pair_random(p, KIND_FP32, gates, 1),
        .d_p = pair_random(p, KIND_BF16, rows * stride_of(h), 1), /* z's columns stay */
        .d_halo = pair_poison(p, KIND_FP32, halos),
        .d_conv = pair_random(p, grad, channels * s->width, 1),
        .d_log_rate = pair_random(p, grad, h->value_heads, 1),
        .d_step = pair_random(p, grad, h->value_heads, 1),
    };
}

static void *behind(const struct array *a, int side, int64_t elements)
{
    return (char *)a->at[side] + elements * (a->kind == KIND_BF16 ? 2 : 4);
}

static struct delta_input_gradient gradient_of(const struct shape *s, const struct tensors *t,
                                               int side)
{
    const struct delta_heads *h = &s->heads;
    int64_t keys = (int64_t)h->key_heads * h->key_dim * s->width;
    struct delta_input_gradient g = { .forward = { .heads = *h,
                                                   .columns = columns_of(h, s->joint),
                                                   .runs = s->runs,
                                                   .width = s->width,
                                                   .tokens = s->tokens,
                                                   .p = t->p.at[side],
                                                   .p_stride = stride_of(h),
                                                   .halo = s->halo ? t->halo.at[side] : NULL,
                                                   .log_rate = t->log_rate.at[side],
                                                   .step = t->step.at[side],
                                                   .qkv = t->qkv.at[side],
                                                   .decay = t->decay.at[side],
                                                   .beta = t->beta.at[side] },
                                      .d_qkv = t->d_qkv.at[side],
                                      .d_decay = t->d_decay.at[side],
                                      .d_beta = t->d_beta.at[side],
                                      .d_p = t->d_p.at[side],
                                      .d_halo = s->halo ? t->d_halo.at[side] : NULL,
                                      .d_log_rate = t->d_log_rate.at[side],
                                      .d_step = t->d_step.at[side],
                                      .grad_type = s->type };
    for (int kind = 0; kind < 3; kind++) {
        g.forward.conv[kind] = behind(&t->conv, side, kind * keys);
        g.d_conv[kind] = behind(&t->d_conv, side, kind * keys);
    }
    return g;
}

static void input(struct pair *p, const struct shape *s)
{
    const struct delta_heads *h = &s->heads;
    double summed = s->type == DTYPE_FP32 ? 1e-4 : ROUNDED;
    struct delta_input_gradient sides[SIDES];
    pair_case(p, "delta_input", "%d/%d x %d, %d, %d x %d, conv %d%s%s", h->key_heads,
              h->value_heads, h->key_dim, h->value_dim, s->runs, s->tokens, s->width,
              s->joint ? ", joint" : "", s->halo ? ", halo" : "");
    const struct tensors t = tensors_of(p, s);
    for (int side = HOST; side < SIDES; side++)
        sides[side] = gradient_of(s, &t, side);
    PAIR_RUN(p, delta_input, &sides[side].forward);
    pair_compare(p, "qkv", &t.qkv, ROUNDED);
    pair_compare(p, "decay", &t.decay, SUMMED);
    pair_compare(p, "beta", &t.beta, SUMMED);
    PAIR_RUN(p, delta_input_backward, &sides[side]);
    pair_compare(p, "d_p", &t.d_p, ROUNDED);
    pair_compare(p, "d_conv", &t.d_conv, summed);
    pair_compare(p, "d_log_rate", &t.d_log_rate, summed);
    pair_compare(p, "d_step", &t.d_step, summed);
    if (s->halo)
        pair_compare(p, "d_halo", &t.d_halo, 1e-4);
}

static void tails(struct pair *p, const struct delta_heads *h, bool joint)
{
    enum { RUNS = 3, TOKENS = 5, WIDTH = 4 };
    pair_case(p, "delta_tails", "%d/%d x %d, %d%s", h->key_heads, h->value_heads, h->key_dim,
              h->value_dim, joint ? ", joint" : "");
    int64_t rows = RUNS * TOKENS, count = RUNS * (WIDTH - 1) * delta_channels(h);
    struct array values = pair_random(p, KIND_BF16, rows * stride_of(h), 1);
    struct array to = pair_poison(p, KIND_BF16, count);
    struct array d_tails = pair_random(p, KIND_FP32, count, 1);
    struct array d_p = pair_random(p, KIND_BF16, rows * stride_of(h), 1);
    struct delta_tails sides[SIDES];
    for (int side = HOST; side < SIDES; side++)
        sides[side] = (struct delta_tails){ .heads = *h,
                                            .columns = columns_of(h, joint),
                                            .runs = RUNS,
                                            .width = WIDTH,
                                            .tokens = TOKENS,
                                            .p_stride = stride_of(h),
                                            .p = values.at[side],
                                            .tails = to.at[side],
                                            .d_tails = d_tails.at[side],
                                            .d_p = d_p.at[side] };
    PAIR_RUN(p, delta_tails, &sides[side]);
    pair_compare(p, "tails", &to, 0);
    PAIR_RUN(p, delta_tails_backward, &sides[side]);
    pair_compare(p, "d_p", &d_p, 0);
}

static void norm(struct pair *p, const struct delta_heads *h, int64_t rows, bool joint,
                 enum dtype type)
{
    pair_case(p, "gated_norm", "%lld rows, %d/%d x %d%s", (long long)rows, h->key_heads,
              h->value_heads, h->value_dim, joint ? ", joint" : "");
    int64_t values = rows * h->value_heads * h->value_dim;
    struct array o = pair_random(p, KIND_BF16, values, 0.3);
    struct array gates = pair_random(p, KIND_BF16, rows * stride_of(h), 2);
    struct array weight = pair_random(p, KIND_BF16, h->value_dim, 1);
    struct array on = pair_poison(p, KIND_BF16, values);
    struct array d_o = pair_random(p, KIND_BF16, values, 1);
    struct array d_p = pair_random(p, KIND_BF16, rows * stride_of(h), 1);
    struct array d_weight =
        pair_random(p, type == DTYPE_FP32 ? KIND_FP32 : KIND_BF16, h->value_dim, 1);
    struct gated_norm_gradient sides[SIDES];
    for (int side = HOST; side < SIDES; side++)
        sides[side] = (struct gated_norm_gradient){ .forward = { .heads = *h,
                                                                 .columns = columns_of(h, joint),
                                                                 .rows = rows,
                                                                 .p_stride = stride_of(h),
                                                                 .eps = 1e-6,
                                                                 .o = o.at[side],
                                                                 .p = gates.at[side],
                                                                 .weight = weight.at[side],
                                                                 .on = on.at[side] },
                                                    .d_o = d_o.at[side],
                                                    .d_p = d_p.at[side],
                                                    .d_weight = d_weight.at[side],
                                                    .grad_type = type };
    PAIR_RUN(p, gated_norm, &sides[side].forward);
    pair_compare(p, "on", &on, ROUNDED);
    PAIR_RUN(p, gated_norm_backward, &sides[side]);
    pair_compare(p, "d_o", &d_o, ROUNDED);
    pair_compare(p, "d_z", &d_p, ROUNDED);
    pair_compare(p, "d_weight", &d_weight, type == DTYPE_FP32 ? 1e-4 : ROUNDED);
}

void cases_delta_input(struct pair *p)
{
    static const struct shape shapes[] = {
        { { 2, 4, 128, 128 }, 1, 1, 4, false, false, DTYPE_FP32 },
        { { 2, 4, 128, 128 }, 2, 2, 4, true, true, DTYPE_FP32 },
        { { 2, 4, 128, 128 }, 3, 67, 4, false, true, DTYPE_BF16 },
        { { 1, 2, 128, 128 }, 1, 1000, 4, true, false, DTYPE_FP32 },
        { { 2, 2, 32, 64 }, 2, 70, 4, false, true, DTYPE_FP32 },
        { { 3, 3, 64, 128 }, 1, 300, 4, true, false, DTYPE_FP32 },
        { { 1, 1, 128, 128 }, 700, 5, 4, false, true, DTYPE_FP32 }, /* more runs than blocks */
        { { 2, 6, 8, 4 }, 2, 7, 4, true, true, DTYPE_FP32 },
        { { 2, 6, 12, 20 }, 1, 130, 4, false, false, DTYPE_FP32 },
        { { 1, 1, 128, 128 }, 2, 33, 3, false, true, DTYPE_FP32 },
        { { 1, 3, 512, 96 }, 1, 21, 8, true, false, DTYPE_FP32 },
    };
    static const struct delta_heads heads[] = { { 2, 4, 128, 128 },
                                                { 2, 6, 12, 20 },
                                                { 1, 1, 512, 512 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        input(p, &shapes[i]);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int joint = 0; joint < 2; joint++) {
            tails(p, &heads[i], joint != 0);
            norm(p, &heads[i], joint ? 3 : 200, joint != 0, joint ? DTYPE_BF16 : DTYPE_FP32);
        }
}
