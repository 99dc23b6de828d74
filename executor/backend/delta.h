/* delta.h - the operations of a gated delta net: what enters the delta rule, the rule itself in
 * chunks, and the gated norm behind it. Rows are tokens; a run is `tokens` neighbouring rows that
 * belong to one sequence, and a call works on `runs` of them that follow each other.
 *
 * The rule. For each value head, with key k and query q (unit vectors), value v, decay g <= 0 and
 * rate beta of a token, and a state S [key_dim, value_dim]:
 *     S <- exp(g) S;  S <- S + k (beta (v - S^T k))^T;  o = S^T q / sqrt(key_dim).
 * A backend may compute it in chunks of DELTA_CHUNK tokens counted from the run's start; the last
 * chunk may be shorter, and so may a run. The form above is what tests compare with.
 *
 * Numbers. q, k, v, o and their gradients are bf16; g, beta and states fp32; sums fp32. Heads are
 * at most DELTA_HEAD_MAX wide, convolutions at most DELTA_CONV_MAX tokens long.
 *
 * Memory. T tokens, h value heads, hk key heads, dk and dv their widths.
 * - Saved from forward to backward: the caller's projection p bf16 [T, projection width]; o bf16
 *   [T, h dv], for the gated norm alone; states fp32 [runs, segments, h, dk, dv], the state before
 *   every DELTA_SEGMENT tokens of a run. States take 16 MiB for 32 heads of 128 x 128 and 32,768
 *   tokens; nothing else of the rule is kept.
 * - Working tensors, which the caller takes while they are used: qkv bf16 [T, channels], decay and
 *   beta fp32 [T, h], which delta_input makes for the rule and again before the rule's backward;
 *   the backward adds d_qkv bf16 [T, channels], d_decay and d_beta fp32 [T, h]; d_p has the
 *   projection's width.
 * - Workspace of a call (delta_workspace_bytes), bounded however long a run is. R runs of t tokens,
 *   n = ceil(min(t, 4096) / 64) chunks in a segment:
 *     host: 4 (dk dv + 64 (5 dk + 7 max(dk, dv)) + 4 x 64^2) bytes; backward in addition
 *       4 ((n + h / hk) dk dv + 2 min(t, 4096) dk).
 *     CUDA, heads of 128 x 128: G = max(1, min(R, floor(4096 / (n h)))) runs at a time take
 *       G h (17,408 n + 131,072) bytes; backward in addition 65,536 G h n.
 *     CUDA, other heads: one of B = 4 dk dv for each of the R h pairs of a run and a value head,
 *       backward 129 (h / hk) 4 dk dv for each of the R hk pairs of a run and a key head; as many
 *       of them as 256 MiB hold, at least one.
 *   The transitions of a first pass and the states of a second one need the same. */
#ifndef RANKFIT_EXECUTOR_BACKEND_DELTA_H
#define RANKFIT_EXECUTOR_BACKEND_DELTA_H

#include "base/layout/primitives.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint16_t bf16; /* the one typedef: a scalar that the language lacks */

enum { DELTA_CHUNK = 64, DELTA_SEGMENT = 4096 };

/* Value heads are grouped: key head i serves the value heads i r to i r + r - 1, with
 * r = value_heads / key_heads. */
struct delta_heads {
    int key_heads, value_heads, key_dim, value_dim;
};

/* Queries, keys and values side by side. */
static inline int64_t delta_channels(const struct delta_heads *h)
{
    return 2 * (int64_t)h->key_heads * h->key_dim + (int64_t)h->value_heads * h->value_dim;
}

/* Where a row of the projection has what belongs to key head 0, and how many elements further those
 * of the next key head are. Of values and gates z, and of b and a, a key head has r each. */
struct delta_columns {
    int64_t q, k, v, z, b, a;
    int64_t key_step, value_step, gate_step;
};

/* Causal convolution over `width` tokens with SiLU, then queries and keys normed to length 1 (1e-6
 * is added to the squared length); decay = -exp(log_rate) softplus(a + step); beta = sigmoid(b). */
