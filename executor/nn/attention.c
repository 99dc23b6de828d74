/* attention.c - grouped-query attention with head norms and rotary embedding: steps a1 to a6 and c1
 * to c9 of ARCHITECTURE.md. */
#include "executor/nn/layer.h"

struct widths {
    int64_t hidden, query, kv, qkv;
};

static struct widths widths_of(const struct layer_call *call)
{
    const struct model *m = layer_model(call);
    int64_t query = model_query_width(m), kv = model_kv_width(m);
    return (struct widths){ m->hidden, query, kv, query + 2 * kv };
}

static struct rope rope_of(const struct layer_call *call, void *q, void *k)
{
    const struct widths n = widths_of(call);
    const struct work *w = call->state->work;
    const struct gqa *g = &w->plan->model.gqa;
    return (struct rope){ .rows = call->batch->tokens,
                          .tokens = (int64_t)w->plan->seq_tokens,
                          .heads = g->heads,
                          .kv_heads = g->kv_heads,
                          .head_dim = g->head_dim,
                          .rotary_dim = (int)(g->rotary_fraction * g->head_dim + 0.5),
                          .theta = g->rope_theta,
                          .norm_eps = w->plan->model.norm_eps,
                          .q_norm = state_weight(call->state, call->unit, ROLE_Q_NORM),
                          .k_norm = state_weight(call->state, call->unit, ROLE_K_NORM),
                          .qkv = call->saved->qkv.data,
                          .qkv_stride = n.qkv,
                          .k_offset = n.query,
                          .q = q,
                          .k = k };
}

static struct attention attention_of(const struct layer_call *call, const void *q, const void *k)
{
    const struct widths n = widths_of(call);
    const struct plan *plan = call->state->work->plan;
    const struct gqa *g = &plan->model.gqa;
    const struct layer_saved *s = call->saved;
    return (
        struct attention){ .sequences = plan->choices.layout.micro_batch,
                           .heads = g->heads,
                           .kv_heads = g->kv_heads,
                           .head_dim = g->head_dim,
                           .tokens = (int64_t)plan->seq_tokens,
                           .window = g->window_tokens,
                           .q = q,
                           .k = k,
                           .v = element_at(s->qkv.data, (uint64_t)(n.query + n.kv), sizeof(bf16)),
                           .q_stride = n.query,
                           .k_stride = n.kv,
                           .v_stride = n.qkv,
                           .o = s->o.data,
                           .lse = s->lse.data };
}

static struct buffer take(const struct layer_call *call, enum owner owner, int64_t width,
                          uint64_t element_bytes)
{
    return work_take_tensor(call->state->work, owner, call->batch->tokens, width, element_bytes);
}

/* a3, and c4 again */
static void rotate(const struct layer_call *call, struct buffer *ret_q, struct buffer *ret_k)
{
    const struct widths n = widths_of(call);
    *ret_q = take(call, OWNER_LAYER, n.query, sizeof(bf16));
    *ret_k = take(call, OWNER_LAYER, n.kv, sizeof(bf16));
    const struct rope rope = rope_of(call, ret_q->data, ret_k->data);
    WORK_OP(call->state->work, rope, &rope);
}

/* a1, a2 */
static void project(const struct layer_call *call, enum owner owner)
{
    struct work *w = call->state->work;
    const struct widths n = widths_of(call);
    const struct linear l = layer_linear(call, n.hidden, n.qkv);
    struct buffer normed = layer_norm(call, ROLE_INPUT_NORM, &call->saved->checkpoint);

    call->saved->qkv = take(call, owner, n.qkv, sizeof(bf16));
    linear_forward(w, &l, normed.data, state_weight(call->state, call->unit, ROLE_Q),
                   call->saved->qkv.data, false);
    work_give(w, &normed);
}

/* a3, a4 */
static void attend(const struct layer_call *call, enum owner owner)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    struct buffer q, k;

    rotate(call, &q, &k);
    s->o = take(call, owner, widths_of(call).query, sizeof(bf16));
    s->lse = take(call, owner, layer_model(call)->gqa.heads, sizeof(float));
    const struct attention attention = attention_of(call, q.data, k.data);
    WORK_OP(w, attention, &attention);
    work_give(w, &q);
    work_give(w, &k);
    work_give_unless_kept(w, call->keep, &s->qkv);
    work_give_unless_kept(w, call->keep, &s->lse);
}

