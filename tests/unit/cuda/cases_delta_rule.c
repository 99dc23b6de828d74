/* The delta rule: forward against its definition token by token in double precision, gradients
 * against the host's (which tests/unit/executor/test_host_delta.c compares with differences of that
 * definition); heads of the tiled kernels and others; states that come and go, transitions, runs
 * that groups split, segments; and the tiled kernels against the plain ones at length. */
#include "tests/unit/cuda/cases.h"

#include "executor/backend/cuda/cuda.h"
#include "tests/unit/executor/delta_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    struct delta_heads heads;
    int runs, tokens;
    double decay; /* typical of a token */
};

/* bf16 operands and states between sums in fp32; for the plain kernels the error of one rounding,
 * and that of sums in another order. The gradient of a decay is a sum of products of either sign,
 * 16,384 of them for the state alone: `cancelled` allows for a sum far smaller than its terms.
 */
struct bounds {
    double rounded, summed, cancelled;
};
static const struct bounds tiled_bounds = { 1e-2, 1e-2, 3e-2 },
                           plain_bounds = { ROUNDED, 1e-4, 1e-4 };

struct tensors {
    struct array qkv, decay, beta, initial, o, states, final, transition;
    struct array d_o, d_final, d_qkv, d_decay, d_beta, d_initial, workspace;
};

static int64_t state_size(const struct shape *s)
{
    return (int64_t)s->heads.key_dim * s->heads.value_dim;
}

static int64_t rows_of(const struct shape *s)
{
    return (int64_t)s->runs * s->tokens;
}

static bool is_tiled(const struct shape *s)
{
    return s->heads.key_dim == 128 && s->heads.value_dim == 128;
}

static struct delta_rule forward_of(const struct shape *s, const struct tensors *t, int side)
{
    return (struct delta_rule){ .heads = s->heads,
                                .runs = s->runs,
                                .tokens = s->tokens,
                                .qkv = t->qkv.at[side],
                                .decay = t->decay.at[side],
                                .beta = t->beta.at[side],
                                .o = t->o.at[side],
                                .states = t->states.at[side],
                                .initial = t->initial.at[side],
                                .final = t->final.at[side],
                                .transition = t->transition.at[side],
                                .workspace = t->workspace.at[side] };
}

static struct delta_rule_gradient backward_of(const struct shape *s, const struct tensors *t,
                                              int side)
{
    return (struct delta_rule_gradient){ .forward = forward_of(s, t, side),
                                         .d_o = t->d_o.at[side],
                                         .d_qkv = t->d_qkv.at[side],
                                         .d_decay = t->d_decay.at[side],
                                         .d_beta = t->d_beta.at[side],
                                         .d_final = t->d_final.at[side],
                                         .d_initial = t->d_initial.at[side] };
}

/* Queries and keys of length 1. */
static void unit_heads(struct pair *p, const struct shape *s, const struct array *qkv)
{
    bf16 *rows = qkv->at[HOST];
    int key = s->heads.key_dim;
    double head[DELTA_HEAD_MAX];
    for (int64_t row = 0; row < rows_of(s); row++)
        for (int i = 0; i < 2 * s->heads.key_heads; i++) {
            bf16 *at = rows + row * delta_channels(&s->heads) + (int64_t)i * key;
            for (int j = 0; j < key; j++)
                head[j] = pair_double(qkv, at, j);
            delta_reference_unit(head, key);
            for (int j = 0; j < key; j++)
                at[j] = pair_bf16((float)head[j]);
        }
    pair_upload(p, qkv);
}

static void draw_gates(struct pair *p, const struct shape *s, const struct tensors *t)
{
    float *decay = t->decay.at[HOST], *beta = t->beta.at[HOST];
    for (int64_t i = 0; i < t->decay.count; i++) {
        decay[i] = (float)(s->decay * exp((double)decay[i]));
        beta[i] = 1 / (1 + expf(-beta[i]));
    }
    pair_upload(p, &t->decay);
    pair_upload(p, &t->beta);
}