struct delta_input {
    struct delta_heads heads;
    struct delta_columns columns;
    int runs, width;
    int64_t tokens;
    const bf16 *p;
    int64_t p_stride;
    /* [runs, width - 1, channels]: the tokens before each run, as dense channels; NULL: zeros. */
    const bf16 *halo;
    const bf16 *conv[3]; /* of queries, keys, values: [channels, width], the last for the token */
    const bf16 *log_rate, *step; /* [value_heads] */
    bf16 *qkv;                   /* [rows, channels]: q, k, v; forward only */
    float *decay, *beta;         /* [rows, value_heads] */
};

struct delta_input_gradient {
    struct delta_input forward; /* qkv, decay and beta unused */
    const bf16 *d_qkv;
    const float *d_decay, *d_beta;
    bf16 *d_p;     /* the columns of q, k, v, b and a are written, with the strides of p */
    float *d_halo; /* [runs, width - 1, channels], written; NULL where there is no halo */
    void *d_conv[3], *d_log_rate, *d_step; /* added to, in grad_type */
    enum dtype grad_type;
};

/* Ends of runs, [runs, width - 1, channels]: what the next run's halo is. Tails of p as dense
 * channels; and the gradient of a halo that comes home: d_p's last rows of each run += d_tails.
 * tokens is at least width - 1. */
struct delta_tails {
    struct delta_heads heads;
    struct delta_columns columns;
    int runs, width;
    int64_t tokens, p_stride;
    const bf16 *p; /* forward */
    bf16 *tails;
    const float *d_tails; /* backward */
    bf16 *d_p;
};

/* Of sequences that are cut into `chunks` runs in a row: the state before each of this rank's runs,
 * from what every run makes of zeros (ends) and of a state (transitions):
 *   S_0 = 0, S_(j+1) = transition_j S_j + end_j.
 * Backward: the gradient of the state behind each run, from that of the states before the runs
 * (ends), G_(last) = 0, G_(j-1) = transition_j^T G_j + end_j. */
struct delta_combine {
    struct delta_heads heads;
    int sequences, chunks;
    int own, own_chunks[2];          /* runs of one sequence here, and which they are */
    const float *ends, *transitions; /* [sequences, chunks, value_heads, key_dim, ...] */
    float *states;                   /* [sequences, own, value_heads, key_dim, value_dim], out */
    bool backward;
};

struct delta_rule {
    struct delta_heads heads;
    int runs;
    int64_t tokens;
    const bf16 *qkv; /* [rows, channels] */
    const float *decay, *beta;
    bf16 *o;              /* [rows, value_heads * value_dim]; NULL: states only */
    float *states;        /* [runs, segments, value_heads, key_dim, value_dim]; NULL: not wanted */
    const float *initial; /* [runs, value_heads, key_dim, value_dim]; NULL: zeros */
    float *final;         /* likewise, out; NULL: not wanted */
    /* [runs, value_heads, key_dim, key_dim], out: what a run makes of a state that it begins with,
     * final(S) = transition S + final(0); NULL: not wanted. */
    float *transition;
    void *workspace; /* delta_workspace_bytes */
};

struct delta_rule_gradient {
    struct delta_rule forward; /* o unused; states as the forward left them; final unused */
    const bf16 *d_o;
    bf16 *d_qkv;             /* [rows, channels] */
    float *d_decay, *d_beta; /* [rows, value_heads] */
    const float *d_final;    /* of the state that each run ends with; NULL: zeros */
    float *d_initial;        /* NULL: not wanted */
    /* Nothing but d_initial is wanted, which costs less. */
    bool states_only;
};

static inline int64_t delta_segments(int64_t tokens)
{
    return (tokens + DELTA_SEGMENT - 1) / DELTA_SEGMENT;
}

/* Elements of the states of one token: of all value heads. */
static inline int64_t delta_state_elements(const struct delta_heads *h)
{
    return (int64_t)h->value_heads * h->key_dim * h->value_dim;
}

/* on = norm(o) * weight * silu(z) per value head, the norm over value_dim; z in the projection. */
struct gated_norm {
    struct delta_heads heads;
    struct delta_columns columns;
    int64_t rows, p_stride;
    double eps;
    const bf16 *o, *p, *weight; /* [rows, value width], the projection, [value_dim] */
    bf16 *on;                   /* forward only */
};

struct gated_norm_gradient {
    struct gated_norm forward;
    bf16 *d_o; /* in place: in, gradient of on; out, of o */
    bf16 *d_p; /* the columns of z are written, with the strides of p */
    void *d_weight;
    enum dtype grad_type;
};

#endif
