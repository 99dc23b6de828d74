#include "executor/backend/cuda/attention_graph.h"
#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A planned graph of one shape, forward or backward (then the strides of the gradients are set). */
struct attention_plan {
    struct attention_shape shape;
    bool backward;
    struct graph graph;
    struct attention_plan *next;
};

struct attention_plans {
    struct attention_plan *first;
};

struct attention_plans *attention_plans_open(void)
{
    return calloc(1, sizeof(struct attention_plans));
}

void attention_plans_close(struct attention_plans *plans)
{
    while (plans && plans->first) {
        struct attention_plan *plan = plans->first;
        plans->first = plan->next;
        graph_close(&plan->graph);
        free(plan);
    }
    free(plans);
}

bool cuda_attention_planned(const struct attention *a)
{
    bool even = a->q_stride % 8 == 0 && a->k_stride % 8 == 0 && a->v_stride % 8 == 0;
    return a->head_dim % 8 == 0 && a->head_dim <= KERNEL_HEAD_MAX && even;
}

static int check_attention(const struct attention *a, struct diag_list *reterr)
{
    if (a->head_dim > KERNEL_HEAD_MAX)
        return cuda_refuse(reterr, "attention: head_dim %d, at most %d on this backend",
                           a->head_dim, KERNEL_HEAD_MAX);
    if (a->kv_heads < 1 || a->heads % a->kv_heads != 0)
        return cuda_refuse(reterr, "attention: %d heads over %d key-value heads", a->heads,
                           a->kv_heads);
    return 0;
}

/* Keys behind the last query are seen by none and left out. A window as long as the sequence hides
 * nothing. */
static struct attention_shape shape_of(const struct attention *a)
{
    int64_t keys = a->first_query + a->tokens;
    return (struct attention_shape){ .sequences = a->sequences,
                                     .heads = a->heads,
                                     .kv_heads = a->kv_heads,
                                     .head_dim = a->head_dim,
                                     .queries = a->tokens,
                                     .keys = keys,
                                     .window = a->window < keys ? a->window : 0,
                                     .query_rows = a->run_stride ? a->run_stride : a->tokens,
                                     .key_rows = a->key_tokens ? a->key_tokens : a->tokens,
                                     .q_stride = a->q_stride,
                                     .k_stride = a->k_stride,
                                     .v_stride = a->v_stride,
                                     .o_stride = (int64_t)a->heads * a->head_dim,
                                     .lse_stride = a->heads };
}

/* The plan of a shape, made when it is first asked for. */
static struct attention_plan *find_plan(const struct cuda *c, const struct attention_shape *shape,
                                        bool backward, struct diag_list *reterr)
{
    struct attention_plans *plans = c->attention_plans;
    for (struct attention_plan *p = plans->first; p; p = p->next)
        if (p->backward == backward && memcmp(&p->shape, shape, sizeof *shape) == 0)
            return p;
    struct attention_plan *plan = calloc(1, sizeof *plan);
    if (!plan) {
        (void)cuda_refuse(reterr, "no memory for an attention plan");
        return NULL;
    }
    plan->shape = *shape;
    plan->backward = backward;
    graph_open(&plan->graph, c->cudnn, reterr);
    if (backward)
        attention_graph_backward(&plan->graph, shape);
    else
        attention_graph_forward(&plan->graph, shape);
    if (graph_plan(&plan->graph, backward ? "attention backward" : "attention") != 0) {
        graph_close(&plan->graph);
        free(plan);
        return NULL;
    }
    plan->next = plans->first;
    plans->first = plan;
    return plan;
}

/* fp32 sums of dq lie at the workspace's start, the plan's own part behind them. */
static uint64_t dq_bytes(const struct attention_shape *s)
{
    uint64_t bytes = 4 * (uint64_t)(s->sequences * s->heads * s->queries * s->head_dim);
    return (bytes + 255) / 256 * 256;
}

/* Gradients of keys that are to be added to sums lie dense, rounded, behind the plan's part first:
 * where a call has more keys than queries. */
static uint64_t key_gradient_bytes(const struct attention_shape *s)
{
    int64_t rows = s->sequences * s->key_rows;
    return sizeof(bf16) * (uint64_t)(rows * s->kv_heads * s->head_dim);
}

/* Key heads that one call of the backward is for, with the query heads that share them: all, or the
 * most whose fp32 sums and gradients of keys stay within attention_group_bytes. Calls that see
 * fewer of a sequence's keys are cut as if they saw all. */
static int group_heads(const struct cuda *c, const struct attention_shape *s)
{
    struct attention_shape whole = *s;
    whole.keys = s->key_rows;
    uint64_t bytes = dq_bytes(&whole);
    if (s->heads > s->kv_heads)
        bytes += 4 * (uint64_t)(s->sequences * s->key_rows * s->heads * s->head_dim);
    if (s->key_rows > s->queries)
        bytes += 2 * key_gradient_bytes(&whole);
    int64_t groups = 1;
    while (groups < s->kv_heads &&
           (s->kv_heads % groups != 0 || bytes > (uint64_t)groups * c->attention_group_bytes))
        groups++;
    return (int)(s->kv_heads / groups);
}

