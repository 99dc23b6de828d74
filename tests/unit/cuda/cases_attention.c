#include "tests/unit/cuda/cases.h"

#include "executor/backend/cuda/cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int sequences, heads, kv_heads, head_dim;
    int64_t tokens, window;
    int64_t first_query, key_tokens; /* of queries that are a part of the sequence */
    bool deterministic;
};

static const struct shape shapes[] = {
    { 1, 4, 2, 64, 256, 0, 0, 0, false },      { 2, 4, 4, 128, 192, 0, 0, 0, false },
    { 1, 8, 1, 128, 512, 0, 0, 0, false },     { 1, 4, 2, 256, 320, 0, 0, 0, false },
    { 2, 4, 2, 128, 200, 0, 0, 0, false },     { 1, 2, 1, 64, 37, 0, 0, 0, false },
    { 1, 4, 2, 64, 256, 100, 0, 0, false },    { 1, 4, 2, 128, 128, 0, 256, 384, false },
    { 1, 4, 2, 128, 128, 0, 128, 384, false },
};

/* bf16 inputs and results around sums in fp32. */
#define ATTENTION_ALLOWED 8e-3

/* q and k are dense rows, v and the gradients lie in rows of q | k | v. */
struct tensors {
    struct array q, k, qkv, o, lse, d_o, dqkv, delta, workspace;
    int64_t q_width, kv_width, row;
    bool own_keys; /* keys have rows of their own, in number not those of queries */
};

static struct attention forward_of(const struct shape *s, const struct tensors *t, int side)
{
    bf16 *v = t->qkv.at[side];
    return (struct attention){ .sequences = s->sequences,
                               .heads = s->heads,
                               .kv_heads = s->kv_heads,
                               .head_dim = s->head_dim,
                               .tokens = s->tokens,
                               .window = s->window,
                               .q = t->q.at[side],
                               .k = t->k.at[side],
                               .v = v + t->q_width + t->kv_width,
                               .q_stride = t->q_width,
                               .k_stride = t->kv_width,
                               .v_stride = t->row,
                               .o = t->o.at[side],
                               .lse = t->lse.at[side],
                               .key_tokens = s->key_tokens,
                               .first_query = s->first_query,
                               .deterministic = s->deterministic };
}

static struct attention_gradient backward_of(const struct shape *s, const struct tensors *t,
                                             int side)
{
    bf16 *d = t->dqkv.at[side];
    return (struct attention_gradient){ .forward = forward_of(s, t, side),
                                        .d_o = t->d_o.at[side],
                                        .dq = d,
                                        .dk = d + t->q_width,
                                        .dv = d + t->q_width + t->kv_width,
                                        .dq_stride = t->row,
                                        .dk_stride = t->row,
                                        .dv_stride = t->row,
                                        .delta = t->delta.at[side],
                                        .workspace = t->workspace.at[side] };
}

/* Results poisoned: o, lse, the gradients, the scratch. */
static void poison(struct pair *p, const struct shape *s, struct tensors *t)
{
    int64_t rows = s->sequences * s->tokens;
    int64_t key_rows = s->sequences * (s->key_tokens ? s->key_tokens : s->tokens);
    t->o = pair_poison(p, KIND_BF16, rows * t->q_width);
    t->lse = pair_poison(p, KIND_FP32, rows * s->heads);
    t->dqkv = pair_poison(p, KIND_BF16, key_rows * t->row);
    t->delta = pair_poison(p, KIND_FP32, rows * s->heads);
}

static struct tensors tensors_of(struct pair *p, const struct shape *s)
{
    struct tensors t = { .q_width = (int64_t)s->heads * s->head_dim,
                         .kv_width = (int64_t)s->kv_heads * s->head_dim };
    int64_t rows = s->sequences * s->tokens;
    int64_t key_rows = s->sequences * (s->key_tokens ? s->key_tokens : s->tokens);
    t.row = t.q_width + 2 * t.kv_width;
    t.q = pair_random(p, KIND_BF16, rows * t.q_width, 1);
    t.k = pair_random(p, KIND_BF16, key_rows * t.kv_width, 1);
    t.qkv = pair_random(p, KIND_BF16, key_rows * t.row, 1);
    t.d_o = pair_random(p, KIND_BF16, rows * t.q_width, 1);
    poison(p, s, &t);
    uint64_t bytes = 0;
    for (int side = HOST; side < SIDES; side++) {
        const struct backend *b = p->backends[side];
        const struct attention a = forward_of(s, &t, side);
        uint64_t wanted = b->ops->attention_workspace_bytes(b, &a);
        bytes = wanted > bytes ? wanted : bytes;
    }
    t.workspace = pair_poison(p, KIND_FP32, (int64_t)(bytes / 4 + 64));
    return t;
}

