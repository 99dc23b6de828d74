/* The delta rule on the device, a segment of DELTA_SEGMENT tokens of a group of runs at a time.
 * Products of keys and queries alone are made for all chunks of the segment at once, then a
 * chain of chunks carries the states; backward the chain runs forward again from the kept state and
 * leaves the states between chunks, a second one runs back and leaves their gradients, and the rest
 * is made for all chunks at once. Other heads than 128 x 128 go token by token (delta_plain.cu). */
#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

_Static_assert((int)KERNEL_DELTA_CHUNK == (int)DELTA_CHUNK &&
                   (int)KERNEL_DELTA_SEGMENT == (int)DELTA_SEGMENT,
               "the kernels' chunks and segments are the contract's");

/* CELLS: chunks of heads that a group holds, unless one run has more; STATE: bytes of one. */
enum { CELLS = 4096, STATE = 4 * KERNEL_DELTA_DIM * KERNEL_DELTA_DIM };

/* Bytes that one launch of the plain kernels takes at most, unless a block takes more. */
static const int64_t plain_bytes = INT64_C(1) << 28;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Whether the tiled kernels serve heads like these on this device. */
static bool tiled(const struct cuda *c, const struct delta_heads *h)
{
    return h->key_dim == KERNEL_DELTA_DIM && h->value_dim == KERNEL_DELTA_DIM &&
           c->block_shared_bytes >= kernel_delta_shared_bytes();
}

static int64_t segment_chunks(const struct delta_rule *d)
{
    return (smaller(d->tokens, DELTA_SEGMENT) + DELTA_CHUNK - 1) / DELTA_CHUNK;
}

static int64_t group_runs(const struct delta_rule *d)
{
    int64_t run = segment_chunks(d) * d->heads.value_heads;
    return larger(1, smaller(d->runs, CELLS / larger(run, 1)));
}

/* Blocks of the plain kernels in all, and how many of them run together. */
struct plain_share {
    int64_t all, together, bytes; /* bytes of one */
};

static struct plain_share share_of(const struct delta_rule *d, bool backward)
{
    const struct delta_heads *h = &d->heads;
    struct plain_share ret = { .all =
                                   (int64_t)d->runs * (backward ? h->key_heads : h->value_heads) };
    ret.bytes =
        kernel_delta_plain_bytes(h->value_heads / h->key_heads, h->key_dim, h->value_dim, backward);
    ret.together = larger(1, smaller(ret.all, plain_bytes / ret.bytes));
    return ret;
}

uint64_t cuda_delta_workspace_bytes(const struct backend *b, const struct delta_rule *d,
                                    bool backward)
{
    const struct cuda *c = (const struct cuda *)b;
    if (!tiled(c, &d->heads)) {
        const struct plain_share share = share_of(d, backward);
        return (uint64_t)(share.together * share.bytes);
    }
    int64_t states = group_runs(d) * d->heads.value_heads;
    int64_t cell = KERNEL_DELTA_CELL + (backward ? KERNEL_DELTA_AROUND : 0);
    return (uint64_t)(states * (segment_chunks(d) * cell + 2 * STATE));
}

/* A rule under way: where things of the group's segment are. */
struct course {
    const struct cuda *c;
    enum stream stream;
    const struct delta_rule *d;
    struct kernel_delta_args args;
    float *carry[2];        /* states from one segment to the next, and transitions or gradients */
    int64_t segments, size; /* of a run; elements of its states */
};

static char *cut(char **at, int64_t bytes)
{
    char *ret = *at;
    *at += bytes;
    return ret;
}

/* The fewest warps a block with which the blocks of a chain fill the device at most once. */
static int warps_of(const struct cuda *c, int64_t states)
{
    for (int warps = 1; warps < 4; warps *= 2)
        if (KERNEL_DELTA_DIM / 16 / warps * states <= c->multiprocessors)
            return warps;
    return 4;
}

static struct course open_course(const struct cuda *c, enum stream s, const struct delta_rule *d,
                                 bool backward)
{
    int64_t runs = group_runs(d), states = runs * d->heads.value_heads;
    int64_t cells = states * segment_chunks(d), half = KERNEL_DELTA_AROUND / 2;
    int64_t square = 2 * DELTA_CHUNK * DELTA_CHUNK;
    char *at = d->workspace;
    struct course ret = { .c = c, .stream = s, .d = d };

    ret.segments = delta_segments(d->tokens);
    ret.size = delta_state_elements(&d->heads);
    ret.args = (struct kernel_delta_args){ .tokens = d->tokens,
                                           .key_heads = d->heads.key_heads,
                                           .value_heads = d->heads.value_heads,
                                           .warps = warps_of(c, states),
                                           .qkv = d->qkv,
                                           .decay = d->decay,
                                           .beta = d->beta };
    for (int i = 0; i < 2; i++)
        ret.carry[i] = (float *)(void *)cut(&at, states * STATE);
    ret.args.inverse = (bf16 *)(void *)cut(&at, cells * square);
    ret.args.scores = (bf16 *)(void *)cut(&at, cells * square);
    ret.args.gates = (float *)(void *)cut(&at, cells * (KERNEL_DELTA_CELL - 2 * square));
    if (backward) {
        ret.args.before = (bf16 *)(void *)cut(&at, cells * half);
        ret.args.behind = (bf16 *)(void *)cut(&at, cells * half);
    }
    return ret;
}