static void poison(struct pair *p, const struct shape *s, struct tensors *t)
{
    int64_t heads = s->heads.value_heads, states = s->runs * heads * state_size(s);
    int64_t square = (int64_t)s->heads.key_dim * s->heads.key_dim;
    t->o = pair_poison(p, KIND_BF16, rows_of(s) * heads * s->heads.value_dim);
    t->states = pair_poison(p, KIND_FP32, states * delta_segments(s->tokens));
    t->final = pair_poison(p, KIND_FP32, states);
    t->transition = pair_poison(p, KIND_FP32, s->runs * heads * square);
    t->d_qkv = pair_poison(p, KIND_BF16, t->qkv.count);
    t->d_decay = pair_poison(p, KIND_FP32, t->decay.count);
    t->d_beta = pair_poison(p, KIND_FP32, t->beta.count);
    t->d_initial = pair_poison(p, KIND_FP32, states);
}

static struct tensors tensors_of(struct pair *p, const struct shape *s)
{
    int64_t gates = rows_of(s) * s->heads.value_heads, bytes = 0;
    int64_t states = s->runs * s->heads.value_heads * state_size(s);
    struct tensors t = {
        .qkv = pair_random(p, KIND_BF16, rows_of(s) * delta_channels(&s->heads), 1),
        .decay = pair_random(p, KIND_FP32, gates, 1),
        .beta = pair_random(p, KIND_FP32, gates, 1),
        .initial = pair_random(p, KIND_FP32, states, 0.3),
        .d_o = pair_random(p, KIND_BF16, gates * s->heads.value_dim, 1),
        .d_final = pair_random(p, KIND_FP32, states, 0.3),
    };
    unit_heads(p, s, &t.qkv);
    draw_gates(p, s, &t);
    poison(p, s, &t);
    for (int side = HOST; side < SIDES; side++)
        for (int backward = 0; backward < 2; backward++) {
            const struct backend *b = p->backends[side];
            const struct delta_rule d = forward_of(s, &t, side);
            int64_t wanted = (int64_t)b->ops->delta_workspace_bytes(b, &d, backward != 0);
            bytes = wanted > bytes ? wanted : bytes;
        }
    t.workspace = pair_poison(p, KIND_FP32, bytes / 4);
    return t;
}

/* One head of one run by the definition: its outputs and final state into `o` and `state`. */
static void define_head(const struct shape *s, const struct tensors *t, int run, int head,
                        double *o, double *state)
{
    const struct delta_heads *h = &s->heads;
    int64_t channels = delta_channels(h), keys = (int64_t)h->key_heads * h->key_dim;
    int64_t key = (int64_t)(head / (h->value_heads / h->key_heads)) * h->key_dim;
    int64_t width = 2 * h->key_dim + h->value_dim + 2, n = s->tokens;
    double *q = calloc((size_t)(n * width), sizeof *q), *k = q + n * h->key_dim;
    double *v = k + n * h->key_dim, *decay = v + n * h->value_dim, *beta = decay + n;
    int64_t at = ((int64_t)run * h->value_heads + head) * state_size(s);
    const struct delta_sequence one = { s->tokens, h->key_dim, h->value_dim, q,     k,
                                        v,         decay,      beta,         state, o };
    if (!q)
        exit(1);
    for (int64_t i = 0; i < state_size(s); i++)
        state[i] = pair_double(&t->initial, t->initial.at[HOST], at + i);
    for (int64_t token = 0; token < n; token++) {
        int64_t row = run * n + token, first = row * channels;
        for (int i = 0; i < h->key_dim; i++) {
            q[token * h->key_dim + i] = pair_double(&t->qkv, t->qkv.at[HOST], first + key + i);
            k[token * h->key_dim + i] =
                pair_double(&t->qkv, t->qkv.at[HOST], first + keys + key + i);
        }
        for (int i = 0; i < h->value_dim; i++)
            v[token * h->value_dim + i] = pair_double(
                &t->qkv, t->qkv.at[HOST], first + 2 * keys + (int64_t)head * h->value_dim + i);
        decay[token] = pair_double(&t->decay, t->decay.at[HOST], row * h->value_heads + head);
        beta[token] = pair_double(&t->beta, t->beta.at[HOST], row * h->value_heads + head);
    }
    delta_reference_rule(&one);
    free(q);
}

