/* The host backend runs a part of what can be planned. Each open choice is asked once, value by
 * value, so that no loop has to ask again. */
#include "base/layout/capability.h"
#include "planner/search/space.h"

static int host_faults(const struct space *space, const struct degrees *degrees,
                       const struct settings *settings)
{
    struct choices choices;
    struct diag_list list;

    list.count = list.errors = list.dropped = 0;
    space_complete(space, degrees, settings, &choices);
    capability_check(BACKEND_HOST, space->q->model, &choices, &list);
    return list.errors + list.dropped;
}

/* What the backend cannot run whatever is derived: the model's own kind, the user's own wishes. */
static int faults_of(const struct space *space, enum degree degree, int value)
{
    struct degrees degrees = space_fixed_degrees(space);
    struct settings settings = space_leanest(space);

    settings.chunks = space->chunks.values[0];
    switch (degree) {
    case DEGREE_TP:
        degrees.tp = value;
        break;
    case DEGREE_PP:
        degrees.pp = value;
        break;
    case DEGREE_CP:
        degrees.cp = value;
        break;
    case DEGREE_EP:
        degrees.ep = value;
        break;
    case DEGREE_ETP:
        degrees.etp = value;
        break;
    case DEGREE_FSDP:
    case DEGREE_E_FSDP:
        break;
    }
    return host_faults(space, &degrees, &settings);
}

static void close_degree(const struct space *space, enum degree degree, int least, bool *open,
                         int *value)
{
    if (!*open || faults_of(space, degree, 2) <= least)
        return;
    *open = false;
    *value = 1;
}

enum knob_kind { KNOB_SHARDING, KNOB_RECOMPUTE, KNOB_LOSS, KNOB_CHUNKS, KNOB_AHEAD, KNOB_COUNT };

static int knob_faults(const struct space *space, enum knob_kind kind, int value)
{
    struct degrees degrees = space_fixed_degrees(space);
    struct settings settings = space_leanest(space);

    settings.chunks = kind == KNOB_CHUNKS ? value : space->chunks.values[0];
    if (kind == KNOB_SHARDING)
        settings.sharding = (enum sharding)value;
    if (kind == KNOB_RECOMPUTE)
        settings.recompute = (enum recompute)value;
    if (kind == KNOB_LOSS)
        settings.loss = (enum loss)value;
    if (kind == KNOB_AHEAD)
        settings.ahead = (enum ahead)value;
    return host_faults(space, &degrees, &settings);
}

static void close_knob(const struct space *space, enum knob_kind kind, int least, struct knob *knob)
{
    struct knob kept = { .count = 0 };
    for (int i = 0; i < knob->count; i++)
        if (knob_faults(space, kind, knob->values[i]) <= least)
            kept.values[kept.count++] = knob->values[i];
    if (kept.count > 0)
        *knob = kept;
}

/* Interleaving and offload are keys that no knob has. */
static void close_keys(struct space *space, int least)
{
    struct degrees degrees = space_fixed_degrees(space);
    struct settings settings = space_leanest(space);

    settings.chunks = space->chunks.values[0];
    settings.offload = OFFLOAD_OPTIMIZER;
    if (space->open_offload && host_faults(space, &degrees, &settings) > least)
        space->open_offload = false;
    settings.offload = 0;
    degrees.vpp = 2;
    if (space->open_vpp && host_faults(space, &degrees, &settings) > least) {
        space->open_vpp = false;
        space->fixed.vpp = 1;
    }
}

void space_restrict_to_host(struct space *space)
{
    struct knob *const knobs[KNOB_COUNT] = { &space->sharding, &space->recompute, &space->loss,
                                             &space->chunks, &space->ahead };
    int least = faults_of(space, DEGREE_FSDP, 0);

    close_degree(space, DEGREE_TP, least, &space->open_tp, &space->fixed.tp);
    close_degree(space, DEGREE_PP, least, &space->open_pp, &space->fixed.pp);
    close_degree(space, DEGREE_CP, least, &space->open_cp, &space->fixed.cp);
    close_degree(space, DEGREE_EP, least, &space->open_ep, &space->fixed.ep);
    close_degree(space, DEGREE_ETP, least, &space->open_etp, &space->fixed.etp);
    for (int kind = 0; kind < KNOB_COUNT; kind++)
        close_knob(space, (enum knob_kind)kind, least, knobs[kind]);
    close_keys(space, least);
}