/* The gradients of dq are defined for rows of queries only. */
static void compare_all(struct pair *p, const struct shape *s, const struct tensors *t,
                        const char *path)
{
    char what[32];
    const char *names[] = { "o", "lse" };
    const struct array *arrays[] = { &t->o, &t->lse };
    for (int i = 0; i < 2; i++) {
        (void)snprintf(what, sizeof what, "%s %s", path, names[i]);
        pair_compare(p, what, arrays[i], i ? 1e-4 : ATTENTION_ALLOWED);
    }
    (void)snprintf(what, sizeof what, "%s dq dk dv", path);
    int64_t rows = s->key_tokens ? s->sequences * s->tokens : 0;
    bf16 *host = t->dqkv.at[HOST];
    /* Rows behind the queries hold no dq on either side: poison there means untouched. */
    for (int64_t r = rows; rows > 0 && r < t->dqkv.count / t->row; r++)
        memset(host + r * t->row, 0, (size_t)t->q_width * sizeof *host);
    if (rows > 0) {
        struct backend *b = p->backends[DEVICE];
        for (int64_t r = rows; r < t->dqkv.count / t->row; r++)
            (void)pair_ran(p, "zero",
                           b->ops->zero(b, STREAM_COMPUTE, (bf16 *)t->dqkv.at[DEVICE] + r * t->row,
                                        (uint64_t)t->q_width * sizeof *host, &p->diags));
    }
    pair_compare(p, what, &t->dqkv, ATTENTION_ALLOWED);
}

/* Scores, their gradient and both rounded, of a block of one head; fp32 dq of the block, and dk and
 * dv of a sequence unless only a part of its queries is there. */
static int64_t block_bytes(const struct shape *s)
{
    int64_t keys = s->key_tokens ? s->key_tokens : s->tokens, d = s->head_dim;
    int64_t queries = s->tokens < 2048 ? s->tokens : 2048;
    int64_t columns = keys < 4096 ? (keys + 7) / 8 * 8 : 4096;
    return 12 * queries * columns + 4 * queries * d + (keys > s->tokens ? 0 : 8 * keys * d);
}

/* As the planner counts it: fp32 dq; for shared heads dk and dv at the width of the queries; where
 * queries are a part of the sequence dk and dv once more; 256 bytes of the library's own. Beyond
 * half a GiB a group of key heads at a time. */
static void judge_workspace(struct pair *p, const struct shape *s, const struct tensors *t)
{
    const struct backend *b = p->backends[DEVICE];
    const struct attention a = forward_of(s, t, DEVICE);
    if (s->deterministic) {
        pair_figure(p, "workspace", (double)b->ops->attention_workspace_bytes(b, &a),
                    (double)block_bytes(s), 0);
        return;
    }
    int64_t bytes = 4 * t->q_width * s->sequences * s->tokens, groups = 1;
    if (s->heads > s->kv_heads)
        bytes += 4 * t->q_width * s->sequences * (s->first_query + s->tokens);
    if (s->key_tokens > s->tokens)
        bytes += 4 * t->kv_width * s->sequences * s->key_tokens;
    int64_t most = (int64_t)((const struct cuda *)b)->attention_group_bytes;
    while (groups < s->kv_heads && (s->kv_heads % groups != 0 || bytes > groups * most))
        groups++;
    bytes = bytes / groups + 256;
    pair_figure(p, "workspace", (double)b->ops->attention_workspace_bytes(b, &a), (double)bytes, 0);
}

static bool run_library(struct pair *p, const struct shape *s, const struct tensors *t)
{
    struct backend *b = p->backends[DEVICE];
    const struct attention a = forward_of(s, t, DEVICE);
    const struct attention_gradient g = backward_of(s, t, DEVICE);
    return pair_ran(p, "cuDNN forward", b->ops->attention(b, STREAM_COMPUTE, &a, &p->diags)) &&
           pair_ran(p, "cuDNN backward",
                    b->ops->attention_backward(b, STREAM_COMPUTE, &g, &p->diags));
}

static bool run_plain(struct pair *p, const struct shape *s, const struct tensors *t)
{
    struct cuda *c = (struct cuda *)p->backends[DEVICE];
    const struct attention a = forward_of(s, t, DEVICE);
    const struct attention_gradient g = backward_of(s, t, DEVICE);
    return pair_ran(p, "plain forward", cuda_attention_plain(c, STREAM_COMPUTE, &a, &p->diags)) &&
           pair_ran(p, "plain backward",
                    cuda_attention_backward_plain(c, STREAM_COMPUTE, &g, &p->diags));
}

static bool run_host(struct pair *p, const struct shape *s, const struct tensors *t)
{
    struct backend *b = p->backends[HOST];
    const struct attention a = forward_of(s, t, HOST);
    const struct attention_gradient g = backward_of(s, t, HOST);
    return pair_ran(p, "host forward", b->ops->attention(b, STREAM_COMPUTE, &a, &p->diags)) &&
           pair_ran(p, "host backward",
                    b->ops->attention_backward(b, STREAM_COMPUTE, &g, &p->diags));
}

