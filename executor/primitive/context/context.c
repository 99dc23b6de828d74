#include "executor/primitive/context/context.h"

/* One row a value of `context`: how keys come together and how their gradients go home. */
struct primitive {
    void (*collect)(struct work *w, const struct micro_batch *batch, struct context_keys *keys);
    void (*give_home)(struct work *w, const struct micro_batch *batch, struct context_keys *keys,
                      bf16 *d_kv, int64_t stride);
};

static const struct primitive primitives[CONTEXT_COUNT] = {
    [CONTEXT_ALLGATHER_KV] = { allgather_kv_collect, allgather_kv_return },
};

static const struct primitive *primitive_of(const struct work *w)
{
    return &primitives[w->plan->choices.primitives.context];
}

void context_collect(struct work *w, const struct micro_batch *batch, struct buffer *own,
                     const bf16 *v, int64_t v_stride, struct context_keys *ret)
{
    int64_t width = model_kv_width(&w->plan->model);

    *ret = (struct context_keys){
        .own = *own, .width = width, .k = own->data, .k_stride = width, .v = v, .v_stride = v_stride
    };
    *own = (struct buffer){ 0 };
    if (primitive_of(w)->collect)
        primitive_of(w)->collect(w, batch, ret);
}

/* The queries of one run against the keys of their whole sequences. */
static struct attention run_of(const struct attention *shape, const struct zigzag *order, int run,
                               const struct context_keys *keys)
{
    struct attention ret = *shape;
    uint64_t row = (uint64_t)(run * zigzag_run_tokens(order));

    ret.tokens = zigzag_run_tokens(order);
    ret.key_tokens = order->seq_tokens;
    ret.first_query = zigzag_run_first(order, run);
    ret.run_stride = zigzag_tokens(order);
    ret.q = element_at(shape->q, row * (uint64_t)shape->q_stride, sizeof(bf16));
    ret.o = element_at(shape->o, row * (uint64_t)(shape->heads * shape->head_dim), sizeof(bf16));
    ret.lse = element_at(shape->lse, row * (uint64_t)shape->heads, sizeof(float));
    ret.k = keys->k;
    ret.v = keys->v;
    ret.k_stride = keys->k_stride;
    ret.v_stride = keys->v_stride;
    return ret;
}

void context_attend(struct work *w, const struct micro_batch *batch,
                    const struct context_keys *keys, const struct attention *shape)
{
    for (int run = 0; run < zigzag_runs(&batch->order); run++) {
        const struct attention call = run_of(shape, &batch->order, run, keys);
        WORK_OP(w, attention, &call);
    }
}

static struct attention_gradient gradient_of(const struct attention_gradient *shape,
                                             const struct zigzag *order, int run,
                                             const struct context_keys *keys)
{
    struct attention_gradient ret = *shape;
    const struct attention *a = &shape->forward;
    uint64_t row = (uint64_t)(run * zigzag_run_tokens(order));

    ret.forward = run_of(a, order, run, keys);
    ret.d_o = element_at(shape->d_o, row * (uint64_t)(a->heads * a->head_dim), sizeof(bf16));
    ret.dq = element_at(shape->dq, row * (uint64_t)shape->dq_stride, sizeof(bf16));
    ret.delta = element_at(shape->delta, row * (uint64_t)a->heads, sizeof(float));
    ret.dk_sum = keys->sums.data;
    ret.dv_sum = element_at(keys->sums.data, (uint64_t)keys->width, sizeof(float));
    ret.sum_stride = 2 * keys->width;
    return ret;
}

void context_attend_backward(struct work *w, const struct micro_batch *batch,
                             struct context_keys *keys, const struct attention_gradient *shape)
{
    const struct zigzag *order = &batch->order;
    struct attention fullest = run_of(&shape->forward, order, 0, keys);

    /* the run that ends the sequence sees most; every rank takes room for it, whoever has it */
    fullest.first_query = fullest.key_tokens - fullest.tokens;
    if (primitive_of(w)->give_home) {
        keys->sums = work_take(w, OWNER_KV, 2 * keys->gathered.bytes);
        WORK_OP(w, zero, keys->sums.data, keys->sums.bytes);
    }
    struct buffer workspace = work_take(
        w, OWNER_WORKSPACE, w->backend->ops->attention_workspace_bytes(w->backend, &fullest));
    for (int run = 0; run < zigzag_runs(order); run++) {
        struct attention_gradient call = gradient_of(shape, order, run, keys);
        call.workspace = workspace.data;
        WORK_OP(w, attention_backward, &call);
    }
    work_give(w, &workspace);
}

void context_give(struct work *w, struct context_keys *keys)
{
    work_give(w, &keys->own);
    work_give(w, &keys->gathered);
}

void context_return(struct work *w, const struct micro_batch *batch, struct context_keys *keys,
                    bf16 *d_kv, int64_t stride)
{
    if (primitive_of(w)->give_home)
        primitive_of(w)->give_home(w, batch, keys, d_kv, stride);
}
