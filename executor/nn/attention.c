/* attention.c - grouped-query attention over all tokens or a window, with head norms, rotary
 * embedding, biases and an output gate where the model has them: steps a1 to a6 and c1 to c9 of
 * ARCHITECTURE.md. The fused projection has, for each query head, the query and behind it its gate;
 * then keys, then values. */
#include "executor/nn/layer.h"
#include "executor/primitive/context/context.h"

/* What the backward needs of the forward. */
struct attention_saved {
    struct buffer qkv, o, lse;
};

static struct attention_saved *saved_of(const struct layer_call *call)
{
    return call->saved->mixer;
}

struct widths {
    int64_t hidden, query, kv, qkv;
    int64_t k_offset, v_offset; /* in the fused projection */
    int64_t head_stride;        /* from one query head to the next one there */
};

static struct widths widths_of(const struct layer_call *call)
{
    const struct model *m = layer_model(call);
    int64_t query = model_query_width(m), kv = model_kv_width(m), sides = m->gqa.output_gate + 1;
    return (struct widths){ .hidden = m->hidden,
                            .query = query,
                            .kv = kv,
                            .qkv = sides * query + 2 * kv,
                            .k_offset = sides * query,
                            .v_offset = sides * query + kv,
                            .head_stride = sides * m->gqa.head_dim };
}

static struct rope rope_of(const struct layer_call *call, void *q, void *k)
{
    const struct widths n = widths_of(call);
    const struct model *m = layer_model(call);
    const struct gqa *g = &m->gqa;
    struct rope ret = layer_angles(call, (int)(g->rotary_fraction * g->head_dim + 0.5));

    ret.heads = g->heads;
    ret.kv_heads = g->kv_heads;
    ret.head_dim = g->head_dim;
    ret.norm_eps = m->norm_eps;
    ret.q_norm = state_weight(call->state, call->unit, ROLE_Q_NORM);
    ret.k_norm = state_weight(call->state, call->unit, ROLE_K_NORM);
    ret.norm_zero_centred = m->norm_zero_centred;
    ret.qkv = saved_of(call)->qkv.data;
    ret.qkv_stride = n.qkv;
    ret.k_offset = n.k_offset;
    ret.q_head_stride = n.head_stride;
    ret.q = q;
    ret.k = k;
    return ret;
}

/* The tokens that a query of this layer sees; 0: all before it. */
static int64_t window_of(const struct layer_call *call)
{
    const struct model *m = layer_model(call);
    return m->layer_mixer[call->layer] == MIXER_LOCAL ? m->gqa.local_tokens : m->gqa.window_tokens;
}

/* Of whole sequences of this rank's tokens; context_attend fills in the keys. */
static struct attention attention_of(const struct layer_call *call, const void *q)
{
    const struct widths n = widths_of(call);
    const struct gqa *g = &layer_model(call)->gqa;
    const struct attention_saved *s = saved_of(call);
    int64_t tokens = zigzag_tokens(&call->batch->order);
    return (struct attention){
        .sequences = (int)(call->batch->tokens / tokens),
        .heads = g->heads,
        .kv_heads = g->kv_heads,
        .head_dim = g->head_dim,
        .tokens = tokens,
        .window = window_of(call),
        .q = q,
        .q_stride = n.query,
        .o = s->o.data,
        .lse = s->lse.data,
        .deterministic = call->state->work->plan->choices.primitives.attention_deterministic != 0
    };
}

static struct output_gate gate_of(const struct layer_call *call, void *og)
{
    const struct widths n = widths_of(call);
    const struct gqa *g = &layer_model(call)->gqa;
    return (struct output_gate){ .rows = call->batch->tokens,
                                 .heads = g->heads,
                                 .head_dim = g->head_dim,
                                 .o = saved_of(call)->o.data,
                                 .gate = element_at(saved_of(call)->qkv.data, (uint64_t)g->head_dim,
                                                    sizeof(bf16)),
                                 .row_stride = n.qkv,
                                 .head_stride = n.head_stride,
                                 .og = og };
}

