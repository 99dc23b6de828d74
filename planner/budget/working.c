/* working.c - the widths and rows that the liveness tables are evaluated for. */
#include "planner/budget/parts.h"

#include "base/checked.h"

#include <string.h>

enum { DELTA_CHUNK_TOKENS = 64 };

uint64_t local_tokens(const struct budget_input *in)
{
    const struct layout *l = &in->choices->layout;
    return div_up(mul_sat((uint64_t)l->micro_batch, in->seq_tokens), (uint64_t)l->cp);
}

uint64_t norm_tokens(const struct budget_input *in)
{
    return div_up(local_tokens(in), (uint64_t)in->choices->layout.tp);
}

/* A width divided by tensor parallelism; heads that are fewer than the ranks are repeated. */
static uint64_t split(int count, int ranks)
{
    return div_up((uint64_t)count, (uint64_t)ranks);
}

static void attention_widths(const struct model *m, int tp, uint64_t *width)
{
    uint64_t dim = (uint64_t)m->gqa.head_dim, heads = split(m->gqa.heads, tp);
    width[WIDTH_HEADS] = heads;
    width[WIDTH_QUERY] = heads * dim;
    width[WIDTH_KEY] = split(m->gqa.kv_heads, tp) * dim;
    width[WIDTH_KEY_VALUE] = 2 * width[WIDTH_KEY];
    width[WIDTH_QKV] = width[WIDTH_QUERY] * (m->gqa.output_gate ? 2 : 1) + 2 * width[WIDTH_KEY];
}

static void delta_widths(const struct model *m, int tp, uint64_t *width)
{
    uint64_t heads = split(m->gdn.value_heads, tp), keys = split(m->gdn.key_heads, tp);
    uint64_t key = keys * (uint64_t)m->gdn.key_dim, value = heads * (uint64_t)m->gdn.value_dim;
    width[WIDTH_DELTA_IN] = 2 * key + 2 * value;
    width[WIDTH_DELTA_CONV] = 2 * key + value;
    width[WIDTH_DELTA_VALUE] = value;
    width[WIDTH_DELTA_KEY] = heads * (uint64_t)m->gdn.key_dim;
    width[WIDTH_DELTA_HEADS] = heads;
    width[WIDTH_DELTA_TILE] = heads * DELTA_CHUNK_TOKENS;
    width[WIDTH_DELTA_STATE] = value * (uint64_t)m->gdn.key_dim;
}

static void ffn_widths(const struct model *m, int tp, int etp, uint64_t *width)
{
    width[WIDTH_EXPERTS] = (uint64_t)m->moe.experts;
    width[WIDTH_TOP_K] = (uint64_t)m->moe.top_k;
    width[WIDTH_EXPERT] = split(m->moe.width, etp);
    width[WIDTH_GATE_UP] = 2 * width[WIDTH_EXPERT];
    width[WIDTH_SHARED] = split(m->moe.shared_width, tp);
    width[WIDTH_SHARED_TWO] = 2 * width[WIDTH_SHARED];
    width[WIDTH_DENSE] = split(m->dense_width, tp);
    width[WIDTH_DENSE_TWO] = 2 * width[WIDTH_DENSE];
}

static unsigned conditions(const struct budget_input *in)
{
    const struct model *m = in->model;
    const struct layout *l = &in->choices->layout;
    unsigned when = l->tp > 1 ? WHEN_TP : 0;
    when |= m->gqa.output_gate ? WHEN_GATE : 0;
    when |= l->ep * l->etp > 1 ? WHEN_EXCHANGE : 0;
    when |= m->moe.shared_width > 0 ? WHEN_SHARED : 0;
    when |= m->moe.shared_width > 0 && m->moe.shared_gate ? WHEN_SHARED_GATE : 0;
    bool gathers = l->cp > 1 && in->choices->primitives.context == CONTEXT_ALLGATHER_KV;
    return when | (gathers ? WHEN_GATHER_KV : 0);
}

void working_shape(const struct budget_input *in, uint64_t received, struct residency_shape *ret)
{
    const struct layout *l = &in->choices->layout;
    struct dispatch d;
    dispatch_init(in, received, &d);
    memset(ret, 0, sizeof *ret);
    ret->rows[ROWS_ONE] = 1;
    ret->rows[ROWS_TOKENS] = local_tokens(in);
    ret->rows[ROWS_NORM] = norm_tokens(in);
    ret->rows[ROWS_ALL] = mul_sat(ret->rows[ROWS_TOKENS], (uint64_t)l->cp);
    ret->rows[ROWS_SENT] = d.overlaps ? d.sent : d.chunk_sent;
    ret->rows[ROWS_RECV] = d.overlaps ? d.received : d.chunk_received;
    ret->chunks.count = d.overlaps ? d.chunks : 1;
    ret->chunks.delay = d.delay;
    ret->rows[ROWS_CHUNK] = d.chunk_received;
    ret->rows[ROWS_KEPT] = d.kept;
    ret->rows[ROWS_DELTA_CHUNK] = div_up(local_tokens(in), DELTA_CHUNK_TOKENS);
    ret->width[WIDTH_ONE] = 1;
    ret->width[WIDTH_HIDDEN] = (uint64_t)in->model->hidden;
    attention_widths(in->model, l->tp, ret->width);
    delta_widths(in->model, l->tp, ret->width);
    ffn_widths(in->model, l->tp, l->etp, ret->width);
    ret->when = conditions(in);
}

void working_shape_mixer(const struct budget_input *in, enum mixer mixer,
                         struct residency_shape *shape)
{
    struct context_bytes context;
    context_bytes(in, mixer, &context);
    shape->width[WIDTH_CONTEXT_FORWARD] = context.forward;
    shape->width[WIDTH_CONTEXT_BACKWARD] = context.backward;
    shape->width[WIDTH_ATTENTION_WORKSPACE] = context.workspace;
}
