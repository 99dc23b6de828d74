/* exchange.c - rows under way between the ranks of an expert-parallel group. */
#include "executor/primitive/moe/moe.h"

/* Rows on the tokens' side are as many as were chosen; those on the experts' side vary. */
static struct buffer take(const struct moe_call *call, const struct moe_exchange *x,
                          enum owner owner, bool at_experts, int64_t width, uint64_t element_bytes)
{
    if (at_experts)
        return moe_take_rows(call, x->chunk, owner, width, element_bytes);
    return work_take_tensor(call->state->work, owner, x->chunk->sent, width, element_bytes);
}

void moe_exchange_open(const struct moe_call *call, struct moe_exchange *exchange)
{
    int64_t hidden = moe_shape(call).hidden;

    exchange->from = take(call, exchange, OWNER_SEND, exchange->back, hidden, sizeof(bf16));
    if (exchange->values)
        exchange->from_values = take(call, exchange, OWNER_SEND, exchange->back, 1, sizeof(float));
}

static void start(const struct moe_call *call, const struct moe_exchange *x,
                  const struct buffer *from, const struct buffer *to, uint64_t row_bytes,
                  struct transfer **ret)
{
    struct work *w = call->state->work;
    const struct moe_chunk *c = x->chunk;
    const int64_t *sent = x->back ? c->recv_rows : c->send_rows;
    const int64_t *received = x->back ? c->send_rows : c->recv_rows;
    WORK_FABRIC(w, all_to_all_rows_start, w->mesh->groups[MESH_EXPERTS], from->data, sent, to->data,
                received, row_bytes, ret);
}

void moe_exchange_start(const struct moe_call *call, struct moe_exchange *exchange)
{
    int64_t hidden = moe_shape(call).hidden;

    exchange->to = take(call, exchange, OWNER_RECV, !exchange->back, hidden, sizeof(bf16));
    if (exchange->values)
        exchange->to_values = take(call, exchange, OWNER_RECV, !exchange->back, 1, sizeof(float));
    start(call, exchange, &exchange->from, &exchange->to, (uint64_t)hidden * sizeof(bf16),
          &exchange->rows_way);
    if (exchange->values)
        start(call, exchange, &exchange->from_values, &exchange->to_values, sizeof(float),
              &exchange->values_way);
}

static void wait_for(struct work *w, struct transfer **transfer)
{
    if (*transfer)
        WORK_FABRIC(w, transfer_wait, w->mesh->groups[MESH_EXPERTS], *transfer);
    *transfer = NULL;
}

void moe_exchange_wait(const struct moe_call *call, struct moe_exchange *exchange)
{
    struct work *w = call->state->work;

    wait_for(w, &exchange->rows_way);
    wait_for(w, &exchange->values_way);
    work_give(w, &exchange->from);
    work_give(w, &exchange->from_values);
}

void moe_exchange_close(const struct moe_call *call, struct moe_exchange *exchange)
{
    work_give(call->state->work, &exchange->to);
    work_give(call->state->work, &exchange->to_values);
}
