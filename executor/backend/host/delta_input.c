#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"

#include <math.h>

/* Buffers of these sizes stand on the stack. */
enum { HEAD_MAX = DELTA_HEAD_MAX, CONV_MAX = DELTA_CONV_MAX };

static const float norm_epsilon = 1e-6F;

/* One head's channels: where they are in dense rows and in the projection. */
struct piece {
    int64_t channel, column;
    int width;
    int kind;      /* 0 a query's, 1 a key's, 2 a value's */
    int64_t first; /* among the channels of its kind */
};

static int piece_count(const struct delta_heads *h)
{
    return 2 * h->key_heads + h->value_heads;
}

static struct piece piece_of(const struct delta_heads *h, const struct delta_columns *c, int i)
{
    int key_heads = h->key_heads, value = i - 2 * key_heads, each = h->value_heads / key_heads;
    int64_t head = i % key_heads;
    if (value < 0)
        return (struct piece){ .channel = (int64_t)i * h->key_dim,
                               .column = (i < key_heads ? c->q : c->k) + head * c->key_step,
                               .width = h->key_dim,
                               .kind = i / key_heads,
                               .first = head * h->key_dim };
    return (struct piece){
        .channel = (int64_t)2 * key_heads * h->key_dim + (int64_t)value * h->value_dim,
        .column = c->v + value / each * c->value_step + (int64_t)(value % each) * h->value_dim,
        .width = h->value_dim,
        .kind = 2,
        .first = (int64_t)value * h->value_dim
    };
}

static int64_t gate_column(const struct delta_heads *h, const struct delta_columns *c,
                           int64_t first, int head)
{
    int each = h->value_heads / h->key_heads;
    return first + head / each * c->gate_step + head % each;
}

static int check(const struct delta_input *d, struct diag_list *reterr)
{
    const struct delta_heads *h = &d->heads;
    if (h->key_dim > HEAD_MAX || h->value_dim > HEAD_MAX || d->width > CONV_MAX)
        return diag_error(reterr, (struct pos){ 0 },
                          "delta net: heads of %d and %d, a convolution of %d (at most %d and %d)",
                          h->key_dim, h->value_dim, d->width, HEAD_MAX, CONV_MAX);
    return 0;
}

/* The piece's elements of token t of a run; before the run those of the halo, NULL for zeros. */
static const bf16 *token_of(const struct delta_input *d, const struct piece *p, int run, int64_t t)
{
    if (t >= 0)
        return d->p + (run * d->tokens + t) * d->p_stride + p->column;
    if (!d->halo)
        return NULL;
    return d->halo +
           ((int64_t)run * (d->width - 1) + d->width - 1 + t) * delta_channels(&d->heads) +
           p->channel;
}

HOST_HOT
static void add_tap(int count, const bf16 *x, const bf16 *conv, int width, int tap, float *pre)
{
    for (int i = 0; i < count; i++)
        pre[i] += bf16_to_float(x[i]) * bf16_to_float(conv[i * width + tap]);
}

static const bf16 *conv_of(const struct delta_input *d, const struct piece *p)
{
    return d->conv[p->kind] + p->first * d->width;
}

/* What SiLU is applied to. */
static void convolve(const struct delta_input *d, const struct piece *p, int run, int64_t t,
                     float *pre)
{
    memset(pre, 0, (size_t)p->width * sizeof *pre);
    for (int tap = 0; tap < d->width; tap++) {
        const bf16 *x = token_of(d, p, run, t - d->width + 1 + tap);
        if (x)
            add_tap(p->width, x, conv_of(d, p), d->width, tap, pre);
    }
}

HOST_HOT
static void silu(int count, const float *pre, float *act)
{
    for (int i = 0; i < count; i++)
        act[i] = pre[i] * fast_sigmoid(pre[i]);
}

static float inverse_length(int count, const float *act)
{
    float sum = 0;
    for (int i = 0; i < count; i++)
        sum += act[i] * act[i];
    return 1 / sqrtf(sum + norm_epsilon);
}

