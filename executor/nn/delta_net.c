/* delta_net.c - the gated delta net: steps g1 to g7 and k1 to k9 of ARCHITECTURE.md. One projection
 * makes queries, keys, values, gates, b and a of every head (p); convolution, norms and gates make
 * of them what the delta rule reads, forward and again backward; executor/backend/delta.h has the
 * rule and what it keeps. */
#include "executor/nn/delta_net.h"

static struct delta_heads heads_of(const struct layer_call *call)
{
    const struct gdn *g = &layer_model(call)->gdn;
    return (struct delta_heads){ g->key_heads, g->value_heads, g->key_dim, g->value_dim };
}

struct delta_widths delta_widths_of(const struct layer_call *call)
{
    const struct delta_heads h = heads_of(call);
    struct delta_widths ret = { .key = (int64_t)h.key_heads * h.key_dim,
                                .value = (int64_t)h.value_heads * h.value_dim,
                                .channels = delta_channels(&h) };
    ret.p = ret.channels + ret.value + 2 * (int64_t)h.value_heads;
    return ret;
}

/* The order of p's columns is that of the checkpoint's matrices. */
static struct delta_columns columns_of(const struct layer_call *call, const struct delta_heads *h)
{
    const struct delta_widths n = delta_widths_of(call);
    int64_t each = h->value_heads / h->key_heads, key = h->key_dim;
    int64_t values = each * h->value_dim, gates = n.channels + n.value;

    if (model_delta_joint(layer_model(call)))
        return (struct delta_columns){ .q = 0,
                                       .k = key,
                                       .v = 2 * key,
                                       .z = 2 * key + values,
                                       .b = gates,
                                       .a = gates + each,
                                       .key_step = 2 * (key + values),
                                       .value_step = 2 * (key + values),
                                       .gate_step = 2 * each };
    return (struct delta_columns){ .q = 0,
                                   .k = n.key,
                                   .v = 2 * n.key,
                                   .z = n.channels,
                                   .b = gates,
                                   .a = gates + h->value_heads,
                                   .key_step = key,
                                   .value_step = values,
                                   .gate_step = each };
}

struct delta_view delta_own_view(const struct layer_call *call)
{
    const struct delta_heads heads = heads_of(call);
    int64_t tokens = zigzag_run_tokens(&call->batch->order);
    return (struct delta_view){ .heads = heads,
                                .columns = columns_of(call, &heads),
                                .runs = (int)(call->batch->tokens / tokens),
                                .tokens = tokens,
                                .p = delta_saved_of(call)->p.data,
                                .p_stride = delta_widths_of(call).p };
}

static const bf16 *weight(const struct layer_call *call, enum role role)
{
    return state_weight(call->state, call->unit, role);
}

static void *gradient_of(const struct layer_call *call, enum role role)
{
    return state_gradient(call->state, call->unit, role);
}

static enum dtype grad_type(const struct layer_call *call)
{
    return call->state->work->plan->choices.primitives.grad_dtype;
}

struct delta_tensors delta_tensors_take(const struct layer_call *call, const struct delta_view *v)
{
    struct work *w = call->state->work;
    int64_t rows = delta_rows(v), heads = v->heads.value_heads;
    struct delta_tensors ret;
    ret.qkv = work_take_tensor(w, OWNER_LAYER, rows, delta_channels(&v->heads), sizeof(bf16));
    ret.decay = work_take_tensor(w, OWNER_LAYER, rows, heads, sizeof(float));
    ret.beta = work_take_tensor(w, OWNER_LAYER, rows, heads, sizeof(float));
    return ret;
}

void delta_tensors_give(const struct layer_call *call, struct delta_tensors *t)
{
    work_give(call->state->work, &t->qkv);
    work_give(call->state->work, &t->decay);
    work_give(call->state->work, &t->beta);
}

/* Where the convolution of a view's queries, keys and values begins among the model's, in elements.
 */
static uint64_t conv_place(const struct layer_call *call, const struct delta_view *v, int kind)
{
    const struct delta_widths n = delta_widths_of(call);
    int64_t each = v->heads.value_heads / v->heads.key_heads;
    int64_t key = (int64_t)v->first_key_head * v->heads.key_dim;
    int64_t value = v->first_key_head * each * v->heads.value_dim;
    int64_t channel = kind < 2 ? kind * n.key + key : 2 * n.key + value;
    return (uint64_t)(channel * layer_model(call)->gdn.conv_width);
}

