/* rows.c - a chunk's tokens as rows of their experts (m3 to m6): sent, received, brought into
 * expert order, through the first matrix. The forward does so chunk by chunk; so does the backward
 * of a chunked layer that is computed again. */
#include "executor/primitive/moe/moe.h"

/* Rows of a chunk's tokens into the places that slots say. */
static void scatter(const struct moe_call *call, const struct moe_chunk *c,
                    const struct buffer *normed, const struct buffer *rows,
                    const struct buffer *values)
{
    struct work *w = call->state->work;
    const struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    uint64_t hidden = (uint64_t)shape.hidden, first = (uint64_t)c->first;
    uint64_t choice = first * (uint64_t)shape.top_k;

    WORK_OP(w, scatter_rows, c->tokens, shape.top_k, shape.hidden,
            element_at(normed->data, first * hidden, sizeof(bf16)),
            element_at(s->slots.data, choice, sizeof(int32_t)), rows->data,
            element_at(s->weights.data, choice, sizeof(float)), values->data);
}

void moe_rows_open(const struct moe_call *call, const struct moe_chunk *chunk,
                   const struct buffer *normed, struct moe_exchange *ret)
{
    *ret = (struct moe_exchange){ .chunk = chunk, .values = true };
    moe_exchange_open(call, ret);
    scatter(call, chunk, normed, &ret->from, &ret->from_values);
}

static void take_expert_rows(const struct moe_call *call, struct moe_chunk *c)
{
    enum owner owner = kept_owner(call->keep, OWNER_EXPERT);

    c->xe = moe_take_rows(call, c, owner, moe_shape(call).hidden, sizeof(bf16));
    c->we = moe_take_rows(call, c, owner, 1, sizeof(float));
    c->map = moe_take_rows(call, c, owner, 1, sizeof(int32_t));
}

void moe_rows_here(const struct moe_call *call, struct moe_chunk *chunk,
                   const struct buffer *normed)
{
    take_expert_rows(call, chunk);
    scatter(call, chunk, normed, &chunk->xe, &chunk->we);
}

void moe_rows_arrive(const struct moe_call *call, struct moe_chunk *chunk,
                     struct moe_exchange *arrived)
{
    struct work *w = call->state->work;

    moe_exchange_wait(call, arrived);
    take_expert_rows(call, chunk);
    moe_upload_map(call, chunk);
    WORK_OP(w, gather_rows, chunk->received, moe_shape(call).hidden, arrived->to.data,
            chunk->map.data, chunk->xe.data, arrived->to_values.data, chunk->we.data);
    moe_exchange_close(call, arrived);
}

void moe_rows_gate_up(const struct moe_call *call, struct moe_chunk *chunk)
{
    struct work *w = call->state->work;
    const struct moe_shape shape = moe_shape(call);
    const struct expert_linear l = moe_gate_up(call, chunk);
    enum owner owner = kept_owner(call->keep, OWNER_EXPERT);

    chunk->h = moe_take_rows(call, chunk, owner, 2 * shape.width, sizeof(bf16));
    expert_forward(w, &l, chunk->xe.data, state_weight(call->state, shape.unit, ROLE_EXPERT_GATE),
                   chunk->h.data);
    work_give_unless_kept(w, call->keep, &chunk->xe);
}

bool moe_replays_chunks(const struct moe_call *call)
{
    return call->keep == KEEP_OWN && call->saved->count > 1;
}
