/* checkpoints.c - inputs of layers: made before the layer's forward, released after its backward;
 * whole ones wait on the host where they are offloaded. */
#include "tests/simulator/rank.h"

bool is_recomputed(const struct rank *s, int local)
{
    int first = s->p->recompute_layers;
    bool counted = local < s->layers; /* by recompute_layers; prediction layers are not */
    return s->p->recompute == RECOMPUTE_FULL && (!counted || first < 0 || local < first);
}

enum mode forward_mode(const struct rank *s, int local)
{
    if (!is_recomputed(s, local))
        return SAVE;
    return s->p->keep_attention ? KEEP_ATTENTION : PLAIN;
}

uint64_t host_checkpoints(const struct rank *s)
{
    uint64_t taken = s->p->sco_host_bytes / make_size(2 * s->N * s->H);
    return taken < s->most_alive ? taken : s->most_alive;
}

/* Checkpoints that the device may hold when the host takes all it can: what stays, and two that
 * come and go. */
static uint64_t room(const struct rank *s)
{
    if (!(s->p->offload & OFFLOAD_CHECKPOINTS))
        return UINT64_MAX;
    return s->most_alive - host_checkpoints(s) + 2;
}

/* Bytes that wait beside a recomputed layer's input: what its indexer chose; the sum of a token's
 * rows at the experts' latent width. */
static uint64_t choices_bytes(const struct rank *s, int local)
{
    if (mixer_of(s, local) != MIXER_DSA || !is_recomputed(s, local))
        return 0;
    return 4 * s->T * (uint64_t)s->m->indexer.top_k;
}

static uint64_t latent_sum_bytes(const struct rank *s, int local)
{
    bool experts = ffn_of(s, local) == FFN_MOE, extra = local >= s->layers;
    bool trained = trains(s, extra ? COMPONENT_MTP : COMPONENT_EXPERTS) ||
                   adapter_rank(s, COMPONENT_EXPERTS) > 0;
    return experts && trained && is_recomputed(s, local) ? latent_bytes(s) : 0;
}

void make_checkpoint(struct rank *s)
{
    s->alive++;
    if (s->alive - s->on_host > room(s))
        s->on_host++;
    else
        (void)make(s, ITEM_CHECKPOINTS, 2 * s->N * s->H);
}

void make_extras(struct rank *s, struct pass *pass, int local)
{
    pass->choices[local] = make(s, ITEM_CHECKPOINTS, choices_bytes(s, local));
    pass->latent_sum[local] = make(s, ITEM_CHECKPOINTS, latent_sum_bytes(s, local));
}

void drop_checkpoint(struct rank *s, struct pass *pass, int local)
{
    struct held one = { ITEM_CHECKPOINTS, make_size(2 * s->N * s->H) };
    if (local >= s->layers) {
        drop(s, &pass->input[local - s->layers]);
    } else {
        s->alive--;
        if (s->on_host > 0)
            s->on_host--;
        else
            drop(s, &one);
    }
    drop(s, &pass->choices[local]);
    drop(s, &pass->latent_sum[local]);
}
