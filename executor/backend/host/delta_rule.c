/* The delta rule in chunks, fp32 throughout. With c_t the sum of decays from the chunk's start up
 * to token t, e_t = exp(c_t), E = exp(c_last), D_ts = exp(c_t - c_s), S the state before the chunk:
 *   X = K S;  Y_t = beta_t (v_t - e_t X_t);  (I + B) U = Y, B_ts = beta_t (k_t k_s) D_ts for s < t;
 *   O_t = (e_t q_t S + sum over s <= t of P_ts U_s) / sqrt(key_dim), P_ts = (q_t k_s) D_ts;
 *   S' = E S + sum over t of E / e_t k_t U_t^T
 * (Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024, section 3.3; the solve in the place of
 * an inverse). Gradients follow from these lines one by one, backwards. */
#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

#include <cblas.h>
#include <math.h>

enum { CHUNK = DELTA_CHUNK, SQUARE = CHUNK * CHUNK, SEGMENT_CHUNKS = DELTA_SEGMENT / DELTA_CHUNK };

/* One head of one chunk. Matrices have `n` rows, as wide as their names say. */
struct chunk {
    int n, key, value;
    float scale;          /* of the output */
    float *q, *k;         /* [n, key] */
    float *v, *x, *y, *u; /* [n, value] */
    float *b, *p;         /* [n, CHUNK] B without its beta, P */
    float *keys;          /* [n, key] scratch: keys on their way into the state */
    float c[CHUNK], beta[CHUNK];
    /* Backward. */
    float *d_o, *d_u, *d_y; /* [n, value] */
    float *d_p, *d_b;       /* [n, CHUNK] */
    float *d_q, *d_k;       /* [n, key] */
    float d_c[CHUNK], d_beta[CHUNK];
};

static void multiply(bool turn_a, bool turn_b, int m, int n, int k, const float *a, int a_stride,
                     const float *b, int b_stride, float add, float *c, int c_stride)
{
    cblas_sgemm(CblasRowMajor, turn_a ? CblasTrans : CblasNoTrans,
                turn_b ? CblasTrans : CblasNoTrans, m, n, k, 1, a, a_stride, b, b_stride, add, c,
                c_stride);
}

static float dot(int count, const float *a, const float *b)
{
    float sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Floats of a chunk's matrices, forward and backward. */
static int64_t chunk_floats(const struct delta_heads *h)
{
    int64_t value = h->value_dim > h->key_dim ? h->value_dim : h->key_dim;
    return CHUNK * (5 * (int64_t)h->key_dim + 7 * value) + 4 * SQUARE;
}

static float *cut(float **at, int64_t floats)
{
    float *ret = *at;
    *at += floats;
    return ret;
}

/* value: how wide the values and states are that the chunk works with. */
static void chunk_open(struct chunk *c, const struct delta_heads *h, int value, float *at)
{
    int64_t keys = (int64_t)CHUNK * h->key_dim, values = (int64_t)CHUNK * value;

    *c = (struct chunk){ .key = h->key_dim, .value = value, .scale = 1 / sqrtf((float)h->key_dim) };
    float **of_keys[] = { &c->q, &c->k, &c->keys, &c->d_q, &c->d_k };
    float **of_values[] = { &c->v, &c->x, &c->y, &c->u, &c->d_o, &c->d_u, &c->d_y };
    float **squares[] = { &c->b, &c->p, &c->d_p, &c->d_b };
    for (size_t i = 0; i < sizeof of_keys / sizeof *of_keys; i++)
        *of_keys[i] = cut(&at, keys);
    for (size_t i = 0; i < sizeof of_values / sizeof *of_values; i++)
        *of_values[i] = cut(&at, values);
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++)
        *squares[i] = cut(&at, SQUARE);
}

static void widen(const bf16 *from, int64_t stride, int rows, int columns, float *to)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < columns; i++)
            to[(int64_t)r * columns + i] = bf16_to_float(from[r * stride + i]);
}

/* Where a value head's queries, keys and values are in a row of qkv. */
struct places {
    int64_t q, k, v;
};

static struct places places_of(const struct delta_heads *h, int head)
{
    int64_t key = (int64_t)(head / (h->value_heads / h->key_heads)) * h->key_dim;
    int64_t keys = (int64_t)h->key_heads * h->key_dim;
    return (struct places){ key, keys + key, 2 * keys + (int64_t)head * h->value_dim };
}