static void against_definition(struct pair *p, const struct shape *s, const struct tensors *t,
                               const struct bounds *allowed)
{
    int heads = s->heads.value_heads, value = s->heads.value_dim;
    double *o = calloc((size_t)t->o.count, sizeof *o);
    double *final = calloc((size_t)t->final.count, sizeof *final);
    double *one = calloc((size_t)s->tokens * (size_t)value, sizeof *one);
    if (!o || !final || !one)
        exit(1);
    for (int run = 0; run < s->runs; run++)
        for (int head = 0; head < heads; head++) {
            define_head(s, t, run, head, one,
                        final + ((int64_t)run * heads + head) * state_size(s));
            for (int64_t token = 0; token < s->tokens; token++)
                memcpy(o + ((run * s->tokens + token) * heads + head) * value, one + token * value,
                       (size_t)value * sizeof *one);
        }
    pair_against(p, "o, defined", &t->o, o, allowed->rounded);
    pair_against(p, "final, defined", &t->final, final, allowed->summed);
    free(o);
    free(final);
    free(one);
}

/* Gradients of states alone, as the first of two passes takes them, from zeros behind the runs. */
static void check_states_only(struct pair *p, const struct shape *s, struct tensors *t,
                              const struct bounds *allowed)
{
    struct delta_rule_gradient sides[SIDES];
    t->d_initial = pair_poison(p, KIND_FP32, t->d_initial.count);
    for (int side = HOST; side < SIDES; side++) {
        sides[side] = backward_of(s, t, side);
        sides[side].d_final = NULL;
        sides[side].states_only = true;
    }
    PAIR_RUN(p, delta_rule_backward, &sides[side]);
    pair_compare(p, "d_initial alone", &t->d_initial, allowed->summed);
}

/* The second of two runs must leave the same bits. */
static void check_same(struct pair *p, const struct shape *s, const struct tensors *t)
{
    const struct array *arrays[] = { &t->d_qkv, &t->d_decay, &t->d_beta, &t->d_initial };
    const struct delta_rule_gradient g = backward_of(s, t, DEVICE);
    struct backend *b = p->backends[DEVICE];
    void *first[4];
    int differ = 0;
    for (int i = 0; i < 4; i++)
        first[i] = pair_download(p, arrays[i]);
    (void)pair_ran(p, "again", b->ops->delta_rule_backward(b, STREAM_COMPUTE, &g, &p->diags));
    for (int i = 0; i < 4; i++) {
        void *second = pair_download(p, arrays[i]);
        size_t bytes = (size_t)arrays[i]->count * (arrays[i]->kind == KIND_BF16 ? 2 : 4);
        differ += !second || !first[i] || memcmp(first[i], second, bytes) != 0;
        free(second);
        free(first[i]);
    }
    pair_figure(p, "runs differ", differ, 0, 0);
}