static struct delta_input input_of(const struct layer_call *call, const struct delta_view *v,
                                   const struct delta_tensors *in)
{
    uint64_t head = (uint64_t)(v->first_key_head * (v->heads.value_heads / v->heads.key_heads));
    struct delta_input ret = { .heads = v->heads,
                               .columns = v->columns,
                               .runs = v->runs,
                               .width = layer_model(call)->gdn.conv_width,
                               .tokens = v->tokens,
                               .p = v->p,
                               .p_stride = v->p_stride,
                               .halo = v->halo,
                               .log_rate =
                                   element_at(weight(call, ROLE_DELTA_LOG), head, sizeof(bf16)),
                               .step =
                                   element_at(weight(call, ROLE_DELTA_STEP), head, sizeof(bf16)),
                               .qkv = in->qkv.data,
                               .decay = in->decay.data,
                               .beta = in->beta.data };
    for (int kind = 0; kind < 3; kind++)
        ret.conv[kind] =
            element_at(weight(call, ROLE_DELTA_CONV), conv_place(call, v, kind), sizeof(bf16));
    return ret;
}

struct delta_tensors delta_enter(const struct layer_call *call, const struct delta_view *v)
{
    struct delta_tensors ret = delta_tensors_take(call, v);
    const struct delta_input input = input_of(call, v, &ret);
    WORK_OP(call->state->work, delta_input, &input);
    return ret;
}

void delta_enter_backward(const struct layer_call *call, const struct delta_view *v,
                          struct delta_tensors *d_in, void *d_p, void *d_halo)
{
    struct work *w = call->state->work;
    const struct delta_tensors none = { 0 };
    uint64_t bytes = dtype_bytes(grad_type(call));
    uint64_t head = (uint64_t)(v->first_key_head * (v->heads.value_heads / v->heads.key_heads));
    struct delta_input_gradient input = {
        .forward = input_of(call, v, &none),
        .d_qkv = d_in->qkv.data,
        .d_decay = d_in->decay.data,
        .d_beta = d_in->beta.data,
        .d_p = d_p,
        .d_halo = d_halo,
        .d_log_rate = element_at(gradient_of(call, ROLE_DELTA_LOG), head, bytes),
        .d_step = element_at(gradient_of(call, ROLE_DELTA_STEP), head, bytes),
        .grad_type = grad_type(call)
    };
    for (int kind = 0; kind < 3; kind++)
        input.d_conv[kind] =
            element_at(gradient_of(call, ROLE_DELTA_CONV), conv_place(call, v, kind), bytes);
    WORK_OP(w, delta_input_backward, &input);
    delta_tensors_give(call, d_in);
}

struct delta_rule delta_rule_of(const struct delta_view *v, const struct delta_tensors *in)
{
    return (struct delta_rule){ .heads = v->heads,
                                .runs = v->runs,
                                .tokens = v->tokens,
                                .qkv = in->qkv.data,
                                .decay = in->decay.data,
                                .beta = in->beta.data };
}

static struct buffer take_workspace(const struct layer_call *call, const struct delta_rule *rule,
                                    bool backward)
{
    struct work *w = call->state->work;
    return work_take(w, OWNER_WORKSPACE,
                     w->backend->ops->delta_workspace_bytes(w->backend, rule, backward));
}

void delta_rule_run(const struct layer_call *call, struct delta_rule *rule)
{
    struct work *w = call->state->work;
    struct buffer workspace = take_workspace(call, rule, false);
    rule->workspace = workspace.data;
    WORK_OP(w, delta_rule, rule);
    work_give(w, &workspace);
}

void delta_rule_run_backward(const struct layer_call *call, struct delta_rule_gradient *rule)
{
    struct work *w = call->state->work;
    struct buffer workspace = take_workspace(call, &rule->forward, true);
    rule->forward.workspace = workspace.data;
    WORK_OP(w, delta_rule_backward, rule);
    work_give(w, &workspace);
}

float *delta_take_states(const struct layer_call *call, const struct delta_view *v)
{
    struct buffer *states = &delta_saved_of(call)->states;
    if (call->keep == KEEP_NOTHING)
        return NULL;
    *states = work_take_tensor(call->state->work, kept_owner(call->keep, OWNER_LAYER),
                               v->runs * delta_segments(v->tokens), delta_state_elements(&v->heads),
                               sizeof(float));
    return states->data;
}

/* g3 to g5 where every run is a whole sequence. */
static void whole_forward(const struct layer_call *call)
{
    const struct delta_view view = delta_own_view(call);
    struct delta_tensors in = delta_enter(call, &view);
    struct delta_rule rule = delta_rule_of(&view, &in);

    rule.o = delta_saved_of(call)->o.data;
    rule.states = delta_take_states(call, &view);
    delta_rule_run(call, &rule);
    delta_tensors_give(call, &in);
}

