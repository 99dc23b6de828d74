#include "executor/nn/layer.h"
#include "executor/primitive/norm.h"

struct layer_call layer_call(struct state *state, struct micro_batch *batch, int layer,
                             enum keep keep, struct layer_saved *saved)
{
    return (struct layer_call){ state, batch, layer, state_layer_unit(layer), keep, saved };
}

struct buffer layer_norm(const struct layer_call *call, enum role role, const struct buffer *input)
{
    struct work *w = call->state->work;
    const struct model *m = layer_model(call);
    struct buffer ret =
        work_take_tensor(w, OWNER_LAYER, call->batch->tokens, m->hidden, sizeof(bf16));
    residual_norm(w, call->batch->tokens, input->data, state_weight(call->state, call->unit, role),
                  ret.data);
    return ret;
}

void layer_norm_backward(const struct layer_call *call, enum role role,
                         const struct buffer *d_normed, const struct buffer *input,
                         struct buffer *gradient)
{
    residual_norm_backward(call->state->work, call->batch->tokens, d_normed->data, input->data,
                           state_weight(call->state, call->unit, role), gradient->data, true,
                           state_gradient(call->state, call->unit, role));
}

static bool is_moe(const struct layer_call *call)
{
    return layer_model(call)->layer_ffn[call->layer] == FFN_MOE;
}

static bool has_shared(const struct layer_call *call)
{
    return layer_model(call)->moe.shared_width > 0;
}

static struct moe_call moe_call(const struct layer_call *call)
{
    return (struct moe_call){ call->state, call->batch, call->layer, call->keep,
                              &call->saved->moe };
}

void layer_forward(const struct layer_call *call, struct buffer *output, enum owner output_owner)
{
    struct layer_saved *s = call->saved;

    attention_forward(call);
    struct buffer normed = layer_norm(call, ROLE_POST_NORM, &s->x1);
    if (is_moe(call)) {
        const struct moe_call moe = moe_call(call);
        moe_forward(&moe, &normed, has_shared(call), &s->x1, output, output_owner);
        if (has_shared(call))
            shared_forward(call, &normed, output);
    } else {
        dense_forward(call, &normed, output, output_owner);
    }
    work_give_unless_kept(call->state->work, call->keep, &s->x1);
}

void layer_replay(const struct layer_call *call)
{
    attention_forward(call);
    struct buffer normed = layer_norm(call, ROLE_POST_NORM, &call->saved->x1);
    if (!is_moe(call)) {
        dense_replay(call, &normed);
        return;
    }
    const struct moe_call moe = moe_call(call);
    moe_replay(&moe, &normed, has_shared(call));
    if (has_shared(call))
        shared_replay(call, &normed);
}

static void renorm(void *context, struct buffer *ret)
{
    const struct layer_call *call = context;
    *ret = layer_norm(call, ROLE_POST_NORM, &call->saved->x1);
}

static void experts_backward(const struct layer_call *call, struct buffer *gradient)
{
    struct work *w = call->state->work;
    const struct moe_call moe = moe_call(call);
    struct buffer normed = { 0 }, d_normed = { 0 };
    struct layer_call copy = *call;

    if (has_shared(call))
        shared_backward(call, gradient, &normed, &d_normed);
    moe_backward(&moe, gradient, &normed, &d_normed, renorm, &copy);
    layer_norm_backward(call, ROLE_POST_NORM, &d_normed, &call->saved->x1, gradient);
    work_give(w, &d_normed);
    work_give(w, &call->saved->x1);
}

void layer_backward(const struct layer_call *call, struct buffer *gradient)
{
    if (is_moe(call))
        experts_backward(call, gradient);
    else
        dense_backward(call, gradient);
    attention_backward(call, gradient);
}