/* The shape of a call for `kv_heads` of the key heads. */
static struct attention_shape part_of(struct attention_shape shape, int kv_heads)
{
    shape.heads = shape.heads / shape.kv_heads * kv_heads;
    shape.kv_heads = kv_heads;
    return shape;
}

static uint64_t plan_bytes(const struct attention_plan *plan)
{
    return ((uint64_t)plan->graph.workspace_bytes + 255) / 256 * 256;
}

/* The gradients' strides are not known yet: those of a fused projection without gates, and of dense
 * rows where keys have sums. The plan's workspace does not depend on them; where they are right the
 * plan serves the call as well. */
uint64_t cuda_attention_workspace_bytes(const struct backend *b, const struct attention *a)
{
    const struct cuda *c = (const struct cuda *)b;
    struct diag_list ignored = { 0 };
    if (!cuda_attention_planned(a) || check_attention(a, &ignored) != 0)
        return 0;
    if (a->deterministic)
        return cuda_attention_blocks_bytes(a);
    struct attention_shape shape = shape_of(a);
    int64_t kv_width = (int64_t)a->kv_heads * a->head_dim;
    bool has_sums = shape.key_rows > shape.queries;
    shape.dq_stride = (int64_t)a->heads * a->head_dim + 2 * kv_width;
    shape.dk_stride = shape.dv_stride = shape.dq_stride;
    shape.dq_head_stride = a->head_dim;
    shape = part_of(shape, group_heads(c, &shape));
    if (has_sums)
        shape.dk_stride = shape.dv_stride = shape.kv_heads * a->head_dim;
    const struct attention_plan *plan = find_plan(c, &shape, true, &ignored);
    uint64_t sums = has_sums ? 2 * key_gradient_bytes(&shape) : 0;
    return plan ? dq_bytes(&shape) + plan_bytes(plan) + sums : 0;
}

/* Arguments of a run, in any order. */
struct arguments {
    int64_t ids[24];
    void *pointers[24];
    int count;
    float scale, hidden, window, one;
    int32_t queries, keys;
};

static void add(struct arguments *to, enum attention_tensor id, const void *pointer)
{
    to->ids[to->count] = id;
    to->pointers[to->count++] = (void *)(uintptr_t)pointer; /* the library's table is not const */
}

static void add_common(struct arguments *to, const struct attention *a,
                       const struct attention_shape *s)
{
    to->scale = 1.0F / sqrtf((float)a->head_dim);
    to->hidden = -INFINITY;
    to->one = 1.0F;
    to->window = (float)(s->window + s->queries - s->keys);
    to->queries = (int32_t)s->queries;
    to->keys = (int32_t)s->keys;
    add(to, ATTENTION_Q, a->q);
    add(to, ATTENTION_K, a->k);
    add(to, ATTENTION_V, a->v);
    add(to, ATTENTION_O, a->o);
    add(to, ATTENTION_LSE, a->lse);
    add(to, ATTENTION_SCALE, &to->scale);
    add(to, ATTENTION_HIDDEN, &to->hidden);
    if (s->queries != s->keys) {
        add(to, ATTENTION_QUERIES, &to->queries);
        add(to, ATTENTION_KEYS, &to->keys);
    }
    if (s->window > 0)
        add(to, ATTENTION_WINDOW, &to->window);
}

int cuda_attention(struct backend *b, enum stream s, const struct attention *a,
                   struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    struct attention_shape shape = shape_of(a);
    struct arguments arguments = { .count = 0 };
    if (check_attention(a, reterr) != 0)
        return -1;
    if (!cuda_attention_planned(a))
        return cuda_attention_plain(c, s, a, reterr);
    const struct attention_plan *plan = find_plan(c, &shape, false, reterr);
    if (!plan)
        return -1;
    void *workspace =
        plan->graph.workspace_bytes > 0
            ? cuda_scratch(c, s, (uint64_t)plan->graph.workspace_bytes, "attention", reterr)
            : NULL;
    if (plan->graph.workspace_bytes > 0 && !workspace)
        return -1;
    add_common(&arguments, a, &shape);
    if (cuda_check_dnn(cudnnSetStream(c->cudnn, c->streams[s]), "cudnnSetStream", reterr) != 0)
        return -1;
    return graph_run(&plan->graph, arguments.ids, arguments.pointers, arguments.count, workspace,
                     "attention", reterr);
}

/* Keys that no query sees get no gradient. */
static int clear_unseen(const struct cuda *c, enum stream s, const struct attention_gradient *g,
                        const struct attention_shape *shape, struct diag_list *reterr)
{
    size_t width = (size_t)(shape->kv_heads * shape->head_dim) * sizeof(bf16);
    size_t rows = (size_t)(shape->key_rows - shape->keys);
    for (int64_t i = 0; i < shape->sequences && rows > 0; i++) {
        int64_t row = i * shape->key_rows + shape->keys;
        if (cuda_check(cudaMemset2DAsync(g->dk + row * g->dk_stride,
                                         (size_t)g->dk_stride * sizeof(bf16), 0, width, rows,
                                         c->streams[s]),
                       "cudaMemset2DAsync", reterr) != 0 ||
            cuda_check(cudaMemset2DAsync(g->dv + row * g->dv_stride,
                                         (size_t)g->dv_stride * sizeof(bf16), 0, width, rows,
                                         c->streams[s]),
                       "cudaMemset2DAsync", reterr) != 0)
            return -1;
    }
    return 0;
}

