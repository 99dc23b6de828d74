#include "executor/nn/transformer.h"
#include "executor/primitive/loss/loss.h"
#include "executor/primitive/recompute/recompute.h"

#include <stdlib.h>
#include <string.h>

int transformer_open(struct transformer *t, struct state *state)
{
    const struct work *w = state->work;
    const struct model *model = &w->plan->model;

    memset(t, 0, sizeof *t);
    t->state = state;
    t->saved = calloc((size_t)model->layers, sizeof *t->saved);
    if (!t->saved)
        return diag_error(w->errors, (struct pos){ 0 }, "no memory left for the layers' lists");
    t->layers = model->layers;
    for (int i = 0; i < t->layers; i++)
        if (layer_saved_open(&t->saved[i], w, i) != 0)
            return -1;
    return 0;
}

void transformer_close(struct transformer *t)
{
    for (int i = 0; i < t->layers; i++)
        layer_saved_close(&t->saved[i], &t->state->work->plan->model, i);
    free(t->saved);
    memset(t, 0, sizeof *t);
}

static bool recomputed(const struct transformer *t, int layer)
{
    return recompute_covers(&t->state->work->plan->choices.primitives, layer);
}

static void embed(struct transformer *t, const struct micro_batch *batch)
{
    struct work *w = t->state->work;
    int64_t hidden = w->plan->model.hidden;
    struct buffer *output = &t->saved[0].checkpoint;

    arena_phase(w->arena, "forward micro-batch %d embedding", batch->index);
    work_begin(w, OBSERVED_PART, "embedding");
    state_unit_begin(t->state, 0);
    *output = work_take_tensor(w, OWNER_CHECKPOINT, batch->tokens, hidden, sizeof(bf16));
    WORK_OP(w, embed, batch->tokens, hidden, batch->ids.data,
            state_weight(t->state, 0, ROLE_EMBEDDING), output->data);
    state_unit_end(t->state);
    work_end(w);
}

void transformer_forward(struct transformer *t, struct micro_batch *batch)
{
    struct work *w = t->state->work;

    state_micro_batch(t->state);
    embed(t, batch);
    for (int layer = 0; layer < t->layers && !w->failed; layer++) {
        bool last = layer == t->layers - 1;
        struct buffer *output = last ? &t->hidden : &t->saved[layer + 1].checkpoint;
        const struct layer_call call =
            layer_call(t->state, batch, layer, recomputed(t, layer) ? KEEP_NOTHING : KEEP_SAVED,
                       &t->saved[layer]);
        arena_phase(w->arena, "forward micro-batch %d layer %d", batch->index, layer);
        work_begin(w, OBSERVED_PART, "layer %d", layer);
        state_unit_begin(t->state, call.unit);
        layer_forward(&call, output, last ? OWNER_LOSS : OWNER_CHECKPOINT);
        state_unit_end(t->state);
        work_end(w);
    }
}

void transformer_loss(struct transformer *t, struct micro_batch *batch)
{
    int head = state_head_unit(t->state);

    arena_phase(t->state->work->arena, "loss micro-batch %d", batch->index);
    state_await_gradients(t->state);
    state_unit_begin(t->state, head);
    state_gradient_begin(t->state, head);
    loss_run(t->state, batch, &t->hidden, &t->gradient);
    state_unit_end(t->state);
    state_gradient_end(t->state, head);
}

static void back_through_layer(struct transformer *t, struct micro_batch *batch, int layer)
{
    struct work *w = t->state->work;
    bool again = recomputed(t, layer);
    const struct layer_call call =
        layer_call(t->state, batch, layer, again ? KEEP_OWN : KEEP_SAVED, &t->saved[layer]);

    work_begin(w, OBSERVED_PART, "layer %d", layer);
    state_unit_begin(t->state, call.unit);
    state_gradient_begin(t->state, call.unit);
    if (again) {
        arena_phase(w->arena, "replay micro-batch %d layer %d", batch->index, layer);
        work_begin(w, OBSERVED_PART, "replay");
        layer_replay(&call);
        work_end(w);
    }
    arena_phase(w->arena, "backward micro-batch %d layer %d", batch->index, layer);
    layer_backward(&call, &t->gradient);
    state_unit_end(t->state);
    state_gradient_end(t->state, call.unit);
    work_end(w);
}

void transformer_backward(struct transformer *t, struct micro_batch *batch)
{
    struct work *w = t->state->work;

    for (int layer = t->layers - 1; layer >= 0 && !w->failed; layer--)
        back_through_layer(t, batch, layer);
    arena_phase(w->arena, "backward micro-batch %d embedding", batch->index);
    work_begin(w, OBSERVED_PART, "embedding");
    state_gradient_begin(t->state, 0);
    WORK_OP(w, embed_backward, batch->tokens, w->plan->model.hidden, batch->ids.data,
            t->gradient.data, state_gradient(t->state, 0, ROLE_EMBEDDING),
            w->plan->choices.primitives.grad_dtype);
    work_give(w, &t->gradient);
    state_gradient_end(t->state, 0);
    state_gradient_flush(t->state);
    work_end(w);
}
