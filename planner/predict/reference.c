/* reference.c - the reference model of reinforcement learning, and how many passes there are. */
#include "planner/predict/parts.h"

#include "base/checked.h"

int logprob_passes(const struct primitives *p)
{
    return ((p->rl & RL_OLD) != 0) + ((p->rl & RL_REFERENCE) != 0);
}

static bool has_mixer(const struct model *m, int layer, enum mixer mixer)
{
    return m->layer_mixer[layer] == mixer;
}

/* Of what an indexer chose: from its layer to the last one that shares it. */
static uint64_t passing_choices(const struct budget_input *in, int first, int layers, int place)
{
    const struct model *m = in->model;
    int indexer = first + place, sharer = first + place;
    while (indexer >= first && !has_mixer(m, indexer, MIXER_DSA))
        indexer--;
    if (indexer < first)
        return 0;
    while (sharer < first + layers && !has_mixer(m, sharer, MIXER_DSA_SHARED) &&
           (sharer == first + place || !has_mixer(m, sharer, MIXER_DSA)))
        sharer++;
    bool shared = sharer < first + layers && has_mixer(m, sharer, MIXER_DSA_SHARED);
    return indexer == first + place || shared ? chosen_bytes(in) : 0;
}

uint64_t passing_extras_bytes(const struct budget_input *in, int first, int layers, int place)
{
    const struct model *m = in->model;
    uint64_t choices = passing_choices(in, first, layers, place);
    if (m->layer_ffn[first + place] != FFN_MOE)
        return choices;
    return add_sat(choices, arena_bytes(mul_sat(norm_tokens(in), (uint64_t)m->moe.latent), 2));
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

uint64_t reference_slots_bytes(const struct budget_input *in, uint64_t weights)
{
    const struct primitives *p = &in->choices->primitives;
    bool passes = has_weights(p) && p->reference_weights == REFERENCE_HOST;
    return passes ? mul_sat(2, weights) : 0;
}
