#include "executor/primitive/loss/head.h"

struct strips {
    int64_t width;
    struct buffer lse; /* fp32 [tokens] */
    struct buffer logits, d_logits, d_hidden;
};

static struct vocabulary_strip strip_of(const struct head *h, const struct strips *s,
                                        const struct head_block *block)
{
    return (struct vocabulary_strip){ .rows = block->rows,
                                      .vocab = h->vocab,
                                      .first = block->entry,
                                      .width = block->width,
                                      .logits = s->logits.data,
                                      .targets = head_targets(h, block->first),
                                      .lse = element_at(s->lse.data, (uint64_t)block->first,
                                                        sizeof(float)) };
}

/* First visit: the log-sum-exp and the loss. */
static void visit_sum(struct head *h, const struct strips *s, const struct head_block *block)
{
    struct work *w = h->state->work;
    const struct vocabulary_strip strip = strip_of(h, s, block);

    head_logits(h, block, DTYPE_FP32, s->logits.data);
    WORK_OP(w, strip_loss, &strip, &h->batch->loss_sum);
}

/* Second visit: the same logits again, now with their gradient. */
static void visit_gradient(struct head *h, const struct strips *s, const struct head_block *block)
{
    struct work *w = h->state->work;
    const struct vocabulary_strip strip = strip_of(h, s, block);

    head_logits(h, block, DTYPE_FP32, s->logits.data);
    WORK_OP(w, strip_gradient, &strip, (float)h->batch->loss_scale, s->d_logits.data);
    head_backward(h, block, s->d_logits.data, DTYPE_FP32, s->d_hidden.data, block->entry > 0);
}

static void each_strip(struct head *h, const struct strips *s, struct head_block block,
                       void (*visit)(struct head *h, const struct strips *s,
                                     const struct head_block *block))
{
    for (block.entry = 0; block.entry < h->vocab; block.entry += s->width) {
        int64_t rest = h->vocab - block.entry;
        block.width = rest < s->width ? rest : s->width;
        visit(h, s, &block);
    }
}

static void run_tile(struct head *h, const struct head_block *tile, void *context)
{
    struct work *w = h->state->work;
    const struct strips *s = context;

    each_strip(h, s, *tile, visit_sum);
    each_strip(h, s, *tile, visit_gradient);
    WORK_OP(w, to_bf16, tile->rows * h->hidden, s->d_hidden.data,
            head_gradient_rows(h, tile->first));
}

void loss_strips(struct head *h)
{
    struct work *w = h->state->work;
    int64_t rows = head_tile_rows(h), strip = w->plan->choices.primitives.vocab_strip;
    struct strips s = { .width = strip < h->vocab ? strip : h->vocab };

    s.lse = work_take_tensor(w, OWNER_LOSS, h->batch->tokens, 1, sizeof(float));
    s.logits = work_take_tensor(w, OWNER_LOSS, rows, s.width, sizeof(float));
    s.d_logits = work_take_tensor(w, OWNER_LOSS, rows, s.width, sizeof(bf16));
    s.d_hidden = work_take_tensor(w, OWNER_LOSS, rows, h->hidden, sizeof(float));
    head_tiles(h, &s, run_tile);
    work_give(w, &s.lse);
    work_give(w, &s.logits);
    work_give(w, &s.d_logits);
    work_give(w, &s.d_hidden);
}
