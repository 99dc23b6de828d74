/* units.c - gathered weights of a unit under fsdp, and its gradient buffers on their way to the
 * shard that keeps them. A part whose group has one rank is used in place and costs nothing here.
 */
#include "planner/budget/parts.h"

#include "base/checked.h"

uint64_t unit_gathered_bytes(const struct budget_input *in, const struct unit *unit)
{
    const struct layout *l = &in->choices->layout;
    if (in->choices->primitives.sharding != SHARDING_FSDP)
        return 0;
    uint64_t dense = layout_dense_shards(l) > 1 ? arena_bytes(unit->dense, 2) : 0;
    return add_sat(dense, layout_expert_shards(l) > 1 ? arena_bytes(unit->expert, 2) : 0);
}

void unit_gradient_bytes(const struct budget_input *in, const struct unit *unit,
                         struct unit_gradient *ret)
{
    const struct layout *l = &in->choices->layout;
    const struct primitives *p = &in->choices->primitives;
    uint64_t bytes = dtype_bytes(p->grad_dtype);
    int dense = layout_dense_shards(l), expert = layout_expert_shards(l);
    *ret = (struct unit_gradient){ 0 };
    if (p->sharding != SHARDING_FSDP && p->sharding != SHARDING_ZERO2)
        return;
    if (dense > 1) {
        ret->dense = arena_bytes(unit->dense_trained.all, bytes);
        ret->dense_receive = arena_bytes(unit->dense_trained.all / (uint64_t)dense, bytes);
    }
    if (expert > 1) {
        ret->expert = arena_bytes(unit->expert_trained.all, bytes);
        ret->expert_receive = arena_bytes(unit->expert_trained.all / (uint64_t)expert, bytes);
    }
}

bool head_circulates(const struct budget_input *in)
{
    return in->choices->primitives.loss == LOSS_RING_DTP;
}

uint64_t head_gathered_bytes(const struct budget_input *in, const struct stage *stage)
{
    uint64_t tied = stage->tied_copy ? unit_gathered_bytes(in, &stage->embedding) : 0;
    return head_circulates(in) ? 0 : add_sat(unit_gathered_bytes(in, &stage->head), tied);
}

/* A tied head has a second part, the embedding's. */
void head_gradient_bytes(const struct budget_input *in, const struct stage *stage,
                         struct unit_gradient *ret)
{
    struct unit_gradient tied = { 0 };
    *ret = (struct unit_gradient){ 0 };
    if (head_circulates(in))
        return;
    unit_gradient_bytes(in, &stage->head, ret);
    if (stage->tied_copy)
        unit_gradient_bytes(in, &stage->embedding, &tied);
    ret->expert = tied.dense;
    ret->expert_receive = tied.dense_receive;
}

uint64_t unit_receive_bytes(const struct budget_input *in, const struct unit *unit)
{
    const struct layout *l = &in->choices->layout;
    uint64_t bytes = dtype_bytes(in->choices->primitives.grad_dtype);
    int dense = layout_dense_shards(l), expert = layout_expert_shards(l);
    if (in->choices->primitives.sharding != SHARDING_ZERO1)
        return 0;
    uint64_t d = dense > 1 ? arena_bytes(unit->dense_trained.all / (uint64_t)dense, bytes) : 0;
    uint64_t e = expert > 1 ? arena_bytes(unit->expert_trained.all / (uint64_t)expert, bytes) : 0;
    return d > e ? d : e;
}

static uint64_t larger_receive(const struct budget_input *in, const struct unit *unit,
                               uint64_t so_far)
{
    uint64_t bytes = unit_receive_bytes(in, unit);
    return bytes > so_far ? bytes : so_far;
}

/* zero1: at the end of the step every part is reduce-scattered into a receive buffer of 1/shards,
 * one part at a time. */
uint64_t reduce_receive_bytes(const struct budget_input *in, const struct stage *stage)
{
    uint64_t largest = 0;
    for (int i = 0; i < stage->layers; i++)
        largest = larger_receive(in, &stage->layer[i], largest);
    if (stage_holds_embedding(stage))
        largest = larger_receive(in, &stage->embedding, largest);
    if (stage->has_head)
        largest = larger_receive(in, &stage->head, largest);
    largest = larger_receive(in, &stage->extra, largest);
    return largest;
}
