#include "executor/primitive/loss/head.h"

struct whole {
    enum dtype type;
    struct buffer logits;   /* [tokens, vocab] of type; then their gradient */
    struct buffer d_logits; /* fp32: one tile of the gradient, rounded for its products */
};

static void back_through_tile(struct head *h, const struct head_block *block, void *context)
{
    struct work *w = h->state->work;
    const struct whole *whole = context;
    const void *rows = element_at(whole->logits.data, (uint64_t)(block->first * h->vocab),
                                  dtype_bytes(whole->type));

    if (whole->type == DTYPE_FP32) {
        WORK_OP(w, to_bf16, block->rows * h->vocab, rows, whole->d_logits.data);
        rows = whole->d_logits.data;
    }
    head_backward(h, block, rows, DTYPE_BF16, head_gradient_rows(h, block->first), false);
}

void loss_full(struct head *h)
{
    struct work *w = h->state->work;
    struct whole whole = { .type = w->plan->choices.primitives.logits_dtype };
    const struct head_block all = { 0, h->batch->tokens, 0, h->vocab };

    whole.logits = work_take_tensor(w, OWNER_LOGITS, all.rows, h->vocab, dtype_bytes(whole.type));
    head_logits(h, &all, whole.type, whole.logits.data);
    WORK_OP(w, cross_entropy_in_place, all.rows, h->vocab, whole.logits.data, whole.type,
            head_targets(h, 0), (float)h->batch->loss_scale, &h->batch->loss_sum);
    if (whole.type == DTYPE_FP32)
        whole.d_logits = work_take_tensor(w, OWNER_LOSS, head_tile_rows(h), h->vocab, sizeof(bf16));
    head_tiles(h, &whole, back_through_tile);
    work_give(w, &whole.logits);
    work_give(w, &whole.d_logits);
}