static void input_row(const struct delta_input *d, const struct piece *p, int run, int64_t t)
{
    bf16 *to = d->qkv + (run * d->tokens + t) * delta_channels(&d->heads) + p->channel;
    float pre[HEAD_MAX], act[HEAD_MAX];

    convolve(d, p, run, t, pre);
    silu(p->width, pre, act);
    float scale = (p->kind < 2) ? inverse_length(p->width, act) : 1;
    for (int i = 0; i < p->width; i++)
        to[i] = bf16_from_float(act[i] * scale);
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* What a head's decay and beta of a row are made of. */
struct gates {
    float a, b, rate;
    int64_t a_column, b_column;
};

static struct gates gates_of(const struct delta_input *d, int64_t row, int head)
{
    struct gates g = { .a_column = gate_column(&d->heads, &d->columns, d->columns.a, head),
                       .b_column = gate_column(&d->heads, &d->columns, d->columns.b, head) };
    g.a = bf16_to_float(d->p[row * d->p_stride + g.a_column]) + bf16_to_float(d->step[head]);
    g.b = bf16_to_float(d->p[row * d->p_stride + g.b_column]);
    g.rate = expf(bf16_to_float(d->log_rate[head]));
    return g;
}

int host_delta_input(struct backend *b, enum stream s, const struct delta_input *d,
                     struct diag_list *reterr)
{
    int heads = d->heads.value_heads;
    (void)b, (void)s;
    if (check(d, reterr) != 0)
        return -1;
    for (int run = 0; run < d->runs; run++)
        for (int i = 0; i < piece_count(&d->heads); i++) {
            const struct piece p = piece_of(&d->heads, &d->columns, i);
            for (int64_t t = 0; t < d->tokens; t++)
                input_row(d, &p, run, t);
        }
    for (int64_t row = 0; row < d->runs * d->tokens; row++)
        for (int head = 0; head < heads; head++) {
            const struct gates g = gates_of(d, row, head);
            d->decay[row * heads + head] = -g.rate * softplus(g.a);
            d->beta[row * heads + head] = sigmoid(g.b);
        }
    return 0;
}

/* The gradient of what SiLU was applied to: y = act / |act|, act = pre sigma(pre). */
static void through_norm(const struct delta_input_gradient *d, const struct piece *p, int run,
                         int64_t t, float *d_pre)
{
    const struct delta_input *f = &d->forward;
    const bf16 *dy = d->d_qkv + (run * f->tokens + t) * delta_channels(&f->heads) + p->channel;
    float pre[HEAD_MAX], act[HEAD_MAX], along = 0, inverse = 1;

    convolve(f, p, run, t, pre);
    silu(p->width, pre, act);
    if ((p->kind < 2)) {
        inverse = inverse_length(p->width, act);
        for (int i = 0; i < p->width; i++)
            along += bf16_to_float(dy[i]) * act[i];
        along *= inverse * inverse;
    }
    for (int i = 0; i < p->width; i++) {
        float sigma = fast_sigmoid(pre[i]);
        float d_act = inverse * (bf16_to_float(dy[i]) - act[i] * along);
        d_pre[i] = d_act * sigma * (1 + pre[i] * (1 - sigma));
    }
}

/* A piece's backward: gradients of the last `width` tokens in a ring, of the weights in sums. */
struct piece_sums {
    float d_x[CONV_MAX][HEAD_MAX];
    float d_conv[HEAD_MAX * CONV_MAX];
};

/* Token t has got all that is due to it. */
static void leave(const struct delta_input_gradient *d, const struct piece *p, int run, int64_t t,
                  float *d_x)
{
    const struct delta_input *f = &d->forward;
    bf16 *to = d->d_p + (run * f->tokens + t) * f->p_stride + p->column;

    if (t >= 0)
        for (int i = 0; i < p->width; i++)
            to[i] = bf16_from_float(d_x[i]);
    else if (d->d_halo)
        memcpy(d->d_halo +
                   ((int64_t)run * (f->width - 1) + f->width - 1 + t) * delta_channels(&f->heads) +
                   p->channel,
               d_x, (size_t)p->width * sizeof *d_x);
    memset(d_x, 0, (size_t)p->width * sizeof *d_x);
}

static void spread_row(const struct delta_input *f, const struct piece *p, int run, int64_t t,
                       const float *d_pre, struct piece_sums *sums)
{
    const bf16 *conv = conv_of(f, p);

    for (int tap = 0; tap < f->width; tap++) {
        int64_t from = t - f->width + 1 + tap;
        float *d_x = sums->d_x[(from + f->width) % f->width];
        const bf16 *x = token_of(f, p, run, from);
        for (int i = 0; i < p->width; i++)
            d_x[i] += d_pre[i] * bf16_to_float(conv[i * f->width + tap]);
        for (int i = 0; x && i < p->width; i++)
            sums->d_conv[i * f->width + tap] += d_pre[i] * bf16_to_float(x[i]);
    }
}

static void piece_backward(const struct delta_input_gradient *d, const struct piece *p, int run)
{
    const struct delta_input *f = &d->forward;
    struct piece_sums sums = { 0 };
    float d_pre[HEAD_MAX];
    int64_t t = 0;

    for (; t < f->tokens; t++) {
        through_norm(d, p, run, t, d_pre);
        spread_row(f, p, run, t, d_pre, &sums);
        leave(d, p, run, t - f->width + 1, sums.d_x[(t + 1) % f->width]);
    }
    for (t -= f->width - 1; t < f->tokens; t++)
        leave(d, p, run, t, sums.d_x[(t + f->width) % f->width]);
    for (int64_t i = 0; i < (int64_t)p->width * f->width; i++)
        add_typed(d->d_conv[p->kind], d->grad_type, p->first * f->width + i, sums.d_conv[i]);
}

static void gates_backward(const struct delta_input_gradient *d, int head)
{
    const struct delta_input *f = &d->forward;
    int heads = f->heads.value_heads;
    float d_rate = 0, d_step = 0;

    for (int64_t row = 0; row < f->runs * f->tokens; row++) {
        const struct gates g = gates_of(f, row, head);
        float dg = d->d_decay[row * heads + head], beta = sigmoid(g.b);
        float d_a = -dg * g.rate * sigmoid(g.a);
        d_rate -= dg * g.rate * softplus(g.a);
        d_step += d_a;
        d->d_p[row * f->p_stride + g.a_column] = bf16_from_float(d_a);
        d->d_p[row * f->p_stride + g.b_column] =
            bf16_from_float(d->d_beta[row * heads + head] * beta * (1 - beta));
    }
    add_typed(d->d_log_rate, d->grad_type, head, d_rate);
    add_typed(d->d_step, d->grad_type, head, d_step);
}

int host_delta_input_backward(struct backend *b, enum stream s,
                              const struct delta_input_gradient *d, struct diag_list *reterr)
{
    const struct delta_input *f = &d->forward;
    (void)b, (void)s;
    if (check(f, reterr) != 0)
        return -1;
    for (int run = 0; run < f->runs; run++)
        for (int i = 0; i < piece_count(&f->heads); i++) {
            const struct piece p = piece_of(&f->heads, &f->columns, i);
            piece_backward(d, &p, run);
        }
    for (int head = 0; head < f->heads.value_heads; head++)
        gates_backward(d, head);
    return 0;
}

/* One row of the tails of a run, piece by piece. */
struct tail {
    struct piece piece;
    int64_t row, dense; /* elements before it in p and in the tails */
};

static int64_t tail_count(const struct delta_tails *d)
{
    return (int64_t)d->runs * (d->width - 1) * piece_count(&d->heads);
}

static struct tail tail_of(const struct delta_tails *d, int64_t i)
{
    int64_t pieces = piece_count(&d->heads), row = i / pieces, rows = d->width - 1;
    struct tail ret = { .piece = piece_of(&d->heads, &d->columns, (int)(i % pieces)) };
    int64_t at = (row / rows + 1) * d->tokens - rows + row % rows;
    ret.row = at * d->p_stride + ret.piece.column;
    ret.dense = row * delta_channels(&d->heads) + ret.piece.channel;
    return ret;
}

int host_delta_tails(struct backend *b, enum stream s, const struct delta_tails *d,
                     struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t i = 0; i < tail_count(d); i++) {
        const struct tail t = tail_of(d, i);
        memcpy(d->tails + t.dense, d->p + t.row, (size_t)t.piece.width * sizeof *d->p);
    }
    return 0;
}

int host_delta_tails_backward(struct backend *b, enum stream s, const struct delta_tails *d,
                              struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t i = 0; i < tail_count(d); i++) {
        const struct tail t = tail_of(d, i);
        for (int j = 0; j < t.piece.width; j++)
            d->d_p[t.row + j] =
                bf16_from_float(bf16_to_float(d->d_p[t.row + j]) + d->d_tails[t.dense + j]);
    }
    return 0;
}