/* k4 to k6 there. */
static void whole_backward(const struct layer_call *call, struct buffer *d_o,
                           const struct buffer *d_p)
{
    struct work *w = call->state->work;
    const struct delta_view view = delta_own_view(call);
    struct delta_tensors in = delta_enter(call, &view), d_in = delta_tensors_take(call, &view);
    struct delta_rule_gradient rule = { .forward = delta_rule_of(&view, &in),
                                        .d_o = d_o->data,
                                        .d_qkv = d_in.qkv.data,
                                        .d_decay = d_in.decay.data,
                                        .d_beta = d_in.beta.data };

    rule.forward.states = delta_saved_of(call)->states.data;
    delta_rule_run_backward(call, &rule);
    delta_tensors_give(call, &in);
    work_give(w, d_o);
    work_give(w, &delta_saved_of(call)->states);
    delta_enter_backward(call, &view, &d_in, d_p->data, NULL);
}

const struct delta_form delta_whole = { whole_forward, whole_backward };

/* The plan's, which is legal only where sequences are shared. */
static const struct delta_form *form_of(const struct layer_call *call)
{
    static const struct delta_form *const forms[LINEAR_CONTEXT_COUNT] = {
        [LINEAR_CONTEXT_NONE] = &delta_whole,
        [LINEAR_CONTEXT_HEAD_SPLIT] = &delta_head_split,
        [LINEAR_CONTEXT_STATE_PASS] = &delta_state_pass,
    };
    return forms[call->state->work->plan->choices.primitives.linear_context];
}

static struct gated_norm norm_of(const struct layer_call *call, void *on)
{
    const struct delta_view view = delta_own_view(call);
    return (struct gated_norm){ .heads = view.heads,
                                .columns = view.columns,
                                .rows = call->batch->tokens,
                                .p_stride = view.p_stride,
                                .eps = layer_model(call)->norm_eps,
                                .o = delta_saved_of(call)->o.data,
                                .p = view.p,
                                .weight = weight(call, ROLE_DELTA_NORM),
                                .on = on };
}

/* g6; k1 again */
static struct buffer normed_output(const struct layer_call *call)
{
    struct buffer ret = layer_take(call, OWNER_LAYER, delta_widths_of(call).value, sizeof(bf16));
    const struct gated_norm norm = norm_of(call, ret.data);
    WORK_OP(call->state->work, gated_norm, &norm);
    return ret;
}

static void delta_forward(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct delta_saved *s = delta_saved_of(call);
    const struct delta_widths n = delta_widths_of(call);
    enum owner owner = kept_owner(call->keep, OWNER_LAYER);

    s->p = layer_project_in(call, owner, ROLE_DELTA_IN, n.p);
    s->o = layer_take(call, owner, n.value, sizeof(bf16));
    form_of(call)->forward(call);
    struct buffer on = normed_output(call);
    work_give_unless_kept(w, call->keep, &s->p);
    work_give_unless_kept(w, call->keep, &s->o);
    layer_project_out(call, owner, ROLE_DELTA_OUT, n.value, &on);
    work_give(w, &on);
}

/* k1 to k3: the gradient of the rule's outputs, and that of the gates z in d_p. */
static struct buffer through_output(const struct layer_call *call, const struct buffer *gradient,
                                    struct buffer *d_p)
{
    struct work *w = call->state->work;
    const struct delta_widths n = delta_widths_of(call);
    struct buffer on = normed_output(call);

    layer_project_out_weight(call, ROLE_DELTA_OUT, n.value, gradient, &on);
    work_give(w, &on);
    struct buffer d_o = layer_project_out_input(call, ROLE_DELTA_OUT, n.value, gradient);
    *d_p = layer_take(call, OWNER_LAYER, n.p, sizeof(bf16));
    const struct gated_norm_gradient norm = { .forward = norm_of(call, NULL),
                                              .d_o = d_o.data,
                                              .d_p = d_p->data,
                                              .d_weight = gradient_of(call, ROLE_DELTA_NORM),
                                              .grad_type = grad_type(call) };
    WORK_OP(w, gated_norm_backward, &norm);
    work_give(w, &delta_saved_of(call)->o);
    return d_o;
}

static void delta_backward(const struct layer_call *call, struct buffer *gradient)
{
    struct buffer d_p = { 0 };

    struct buffer d_o = through_output(call, gradient, &d_p);
    form_of(call)->backward(call, &d_o, &d_p);
    work_give(call->state->work, &delta_saved_of(call)->p);
    layer_project_in_backward(call, ROLE_DELTA_IN, delta_widths_of(call).p, &d_p, gradient);
}

const struct mixer_ops delta_ops = { .saved_bytes = sizeof(struct delta_saved),
                                     .forward = delta_forward,
                                     .replay = delta_forward,
                                     .backward = delta_backward };
