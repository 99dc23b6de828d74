/* delta_net.c - the gated delta net: steps g1 to g7 and k1 to k9 of ARCHITECTURE.md. One projection
 * makes queries, keys, values, gates, b and a of every head (p); convolution, norms and gates make
 * of them what the delta rule reads, forward and again backward; executor/backend/delta.h has the
 * rule and what it keeps. */
#include "executor/nn/layer.h"

/* What the backward needs of the forward. */
struct delta_saved {
    struct buffer p, o, states;
};

static struct delta_saved *saved_of(const struct layer_call *call)
{
    return call->saved->mixer;
}

struct widths {
    struct delta_heads heads;
    int64_t key, value, channels; /* of queries or keys, of values, of both and values */
    int64_t p;
};

static struct widths widths_of(const struct layer_call *call)
{
    const struct gdn *g = &layer_model(call)->gdn;
    struct widths ret = { .heads = { g->key_heads, g->value_heads, g->key_dim, g->value_dim } };

    ret.key = (int64_t)g->key_heads * g->key_dim;
    ret.value = (int64_t)g->value_heads * g->value_dim;
    ret.channels = delta_channels(&ret.heads);
    ret.p = ret.channels + ret.value + 2 * (int64_t)g->value_heads;
    return ret;
}

/* The order of p's columns is that of the checkpoint's matrices. */
static struct delta_columns columns_of(const struct layer_call *call)
{
    const struct widths n = widths_of(call);
    int64_t each = n.heads.value_heads / n.heads.key_heads, key = n.heads.key_dim;
    int64_t values = each * n.heads.value_dim, gates = n.channels + n.value;

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
                                   .a = gates + n.heads.value_heads,
                                   .key_step = key,
                                   .value_step = values,
                                   .gate_step = each };
}

/* The rows of whole sequences, one run each. */
static int64_t run_tokens(const struct layer_call *call)
{
    return zigzag_run_tokens(&call->batch->order);
}