static void enter_segment(struct course *r, int64_t segment)
{
    int64_t first = segment * DELTA_SEGMENT;
    int64_t tokens = smaller(DELTA_SEGMENT, r->d->tokens - first);
    r->args.first = first;
    r->args.chunks = (int)((tokens + DELTA_CHUNK - 1) / DELTA_CHUNK);
}

static int ran(cudaError_t status, struct diag_list *reterr)
{
    return cuda_check(status, "delta rule", reterr);
}

/* Where the kept states of a segment are, of the group's first run. */
static float *kept_states(const struct course *r, int64_t segment)
{
    return r->d->states + (r->args.run * r->segments + segment) * r->size;
}

/* The group's part of a tensor of a state (of `size` elements) for each run, or NULL. */
static float *of_group(const struct course *r, float *states, int64_t size)
{
    return states ? states + r->args.run * size : NULL;
}

static const float *given(const struct course *r, const float *states)
{
    return states ? states + r->args.run * r->size : NULL;
}

static int forward_segment(struct course *r, int64_t segment, struct diag_list *reterr)
{
    struct kernel_delta_args *a = &r->args;
    const struct delta_rule *d = r->d;
    bool last = segment + 1 == r->segments;

    enter_segment(r, segment);
    a->from = segment == 0 ? given(r, d->initial) : r->carry[0];
    a->to = last ? of_group(r, d->final, r->size) : r->carry[0];
    a->kept = d->states ? kept_states(r, segment) : NULL;
    a->from_stride = a->to_stride = r->size;
    a->kept_stride = r->segments * r->size;
    a->transition_from = segment == 0 ? NULL : r->carry[1];
    a->transition_to = !d->transition ? NULL
                       : last         ? of_group(r, d->transition, r->size)
                                      : r->carry[1];
    if (ran(kernel_delta_squares(r->c->streams[r->stream], a), reterr) != 0)
        return -1;
    return ran(kernel_delta_forward(r->c->streams[r->stream], a), reterr);
}

static int forward_tiled(const struct cuda *c, enum stream s, const struct delta_rule *d,
                         struct diag_list *reterr)
{
    struct course r = open_course(c, s, d, false);
    int64_t runs = group_runs(d);

    r.args.o = d->o;
    for (int64_t run = 0; run < d->runs; run += runs) {
        r.args.run = (int)run;
        r.args.runs = (int)smaller(runs, d->runs - run);
        for (int64_t segment = 0; segment < r.segments; segment++)
            if (forward_segment(&r, segment, reterr) != 0)
                return -1;
    }
    return 0;
}

/* States between the segment's chunks, from the kept one. */
static int states_again(const struct course *r, int64_t segment, struct diag_list *reterr)
{
    struct kernel_delta_args a = r->args;
    a.from = kept_states(r, segment);
    a.from_stride = r->segments * r->size;
    a.kept = a.to = NULL;
    return ran(kernel_delta_forward(r->c->streams[r->stream], &a), reterr);
}

static int backward_segment(struct course *r, const struct delta_rule_gradient *g, int64_t segment,
                            struct diag_list *reterr)
{
    struct kernel_delta_args *a = &r->args;
    cudaStream_t stream = r->c->streams[r->stream];

    enter_segment(r, segment);
    a->from = segment + 1 == r->segments ? given(r, g->d_final) : r->carry[0];
    a->to = segment == 0 ? of_group(r, g->d_initial, r->size) : r->carry[0];
    a->from_stride = a->to_stride = r->size;
    if (ran(kernel_delta_squares(stream, a), reterr) != 0)
        return -1;
    if (!g->states_only && states_again(r, segment, reterr) != 0)
        return -1;
    if (ran(kernel_delta_states_backward(stream, a), reterr) != 0 || g->states_only)
        return g->states_only ? 0 : -1;
    return ran(kernel_delta_gradient(stream, a), reterr);
}

static int backward_tiled(const struct cuda *c, enum stream s, const struct delta_rule_gradient *g,
                          struct diag_list *reterr)
{
    const struct delta_rule *d = &g->forward;
    struct course r = open_course(c, s, d, true);
    int64_t runs = group_runs(d);