/* Keys that no query sees are left as they are. */
static int add_to_sums(const struct cuda *c, enum stream s, const struct attention_gradient *g,
                       const struct attention_shape *shape, const bf16 *dk, const bf16 *dv,
                       struct diag_list *reterr)
{
    int64_t width = shape->kv_heads * shape->head_dim;
    cudaError_t status = cudaSuccess;
    for (int64_t i = 0; i < shape->sequences && status == cudaSuccess; i++) {
        int64_t row = i * shape->key_rows;
        status = kernel_add_rows(c->streams[s], shape->keys, width, dk + row * width, width,
                                 g->dk_sum + row * g->sum_stride, g->sum_stride);
        if (status == cudaSuccess)
            status = kernel_add_rows(c->streams[s], shape->keys, width, dv + row * width, width,
                                     g->dv_sum + row * g->sum_stride, g->sum_stride);
    }
    return cuda_check(status, "sums of key gradients", reterr);
}

/* The same call from key head `first` on, with the query heads that share them. */
static struct attention_gradient group_of(const struct attention_gradient *g, int64_t first)
{
    struct attention_gradient part = *g;
    int64_t dim = g->forward.head_dim, head = first * (g->forward.heads / g->forward.kv_heads);
    int64_t dq_head_stride = g->dq_head_stride ? g->dq_head_stride : dim;

    part.forward.q += head * dim;
    part.forward.k += first * dim;
    part.forward.v += first * dim;
    part.forward.o += head * dim;
    part.forward.lse += head;
    part.d_o += head * dim;
    part.dq += head * dq_head_stride;
    if (g->dk_sum) {
        part.dk_sum += first * dim;
        part.dv_sum += first * dim;
    } else {
        part.dk += first * dim;
        part.dv += first * dim;
    }
    return part;
}

static int group_backward(struct cuda *c, enum stream s, const struct attention_gradient *g,
                          const struct attention_shape *shape, struct diag_list *reterr)
{
    struct arguments arguments = { .count = 0 };
    const struct attention_plan *plan = find_plan(c, shape, true, reterr);
    if (!plan || (!g->dk_sum && clear_unseen(c, s, g, shape, reterr) != 0))
        return -1;
    char *behind = (char *)g->workspace + dq_bytes(shape) + plan_bytes(plan);
    bf16 *dk = g->dk_sum ? (bf16 *)(void *)behind : g->dk;
    bf16 *dv = g->dk_sum ? (bf16 *)(void *)(behind + key_gradient_bytes(shape)) : g->dv;
    add_common(&arguments, &g->forward, shape);
    add(&arguments, ATTENTION_D_O, g->d_o);
    add(&arguments, ATTENTION_DQ, g->dq);
    add(&arguments, ATTENTION_DK, dk);
    add(&arguments, ATTENTION_DV, dv);
    add(&arguments, ATTENTION_DELTA, g->delta);
    add(&arguments, ATTENTION_DQ_SUMS, g->workspace);
    add(&arguments, ATTENTION_ONE, &arguments.one);
    if (graph_run(&plan->graph, arguments.ids, arguments.pointers, arguments.count,
                  (char *)g->workspace + dq_bytes(shape), "attention backward", reterr) != 0)
        return -1;
    return g->dk_sum ? add_to_sums(c, s, g, shape, dk, dv, reterr) : 0;
}

int cuda_attention_backward(struct backend *b, enum stream s, const struct attention_gradient *g,
                            struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    struct attention_shape shape = shape_of(&g->forward);
    if (check_attention(&g->forward, reterr) != 0)
        return -1;
    if (g->forward.deterministic && cuda_attention_blocks_serve(g))
        return cuda_attention_backward_blocks(c, s, g, reterr);
    if (g->forward.deterministic || !cuda_attention_planned(&g->forward) ||
        (g->dk_sum && shape.key_rows <= shape.queries))
        return cuda_attention_backward_plain(c, s, g, reterr);
    shape.dq_stride = g->dq_stride;
    shape.dk_stride = g->dk_stride;
    shape.dv_stride = g->dv_stride;
    shape.dq_head_stride = g->dq_head_stride ? g->dq_head_stride : g->forward.head_dim;
    int kv_heads = group_heads(c, &shape);
    shape = part_of(shape, kv_heads);
    if (g->dk_sum)
        shape.dk_stride = shape.dv_stride = shape.kv_heads * shape.head_dim;
    if (cuda_check_dnn(cudnnSetStream(c->cudnn, c->streams[s]), "cudnnSetStream", reterr) != 0)
        return -1;
    for (int64_t first = 0; first < g->forward.kv_heads; first += kv_heads) {
        const struct attention_gradient part = group_of(g, first);
        if (group_backward(c, s, &part, &shape, reterr) != 0)
            return -1;
    }
    return 0;
}