static int runs(const struct layer_call *call)
{
    return (int)(call->batch->tokens / run_tokens(call));
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

/* What the delta rule reads. */
struct rule_inputs {
    struct buffer qkv, decay, beta;
};

static struct delta_input input_of(const struct layer_call *call, const struct rule_inputs *in)
{
    const struct widths n = widths_of(call);
    return (struct delta_input){ .heads = n.heads,
                                 .columns = columns_of(call),
                                 .runs = runs(call),
                                 .width = layer_model(call)->gdn.conv_width,
                                 .tokens = run_tokens(call),
                                 .p = saved_of(call)->p.data,
                                 .p_stride = n.p,
                                 .conv = weight(call, ROLE_DELTA_CONV),
                                 .log_rate = weight(call, ROLE_DELTA_LOG),
                                 .step = weight(call, ROLE_DELTA_STEP),
                                 .qkv = in->qkv.data,
                                 .decay = in->decay.data,
                                 .beta = in->beta.data };
}

/* g3, g4; k4 again */
static struct rule_inputs enter(const struct layer_call *call)
{
    const struct widths n = widths_of(call);
    struct rule_inputs ret = {
        .qkv = layer_take(call, OWNER_LAYER, n.channels, sizeof(bf16)),
        .decay = layer_take(call, OWNER_LAYER, n.heads.value_heads, sizeof(float)),
        .beta = layer_take(call, OWNER_LAYER, n.heads.value_heads, sizeof(float))
    };
    const struct delta_input input = input_of(call, &ret);
    WORK_OP(call->state->work, delta_input, &input);
    return ret;
}

static void give_inputs(const struct layer_call *call, struct rule_inputs *in)
{
    work_give(call->state->work, &in->qkv);
    work_give(call->state->work, &in->decay);
    work_give(call->state->work, &in->beta);
}

static struct delta_rule rule_of(const struct layer_call *call, const struct rule_inputs *in)
{
    return (struct delta_rule){ .heads = widths_of(call).heads,
                                .runs = runs(call),
                                .tokens = run_tokens(call),
                                .qkv = in->qkv.data,
                                .decay = in->decay.data,
                                .beta = in->beta.data,
                                .o = saved_of(call)->o.data,
                                .states = saved_of(call)->states.data };
}

static struct buffer take_workspace(const struct layer_call *call, const struct delta_rule *rule,
                                    bool backward)
{
    struct work *w = call->state->work;
    return work_take(w, OWNER_WORKSPACE,
                     w->backend->ops->delta_workspace_bytes(w->backend, rule, backward));
}

/* g5 */
static void recur(const struct layer_call *call, enum owner owner)
{
    struct work *w = call->state->work;
    const struct widths n = widths_of(call);
    struct delta_saved *s = saved_of(call);
    struct rule_inputs in = enter(call);

    s->o = layer_take(call, owner, n.value, sizeof(bf16));
    if (call->keep != KEEP_NOTHING)
        s->states = work_take_tensor(w, owner, runs(call) * delta_segments(run_tokens(call)),
                                     delta_state_elements(&n.heads), sizeof(float));
    struct delta_rule rule = rule_of(call, &in);
    struct buffer workspace = take_workspace(call, &rule, false);
    rule.workspace = workspace.data;
    WORK_OP(w, delta_rule, &rule);
    work_give(w, &workspace);
    give_inputs(call, &in);
}

static struct gated_norm norm_of(const struct layer_call *call, void *on)
{
    const struct widths n = widths_of(call);
    return (struct gated_norm){ .heads = n.heads,
                                .columns = columns_of(call),
                                .rows = call->batch->tokens,
                                .p_stride = n.p,
                                .eps = layer_model(call)->norm_eps,
                                .o = saved_of(call)->o.data,
                                .p = saved_of(call)->p.data,
                                .weight = weight(call, ROLE_DELTA_NORM),
                                .on = on };
}

/* g6; k1 again */
static struct buffer normed_output(const struct layer_call *call)
{
    struct buffer ret = layer_take(call, OWNER_LAYER, widths_of(call).value, sizeof(bf16));
    const struct gated_norm norm = norm_of(call, ret.data);
    WORK_OP(call->state->work, gated_norm, &norm);
    return ret;
}

static void delta_forward(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct delta_saved *s = saved_of(call);
    const struct widths n = widths_of(call);
    enum owner owner = kept_owner(call->keep, OWNER_LAYER);

    s->p = layer_project_in(call, owner, ROLE_DELTA_IN, n.p);
    recur(call, owner);
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
    const struct widths n = widths_of(call);
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
    work_give(w, &saved_of(call)->o);
    return d_o;
}

/* k4, k5: d_o and the states are given back. */
static struct rule_inputs through_rule(const struct layer_call *call, struct buffer *d_o)
{
    struct work *w = call->state->work;
    const struct widths n = widths_of(call);
    struct rule_inputs in = enter(call), d_in = { 0 };

    d_in.qkv = layer_take(call, OWNER_LAYER, n.channels, sizeof(bf16));
    d_in.decay = layer_take(call, OWNER_LAYER, n.heads.value_heads, sizeof(float));
    d_in.beta = layer_take(call, OWNER_LAYER, n.heads.value_heads, sizeof(float));
    struct delta_rule_gradient rule = { .forward = rule_of(call, &in),
                                        .d_o = d_o->data,
                                        .d_qkv = d_in.qkv.data,
                                        .d_decay = d_in.decay.data,
                                        .d_beta = d_in.beta.data };
    struct buffer workspace = take_workspace(call, &rule.forward, true);
    rule.forward.workspace = workspace.data;
    WORK_OP(w, delta_rule_backward, &rule);
    work_give(w, &workspace);
    give_inputs(call, &in);
    work_give(w, d_o);
    work_give(w, &saved_of(call)->states);
    return d_in;
}

/* k6 */
static void through_input(const struct layer_call *call, struct rule_inputs *d_in,
                          const struct buffer *d_p)
{
    struct work *w = call->state->work;
    const struct rule_inputs none = { 0 };
    const struct delta_input_gradient input = { .forward = input_of(call, &none),
                                                .d_qkv = d_in->qkv.data,
                                                .d_decay = d_in->decay.data,
                                                .d_beta = d_in->beta.data,
                                                .d_p = d_p->data,
                                                .d_conv = gradient_of(call, ROLE_DELTA_CONV),
                                                .d_log_rate = gradient_of(call, ROLE_DELTA_LOG),
                                                .d_step = gradient_of(call, ROLE_DELTA_STEP),
                                                .grad_type = grad_type(call) };
    WORK_OP(w, delta_input_backward, &input);
    give_inputs(call, d_in);
    work_give(w, &saved_of(call)->p);
}

static void delta_backward(const struct layer_call *call, struct buffer *gradient)
{
    struct buffer d_p = { 0 };

    struct buffer d_o = through_output(call, gradient, &d_p);
    struct rule_inputs d_in = through_rule(call, &d_o);
    through_input(call, &d_in, &d_p);
    layer_project_in_backward(call, ROLE_DELTA_IN, widths_of(call).p, &d_p, gradient);
}

const struct mixer_ops delta_ops = { .saved_bytes = sizeof(struct delta_saved),
                                     .forward = delta_forward,
                                     .replay = delta_forward,
                                     .backward = delta_backward };
