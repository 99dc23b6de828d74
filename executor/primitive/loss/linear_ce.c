#include "executor/primitive/loss/head.h"

struct tile {
    struct buffer logits, d_logits;
};

static void run_tile(struct head *h, const struct head_block *block, void *context)
{
    struct work *w = h->state->work;
    const struct tile *tile = context;

    head_logits(h, block, DTYPE_FP32, tile->logits.data);
    WORK_OP(w, cross_entropy, block->rows, h->vocab, tile->logits.data,
            head_targets(h, block->first), (float)h->batch->loss_scale, tile->d_logits.data,
            &h->batch->loss_sum);
    head_backward(h, block, tile->d_logits.data, DTYPE_BF16, head_gradient_rows(h, block->first),
                  false);
}

void loss_linear_ce(struct head *h)
{
    struct work *w = h->state->work;
    int64_t rows = head_tile_rows(h);
    struct tile tile;

    tile.logits = work_take_tensor(w, OWNER_LOSS, rows, h->vocab, sizeof(float));
    tile.d_logits = work_take_tensor(w, OWNER_LOSS, rows, h->vocab, sizeof(bf16));
    head_tiles(h, &tile, run_tile);
    work_give(w, &tile.logits);
    work_give(w, &tile.d_logits);
}