/* The definition in double: o and lse of every query, one head after another. */
static void define(struct pair *p, const struct shape *s, const struct tensors *t)
{
    int64_t d = s->head_dim, keys = s->key_tokens ? s->key_tokens : s->tokens;
    double *o = calloc((size_t)t->o.count, sizeof *o);
    double *lse = calloc((size_t)t->lse.count, sizeof *lse);
    double *scores = malloc((size_t)keys * sizeof *scores);
    for (int64_t r = 0; r < s->sequences * s->tokens * s->heads; r++) {
        int64_t row = r / s->heads, head = r % s->heads, kv = head / (s->heads / s->kv_heads);
        int64_t last = s->first_query + row % s->tokens, start = row / s->tokens * keys;
        int64_t first = s->window > 0 && last >= s->window ? last - s->window + 1 : 0;
        double sum = 0;
        for (int64_t key = first; key <= last; key++) {
            double score = 0;
            for (int64_t i = 0; i < d; i++)
                score +=
                    pair_double(&t->q, t->q.at[HOST], row * t->q_width + head * d + i) *
                    pair_double(&t->k, t->k.at[HOST], (start + key) * t->kv_width + kv * d + i);
            scores[key] = exp(score / sqrt((double)d));
            sum += scores[key];
        }
        lse[r] = log(sum);
        for (int64_t key = first; key <= last; key++)
            for (int64_t i = 0; i < d; i++)
                o[row * t->q_width + head * d + i] +=
                    scores[key] / sum *
                    pair_double(&t->qkv, t->qkv.at[HOST],
                                (start + key) * t->row + t->q_width + t->kv_width + kv * d + i);
    }
    pair_against(p, "o, double", &t->o, o, ATTENTION_ALLOWED);
    pair_against(p, "lse, double", &t->lse, lse, 1e-4);
    free(o);
    free(lse);
    free(scores);
}

/* What the device has of one array becomes what the host has of another. */
static void take_over(struct pair *p, const struct array *from, const struct array *to)
{
    void *want = pair_download(p, from);
    memcpy(to->at[HOST], want, (size_t)to->count * (to->kind == KIND_BF16 ? 2 : 4));
    free(want);
}

/* The results as they are on the device become the host's of fresh, poisoned arrays. */
static void judge_by(struct pair *p, const struct shape *s, struct tensors *t)
{
    const struct tensors before = *t;
    poison(p, s, t);
    const struct array *judged[] = { &before.o, &before.lse, &before.dqkv };
    const struct array *fresh[] = { &t->o, &t->lse, &t->dqkv };
    for (int j = 0; j < 3; j++)
        take_over(p, judged[j], fresh[j]);
}

/* A second time from poison, with the same bits. */
static void judge_again(struct pair *p, const struct shape *s, struct tensors *t)
{
    if (!s->deterministic || s->key_tokens)
        return;
    judge_by(p, s, t);
    pair_upload(p, &t->workspace);
    if (run_library(p, s, t))
        pair_compare(p, "dq dk dv again", &t->dqkv, 0);
}

static void judge_shapes(struct pair *p, bool deterministic)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct shape shape = shapes[i];
        const struct shape *s = &shape;
        shape.deterministic = deterministic;
        pair_case(p, "attention", "%d x %lld, %d/%d x %d%s%s%s", s->sequences, (long long)s->tokens,
                  s->heads, s->kv_heads, s->head_dim, s->window ? ", window" : "",
                  s->key_tokens ? ", part" : "", deterministic ? ", in order" : "");
        struct tensors t = tensors_of(p, s);
        judge_workspace(p, s, &t);
        if (!run_host(p, s, &t))
            continue;
        if (run_plain(p, s, &t)) {
            define(p, s, &t);
            compare_all(p, s, &t, "plain");
        }
        const struct tensors before = t;
        poison(p, s, &t);
        const struct array *judged[] = { &before.o, &before.lse, &before.dqkv };
        const struct array *fresh[] = { &t.o, &t.lse, &t.dqkv };
        for (int j = 0; j < 3; j++)
            memcpy(fresh[j]->at[HOST], judged[j]->at[HOST],
                   (size_t)fresh[j]->count * (fresh[j]->kind == KIND_BF16 ? 2 : 4));
        if (run_library(p, s, &t)) {
            compare_all(p, s, &t, deterministic ? "blocks" : "cuDNN");
            judge_again(p, s, &t);
        }
    }
}

/* 1: the backward takes a key head at a time, as it does where all at once would need too much. */
static void group_bytes(struct pair *p, uint64_t bytes)
{
    ((struct cuda *)p->backends[DEVICE])->attention_group_bytes = bytes;
}

