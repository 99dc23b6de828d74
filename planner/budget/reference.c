/* reference.c - the reference model of reinforcement learning, and how many passes there are. */
#include "planner/budget/parts.h"

#include "base/checked.h"

int logprob_passes(const struct primitives *p)
{
    return ((p->rl & RL_OLD) != 0) + ((p->rl & RL_REFERENCE) != 0);
}

/* Under adapters the reference is the policy without them. */
static bool has_weights(const struct primitives *p)
{
    return (p->rl & RL_REFERENCE) && p->lora_rank == 0;
}

/* 2 bytes a weight that the policy holds, sharded alike. */
uint64_t reference_add(const struct budget_input *in, uint64_t *items)
{
    const struct primitives *p = &in->choices->primitives;
    if (!has_weights(p))
        return 0;
    if (p->reference_weights == REFERENCE_HOST)
        return items[ITEM_WEIGHTS];
    items[ITEM_REFERENCE_WEIGHTS] = items[ITEM_WEIGHTS];
    return 0;
}

static uint64_t larger_unit(const struct budget_input *in, const struct unit *unit, uint64_t so_far)
{
    uint64_t items[ITEM_COUNT] = { 0 };
    unit_state_add(in, unit, items);
    return items[ITEM_WEIGHTS] > so_far ? items[ITEM_WEIGHTS] : so_far;
}

uint64_t reference_slots_bytes(const struct budget_input *in, const struct stage *stage)
{
    const struct primitives *p = &in->choices->primitives;
    uint64_t largest = 0;
    if (!has_weights(p) || p->reference_weights != REFERENCE_HOST)
        return 0;
    for (int i = 0; i < stage->layers; i++)
        largest = larger_unit(in, &stage->layer[i], largest);
    if (stage_holds_embedding(stage))
        largest = larger_unit(in, &stage->embedding, largest);
    if (stage->has_head)
        largest = larger_unit(in, &stage->head, largest);
    return mul_sat(2, largest);
}
