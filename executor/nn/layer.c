#include "executor/nn/layer.h"
#include "executor/primitive/norm.h"

#include <stdlib.h>

struct layer_call layer_call(struct state *state, struct micro_batch *batch, int layer,
                             enum keep keep, struct layer_saved *saved)
{
    return (struct layer_call){ state, batch, layer, state_layer_unit(layer), keep, saved };
}

struct rope layer_angles(const struct layer_call *call, int rotary_dim)
{
    const struct gqa *g = &layer_model(call)->gqa;
    const struct zigzag *order = &call->batch->order;
    struct rope ret = { .rows = call->batch->tokens,
                        .tokens = zigzag_tokens(order),
                        .rotary_dim = rotary_dim,
                        .theta = g->rope_theta,
                        .adjacent = g->rope_adjacent,
                        .stretched = g->rope.form != ROPE_PLAIN,
                        .rotation_factor = g->rope.rotation_factor };
    if (ret.stretched)
        model_rope_frequencies(g, (int64_t)call->state->work->plan->seq_tokens, rotary_dim,
                               ret.frequency);
    if (zigzag_runs(order) > 1) {
        ret.run_tokens = zigzag_run_tokens(order);
        for (int run = 0; run < 2; run++)
            ret.run_first[run] = zigzag_run_first(order, run);
    }
    return ret;
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

struct buffer layer_project_in(const struct layer_call *call, enum owner owner, enum role role,
                               int64_t width)
{
    struct work *w = call->state->work;
    const struct linear l = layer_linear(call, layer_model(call)->hidden, width);
    struct buffer normed = layer_norm(call, ROLE_INPUT_NORM, &call->saved->checkpoint);

    struct buffer ret = layer_take(call, owner, width, sizeof(bf16));
    linear_forward(w, &l, normed.data, state_weight(call->state, call->unit, role), ret.data,
                   false);
    work_give(w, &normed);
    return ret;
}

void layer_project_out(const struct layer_call *call, enum owner owner, enum role role,
                       int64_t width, const struct buffer *x)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    const struct linear l = layer_linear(call, width, layer_model(call)->hidden);

    s->x1 = layer_take(call, owner, l.out, sizeof(bf16));
    WORK_OP(w, copy, s->x1.data, s->checkpoint.data, s->x1.bytes);
    linear_forward(w, &l, x->data, state_weight(call->state, call->unit, role), s->x1.data, true);
}

void layer_project_in_backward(const struct layer_call *call, enum role role, int64_t width,
                               struct buffer *d_in, struct buffer *gradient)
{
    struct work *w = call->state->work;
    struct layer_saved *s = call->saved;
    const struct linear l = layer_linear(call, layer_model(call)->hidden, width);

    struct buffer normed = layer_norm(call, ROLE_INPUT_NORM, &s->checkpoint);
    linear_weight(w, &l, d_in->data, normed.data, state_gradient(call->state, call->unit, role));
    work_give(w, &normed);
    struct buffer d_normed = layer_take(call, OWNER_LAYER, l.in, sizeof(bf16));
    linear_input(w, &l, d_in->data, state_weight(call->state, call->unit, role), d_normed.data,
                 false);
    work_give(w, d_in);
    layer_norm_backward(call, ROLE_INPUT_NORM, &d_normed, &s->checkpoint, gradient);
    work_give(w, &d_normed);
    work_give(w, &s->checkpoint);
}

void layer_project_out_weight(const struct layer_call *call, enum role role, int64_t width,
                              const struct buffer *gradient, const struct buffer *x)
{
    const struct linear l = layer_linear(call, width, layer_model(call)->hidden);
    linear_weight(call->state->work, &l, gradient->data, x->data,
                  state_gradient(call->state, call->unit, role));
}

struct buffer layer_project_out_input(const struct layer_call *call, enum role role, int64_t width,
                                      const struct buffer *gradient)
{
    const struct linear l = layer_linear(call, width, layer_model(call)->hidden);
    struct buffer ret = layer_take(call, OWNER_LAYER, width, sizeof(bf16));
    linear_input(call->state->work, &l, gradient->data, state_weight(call->state, call->unit, role),
                 ret.data, false);
    return ret;
}

static const struct mixer_ops *const mixers[MIXER_COUNT] = {
    [MIXER_GQA] = &attention_ops,
    [MIXER_LOCAL] = &attention_ops,
    [MIXER_GDN] = &delta_ops,
    [MIXER_MLA] = &latent_ops,
};
static const struct ffn_ops *const ffns[FFN_COUNT] = {
    [FFN_DENSE] = &dense_ops,
    [FFN_MOE] = &experts_ops,
};

static const struct mixer_ops *mixer_of(const struct layer_call *call)
{
    return mixers[layer_model(call)->layer_mixer[call->layer]];
}

static const struct ffn_ops *ffn_of(const struct layer_call *call)
{
    return ffns[layer_model(call)->layer_ffn[call->layer]];
}

int layer_saved_open(struct layer_saved *saved, const struct work *work, int layer)
{
    const struct model *model = &work->plan->model;
    const struct mixer_ops *mixer = mixers[model->layer_mixer[layer]];
    const struct ffn_ops *ffn = ffns[model->layer_ffn[layer]];

    saved->mixer = calloc(1, mixer->saved_bytes);
    saved->ffn = calloc(1, ffn->saved_bytes);
    if (!saved->mixer || !saved->ffn)
        return diag_error(work->errors, (struct pos){ 0 }, "no memory left for the layers' lists");
    return ffn->open ? ffn->open(saved->ffn, work) : 0;
}

void layer_saved_close(struct layer_saved *saved, const struct model *model, int layer)
{
    const struct ffn_ops *ffn = ffns[model->layer_ffn[layer]];

    if (saved->ffn && ffn->close)
        ffn->close(saved->ffn);
    free(saved->ffn);
    free(saved->mixer);
}

void layer_forward(const struct layer_call *call, struct buffer *output, enum owner output_owner)
{
    struct layer_saved *s = call->saved;

    mixer_of(call)->forward(call);
    struct buffer normed = layer_norm(call, ROLE_POST_NORM, &s->x1);
    ffn_of(call)->forward(call, &normed, output, output_owner);
    work_give_unless_kept(call->state->work, call->keep, &s->x1);
}

void layer_replay(const struct layer_call *call)
{
    mixer_of(call)->replay(call);
    struct buffer normed = layer_norm(call, ROLE_POST_NORM, &call->saved->x1);
    ffn_of(call)->replay(call, &normed);
}

void layer_backward(const struct layer_call *call, struct buffer *gradient)
{
    ffn_of(call)->backward(call, gradient);
    mixer_of(call)->backward(call, gradient);
}