/* B and P of the chunk, its inputs read. */
static void chunk_load(const struct delta_rule *d, int head, int64_t row, int n, struct chunk *c)
{
    const struct delta_heads *h = &d->heads;
    int64_t channels = delta_channels(h);
    const struct places at = places_of(h, head);
    const bf16 *from = d->qkv + row * channels;
    float sum = 0;

    c->n = n;
    widen(from + at.q, channels, n, c->key, c->q);
    widen(from + at.k, channels, n, c->key, c->k);
    for (int t = 0; t < n; t++) {
        int64_t gate = (row + t) * h->value_heads + head;
        c->c[t] = sum += d->decay[gate];
        c->beta[t] = d->beta[gate];
    }
    multiply(false, true, n, n, c->key, c->k, c->key, c->k, c->key, 0, c->b, CHUNK);
    multiply(false, true, n, n, c->key, c->q, c->key, c->k, c->key, 0, c->p, CHUNK);
    for (int t = 0; t < n; t++)
        for (int s = 0; s < n; s++) {
            float decay = s <= t ? expf(c->c[t] - c->c[s]) : 0;
            c->b[t * CHUNK + s] *= s < t ? decay : 0;
            c->p[t * CHUNK + s] *= decay;
        }
}

/* Without values (a transition): zeros. */
static void load_values(const struct delta_rule *d, int head, int64_t row, bool zeros,
                        struct chunk *c)
{
    int64_t channels = delta_channels(&d->heads);
    if (zeros)
        memset(c->v, 0, (size_t)c->n * (size_t)c->value * sizeof *c->v);
    else
        widen(d->qkv + row * channels + places_of(&d->heads, head).v, channels, c->n, c->value,
              c->v);
}

/* X, Y and U. */
static void chunk_solve(struct chunk *c, const float *state)
{
    int n = c->n, value = c->value;

    multiply(false, false, n, value, c->key, c->k, c->key, state, value, 0, c->x, value);
    for (int t = 0; t < n; t++) {
        float e = expf(c->c[t]), *u = c->u + (int64_t)t * value;
        for (int i = 0; i < value; i++) {
            int64_t at = (int64_t)t * value + i;
            u[i] = c->y[at] = c->beta[t] * (c->v[at] - e * c->x[at]);
        }
        for (int s = 0; s < t; s++)
            cblas_saxpy(value, -c->beta[t] * c->b[t * CHUNK + s], c->u + (int64_t)s * value, 1, u,
                        1);
    }
}

static void chunk_output(struct chunk *c, const float *state, bf16 *o, int64_t stride)
{
    int n = c->n, value = c->value;

    multiply(false, false, n, value, c->key, c->q, c->key, state, value, 0, c->x, value);
    for (int t = 0; t < n; t++)
        cblas_sscal(value, expf(c->c[t]), c->x + (int64_t)t * value, 1);
    multiply(false, false, n, value, n, c->p, CHUNK, c->u, value, 1, c->x, value);
    for (int t = 0; t < n; t++)
        for (int i = 0; i < value; i++)
            o[t * stride + i] = bf16_from_float(c->scale * c->x[(int64_t)t * value + i]);
}

/* keys = E / e_t k_t */
static void carry_keys(struct chunk *c)
{
    for (int t = 0; t < c->n; t++)
        for (int i = 0; i < c->key; i++)
            c->keys[t * c->key + i] = expf(c->c[c->n - 1] - c->c[t]) * c->k[t * c->key + i];
}

static void chunk_advance(struct chunk *c, float *state)
{
    carry_keys(c);
    multiply(true, false, c->key, c->value, c->n, c->keys, c->key, c->u, c->value,
             expf(c->c[c->n - 1]), state, c->value);
}

/* A run of chunks of one head: from `first` on in the run, `state` moves along. */
struct walk {
    const struct delta_rule *d;
    int run, head;
    bool zeros; /* no values, no outputs */
    float *state;
    struct chunk chunk;
};

static int chunk_tokens(const struct delta_rule *d, int64_t first)
{
    int64_t left = d->tokens - first;
    return left < CHUNK ? (int)left : CHUNK;
}