static void rule(struct pair *p, const struct shape *s)
{
    const struct bounds *allowed = is_tiled(s) ? &tiled_bounds : &plain_bounds;
    const struct delta_heads *h = &s->heads;
    struct delta_rule_gradient sides[SIDES];
    pair_case(p, "delta_rule", "%d/%d x %d, %d, %d runs of %d, decay %g", h->key_heads,
              h->value_heads, h->key_dim, h->value_dim, s->runs, s->tokens, s->decay);
    struct tensors t = tensors_of(p, s);
    for (int side = HOST; side < SIDES; side++)
        sides[side] = backward_of(s, &t, side);
    /* outputs and the transition are never asked for together */
    for (int pass = 0; pass < 2; pass++) {
        struct delta_rule d[SIDES] = { sides[HOST].forward, sides[DEVICE].forward };
        for (int side = HOST; side < SIDES; side++) {
            d[side].o = pass == 0 ? NULL : d[side].o;
            d[side].transition = pass == 0 ? d[side].transition : NULL;
        }
        PAIR_RUN(p, delta_rule, &d[side]);
    }
    against_definition(p, s, &t, allowed);
    pair_compare(p, "states", &t.states, allowed->summed);
    pair_compare(p, "transition", &t.transition, allowed->cancelled);
    PAIR_RUN(p, delta_rule_backward, &sides[side]);
    pair_compare(p, "d_qkv", &t.d_qkv, allowed->rounded);
    pair_compare(p, "d_decay", &t.d_decay, allowed->cancelled);
    pair_compare(p, "d_beta", &t.d_beta, allowed->summed);
    pair_compare(p, "d_initial", &t.d_initial, allowed->summed);
    check_same(p, s, &t);
    check_states_only(p, s, &t, allowed);
}

/* The tiled kernels against the plain ones, both on the device, where the host would take long. */
static void at_length(struct pair *p, const struct shape *s)
{
    struct cuda *c = (struct cuda *)p->backends[DEVICE];
    struct backend *b = p->backends[DEVICE];
    struct tensors t;
    pair_case(p, "delta_rule, plain", "%d/%d x 128, %d runs of %d", s->heads.key_heads,
              s->heads.value_heads, s->runs, s->tokens);
    t = tensors_of(p, s);
    /* the plain kernels' results become the host's values */
    const struct array *arrays[] = { &t.o,       &t.final,  &t.states,   &t.d_qkv,
                                     &t.d_decay, &t.d_beta, &t.d_initial };
    static const char *const names[] = { "o",       "final",  "states",   "d_qkv",
                                         "d_decay", "d_beta", "d_initial" };
    struct delta_rule_gradient g = backward_of(s, &t, DEVICE);
    struct array scratch = pair_poison(p, KIND_FP32, INT64_C(1) << 26); /* their largest */
    void *tiled = g.forward.workspace;
    g.forward.transition = NULL;
    g.forward.workspace = scratch.at[DEVICE];
    bool ran =
        pair_ran(p, "plain", cuda_delta_rule_plain(c, STREAM_COMPUTE, &g.forward, &p->diags)) &&
        pair_ran(p, "plain", cuda_delta_rule_backward_plain(c, STREAM_COMPUTE, &g, &p->diags));
    for (int i = 0; i < 7 && ran; i++) {
        void *values = pair_download(p, arrays[i]);
        if (values)
            memcpy(arrays[i]->at[HOST], values,
                   (size_t)arrays[i]->count * (arrays[i]->kind == KIND_BF16 ? 2 : 4));
        free(values);
    }
    g.forward.workspace = tiled;
    ran = ran && pair_ran(p, "tiled", b->ops->delta_rule(b, STREAM_COMPUTE, &g.forward, &p->diags));
    ran =
        ran && pair_ran(p, "tiled", b->ops->delta_rule_backward(b, STREAM_COMPUTE, &g, &p->diags));
    for (int i = 0; i < 7 && ran; i++)
        pair_compare(p, names[i], arrays[i], tiled_bounds.summed);
}

