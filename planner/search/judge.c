/* judge.c - whether a layout is legal, what it holds and how long it takes: by the predictor where
 * there is one, else by budgets and step times themselves. */
#include "planner/search/space.h"

#include <string.h>

struct legality_input space_legality_input(const struct space *space, const struct choices *choices)
{
    const struct question *q = space->q;
    return (struct legality_input){
        .model = q->model,
        .hardware = q->hardware,
        .choices = choices,
        .gpus = q->gpus,
        .seq_tokens = q->seq_tokens,
        .global_batch = space->global_batch,
        .fixed = &q->fixed,
        .routing = &q->routing,
        .lengths = q->lengths,
    };
}

bool space_is_legal(const struct space *space, const struct choices *choices)
{
    const struct legality_input in = space_legality_input(space, choices);
    return legality_check(&in, NULL) == 0;
}

bool space_legal(struct space *space, const struct choices *choices)
{
    bool legal = space_is_legal(space, choices);
    space->layouts++;
    space->legal += legal;
    return legal;
}

struct budget_input space_budget_input(const struct space *space, const struct choices *choices)
{
    const struct question *q = space->q;
    return (struct budget_input){
        .model = q->model,
        .sizes = q->sizes,
        .hardware = q->hardware,
        .choices = choices,
        .gpus = q->gpus,
        .seq_tokens = q->seq_tokens,
        .routing = q->routing,
        .routing_quantile = q->routing_quantile,
        .lengths = q->lengths,
        .engine = q->engine,
    };
}

void space_peaks(const struct space *space, const struct choices *choices, struct layout_peaks *ret)
{
    predictor_peaks(space->predictor, choices, ret);
}

/* Every tile reads and writes the whole gradient of the head once: the larger the tiles, the less
 * often. The largest whose loss leaves the peak of the worst rank where 512 tokens leave it. */
static void widen_tiles(const struct space *space, struct candidate *candidate)
{
    int *tile = &candidate->choices.primitives.loss_tile_tokens;
    const int least = *tile;
    const struct knob wider = space_wider_tiles(space, &candidate->choices.layout,
                                                candidate->choices.primitives.loss, least);

    for (int i = 0; i < wider.count; i++) {
        struct layout_peaks peaks;
        *tile = wider.values[i];
        space_peaks(space, &candidate->choices, &peaks);
        if (peaks.peak_upper_bytes <= candidate->worst.peak_upper_bytes &&
            peaks.peak_bytes <= candidate->worst.peak_bytes)
            return;
    }
    *tile = least;
}

enum verdict space_verdict(const struct space *space, const struct rank_budget *worst)
{
    if (worst->host_bytes > space_host_room(space) || worst->peak_bytes > space->limit_bytes)
        return VERDICT_DOES_NOT_FIT;
    return worst->peak_upper_bytes <= space->limit_bytes ? VERDICT_FITS : VERDICT_TIGHT;
}

static void budget_of(const struct space *space, struct candidate *candidate)
{
    predictor_choose(space->predictor, &candidate->choices, NULL);
    budget_worst(space->predictor, &candidate->worst);
    candidate->verdict = space_verdict(space, &candidate->worst);
}

void space_judge(struct space *space, struct candidate *candidate)
{
    int tile = candidate->choices.primitives.loss_tile_tokens;

    budget_of(space, candidate);
    widen_tiles(space, candidate);
    if (candidate->choices.primitives.loss_tile_tokens != tile)
        budget_of(space, candidate);
    space->fitting += candidate->verdict != VERDICT_DOES_NOT_FIT;
}

static void note_slowest(const struct space *space, struct candidate *candidate)
{
    candidate->slowest_seconds =
        space->slowest ? predictor_slowest_seconds(space->slowest, &candidate->choices) : 0;
}

void space_weigh(struct space *space, struct candidate *candidate)
{
    struct layout_peaks peaks;

    memset(&candidate->worst, 0, sizeof candidate->worst);
    memset(&candidate->time, 0, sizeof candidate->time);
    space_peaks(space, &candidate->choices, &peaks);
    candidate->worst.peak_bytes = peaks.peak_bytes;
    candidate->worst.peak_upper_bytes = peaks.peak_upper_bytes;
    candidate->worst.host_bytes = peaks.host_bytes;
    widen_tiles(space, candidate);
    candidate->verdict = space_verdict(space, &candidate->worst);
    predictor_time(space->predictor, &candidate->choices, &candidate->time);
    note_slowest(space, candidate);
    space->fitting += candidate->verdict != VERDICT_DOES_NOT_FIT;
}

void space_fill(const struct space *space, struct candidate *candidate)
{
    budget_of(space, candidate);
    space_time(space, candidate);
}

double space_seconds(const struct space *space, const struct choices *choices)
{
    struct step_time time;
    predictor_time(space->predictor, choices, &time);
    return time.seconds;
}

void space_time(const struct space *space, struct candidate *candidate)
{
    predictor_choose(space->predictor, &candidate->choices, NULL);
    step_time_compute(space->predictor, &candidate->time);
    note_slowest(space, candidate);
}

bool space_try(struct space *space, const struct degrees *degrees, const struct settings *settings,
               struct candidate *ret)
{
    space_complete(space, degrees, settings, &ret->choices);
    if (!space_legal(space, &ret->choices))
        return false;
    space_judge(space, ret);
    return true;
}

bool candidate_better(const struct candidate *a, const struct candidate *b)
{
    if (a->verdict != b->verdict)
        return a->verdict < b->verdict;
    if (a->verdict == VERDICT_DOES_NOT_FIT)
        return a->worst.peak_upper_bytes < b->worst.peak_upper_bytes;
    if (a->slowest_seconds > 0 && b->slowest_seconds > 0)
        return a->slowest_seconds < b->slowest_seconds;
    return a->time.seconds < b->time.seconds;
}

static bool are_uneven(const struct layout *l)
{
    for (int s = 1; s < l->pp; s++)
        if (l->stage_layers[s] != l->stage_layers[0])
            return true;
    return false;
}

int choices_complexity(const struct choices *choices)
{
    const struct layout *l = &choices->layout;
    const struct primitives *p = &choices->primitives;
    const bool things[] = {
        l->tp > 1,
        l->pp > 1,
        l->vpp > 1,
        l->cp > 1,
        l->ep > 1,
        l->etp > 1,
        l->d_rep > 1 && p->sharding != SHARDING_REPLICATED && l->fsdp > 1,
        l->e_rep > 1 && p->sharding != SHARDING_REPLICATED && l->e_fsdp > 1,
        are_uneven(l),
        p->sharding != SHARDING_REPLICATED,
        p->recompute != RECOMPUTE_NONE,
        p->keep_attention != 0,
        p->loss == LOSS_RING_DTP,
        p->moe != MOE_PLAIN,
        p->moe == MOE_CAPPED,
        p->context > CONTEXT_ALLGATHER_KV,
        p->exchange != EXCHANGE_SM,
        p->prefetch_units > 0 && p->sharding == SHARDING_FSDP,
        p->comm_streams > 1 && p->sharding >= SHARDING_ZERO2,
        (p->offload & OFFLOAD_OPTIMIZER) != 0,
        (p->offload & OFFLOAD_CHECKPOINTS) != 0,
    };
    int count = 0;
    for (size_t i = 0; i < sizeof things / sizeof *things; i++)
        count += things[i];
    return count;
}