/* kept: the state before each chunk, or NULL. */
static void walk_chunks(struct walk *w, int64_t first, int64_t end, float *kept)
{
    const struct delta_rule *d = w->d;
    struct chunk *c = &w->chunk;
    int64_t size = (int64_t)c->key * c->value, width = (int64_t)d->heads.value_heads * c->value;

    for (int64_t at = first; at < end; at += CHUNK) {
        int64_t row = w->run * d->tokens + at;
        if (kept)
            memcpy(kept + (at - first) / CHUNK * size, w->state, (size_t)size * sizeof *kept);
        chunk_load(d, w->head, row, chunk_tokens(d, at), c);
        load_values(d, w->head, row, w->zeros, c);
        chunk_solve(c, w->state);
        if (d->o && !w->zeros && !kept)
            chunk_output(c, w->state, d->o + row * width + (int64_t)w->head * c->value, width);
        chunk_advance(c, w->state);
    }
}

static int64_t run_head(const struct delta_rule *d, int run, int head)
{
    return (int64_t)run * d->heads.value_heads + head;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What the state of a run and head is before a segment, among those that are kept. */
static float *segment_state(const struct delta_rule *d, int run, int head, int64_t segment)
{
    int64_t size = (int64_t)d->heads.key_dim * d->heads.value_dim;
    return d->states +
           (((int64_t)run * delta_segments(d->tokens) + segment) * d->heads.value_heads + head) *
               size;
}

static void run_forward(struct walk *w)
{
    const struct delta_rule *d = w->d;
    size_t bytes = (size_t)d->heads.key_dim * (size_t)d->heads.value_dim * sizeof(float);
    int64_t at = run_head(d, w->run, w->head) * d->heads.key_dim * d->heads.value_dim;

    if (d->initial)
        memcpy(w->state, d->initial + at, bytes);
    else
        memset(w->state, 0, bytes);
    for (int64_t segment = 0; segment < delta_segments(d->tokens); segment++) {
        if (d->states)
            memcpy(segment_state(d, w->run, w->head, segment), w->state, bytes);
        walk_chunks(w, segment * DELTA_SEGMENT, smaller((segment + 1) * DELTA_SEGMENT, d->tokens),
                    NULL);
    }
    if (d->final)
        memcpy(d->final + at, w->state, bytes);
}

/* What becomes of the unit states, each alone, where there are no values. */
static void run_transition(struct walk *w)
{
    const struct delta_rule *d = w->d;
    int key = d->heads.key_dim;
    int64_t size = (int64_t)key * key;

    w->state = d->transition + run_head(d, w->run, w->head) * size;
    memset(w->state, 0, (size_t)size * sizeof *w->state);
    for (int i = 0; i < key; i++)
        w->state[(int64_t)i * key + i] = 1;
    walk_chunks(w, 0, d->tokens, NULL);
}

/* Of a backward: the states before the chunks of one segment, the gradient of the state for the
 * value heads of one key head, the gradients of its queries and keys in one segment. */
static int64_t backward_floats(const struct delta_rule *d)
{
    const struct delta_heads *h = &d->heads;
    int64_t chunks = smaller((d->tokens + CHUNK - 1) / CHUNK, SEGMENT_CHUNKS);
    int64_t size = (int64_t)h->key_dim * h->value_dim;
    return (chunks + h->value_heads / h->key_heads) * size +
           2 * smaller(d->tokens, DELTA_SEGMENT) * h->key_dim;
}

uint64_t host_delta_workspace_bytes(const struct backend *b, const struct delta_rule *d,
                                    bool backward)
{
    int64_t floats = (int64_t)d->heads.key_dim * d->heads.value_dim + chunk_floats(&d->heads);
    (void)b;
    if (backward)
        floats += backward_floats(d);
    return (uint64_t)floats * sizeof(float);
}

int host_delta_rule(struct backend *b, enum stream s, const struct delta_rule *d,
                    struct diag_list *reterr)
{
    int64_t size = (int64_t)d->heads.key_dim * d->heads.value_dim;
    (void)b, (void)s, (void)reterr;
    for (int run = 0; run < d->runs; run++)
        for (int head = 0; head < d->heads.value_heads; head++) {
            struct walk w = { .d = d, .run = run, .head = head, .state = d->workspace };
            float *at = (float *)d->workspace + size;
            chunk_open(&w.chunk, &d->heads, d->heads.value_dim, at);
            run_forward(&w);
            if (!d->transition)
                continue;
            w.zeros = true;
            chunk_open(&w.chunk, &d->heads, d->heads.key_dim, at);
            run_transition(&w);
        }
    return 0;
}

/* dU, then dY = (I + B)^-T dU; d_state: of the state behind the chunk. keys hold E / e_t k_t. */
static void solve_backward(struct chunk *c, const float *d_state)
{
    int n = c->n, value = c->value;

    carry_keys(c);
    multiply(true, false, n, value, n, c->p, CHUNK, c->d_o, value, 0, c->d_u, value);
    multiply(false, false, n, value, c->key, c->keys, c->key, d_state, value, 1, c->d_u, value);
    memcpy(c->d_y, c->d_u, (size_t)n * (size_t)value * sizeof *c->d_y);
    for (int t = n - 1; t >= 0; t--)
        for (int s = 0; s < t; s++)
            cblas_saxpy(value, -c->beta[t] * c->b[t * CHUNK + s], c->d_y + (int64_t)t * value, 1,
                        c->d_y + (int64_t)s * value, 1);
}

/* dP and dB as they multiply (q k) and (k k), D taken in; what they say of decays and beta. */
static void squares_backward(struct chunk *c)
{
    int n = c->n, value = c->value;

    multiply(false, true, n, n, value, c->d_o, value, c->u, value, 0, c->d_p, CHUNK);
    multiply(false, true, n, n, value, c->d_y, value, c->u, value, 0, c->d_b, CHUNK);
    for (int t = 0; t < n; t++)
        for (int s = 0; s < n; s++) {
            int at = t * CHUNK + s;
            float decay = s <= t ? expf(c->c[t] - c->c[s]) : 0;
            float d_b = s < t ? -c->d_b[at] : 0, d_p = s <= t ? c->d_p[at] : 0;
            float flow = d_p * c->p[at] + d_b * c->beta[t] * c->b[at];
            c->d_c[t] += flow;
            c->d_c[s] -= flow;
            c->d_beta[t] += d_b * c->b[at];
            c->d_p[at] = d_p * decay;
            c->d_b[at] = d_b * c->beta[t] * decay;
        }
}

/* dQ and dK of P and B. */
static void keys_of_squares(struct chunk *c)
{
    int n = c->n, key = c->key;

    multiply(false, false, n, key, n, c->d_p, CHUNK, c->k, key, 1, c->d_q, key);
    multiply(true, false, n, key, n, c->d_p, CHUNK, c->q, key, 1, c->d_k, key);
    multiply(false, false, n, key, n, c->d_b, CHUNK, c->k, key, 1, c->d_k, key);
    multiply(true, false, n, key, n, c->d_b, CHUNK, c->k, key, 1, c->d_k, key);
}

/* The way through S' = E S + keys^T U. u and d_u are read; keys become their gradient. */
static void advance_backward(struct chunk *c, const float *state, const float *d_state)
{
    int n = c->n, key = c->key, value = c->value, last = n - 1;
    float *d_keys = c->keys;

    multiply(false, true, n, key, value, c->u, value, d_state, value, 0, d_keys, key);
    for (int t = 0; t < n; t++) {
        float decay = expf(c->c[last] - c->c[t]);
        float flow = decay * dot(key, d_keys + (int64_t)t * key, c->k + (int64_t)t * key);
        cblas_saxpy(key, decay, d_keys + (int64_t)t * key, 1, c->d_k + (int64_t)t * key, 1);
        c->d_c[t] -= flow;
        c->d_c[last] += flow;
    }
    c->d_c[last] += expf(c->c[last]) * dot(key * value, state, d_state);
}

/* Through X and the first part of O, which read the state before the chunk; d_state becomes that
 * state's gradient. d_o is scaled already; x holds K S, and then -beta e dY. */
static void state_backward(struct chunk *c, const float *state, float *d_state)
{
    int n = c->n, key = c->key, value = c->value;

    for (int t = 0; t < n; t++) {
        int64_t at = (int64_t)t * value;
        float e = expf(c->c[t]), *d_y = c->d_y + at, *x = c->x + at;
        float along = dot(value, d_y, x), direct = dot(value, d_y, c->v + at);
        c->d_beta[t] += direct - e * along;
        c->d_c[t] -= c->beta[t] * e * along;
        for (int i = 0; i < value; i++)
            x[i] = -c->beta[t] * e * d_y[i];
        cblas_sscal(value, e, c->d_o + at, 1);
    }
    multiply(false, true, n, key, value, c->x, value, state, value, 1, c->d_k, key);
    multiply(false, true, n, key, value, c->d_o, value, state, value, 0, c->keys, key);
    for (int t = 0; t < n; t++) {
        c->d_c[t] += dot(key, c->keys + (int64_t)t * key, c->q + (int64_t)t * key);
        cblas_saxpy(key, 1, c->keys + (int64_t)t * key, 1, c->d_q + (int64_t)t * key, 1);
    }
    multiply(true, false, key, value, n, c->q, key, c->d_o, value, expf(c->c[n - 1]), d_state,
             value);
    multiply(true, false, key, value, n, c->k, key, c->x, value, 1, d_state, value);
}

/* A backward over the value heads of one key head of one run. */
struct back {
    const struct delta_rule_gradient *g;
    int run, key_head;
    int64_t first, tokens; /* the segment */
    float *kept;           /* states before its chunks */
    float *d_state;        /* of each value head */
    float *d_q, *d_k;      /* [tokens, key] sums over value heads */
    struct walk walk;
};

static void store_chunk(const struct back *b, int head, int64_t at)
{
    const struct delta_rule *d = &b->g->forward;
    const struct chunk *c = &b->walk.chunk;
    int64_t row = b->run * d->tokens + at, channels = delta_channels(&d->heads);
    bf16 *d_v = b->g->d_qkv + row * channels + places_of(&d->heads, head).v;
    float sum = 0;

    for (int t = c->n - 1; t >= 0; t--) {
        int64_t gate = (row + t) * d->heads.value_heads + head, from = at - b->first + t;
        b->g->d_decay[gate] = sum += c->d_c[t];
        b->g->d_beta[gate] = c->d_beta[t];
        for (int i = 0; i < c->value; i++)
            d_v[t * channels + i] = bf16_from_float(c->beta[t] * c->d_y[t * c->value + i]);
        cblas_saxpy(c->key, 1, c->d_q + (int64_t)t * c->key, 1, b->d_q + from * c->key, 1);
        cblas_saxpy(c->key, 1, c->d_k + (int64_t)t * c->key, 1, b->d_k + from * c->key, 1);
    }
}

static void clear(struct chunk *c)
{
    size_t keys = (size_t)c->n * (size_t)c->key * sizeof(float);
    memset(c->d_q, 0, keys);
    memset(c->d_k, 0, keys);
    memset(c->d_c, 0, sizeof c->d_c);
    memset(c->d_beta, 0, sizeof c->d_beta);
}

static void chunk_backward(struct back *b, int head, int64_t at, float *d_state)
{
    const struct delta_rule *d = &b->g->forward;
    struct chunk *c = &b->walk.chunk;
    int64_t row = b->run * d->tokens + at, width = (int64_t)d->heads.value_heads * c->value;
    const float *state = b->kept + (at - b->first) / CHUNK * c->key * c->value;

    chunk_load(d, head, row, chunk_tokens(d, at), c);
    load_values(d, head, row, false, c);
    chunk_solve(c, state);
    widen(b->g->d_o + row * width + (int64_t)head * c->value, width, c->n, c->value, c->d_o);
    cblas_sscal(c->n * c->value, c->scale, c->d_o, 1);
    clear(c);
    solve_backward(c, d_state);
    squares_backward(c);
    keys_of_squares(c);
    advance_backward(c, state, d_state);
    state_backward(c, state, d_state);
    if (!b->g->states_only)
        store_chunk(b, head, at);
}

static void head_backward(struct back *b, int head, float *d_state)
{
    const struct delta_rule *d = &b->g->forward;
    struct walk *w = &b->walk;
    int64_t size = (int64_t)w->chunk.key * w->chunk.value, end = b->first + b->tokens;

    w->head = head;
    memcpy(w->state, segment_state(d, b->run, head, b->first / DELTA_SEGMENT),
           (size_t)size * sizeof *w->state);
    walk_chunks(w, b->first, end, b->kept);
    for (int64_t at = b->first + (b->tokens - 1) / CHUNK * CHUNK; at >= b->first; at -= CHUNK)
        chunk_backward(b, head, at, d_state);
}

static void store_keys(const struct back *b)
{
    const struct delta_rule *d = &b->g->forward;
    int key = d->heads.key_dim;
    int64_t channels = delta_channels(&d->heads), k = (int64_t)d->heads.key_heads * key;
    bf16 *to =
        b->g->d_qkv + (b->run * d->tokens + b->first) * channels + (int64_t)b->key_head * key;

    for (int64_t t = 0; t < b->tokens; t++)
        for (int i = 0; i < key; i++) {
            to[t * channels + i] = bf16_from_float(b->d_q[t * key + i]);
            to[t * channels + k + i] = bf16_from_float(b->d_k[t * key + i]);
        }
}

static void segment_backward(struct back *b)
{
    const struct delta_heads *h = &b->g->forward.heads;
    int each = h->value_heads / h->key_heads;
    int64_t size = (int64_t)h->key_dim * h->value_dim;
    size_t keys = (size_t)b->tokens * (size_t)h->key_dim * sizeof(float);

    memset(b->d_q, 0, keys);
    memset(b->d_k, 0, keys);
    for (int i = 0; i < each; i++)
        head_backward(b, b->key_head * each + i, b->d_state + i * size);
    if (!b->g->states_only)
        store_keys(b);
}

static void run_backward(struct back *b)
{
    const struct delta_rule *d = &b->g->forward;
    const struct delta_heads *h = &d->heads;
    int each = h->value_heads / h->key_heads;
    int64_t size = (int64_t)each * h->key_dim * h->value_dim;
    int64_t at = ((int64_t)b->run * h->key_heads + b->key_head) * size;
    size_t bytes = (size_t)size * sizeof(float);

    if (b->g->d_final)
        memcpy(b->d_state, b->g->d_final + at, bytes);
    else
        memset(b->d_state, 0, bytes);
    for (int64_t segment = delta_segments(d->tokens) - 1; segment >= 0; segment--) {
        b->first = segment * DELTA_SEGMENT;
        b->tokens = smaller(DELTA_SEGMENT, d->tokens - b->first);
        segment_backward(b);
    }
    if (b->g->d_initial)
        memcpy(b->g->d_initial + at, b->d_state, bytes);
}

int host_delta_rule_backward(struct backend *b, enum stream s, const struct delta_rule_gradient *g,
                             struct diag_list *reterr)
{
    const struct delta_rule *d = &g->forward;
    const struct delta_heads *h = &d->heads;
    int64_t size = (int64_t)h->key_dim * h->value_dim, each = h->value_heads / h->key_heads;
    int64_t sums = smaller(d->tokens, DELTA_SEGMENT) * h->key_dim;
    float *at = d->workspace;
    struct back back = { .g = g, .walk = { .d = d } };

    (void)b, (void)s, (void)reterr;
    back.walk.state = cut(&at, size);
    chunk_open(&back.walk.chunk, h, h->value_dim, cut(&at, chunk_floats(h)));
    back.d_state = cut(&at, each * size);
    back.d_q = cut(&at, sums);
    back.d_k = cut(&at, sums);
    back.kept = at;
    for (back.run = 0; back.run < d->runs; back.run++)
        for (back.key_head = 0; back.key_head < h->key_heads; back.key_head++) {
            back.walk.run = back.run;
            run_backward(&back);
        }
    return 0;
}

/* The states of one head on their way through the runs of a sequence, in the order of the chain. */
static void combine_head(const struct delta_combine *d, int sequence, int head, float *state,
                         float *next)
{
    int key = d->heads.key_dim, value = d->heads.value_dim, heads = d->heads.value_heads;
    int64_t size = (int64_t)key * value, square = (int64_t)key * key;

    memset(state, 0, (size_t)size * sizeof *state);
    for (int i = 0; i < d->chunks; i++) {
        int chunk = d->backward ? d->chunks - 1 - i : i;
        int64_t at = ((int64_t)sequence * d->chunks + chunk) * heads + head;
        for (int own = 0; own < d->own; own++)
            if (d->own_chunks[own] == chunk)
                memcpy(d->states + (((int64_t)sequence * d->own + own) * heads + head) * size,
                       state, (size_t)size * sizeof *state);
        memcpy(next, d->ends + at * size, (size_t)size * sizeof *next);
        multiply(d->backward, false, key, value, key, d->transitions + at * square, key, state,
                 value, 1, next, value);
        memcpy(state, next, (size_t)size * sizeof *next);
    }
}

int host_delta_combine(struct backend *b, enum stream s, const struct delta_combine *d,
                       struct diag_list *reterr)
{
    int64_t size = (int64_t)d->heads.key_dim * d->heads.value_dim;
    float *state = host_workspace(b, 2 * size, "states of runs", reterr);
    (void)s;
    if (!state)
        return -1;
    for (int sequence = 0; sequence < d->sequences; sequence++)
        for (int head = 0; head < d->heads.value_heads; head++)
            combine_head(d, sequence, head, state, state + size);
    return 0;
}