/* A sequence in three runs, two of them here. */
static void combine(struct pair *p, int key, int value, bool backward)
{
    enum { CHUNKS = 3, HEADS = 2, SEQUENCES = 2 };
    pair_case(p, "delta_combine", "%d x %d, %s", key, value, backward ? "backward" : "forward");
    int64_t all = SEQUENCES * CHUNKS * HEADS;
    struct array ends = pair_random(p, KIND_FP32, all * key * value, 1);
    struct array transitions = pair_random(p, KIND_FP32, all * key * key, 0.1);
    struct array states = pair_poison(p, KIND_FP32, (int64_t)SEQUENCES * 2 * HEADS * key * value);
    struct delta_combine sides[SIDES];
    for (int side = HOST; side < SIDES; side++)
        sides[side] = (struct delta_combine){ .heads = { 1, HEADS, key, value },
                                              .sequences = SEQUENCES,
                                              .chunks = CHUNKS,
                                              .own = 2,
                                              .own_chunks = { 0, 2 },
                                              .ends = ends.at[side],
                                              .transitions = transitions.at[side],
                                              .states = states.at[side],
                                              .backward = backward };
    PAIR_RUN(p, delta_combine, &sides[side]);
    pair_compare(p, "states", &states, SUMMED);
}

void cases_delta_rule(struct pair *p)
{
    static const struct shape shapes[] = {
        { { 1, 1, 128, 128 }, 1, 150, -0.05 }, { { 2, 4, 128, 128 }, 2, 193, -0.3 },
        { { 2, 6, 128, 128 }, 1, 64, -0.01 },  { { 1, 2, 128, 128 }, 3, 37, -3 },
        { { 1, 1, 16, 8 }, 1, 150, -0.05 },    { { 2, 6, 12, 20 }, 2, 70, -0.3 },
        { { 1, 2, 256, 64 }, 1, 20, -0.1 },
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rule(p, &shapes[i]);
    for (int backward = 0; backward < 2; backward++) {
        combine(p, 128, 128, backward != 0);
        combine(p, 12, 20, backward != 0);
    }
}

/* Segments, groups that split the runs, blocks that take all of the plain kernels' memory. */
void cases_delta_long(struct pair *p)
{
    static const struct shape shapes[] = {
        { { 1, 1, 128, 128 }, 1, 4166, -0.02 },
        { { 1, 1, 8, 8 }, 1, 4166, -0.02 },
        { { 2, 64, 128, 128 }, 66, 1, -0.1 },
        { { 2, 2, 512, 512 }, 1, 3, -0.1 },
    };
    static const struct shape lengths[] = {
        { { 4, 8, 128, 128 }, 2, 2000, -0.05 },
        { { 2, 2, 128, 128 }, 1, 9000, -0.002 },
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rule(p, &shapes[i]);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        at_length(p, &lengths[i]);
}

/* Every length up to 300, two runs of it, forward and backward; the worst of each tensor. */
void cases_delta_lengths(struct pair *p)
{
    enum { LENGTHS = 300, ARRAYS = 5 };
    static const char *const names[ARRAYS] = { "o", "final", "d_qkv", "d_decay", "d_initial" };
    double worst[ARRAYS] = { 0 };
    for (int length = 1; length <= LENGTHS; length++) {
        const struct shape s = { { 1, 1, 128, 128 }, 2, length, -0.1 };
        pair_case(p, "delta_rule, lengths", "1/1 x 128, 2 runs of 1 to %d", length);
        struct tensors t = tensors_of(p, &s);
        struct delta_rule_gradient sides[SIDES];
        for (int side = HOST; side < SIDES; side++) {
            sides[side] = backward_of(&s, &t, side);
            sides[side].forward.transition = NULL;
        }
        PAIR_RUN(p, delta_rule, &sides[side].forward);
        PAIR_RUN(p, delta_rule_backward, &sides[side]);
        const struct array *arrays[ARRAYS] = { &t.o, &t.final, &t.d_qkv, &t.d_decay, &t.d_initial };
        for (int i = 0; i < ARRAYS; i++) {
            double error = pair_distance(p, arrays[i]);
            worst[i] = error <= worst[i] ? worst[i] : error; /* not a number stays */
        }
    }
    /* the gradient of a decay is a sum of both signs, and a run of few tokens has few of them */
    for (int i = 0; i < ARRAYS; i++)
        pair_figure(p, names[i], worst[i], 0, (i == 3 ? 2 : 1) * tiled_bounds.summed);
}