static bool has_gate(const struct layer_call *call)
{
    return layer_model(call)->gqa.output_gate;
}

/* a3, and c4 again; then the keys of whole sequences. */
static void rotate(const struct layer_call *call, struct buffer *ret_q,
                   struct context_keys *ret_keys)
{
    struct work *w = call->state->work;
    const struct widths n = widths_of(call);
    *ret_q = layer_take(call, OWNER_LAYER, n.query, sizeof(bf16));
    struct buffer k = layer_take(call, OWNER_LAYER, n.kv, sizeof(bf16));
    const struct rope rope = rope_of(call, ret_q->data, k.data);
    WORK_OP(w, rope, &rope);
    const bf16 *v = element_at(saved_of(call)->qkv.data, (uint64_t)n.v_offset, sizeof(bf16));
    context_collect(w, call->batch, &k, v, n.qkv, ret_keys);
}

/* a1, a2 */
static void project(const struct layer_call *call, enum owner owner)
{
    struct work *w = call->state->work;
    const struct widths n = widths_of(call);
    struct buffer *qkv = &saved_of(call)->qkv;

    *qkv = layer_project_in(call, owner, ROLE_Q, n.qkv);
    if (layer_model(call)->gqa.qkv_bias)
        WORK_OP(w, add_bias, call->batch->tokens, n.qkv,
                state_weight(call->state, call->unit, ROLE_Q_BIAS), qkv->data, n.qkv);
}

static bool keeps_attention(const struct layer_call *call)
{
    return call->state->work->plan->choices.primitives.keep_attention != 0;
}

/* What becomes of o and lse: a layer that is to be replayed may keep these alone. */
static enum keep attention_keep(const struct layer_call *call)
{
    return call->keep == KEEP_NOTHING && keeps_attention(call) ? KEEP_SAVED : call->keep;
}

/* a3, a4; not in the replay of a layer that kept what they make. */
static void attend(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct attention_saved *s = saved_of(call);
    enum keep keep = attention_keep(call);
    enum owner owner = kept_owner(keep, OWNER_LAYER);
    struct context_keys keys;
    struct buffer q;

    if (call->keep == KEEP_OWN && keeps_attention(call))
        return;
    rotate(call, &q, &keys);
    s->o = layer_take(call, owner, widths_of(call).query, sizeof(bf16));
    s->lse = layer_take(call, owner, layer_model(call)->gqa.heads, sizeof(float));
    const struct attention attention = attention_of(call, q.data);
    context_attend(w, call->batch, &keys, &attention);
    work_give(w, &q);
    context_give(w, &keys);
    work_give_unless_kept(w, keep, &s->lse);
}

/* a5, and c1 again: the outputs through their gates, in a tensor of their own. */
static struct buffer gated(const struct layer_call *call)
{
    struct buffer ret = layer_take(call, OWNER_LAYER, widths_of(call).query, sizeof(bf16));
    const struct output_gate gate = gate_of(call, ret.data);
    WORK_OP(call->state->work, output_gate, &gate);
    return ret;
}

static void attention_forward(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct attention_saved *s = saved_of(call);
    enum owner owner = kept_owner(call->keep, OWNER_LAYER);

    project(call, owner);
    attend(call);
    if (has_gate(call)) {
        struct buffer og = gated(call);
        work_give_unless_kept(w, call->keep, &s->qkv);
        work_give_unless_kept(w, attention_keep(call), &s->o);
        layer_project_out(call, owner, ROLE_O, widths_of(call).query, &og);
        work_give(w, &og);
    } else {
        work_give_unless_kept(w, call->keep, &s->qkv);
        layer_project_out(call, owner, ROLE_O, widths_of(call).query, &s->o);
        work_give_unless_kept(w, attention_keep(call), &s->o);
    }
}

