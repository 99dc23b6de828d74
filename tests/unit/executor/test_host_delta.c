/* The gated delta net's operations against their definitions token by token in double precision
 * (delta_reference.c), gradients against central differences of those: shapes of one and several
 * value heads a key head, runs shorter than a chunk and than the convolution, not a multiple of a
 * chunk, longer than a segment; states that come and go, transitions, halos. */
#include "tests/unit/executor/delta_reference.h"
#include "tests/unit/executor/host_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SAMPLES = 24 };

struct shape {
    struct delta_heads heads;
    int runs, tokens;
    double decay; /* typical of a token */
};

static const struct shape shapes[] = {
    { { 1, 1, 16, 8 }, 1, 150, -0.05 },  { { 2, 4, 8, 16 }, 2, 64, -0.3 },
    { { 2, 6, 12, 20 }, 1, 1, -0.1 },    { { 1, 2, 16, 16 }, 3, 37, -3 },
    { { 2, 2, 32, 24 }, 1, 193, -0.01 }, { { 1, 1, 8, 8 }, 1, DELTA_SEGMENT + 70, -0.02 },
};

/* The rule's inputs as doubles, and the weights of a scalar that o and final states add up to. */
struct rule_problem {
    const struct shape *shape;
    double *qkv, *decay, *beta, *initial, *o_weight, *final_weight;
    double *o, *state; /* out */
    double *q, *k, *v; /* of one head and run */
    double *head_decay, *head_beta, *head_o;
};

static int64_t state_size(const struct shape *s)
{
    return (int64_t)s->heads.key_dim * s->heads.value_dim;
}

static void take_head(struct rule_problem *p, int run, int head)
{
    const struct shape *s = p->shape;
    const struct delta_heads *h = &s->heads;
    int64_t channels = delta_channels(h), keys = (int64_t)h->key_heads * h->key_dim;
    int64_t key = (int64_t)(head / (h->value_heads / h->key_heads)) * h->key_dim;

    for (int64_t t = 0; t < s->tokens; t++) {
        const double *row = p->qkv + (run * s->tokens + t) * channels;
        int64_t gate = (run * s->tokens + t) * h->value_heads + head;
        memcpy(p->q + t * h->key_dim, row + key, (size_t)h->key_dim * sizeof *row);
        memcpy(p->k + t * h->key_dim, row + keys + key, (size_t)h->key_dim * sizeof *row);
        memcpy(p->v + t * h->value_dim, row + 2 * keys + head * h->value_dim,
               (size_t)h->value_dim * sizeof *row);
        p->head_decay[t] = p->decay[gate];
        p->head_beta[t] = p->beta[gate];
    }
}

static double define_rule(const void *context)
{
    struct rule_problem p = *(const struct rule_problem *)context;
    const struct shape *s = p.shape;
    const struct delta_heads *h = &s->heads;
    double scalar = 0;

    for (int run = 0; run < s->runs; run++)
        for (int head = 0; head < h->value_heads; head++) {
            int64_t at = ((int64_t)run * h->value_heads + head) * state_size(s);
            double *state = p.state + at;
            struct delta_sequence one = { s->tokens, h->key_dim,   h->value_dim, p.q,   p.k,
                                          p.v,       p.head_decay, p.head_beta,  state, p.head_o };
            take_head(&p, run, head);
            memcpy(state, p.initial + at, (size_t)state_size(s) * sizeof *state);
            delta_reference_rule(&one);
            for (int64_t i = 0; i < state_size(s); i++)
                scalar += state[i] * p.final_weight[at + i];
            for (int64_t t = 0; t < s->tokens; t++)
                for (int i = 0; i < h->value_dim; i++) {
                    int64_t to = ((run * s->tokens + t) * h->value_heads + head) * h->value_dim + i;
                    p.o[to] = p.head_o[t * h->value_dim + i];
                    scalar += p.o[to] * p.o_weight[to];
                }
        }
    return scalar;
}

