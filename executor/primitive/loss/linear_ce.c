#include "executor/primitive/linear.h"
#include "executor/primitive/loss/loss.h"

enum { TILE_ROWS = 512 };

struct head {
    struct state *state;
    struct micro_batch *batch;
    int64_t hidden, vocab;
    int unit; /* of the output matrix */
    enum role role;
    struct buffer normed, d_normed, logits, d_logits;
};

static void run_tile(struct head *h, int64_t first, int64_t rows)
{
    struct work *w = h->state->work;
    const struct linear l = { .rows = rows,
                              .in = h->hidden,
                              .out = h->vocab,
                              .output_type = DTYPE_FP32,
                              .gradient_type = w->plan->choices.primitives.grad_dtype };
    struct linear back = l;
    uint64_t row = (uint64_t)(first * h->hidden);
    const bf16 *weight = state_weight(h->state, h->unit, h->role);
    const bf16 *normed = element_at(h->normed.data, row, sizeof(bf16));
    const int32_t *targets = element_at(h->batch->targets.data, (uint64_t)first, sizeof(int32_t));

    back.output_type = DTYPE_BF16;
    linear_forward(w, &l, normed, weight, h->logits.data, false);
    WORK_OP(w, cross_entropy, rows, h->vocab, h->logits.data, targets, (float)h->batch->loss_scale,
            h->d_logits.data, &h->batch->loss_sum);
    linear_input(w, &back, h->d_logits.data, weight,
                 element_at(h->d_normed.data, row, sizeof(bf16)), false);
    linear_weight(w, &back, h->d_logits.data, normed, state_gradient(h->state, h->unit, h->role));
}

static void run_tiles(struct head *h)
{
    struct work *w = h->state->work;
    int64_t tokens = h->batch->tokens, tile = tokens < TILE_ROWS ? tokens : TILE_ROWS;

    h->logits = work_take_tensor(w, OWNER_LOSS, tile, h->vocab, sizeof(float));
    h->d_logits = work_take_tensor(w, OWNER_LOSS, tile, h->vocab, sizeof(bf16));
    for (int64_t first = 0; first < tokens && work_runs(w); first += tile)
        run_tile(h, first, tokens - first < tile ? tokens - first : tile);
    work_give(w, &h->logits);
    work_give(w, &h->d_logits);
}

static void norm_forward(struct head *h, const struct buffer *hidden)
{
    struct work *w = h->state->work;
    WORK_OP(w, rmsnorm, h->batch->tokens, h->hidden, w->plan->model.norm_eps, hidden->data,
            state_weight(h->state, state_head_unit(h->state), ROLE_FINAL_NORM), h->normed.data);
    if (h->batch->hidden)
        WORK_OP(w, download, h->batch->hidden, h->normed.data, h->normed.bytes);
}

static void norm_backward(struct head *h, const struct buffer *hidden, void *gradient)
{
    struct work *w = h->state->work;
    int unit = state_head_unit(h->state);
    WORK_OP(w, rmsnorm_backward, h->batch->tokens, h->hidden, w->plan->model.norm_eps,
            h->d_normed.data, hidden->data, state_weight(h->state, unit, ROLE_FINAL_NORM), gradient,
            false, state_gradient(h->state, unit, ROLE_FINAL_NORM),
            w->plan->choices.primitives.grad_dtype);
}

void loss_linear_ce(struct state *state, struct micro_batch *batch, struct buffer *hidden,
                    struct buffer *ret_gradient)
{
    struct work *w = state->work;
    const struct model *model = &w->plan->model;
    struct head h = { .state = state,
                      .batch = batch,
                      .hidden = model->hidden,
                      .vocab = model->vocab,
                      .unit = model->tied ? 0 : state_head_unit(state),
                      .role = model->tied ? ROLE_EMBEDDING : ROLE_HEAD };

    h.normed = work_take_tensor(w, OWNER_LOSS, batch->tokens, model->hidden, sizeof(bf16));
    norm_forward(&h, hidden);
    h.d_normed = work_take_tensor(w, OWNER_LOSS, batch->tokens, model->hidden, sizeof(bf16));
    run_tiles(&h);
    *ret_gradient = work_take_tensor(w, OWNER_LAYER, batch->tokens, model->hidden, sizeof(bf16));
    norm_backward(&h, hidden, ret_gradient->data);
    work_give(w, hidden);
    work_give(w, &h.normed);
    work_give(w, &h.d_normed);
}