/* c1 to c3: the gradient of the heads' outputs, and that of the gates in d_qkv. */
static struct buffer through_output(const struct layer_call *call, const struct buffer *gradient,
                                    struct buffer *d_qkv)
{
    struct work *w = call->state->work;
    const struct widths n = widths_of(call);
    struct buffer og = has_gate(call) ? gated(call) : (struct buffer){ 0 };

    layer_project_out_weight(call, ROLE_O, n.query, gradient,
                             has_gate(call) ? &og : &saved_of(call)->o);
    work_give(w, &og);
    struct buffer d_o = layer_project_out_input(call, ROLE_O, n.query, gradient);
    if (has_gate(call)) {
        *d_qkv = layer_take(call, OWNER_LAYER, n.qkv, sizeof(bf16));
        const struct output_gate_gradient gate = {
            .forward = gate_of(call, NULL),
            .d_o = d_o.data,
            .d_gate =
                element_at(d_qkv->data, (uint64_t)layer_model(call)->gqa.head_dim, sizeof(bf16))
        };
        WORK_OP(w, output_gate_backward, &gate);
    }
    return d_o;
}

/* The gradient of the rotated heads, in the places of the fused projection. */
static struct attention_gradient gradient_of(const struct layer_call *call, const void *q,
                                             const struct buffer *d_o, const struct buffer *d_qkv,
                                             const struct buffer *delta)
{
    const struct widths n = widths_of(call);
    return (struct attention_gradient){
        .forward = attention_of(call, q),
        .d_o = d_o->data,
        .dq = d_qkv->data,
        .dk = element_at(d_qkv->data, (uint64_t)n.k_offset, sizeof(bf16)),
        .dv = element_at(d_qkv->data, (uint64_t)n.v_offset, sizeof(bf16)),
        .dq_stride = n.qkv,
        .dk_stride = n.qkv,
        .dv_stride = n.qkv,
        .delta = delta->data,
        .dq_head_stride = n.head_stride
    };
}

/* c4, c5 */
static void through_attention(const struct layer_call *call, struct buffer *d_o,
                              struct buffer *d_qkv)
{
    struct work *w = call->state->work;
    struct attention_saved *s = saved_of(call);
    const struct widths n = widths_of(call);
    struct context_keys keys;
    struct buffer q;

    rotate(call, &q, &keys);
    if (!has_gate(call))
        *d_qkv = layer_take(call, OWNER_LAYER, n.qkv, sizeof(bf16));
    struct buffer delta =
        layer_take(call, OWNER_LAYER, layer_model(call)->gqa.heads, sizeof(float));
    const struct attention_gradient gradient = gradient_of(call, q.data, d_o, d_qkv, &delta);
    context_attend_backward(w, call->batch, &keys, &gradient);
    work_give(w, &s->o);
    work_give(w, &s->lse);
    work_give(w, d_o);
    work_give(w, &q);
    context_give(w, &keys);
    work_give(w, &delta);
    context_return(w, call->batch, &keys,
                   element_at(d_qkv->data, (uint64_t)n.k_offset, sizeof(bf16)), n.qkv);
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
    work_give(w, &saved_of(call)->qkv);
}

static void attention_backward(const struct layer_call *call, struct buffer *gradient)
{
    struct work *w = call->state->work;
    const struct widths n = widths_of(call);
    struct buffer d_qkv = { 0 };

    struct buffer d_o = through_output(call, gradient, &d_qkv);
    through_attention(call, &d_o, &d_qkv);
    through_rotation(call, &d_qkv);
    if (layer_model(call)->gqa.qkv_bias)
        WORK_OP(w, add_bias_backward, call->batch->tokens, n.qkv, d_qkv.data, n.qkv,
                state_gradient(call->state, call->unit, ROLE_Q_BIAS),
                w->plan->choices.primitives.grad_dtype);
    layer_project_in_backward(call, ROLE_Q, n.qkv, &d_qkv, gradient);
}

const struct mixer_ops attention_ops = { .saved_bytes = sizeof(struct attention_saved),
                                         .forward = attention_forward,
                                         .replay = attention_forward,
                                         .backward = attention_backward };