/* Sizes of a problem's tensors. */
struct sizes {
    int64_t rows, qkv, gates, o, states;
};

static struct sizes sizes_of(const struct shape *s)
{
    int64_t rows = (int64_t)s->runs * s->tokens;
    return (struct sizes){ rows, rows * delta_channels(&s->heads), rows * s->heads.value_heads,
                           rows * s->heads.value_heads * s->heads.value_dim,
                           (int64_t)s->runs * s->heads.value_heads * state_size(s) };
}

/* Inputs as the backend has them. */
struct rule_inputs {
    bf16 *qkv, *d_o;
    float *decay, *beta, *initial, *d_final;
};

static void unit_heads(const struct shape *s, bf16 *qkv)
{
    int64_t channels = delta_channels(&s->heads);
    double head[64];
    for (int64_t row = 0; row < (int64_t)s->runs * s->tokens; row++)
        for (int i = 0; i < 2 * s->heads.key_heads; i++) {
            bf16 *at = qkv + row * channels + (int64_t)i * s->heads.key_dim;
            for (int j = 0; j < s->heads.key_dim; j++)
                head[j] = double_of(at[j]);
            delta_reference_unit(head, s->heads.key_dim);
            for (int j = 0; j < s->heads.key_dim; j++)
                at[j] = bf16_of(head[j]);
        }
}

static struct rule_inputs draw_inputs(const struct shape *s, uint64_t seed)
{
    const struct sizes n = sizes_of(s);
    struct rule_inputs ret = { .qkv = random_bf16(&seed, n.qkv, 1),
                               .d_o = random_bf16(&seed, n.o, 1),
                               .decay = random_floats(&seed, n.gates, 1),
                               .beta = random_floats(&seed, n.gates, 1),
                               .initial = random_floats(&seed, n.states, 0.5),
                               .d_final = random_floats(&seed, n.states, 0.5) };
    unit_heads(s, ret.qkv);
    for (int64_t i = 0; i < n.gates; i++) {
        ret.decay[i] = (float)(s->decay * exp((double)ret.decay[i]));
        ret.beta[i] = 1 / (1 + expf(-ret.beta[i]));
    }
    return ret;
}

static void inputs_done(struct rule_inputs *in)
{
    free(in->qkv);
    free(in->d_o);
    free(in->decay);
    free(in->beta);
    free(in->initial);
    free(in->d_final);
}

static struct rule_problem problem_of(const struct shape *s, const struct rule_inputs *in)
{
    const struct sizes n = sizes_of(s);
    int64_t wide = s->heads.key_dim > s->heads.value_dim ? s->heads.key_dim : s->heads.value_dim;
    double *scratch = get_memory((int64_t)s->tokens * (4 * wide + 2), sizeof *scratch);
    int64_t one = s->tokens * wide;
    return (struct rule_problem){ .shape = s,
                                  .qkv = doubles_of_bf16(in->qkv, n.qkv),
                                  .decay = doubles_of_floats(in->decay, n.gates),
                                  .beta = doubles_of_floats(in->beta, n.gates),
                                  .initial = doubles_of_floats(in->initial, n.states),
                                  .o_weight = doubles_of_bf16(in->d_o, n.o),
                                  .final_weight = doubles_of_floats(in->d_final, n.states),
                                  .o = get_memory(n.o, sizeof(double)),
                                  .state = get_memory(n.states, sizeof(double)),
                                  .q = scratch,
                                  .k = scratch + one,
                                  .v = scratch + 2 * one,
                                  .head_o = scratch + 3 * one,
                                  .head_decay = scratch + 4 * one,
                                  .head_beta = scratch + 4 * one + s->tokens };
}

static void problem_done(struct rule_problem *p)
{
    free(p->qkv);
    free(p->decay);
    free(p->beta);
    free(p->initial);
    free(p->o_weight);
    free(p->final_weight);
    free(p->o);
    free(p->state);
    free(p->q);
}