    r.args.d_o = g->d_o;
    r.args.d_qkv = g->states_only ? NULL : g->d_qkv;
    r.args.d_decay = g->d_decay;
    r.args.d_beta = g->d_beta;
    for (int64_t run = 0; run < d->runs; run += runs) {
        r.args.run = (int)run;
        r.args.runs = (int)smaller(runs, d->runs - run);
        for (int64_t segment = r.segments - 1; segment >= 0; segment--)
            if (backward_segment(&r, g, segment, reterr) != 0)
                return -1;
    }
    return 0;
}

static struct kernel_delta_plain_args plain_of(const struct delta_rule *d)
{
    return (struct kernel_delta_plain_args){ .tokens = d->tokens,
                                             .key_heads = d->heads.key_heads,
                                             .value_heads = d->heads.value_heads,
                                             .key_dim = d->heads.key_dim,
                                             .value_dim = d->heads.value_dim,
                                             .qkv = d->qkv,
                                             .decay = d->decay,
                                             .beta = d->beta,
                                             .initial = d->initial,
                                             .states = d->states,
                                             .final = d->final,
                                             .transition = d->transition,
                                             .o = d->o,
                                             .workspace = d->workspace };
}

/* As many blocks at a time as there is workspace for. */
static int run_plain(const struct cuda *c, enum stream s, struct kernel_delta_plain_args *args,
                     const struct plain_share *share, bool backward, struct diag_list *reterr)
{
    for (int64_t first = 0; first < share->all; first += share->together) {
        args->first = (int)first;
        args->count = (int)smaller(share->together, share->all - first);
        cudaError_t status = backward ? kernel_delta_plain_backward(c->streams[s], args)
                                      : kernel_delta_plain(c->streams[s], args);
        if (ran(status, reterr) != 0)
            return -1;
    }
    return 0;
}

static int check(const struct delta_heads *h, struct diag_list *reterr)
{
    if (h->key_dim <= DELTA_HEAD_MAX && h->value_dim <= DELTA_HEAD_MAX)
        return 0;
    return cuda_refuse(reterr, "delta rule: heads of %d and %d, at most %d", h->key_dim,
                       h->value_dim, DELTA_HEAD_MAX);
}

int cuda_delta_rule_plain(struct cuda *c, enum stream s, const struct delta_rule *d,
                          struct diag_list *reterr)
{
    const struct plain_share share = share_of(d, false);
    struct kernel_delta_plain_args args = plain_of(d);
    return check(&d->heads, reterr) != 0 ? -1 : run_plain(c, s, &args, &share, false, reterr);
}

int cuda_delta_rule_backward_plain(struct cuda *c, enum stream s,
                                   const struct delta_rule_gradient *g, struct diag_list *reterr)
{
    const struct plain_share share = share_of(&g->forward, true);
    struct kernel_delta_plain_args args = plain_of(&g->forward);

    args.d_o = g->d_o;
    args.d_qkv = g->states_only ? NULL : g->d_qkv;
    args.d_decay = g->d_decay;
    args.d_beta = g->d_beta;
    args.d_final = g->d_final;
    args.d_initial = g->d_initial;
    return check(&g->forward.heads, reterr) != 0 ? -1
                                                 : run_plain(c, s, &args, &share, true, reterr);
}

int cuda_delta_rule(struct backend *b, enum stream s, const struct delta_rule *d,
                    struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    if (d->runs * d->tokens == 0)
        return 0;
    return tiled(c, &d->heads) ? forward_tiled(c, s, d, reterr)
                               : cuda_delta_rule_plain(c, s, d, reterr);
}

int cuda_delta_rule_backward(struct backend *b, enum stream s, const struct delta_rule_gradient *g,
                             struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    if (g->forward.runs * g->forward.tokens == 0)
        return 0;
    return tiled(c, &g->forward.heads) ? backward_tiled(c, s, g, reterr)
                                       : cuda_delta_rule_backward_plain(c, s, g, reterr);
}

int cuda_delta_combine(struct backend *b, enum stream s, const struct delta_combine *d,
                       struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const struct kernel_delta_combine_args args = { .sequences = d->sequences,
                                                    .chunks = d->chunks,
                                                    .own = d->own,
                                                    .own_chunks = { d->own_chunks[0],
                                                                    d->own_chunks[1] },
                                                    .heads = d->heads.value_heads,
                                                    .key_dim = d->heads.key_dim,
                                                    .value_dim = d->heads.value_dim,
                                                    .ends = d->ends,
                                                    .transitions = d->transitions,
                                                    .states = d->states,
                                                    .backward = d->backward };
    if (check(&d->heads, reterr) != 0)
        return -1;
    return cuda_check(kernel_delta_combine(c->streams[s], &args), "states of runs", reterr);
}
