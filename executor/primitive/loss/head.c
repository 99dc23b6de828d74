#include "executor/primitive/loss/head.h"
#include "executor/primitive/norm.h"

static int64_t tile_tokens(const struct head *head)
{
    return head->state->work->plan->choices.primitives.loss_tile_tokens;
}

int64_t head_tile_rows(const struct head *head)
{
    int64_t most = tile_tokens(head);
    return head->batch->tokens < most ? head->batch->tokens : most;
}

void head_tiles(struct head *head, void *context,
                void (*run)(struct head *head, const struct head_block *tile, void *context))
{
    int64_t tokens = head->batch->tokens, rows = head_tile_rows(head);

    for (int64_t first = 0; first < tokens && work_runs(head->state->work); first += rows) {
        const struct head_block tile = { .first = first,
                                         .rows = tokens - first < rows ? tokens - first : rows,
                                         .entry = 0,
                                         .width = head->vocab };
        run(head, &tile, context);
    }
}

static struct linear linear_of(const struct head *head, const struct head_block *block)
{
    return (struct linear){ .rows = block->rows,
                            .plan_rows = tile_tokens(head),
                            .in = head->hidden,
                            .out = block->width,
                            .gradient_type =
                                head->state->work->plan->choices.primitives.grad_dtype };
}

static const void *normed_rows(const struct head *head, int64_t first)
{
    return element_at(head->normed.data, (uint64_t)(first * head->hidden), sizeof(bf16));
}

static const bf16 *weight_rows(const struct head *head, int64_t entry)
{
    return element_at(state_weight(head->state, head->unit, head->role),
                      (uint64_t)(entry * head->hidden), sizeof(bf16));
}

void *head_gradient_rows(const struct head *head, int64_t first)
{
    return element_at(head->d_normed.data, (uint64_t)(first * head->hidden), sizeof(bf16));
}

const int32_t *head_targets(const struct head *head, int64_t first)
{
    return element_at(head->batch->targets.data, (uint64_t)first, sizeof(int32_t));
}

void head_logits(const struct head *head, const struct head_block *block, enum dtype type,
                 void *logits)
{
    struct linear l = linear_of(head, block);
    l.output_type = type;
    linear_forward(head->state->work, &l, normed_rows(head, block->first),
                   weight_rows(head, block->entry), logits, false);
}

void head_backward(const struct head *head, const struct head_block *block, const bf16 *d_logits,
                   enum dtype type, void *to, bool accumulate)
{
    struct work *w = head->state->work;
    struct linear l = linear_of(head, block);
    void *d_weight =
        element_at(state_gradient(head->state, head->unit, head->role),
                   (uint64_t)(block->entry * head->hidden), dtype_bytes(l.gradient_type));

    l.input_type = type;
    linear_input(w, &l, d_logits, weight_rows(head, block->entry), to, accumulate);
    linear_weight(w, &l, d_logits, normed_rows(head, block->first), d_weight);
}

static void norm_forward(struct head *h, const struct buffer *hidden)
{
    struct work *w = h->state->work;
    residual_norm(w, h->batch->tokens, hidden->data,
                  state_weight(h->state, state_head_unit(h->state), ROLE_FINAL_NORM),
                  h->normed.data);
    if (h->batch->hidden)
        WORK_OP(w, download, h->batch->hidden, h->normed.data, h->normed.bytes);
}

static void norm_backward(struct head *h, const struct buffer *hidden, void *gradient)
{
    struct work *w = h->state->work;
    int unit = state_head_unit(h->state);
    residual_norm_backward(w, h->batch->tokens, h->d_normed.data, hidden->data,
                           state_weight(h->state, unit, ROLE_FINAL_NORM), gradient, false,
                           state_gradient(h->state, unit, ROLE_FINAL_NORM));
}

static void run_form(struct head *h)
{
    const struct primitives *p = &h->state->work->plan->choices.primitives;

    if (p->loss == LOSS_FULL)
        loss_full(h);
    else if (p->vocab_strip > 0)
        loss_strips(h);
    else
        loss_linear_ce(h);
}

void loss_run(struct state *state, struct micro_batch *batch, struct buffer *hidden,
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
    run_form(&h);
    *ret_gradient = work_take_tensor(w, OWNER_LAYER, batch->tokens, model->hidden, sizeof(bf16));
    norm_backward(&h, hidden, ret_gradient->data);
    work_give(w, hidden);
    work_give(w, &h.normed);
    work_give(w, &h.d_normed);
}