/* Sampled elements of a gradient against central differences: RMS over the samples. `got` of
 * element i. */
struct samples {
    double square, size;
};

static int64_t sample_of(int i, int64_t count)
{
    return count <= SAMPLES ? i : (int64_t)((uint64_t)i * 2654435761U % (uint64_t)count);
}

static double compare(double (*function)(const void *context), const void *context, double *at,
                      int64_t count, const bf16 *got16, const float *got32)
{
    struct samples s = { 0 };
    for (int i = 0; i < SAMPLES && i < count; i++) {
        int64_t element = sample_of(i, count);
        double want = slope(function, context, at + element, 1e-4);
        double got = got16 ? double_of(got16[element]) : (double)got32[element];
        s.square += (got - want) * (got - want);
        s.size += want * want;
    }
    return s.size > 0 ? sqrt(s.square / s.size) : sqrt(s.square);
}

static void assert_close(const char *what, double error, double allowed)
{
    if (!(error <= allowed))
        fail_msg("%s differs by %.3g of its RMS, allowed %.3g", what, error, allowed);
}

static void check_transition(const struct shape *s, const struct rule_inputs *in,
                             const float *transition)
{
    /* one more start, one more end: their differences are what the transition says */
    struct rule_problem p = problem_of(s, in);
    const struct delta_heads *h = &s->heads;
    int key = h->key_dim, value = h->value_dim;
    double *first = get_memory(sizes_of(s).states, sizeof *first), square = 0, size = 0;

    (void)define_rule(&p);
    memcpy(first, p.state, (size_t)sizes_of(s).states * sizeof *first);
    for (int64_t i = 0; i < sizes_of(s).states; i++)
        p.initial[i] += p.final_weight[i];
    (void)define_rule(&p);
    for (int64_t at = 0; at < (int64_t)s->runs * h->value_heads; at++)
        for (int i = 0; i < key; i++)
            for (int j = 0; j < value; j++) {
                double sum = 0, want = p.state[at * key * value + i * value + j] -
                                       first[at * key * value + i * value + j];
                for (int m = 0; m < key; m++)
                    sum += (double)transition[at * key * key + i * key + m] *
                           p.final_weight[at * key * value + m * value + j];
                square += (sum - want) * (sum - want);
                size += want * want;
            }
    /* a strong decay leaves nothing of a state; below that fp32 says nothing */
    if (size > 1e-20)
        assert_close("transition", sqrt(square / size), 1e-4);
    free(first);
    problem_done(&p);
}

