/* units.c - gathered weights of a unit under fsdp, and its gradient buffers on their way to the
 * shard that keeps them. A part whose group has one rank is used in place and costs nothing here.
 */
#include "planner/predict/parts.h"

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
