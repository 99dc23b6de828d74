/* checkpoints.c - how many micro-batches a stage has in flight and what it keeps for each. */
#include "base/layout/trained.h"
#include "planner/predict/parts.h"

#include "base/checked.h"

#include <limits.h>

/* Interleaved: micro-batches pass a stage in groups of P, run by run of its v runs. The first ends
 * with backward (v - 1)P, before which 2(P - p - 1) + 2(v - 1)P + 1 runs have begun. */
static int begun_micro_batches(const struct layout *l, int stage)
{
    int64_t p = l->pp, v = l->vpp, last = 2 * (p - stage - 1) + 2 * (v - 1) * p;
    int64_t within = last % (v * p) + 1, begun = last / (v * p) * p + (within < p ? within : p);
    return begun < INT_MAX ? (int)begun : INT_MAX;
}

/* 1F1B: stage p of P holds min(P - p, m) micro-batches. Interleaved (Narayanan et al. 2021, v
 * chunks a stage): 2(P - p - 1) + (v - 1)P + 1 chunks, at most m v. */
int held_micro_batches(const struct budget_input *in, int stage)
{
    const struct layout *l = &in->choices->layout;
    int held = l->vpp > 1 ? begun_micro_batches(l, stage) : l->pp - stage;
    int all = micro_batches_of(in);
    return held < all ? held : all;
}

/* Runs of layers, of one micro-batch each, that have begun and not come back. */
static uint64_t runs_in_flight(const struct budget_input *in, int stage)
{
    const struct layout *l = &in->choices->layout;
    if (l->vpp <= 1)
        return (uint64_t)held_micro_batches(in, stage);
    int64_t runs = 2 * (int64_t)(l->pp - stage - 1) + (int64_t)(l->vpp - 1) * l->pp + 1;
    int64_t most = (int64_t)micro_batches_of(in) * l->vpp;
    return (uint64_t)(runs < most ? runs : most);
}

static int recomputed_layers(const struct primitives *p, int layers)
{
    if (p->recompute != RECOMPUTE_FULL)
        return 0;
    if (p->recompute_layers == RECOMPUTE_ALL_LAYERS || p->recompute_layers > layers)
        return layers;
    return p->recompute_layers;
}

/* Offloaded checkpoints: the host takes whole ones of its budget, the device keeps the rest and at
 * most two restored ones. */
static void offload_init(const struct primitives *p, uint64_t count, struct in_flight *ret)
{
    uint64_t one = ret->checkpoint, all = mul_sat(count, one), budget = p->sco_host_bytes;
    ret->device_limit = UINT64_MAX;
    ret->offloaded_bytes = 0;
    if (!(p->offload & OFFLOAD_CHECKPOINTS))
        return;
    ret->offloaded_bytes = all < budget ? all : budget / one * one;
    uint64_t stay = add_sat(all - ret->offloaded_bytes, mul_sat(2, one));
    ret->device_limit = stay < all ? stay : all;
}

uint64_t extras_bytes(const struct budget_input *in, const struct in_flight *f, int from, int count)
{
    const struct model_sizes *s = in->sizes;
    if (f->choices == 0 && f->latent_sum == 0)
        return 0;
    int left = f->recomputed - from, some = left < count ? left : count;
    int first = f->first + from, end = first + (some > 0 ? some : 0);
    uint64_t indexers = (uint64_t)(s->indexers_before[end] - s->indexers_before[first]);
    uint64_t experts = (uint64_t)(s->experts_before[end] - s->experts_before[first]);
    return add_sat(mul_sat(indexers, f->choices), mul_sat(experts, f->latent_sum));
}

uint64_t chosen_bytes(const struct budget_input *in)
{
    uint64_t keys = in->model->indexer.heads > 0 ? (uint64_t)in->model->indexer.top_k : 0;
    return arena_bytes(mul_sat(local_tokens(in), keys), 4);
}

/* Which keys an indexer chose is saved where its layer is recomputed: later layers may use it, and
 * to choose again would cost more. So is what experts at a latent width sum to, which all of the
 * layer would have to be made again for. */
static void extras_init(const struct budget_input *in, int stage, struct in_flight *ret)
{
    const struct layout *l = &in->choices->layout;
    const struct model *m = in->model;
    ret->choices = ret->latent_sum = 0;
    ret->first = 0;
    if ((m->indexer.heads == 0 && m->moe.latent == 0) || ret->recomputed == 0)
        return;
    for (int i = 0; i < stage; i++)
        ret->first += l->stage_layers[i];
    ret->choices = chosen_bytes(in);
    /* Read by the gradients of the projection behind it alone. */
    const struct primitives *p = &in->choices->primitives;
    if (has_component(trained_components(p) | adapted_components(p), COMPONENT_EXPERTS))
        ret->latent_sum = arena_bytes(mul_sat(norm_tokens(in), (uint64_t)m->moe.latent), 2);
}

bool checkpoints_are_full(const struct in_flight *f, int layers)
{
    return mul_sat(add_sat(f->other_layers, (uint64_t)layers), f->checkpoint) >= f->device_limit;
}

uint64_t checkpoint_bytes(const struct budget_input *in, const struct in_flight *f, int inputs,
                          int from, int layers)
{
    uint64_t held = mul_sat(add_sat(f->other_layers, (uint64_t)inputs), f->checkpoint);
    held = held < f->device_limit ? held : f->device_limit;
    return add_sat(held, add_sat(extras_bytes(in, f, from, layers), f->other_extras));
}

void in_flight_counts(const struct budget_input *in, int stage, int stage_layers,
                      struct in_flight *ret)
{
    uint64_t runs = runs_in_flight(in, stage);
    ret->micro_batches = held_micro_batches(in, stage);
    ret->micro_batches = ret->micro_batches < 1 ? 1 : ret->micro_batches;
    ret->layers = stage_layers;
    ret->run = run_layers(in->choices->layout.vpp, stage_layers);
    ret->other_layers = runs > 1 ? (runs - 1) * (uint64_t)ret->run : 0;
    ret->recomputed = recomputed_layers(&in->choices->primitives, stage_layers);
    extras_init(in, stage, ret);
    uint64_t extras = extras_bytes(in, ret, 0, stage_layers);
    ret->other_extras = 0;
    if (extras > 0) /* where runs differ, on the average */
        ret->other_extras = div_up(mul_sat(ret->other_layers, extras), (uint64_t)stage_layers);
    offload_init(&in->choices->primitives, add_sat(ret->other_layers, (uint64_t)ret->run), ret);
}

/* Ids and targets, those of each trained prediction layer too; positions in packed pieces; under rl
 * advantages, and what each pass gave. */
int inputs_values(const struct budget_input *in)
{
    const struct primitives *p = &in->choices->primitives;
    int targets = model_predicts(in->model) ? 1 + in->model->mtp_layers : 1;
    return 1 + targets + (packed_pieces(in) > 0) + (p->rl != 0) + logprob_passes(p);
}

uint64_t inputs_bytes(const struct budget_input *in)
{
    uint64_t values = (uint64_t)inputs_values(in), pieces = packed_pieces(in);
    uint64_t tokens = mul_sat(values, arena_bytes(local_tokens(in), 4));
    return pieces == 0 ? tokens : add_sat(tokens, arena_bytes(pieces + 1, 4)); /* where each is */
}

void in_flight_init(const struct budget_input *in, int stage, int layers, struct in_flight *ret)
{
    ret->checkpoint = arena_bytes(mul_sat(norm_tokens(in), (uint64_t)in->model->hidden), 2);
    ret->inputs = inputs_bytes(in);
    in_flight_counts(in, stage, layers, ret);
}