static void check_rule(struct host_fixture *f, const struct shape *s, uint64_t seed)
{
    const struct sizes n = sizes_of(s);
    struct rule_inputs in = draw_inputs(s, seed);
    struct rule_problem p = problem_of(s, &in);
    int64_t segments = delta_segments(s->tokens), key = s->heads.key_dim;
    struct delta_rule rule = {
        .heads = s->heads,
        .runs = s->runs,
        .tokens = s->tokens,
        .qkv = in.qkv,
        .decay = in.decay,
        .beta = in.beta,
        .initial = in.initial,
        .o = get_memory(n.o, sizeof(bf16)),
        .states = get_memory(n.states * segments, sizeof(float)),
        .final = get_memory(n.states, sizeof(float)),
        .transition = get_memory((int64_t)s->runs * s->heads.value_heads * key * key, sizeof(float))
    };
    struct delta_rule_gradient g = { .d_o = in.d_o,
                                     .d_qkv = get_memory(n.qkv, sizeof(bf16)),
                                     .d_decay = get_memory(n.gates, sizeof(float)),
                                     .d_beta = get_memory(n.gates, sizeof(float)),
                                     .d_final = in.d_final,
                                     .d_initial = get_memory(n.states, sizeof(float)) };
    uint64_t forward = f->ops->delta_workspace_bytes(f->backend, &rule, false);
    uint64_t backward = f->ops->delta_workspace_bytes(f->backend, &rule, true);
    rule.workspace = get_memory((int64_t)(forward > backward ? forward : backward), 1);

    (void)define_rule(&p);
    assert_int_equal(f->ops->delta_rule(f->backend, STREAM_COMPUTE, &rule, &f->diags), 0);
    assert_rms_bf16(rule.o, p.o, n.o, 0.5);
    assert_rms_float(rule.final, p.state, n.states, 1e-5);
    check_transition(s, &in, rule.transition);
    g.forward = rule;
    assert_int_equal(f->ops->delta_rule_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_close("d_qkv", compare(define_rule, &p, p.qkv, n.qkv, g.d_qkv, NULL), 4e-3);
    assert_close("d_decay", compare(define_rule, &p, p.decay, n.gates, NULL, g.d_decay), 1e-4);
    assert_close("d_beta", compare(define_rule, &p, p.beta, n.gates, NULL, g.d_beta), 1e-4);
    assert_close("d_initial", compare(define_rule, &p, p.initial, n.states, NULL, g.d_initial),
                 1e-4);
    float *before = get_memory(n.states, sizeof *before);
    memcpy(before, g.d_initial, (size_t)n.states * sizeof *before);
    memset(g.d_initial, 0, (size_t)n.states * sizeof *before);
    g.states_only = true;
    assert_int_equal(f->ops->delta_rule_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_memory_equal(before, g.d_initial, (size_t)n.states * sizeof *before);
    free(before);
    free(rule.o);
    free(rule.states);
    free(rule.final);
    free(rule.transition);
    free(rule.workspace);
    free(g.d_qkv);
    free(g.d_decay);
    free(g.d_beta);
    free(g.d_initial);
    problem_done(&p);
    inputs_done(&in);
}

static void test_rule(void **state)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_rule(*state, &shapes[i], 7 + i);
}

/* What enters: the projection in either order of columns, with two columns of something else. */
struct input_problem {
    struct delta_heads heads;
    struct delta_columns columns;
    int runs, tokens, width;
    int64_t stride;
    double *p, *halo, *conv, *log_rate, *step;
    double *qkv, *decay, *beta; /* out */
    double *qkv_weight, *decay_weight, *beta_weight;
};

static int64_t column_of(const struct input_problem *in, int64_t channel)
{
    const struct delta_heads *h = &in->heads;
    const struct delta_columns *c = &in->columns;
    int64_t keys = (int64_t)h->key_heads * h->key_dim;
    int64_t each = (int64_t)h->value_heads / h->key_heads * h->value_dim;
    if (channel < 2 * keys)
        return (channel < keys ? c->q : c->k) + channel % keys / h->key_dim * c->key_step +
               channel % h->key_dim;
    channel -= 2 * keys;
    return c->v + channel / each * c->value_step + channel % each;
}

static int64_t gate_column(const struct input_problem *in, int64_t first, int head)
{
    int each = in->heads.value_heads / in->heads.key_heads;
    return first + head / each * in->columns.gate_step + head % each;
}

static void define_row(const struct input_problem *in, int run, int t)
{
    const struct delta_heads *h = &in->heads;
    int64_t channels = delta_channels(h), row = (int64_t)run * in->tokens + t;
    double *qkv = in->qkv + row * channels, before[8];

    for (int64_t c = 0; c < channels; c++) {
        const double *x = in->p + (int64_t)run * in->tokens * in->stride + column_of(in, c);
        for (int i = 0; i < in->width - 1 && in->halo; i++)
            before[i] = in->halo[((int64_t)run * (in->width - 1) + i) * channels + c];
        qkv[c] = delta_reference_convolve(x, (int)in->stride, t, in->width,
                                          in->conv + c * in->width, in->halo ? before : NULL);
    }
    for (int i = 0; i < 2 * h->key_heads; i++)
        delta_reference_unit(qkv + (int64_t)i * h->key_dim, h->key_dim);
    for (int i = 0; i < h->value_heads; i++) {
        double a = in->p[row * in->stride + gate_column(in, in->columns.a, i)];
        double b = in->p[row * in->stride + gate_column(in, in->columns.b, i)];
        in->decay[row * h->value_heads + i] =
            delta_reference_decay(a, in->log_rate[i], in->step[i]);
        in->beta[row * h->value_heads + i] = 1 / (1 + exp(-b));
    }
}

static double define_input(const void *context)
{
    const struct input_problem *in = context;
    int64_t rows = (int64_t)in->runs * in->tokens, channels = delta_channels(&in->heads);
    double scalar = 0;

    for (int run = 0; run < in->runs; run++)
        for (int t = 0; t < in->tokens; t++)
            define_row(in, run, t);
    for (int64_t i = 0; i < rows * channels; i++)
        scalar += in->qkv[i] * in->qkv_weight[i];
    for (int64_t i = 0; i < rows * in->heads.value_heads; i++)
        scalar += in->decay[i] * in->decay_weight[i] + in->beta[i] * in->beta_weight[i];
    return scalar;
}

/* joint: each key head has its queries, keys, values and gates side by side. */
static struct delta_columns columns_of(const struct delta_heads *h, bool joint)
{
    int64_t each = h->value_heads / h->key_heads, keys = (int64_t)h->key_heads * h->key_dim;
    int64_t values = (int64_t)h->value_heads * h->value_dim, key = h->key_dim;
    int64_t group = 2 * key + 2 * each * h->value_dim, all = 2 * keys + 2 * values;
    if (joint)
        return (struct delta_columns){ 0,       key,        2 * key, 2 * key + each * h->value_dim,
                                       all,     all + each, group,   group,
                                       2 * each };
    return (struct delta_columns){
        0,   keys, 2 * keys, 2 * keys + values, all, all + h->value_heads, key, each * h->value_dim,
        each
    };
}

static void check_input(struct host_fixture *f, const struct delta_heads *heads, int runs,
                        int tokens, int width, bool joint, bool halo)
{
    const struct delta_heads *h = heads;
    uint64_t seed = (uint64_t)(tokens * 16 + joint * 2 + halo);
    int64_t channels = delta_channels(h), rows = (int64_t)runs * tokens;
    int64_t keys = (int64_t)h->key_heads * h->key_dim;
    float *d_conv = get_memory(channels * width, sizeof *d_conv);
    int64_t stride = channels + (int64_t)h->value_heads * (h->value_dim + 2) + 2;
    int64_t halos = (int64_t)runs * (width - 1) * channels, gates = rows * h->value_heads;
    bf16 *p = random_bf16(&seed, rows * stride, 1), *before = random_bf16(&seed, halos, 1);
    bf16 *conv = random_bf16(&seed, channels * width, 0.5);
    bf16 *rate = random_bf16(&seed, h->value_heads, 1),
         *step = random_bf16(&seed, h->value_heads, 1);
    bf16 *d_qkv = random_bf16(&seed, rows * channels, 1);
    float *d_decay = random_floats(&seed, gates, 1), *d_beta = random_floats(&seed, gates, 1);
    struct input_problem in = { .heads = *h,
                                .columns = columns_of(h, joint),
                                .runs = runs,
                                .tokens = tokens,
                                .width = width,
                                .stride = stride,
                                .p = doubles_of_bf16(p, rows * stride),
                                .halo = halo ? doubles_of_bf16(before, halos) : NULL,
                                .conv = doubles_of_bf16(conv, channels * width),
                                .log_rate = doubles_of_bf16(rate, h->value_heads),
                                .step = doubles_of_bf16(step, h->value_heads),
                                .qkv = get_memory(rows * channels, sizeof(double)),
                                .decay = get_memory(gates, sizeof(double)),
                                .beta = get_memory(gates, sizeof(double)),
                                .qkv_weight = doubles_of_bf16(d_qkv, rows * channels),
                                .decay_weight = doubles_of_floats(d_decay, gates),
                                .beta_weight = doubles_of_floats(d_beta, gates) };
    struct delta_input d = { .heads = *h,
                             .columns = in.columns,
                             .runs = runs,
                             .tokens = tokens,
                             .width = width,
                             .p = p,
                             .p_stride = stride,
                             .halo = halo ? before : NULL,
                             .conv = { conv, conv + keys * width, conv + 2 * keys * width },
                             .log_rate = rate,
                             .step = step,
                             .qkv = get_memory(rows * channels, sizeof(bf16)),
                             .decay = get_memory(gates, sizeof(float)),
                             .beta = get_memory(gates, sizeof(float)) };
    struct delta_input_gradient g = {
        .forward = d,
        .d_qkv = d_qkv,
        .d_decay = d_decay,
        .d_beta = d_beta,
        .d_p = get_memory(rows * stride, sizeof(bf16)),
        .d_halo = halo ? get_memory(halos, sizeof(float)) : NULL,
        .d_conv = { d_conv, d_conv + keys * width, d_conv + 2 * keys * width },
        .d_log_rate = get_memory(h->value_heads, sizeof(float)),
        .d_step = get_memory(h->value_heads, sizeof(float)),
        .grad_type = DTYPE_FP32,
    };

    (void)define_input(&in);
    assert_int_equal(f->ops->delta_input(f->backend, STREAM_COMPUTE, &d, &f->diags), 0);
    assert_rms_bf16(d.qkv, in.qkv, rows * channels, 0.5);
    assert_rms_float(d.decay, in.decay, gates, 1e-5);
    assert_rms_float(d.beta, in.beta, gates, 1e-5);
    assert_int_equal(f->ops->delta_input_backward(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_close("d_p", compare(define_input, &in, in.p, rows * stride, g.d_p, NULL), 4e-3);
    assert_close("d_conv", compare(define_input, &in, in.conv, channels * width, NULL, d_conv),
                 1e-4);
    assert_close("d_log_rate",
                 compare(define_input, &in, in.log_rate, h->value_heads, NULL, g.d_log_rate), 1e-4);
    assert_close("d_step", compare(define_input, &in, in.step, h->value_heads, NULL, g.d_step),
                 1e-4);
    if (halo)
        assert_close("d_halo", compare(define_input, &in, in.halo, halos, NULL, g.d_halo), 1e-4);
    void *gone[] = { p,        before,       conv,          rate,    step,          d_qkv,
                     d_decay,  d_beta,       in.p,          in.halo, in.conv,       in.log_rate,
                     in.step,  in.qkv,       in.decay,      in.beta, in.qkv_weight, in.decay_weight,
                     d.qkv,    d.decay,      d.beta,        g.d_p,   g.d_halo,      d_conv,
                     g.d_step, g.d_log_rate, in.beta_weight };
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        free(gone[i]);
}

static void test_input(void **state)
{
    static const struct delta_heads one = { 1, 1, 8, 12 }, grouped = { 2, 6, 8, 4 };
    for (int joint = 0; joint < 2; joint++) {
        check_input(*state, &one, 1, 9, 4, joint != 0, false);
        check_input(*state, &grouped, 2, 7, 4, joint != 0, true);
        check_input(*state, &grouped, 2, 2, 4, joint != 0, false);
        check_input(*state, &grouped, 1, 1, 3, joint != 0, true);
    }
}

/* Tails are the last rows as dense channels; a gradient of theirs goes to the rows that they are
 * copies of. */
static void test_tails(void **state)
{
    struct host_fixture *f = *state;
    enum { RUNS = 2, TOKENS = 5, WIDTH = 3, TAIL = WIDTH - 1 };
    const struct delta_heads heads = { 1, 2, 4, 4 };
    const struct delta_columns columns = columns_of(&heads, true);
    int64_t channels = delta_channels(&heads), stride = channels + 13;
    uint64_t seed = 3;
    bf16 *d_p = random_bf16(&seed, RUNS * TOKENS * stride, 1);
    bf16 *tails = get_memory(RUNS * TAIL * channels, sizeof *tails);
    double *want = doubles_of_bf16(d_p, RUNS * TOKENS * stride);
    float *d_tails = random_floats(&seed, RUNS * TAIL * channels, 1);
    const struct input_problem in = { .heads = heads, .columns = columns };
    const struct delta_tails d = { .heads = heads,
                                   .columns = columns,
                                   .runs = RUNS,
                                   .width = WIDTH,
                                   .tokens = TOKENS,
                                   .p_stride = stride,
                                   .p = d_p,
                                   .tails = tails,
                                   .d_tails = d_tails,
                                   .d_p = d_p };

    assert_int_equal(f->ops->delta_tails(f->backend, STREAM_COMPUTE, &d, &f->diags), 0);
    for (int64_t i = 0; i < RUNS * TAIL * channels; i++) {
        int64_t row = i / channels, at = (row / TAIL + 1) * TOKENS - TAIL + row % TAIL;
        int64_t place = at * stride + column_of(&in, i % channels);
        assert_int_equal(tails[i], d_p[place]);
        want[place] += (double)d_tails[i];
    }
    assert_int_equal(f->ops->delta_tails_backward(f->backend, STREAM_COMPUTE, &d, &f->diags), 0);
    for (int64_t i = 0; i < RUNS * TOKENS * stride; i++)
        assert_int_equal(d_p[i], bf16_of(want[i]));
    free(d_p);
    free(tails);
    free(want);
    free(d_tails);
}

/* A sequence in three runs, two of them here, against the chain written out. */
static void check_combine(struct host_fixture *f, bool backward)
{
    enum { CHUNKS = 3, KEY = 4, VALUE = 5, HEADS = 2, SIZE = KEY * VALUE, SQUARE = KEY * KEY };
    uint64_t seed = 11;
    float *ends = random_floats(&seed, CHUNKS * HEADS * SIZE, 1);
    float *transitions = random_floats(&seed, CHUNKS * HEADS * SQUARE, 0.5);
    float states[2 * HEADS * SIZE];
    const struct delta_combine d = { .heads = { 1, HEADS, KEY, VALUE },
                                     .sequences = 1,
                                     .chunks = CHUNKS,
                                     .own = 2,
                                     .own_chunks = { 0, 2 },
                                     .ends = ends,
                                     .transitions = transitions,
                                     .states = states,
                                     .backward = backward };

    assert_int_equal(f->ops->delta_combine(f->backend, STREAM_COMPUTE, &d, &f->diags), 0);
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < KEY; i++)
            for (int j = 0; j < VALUE; j++) {
                /* forward: run 2 starts from T1 E0 + E1; backward: run 0 from T1^T E2 + E1 */
                const float *t = transitions + (HEADS + head) * SQUARE;
                const float *first = ends + ((backward ? 2 * HEADS : 0) + head) * SIZE;
                double sum = (double)ends[(HEADS + head) * SIZE + i * VALUE + j];
                for (int m = 0; m < KEY; m++)
                    sum += (double)(backward ? t[m * KEY + i] : t[i * KEY + m]) *
                           (double)first[m * VALUE + j];
                int reached = backward ? 0 : 1, start = 1 - reached;
                int at = head * SIZE + i * VALUE + j;
                assert_true(fabs((double)states[reached * HEADS * SIZE + at] - sum) < 1e-5);
                assert_true(states[start * HEADS * SIZE + at] == 0);
            }
    free(ends);
    free(transitions);
}

static void test_combine(void **state)
{
    check_combine(*state, false);
    check_combine(*state, true);
}

struct norm_problem {
    struct delta_heads heads;
    struct delta_columns columns;
    int64_t rows, stride;
    double *o, *p, *weight, *on, *on_weight;
};

static int64_t z_of(const struct norm_problem *n, int head)
{
    int each = n->heads.value_heads / n->heads.key_heads;
    return n->columns.z + head / each * n->columns.value_step +
           (int64_t)(head % each) * n->heads.value_dim;
}

static double define_norm(const void *context)
{
    const struct norm_problem *n = context;
    int width = n->heads.value_dim;
    double scalar = 0;
    for (int64_t row = 0; row < n->rows; row++)
        for (int head = 0; head < n->heads.value_heads; head++) {
            int64_t at = (row * n->heads.value_heads + head) * width;
            delta_reference_gated_norm(n->o + at, n->p + row * n->stride + z_of(n, head), n->weight,
                                       width, 1e-6, n->on + at);
            for (int i = 0; i < width; i++)
                scalar += n->on[at + i] * n->on_weight[at + i];
        }
    return scalar;
}

static void check_norm(struct host_fixture *f, bool joint)
{
    const struct delta_heads h = { 2, 4, 8, 12 };
    uint64_t seed = 21;
    int64_t rows = 5, values = rows * h.value_heads * h.value_dim;
    int64_t stride = delta_channels(&h) + (int64_t)h.value_heads * (h.value_dim + 2);
    bf16 *o = random_bf16(&seed, values, 1), *p = random_bf16(&seed, rows * stride, 1);
    bf16 *weight = random_bf16(&seed, h.value_dim, 1), *d_o = random_bf16(&seed, values, 1);
    struct norm_problem n = { .heads = h,
                              .columns = columns_of(&h, joint),
                              .rows = rows,
                              .stride = stride,
                              .o = doubles_of_bf16(o, values),
                              .p = doubles_of_bf16(p, rows * stride),
                              .weight = doubles_of_bf16(weight, h.value_dim),
                              .on = get_memory(values, sizeof(double)),
                              .on_weight = doubles_of_bf16(d_o, values) };
    struct gated_norm g = { .heads = h,
                            .columns = n.columns,
                            .rows = rows,
                            .p_stride = stride,
                            .eps = 1e-6,
                            .o = o,
                            .p = p,
                            .weight = weight,
                            .on = get_memory(values, sizeof(bf16)) };
    struct gated_norm_gradient d = { .forward = g,
                                     .d_o = d_o,
                                     .d_p = get_memory(rows * stride, sizeof(bf16)),
                                     .d_weight = get_memory(h.value_dim, sizeof(float)),
                                     .grad_type = DTYPE_FP32 };

    (void)define_norm(&n);
    assert_int_equal(f->ops->gated_norm(f->backend, STREAM_COMPUTE, &g, &f->diags), 0);
    assert_rms_bf16(g.on, n.on, values, 0.5);
    assert_int_equal(f->ops->gated_norm_backward(f->backend, STREAM_COMPUTE, &d, &f->diags), 0);
    assert_close("d_o", compare(define_norm, &n, n.o, values, d.d_o, NULL), 4e-3);
    assert_close("d_z", compare(define_norm, &n, n.p, rows * stride, d.d_p, NULL), 4e-3);
    assert_close("d_weight", compare(define_norm, &n, n.weight, h.value_dim, NULL, d.d_weight),
                 1e-4);
    void *gone[] = { o,        p,    weight,      d_o,  n.o,   n.p,
                     n.weight, n.on, n.on_weight, g.on, d.d_p, d.d_weight };
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        free(gone[i]);
}

static void test_gated_norm(void **state)
{
    check_norm(*state, false);
    check_norm(*state, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),       cmocka_unit_test(test_input),
        cmocka_unit_test(test_tails),      cmocka_unit_test(test_combine),
        cmocka_unit_test(test_gated_norm),
    };
    return cmocka_run_group_tests(tests, host_fixture_open, host_fixture_close);
}