void cases_attention(struct pair *p)
{
    judge_shapes(p, false);
    judge_shapes(p, true);
    group_bytes(p, 1);
    judge_shapes(p, false);
    group_bytes(p, CUDA_ATTENTION_GROUP_BYTES);
}

/* Gathered keys: k beside v in a row, gradients of keys added to sums of their own. */
static void add_to_sums(struct pair *p, const struct shape *s)
{
    pair_case(p, "attention_backward", "%d x %lld from %lld of %lld, %d/%d x %d, sums%s",
              s->sequences, (long long)s->tokens, (long long)s->first_query,
              (long long)s->key_tokens, s->heads, s->kv_heads, s->head_dim,
              s->deterministic ? ", in order" : "");
    struct tensors t = tensors_of(p, s);
    int64_t width = 2 * t.kv_width, rows = s->sequences * s->tokens;
    struct array kv = pair_random(p, KIND_BF16, s->sequences * s->key_tokens * width, 1);
    struct array sums = pair_random(p, KIND_FP32, s->sequences * s->key_tokens * width, 1);
    struct array dq = pair_poison(p, KIND_BF16, rows * t.q_width);
    for (int side = HOST; side < SIDES; side++) {
        struct backend *b = p->backends[side];
        struct attention_gradient g = backward_of(s, &t, side);
        g.forward.k = kv.at[side];
        g.forward.v = g.forward.k + t.kv_width;
        g.forward.k_stride = g.forward.v_stride = g.sum_stride = width;
        g.dq = dq.at[side];
        g.dq_stride = t.q_width;
        g.dk = g.dv = NULL;
        g.dk_sum = sums.at[side];
        g.dv_sum = g.dk_sum + t.kv_width;
        if (!pair_ran(p, "forward", b->ops->attention(b, STREAM_COMPUTE, &g.forward, &p->diags)) ||
            !pair_ran(p, "backward", b->ops->attention_backward(b, STREAM_COMPUTE, &g, &p->diags)))
            return;
    }
    pair_compare(p, "o", &t.o, ATTENTION_ALLOWED);
    pair_compare(p, "dq", &dq, ATTENTION_ALLOWED);
    pair_compare(p, "dk dv", &sums, ATTENTION_ALLOWED);
}

void cases_attention_sums(struct pair *p)
{
    static const struct shape parts[] = {
        { 1, 4, 2, 128, 128, 0, 256, 384, false }, { 1, 4, 2, 128, 128, 0, 0, 512, false },
        { 2, 4, 2, 64, 64, 0, 128, 256, false },   { 2, 4, 4, 128, 100, 0, 100, 400, false },
        { 1, 8, 1, 256, 96, 0, 288, 384, false },  { 1, 8, 4, 128, 256, 0, 768, 1024, false },
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct shape shape = parts[i];
        add_to_sums(p, &shape);
        shape.deterministic = true;
        add_to_sums(p, &shape);
    }
    static const struct shape blocks = { 1, 2, 1, 64, 2100, 0, 4200, 8400, true };
    add_to_sums(p, &blocks);
    group_bytes(p, 1);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        add_to_sums(p, &parts[i]);
    group_bytes(p, CUDA_ATTENTION_GROUP_BYTES);
}

/* A size at which blocks of keys and queries are many, library against plain on the device: the
 * host would take too long. */
void cases_attention_run(struct pair *p)
{
    static const struct shape large[] = {
        { 1, 8, 2, 128, 2048, 0, 0, 0, false },  { 1, 4, 1, 64, 3000, 0, 0, 0, false },
        { 1, 4, 2, 256, 1500, 0, 0, 0, false },  { 1, 8, 2, 128, 1024, 0, 1024, 3072, false },
        { 1, 4, 2, 128, 5000, 0, 0, 0, true },   { 2, 2, 1, 64, 4100, 0, 0, 0, true },
        { 1, 2, 1, 64, 9000, 2500, 0, 0, true }, { 1, 4, 1, 256, 2049, 0, 0, 0, true },
    };
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        const struct shape *s = &large[i];
        pair_case(p, "attention", "%lld, %d/%d x %d, plain judges", (long long)s->tokens, s->heads,
                  s->kv_heads, s->head_dim);
        struct tensors t = tensors_of(p, s), judge = t;
        poison(p, s, &t);
        if (!run_plain(p, s, &judge) || !run_library(p, s, &t))
            continue;
        struct array *fresh[] = { &t.o, &t.lse, &t.dqkv };
        const struct array *judged[] = { &judge.o, &judge.lse, &judge.dqkv };
        for (int j = 0; j < 3; j++)
            take_over(p, judged[j], fresh[j]);
        compare_all(p, s, &t, s->deterministic ? "blocks" : "cuDNN");
        judge_again(p, s, &t);
    }
}