void attention_forward(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    const struct widths n = widths_of(call);
    const struct linear l = layer_linear(call, n.query, n.hidden);
    enum owner owner = kept_owner(call->keep, OWNER_LAYER);

    project(call, owner);
    attend(call, owner);
    s->x1 = take(call, owner, n.hidden, sizeof(bf16));
    WORK_OP(w, copy, s->x1.data, s->checkpoint.data, s->x1.bytes);
    linear_forward(w, &l, s->o.data, state_weight(call->state, call->unit, ROLE_O), s->x1.data,
                   true);
    work_give_unless_kept(w, call->keep, &s->o);
}

/* c1, c2: the gradient of the heads' outputs. */
static struct buffer through_output(const struct layer_call *call, const struct buffer *gradient)
{
    struct work *w = call->state->work;
    const struct widths n = widths_of(call);
    const struct linear l = layer_linear(call, n.query, n.hidden);

    linear_weight(w, &l, gradient->data, call->saved->o.data,
                  state_gradient(call->state, call->unit, ROLE_O));
    struct buffer d_o = take(call, OWNER_LAYER, n.query, sizeof(bf16));
    linear_input(w, &l, gradient->data, state_weight(call->state, call->unit, ROLE_O), d_o.data,
                 false);
    return d_o;
}

/* c4, c5: the gradient of the rotated heads, in the places of the fused projection. */
static struct buffer through_attention(const struct layer_call *call, struct buffer *d_o)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    const struct widths n = widths_of(call);
    struct buffer q, k;

    rotate(call, &q, &k);
    struct buffer d_qkv = take(call, OWNER_LAYER, n.qkv, sizeof(bf16));
    struct buffer delta = take(call, OWNER_LAYER, layer_model(call)->gqa.heads, sizeof(float));
    const struct attention attention = attention_of(call, q.data, k.data);
    struct buffer workspace = work_take(
        w, OWNER_WORKSPACE, w->backend->ops->attention_workspace_bytes(w->backend, &attention));
    const struct attention_gradient call_gradient = {
        .forward = attention,
        .d_o = d_o->data,
        .dq = d_qkv.data,
        .dk = element_at(d_qkv.data, (uint64_t)n.query, sizeof(bf16)),
        .dv = element_at(d_qkv.data, (uint64_t)(n.query + n.kv), sizeof(bf16)),
        .dq_stride = n.qkv,
        .dk_stride = n.qkv,
        .dv_stride = n.qkv,
        .delta = delta.data,
        .workspace = workspace.data
    };
    WORK_OP(w, attention_backward, &call_gradient);
    work_give(w, &workspace);
    work_give(w, &s->o);
    work_give(w, &s->lse);
    work_give(w, d_o);
    work_give(w, &q);
    work_give(w, &k);
    work_give(w, &delta);
    return d_qkv;
}

/* c6 */
static void through_rotation(const struct layer_call *call, const struct buffer *d_qkv)
{
    struct work *w = call->state->work;
    const struct rope_gradient rope = { .forward = rope_of(call, NULL, NULL),
                                        .dqkv = d_qkv->data,
                                        .dq_norm =
                                            state_gradient(call->state, call->unit, ROLE_Q_NORM),
                                        .dk_norm =
                                            state_gradient(call->state, call->unit, ROLE_K_NORM),
                                        .grad_type = w->plan->choices.primitives.grad_dtype };
    WORK_OP(w, rope_backward, &rope);
    work_give(w, &call->saved->qkv);
}

void attention_backward(const struct layer_call *call, struct buffer *gradient)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    const struct widths n = widths_of(call);
    const struct linear l = layer_linear(call, n.hidden, n.qkv);

    struct buffer d_o = through_output(call, gradient);
    struct buffer d_qkv = through_attention(call, &d_o);
    through_rotation(call, &d_qkv);
    struct buffer normed = layer_norm(call, ROLE_INPUT_NORM, &s->checkpoint);
    linear_weight(w, &l, d_qkv.data, normed.data, state_gradient(call->state, call->unit, ROLE_Q));
    work_give(w, &normed);
    struct buffer d_normed = take(call, OWNER_LAYER, n.hidden, sizeof(bf16));
    linear_input(w, &l, d_qkv.data, state_weight(call->state, call->unit, ROLE_Q), d_normed.data,
                 false);
    work_give(w, &d_qkv);
    layer_norm_backward(call, ROLE_INPUT_NORM, &d_normed, &s->checkpoint, gradient);
    work_give(w, &d_normed);
    work_give(w, &s->checkpoint);
}
