#include "planner/predict/peaks.h"

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/predict/walk.h"

#include <string.h>

const char *const moment_names[MOMENT_COUNT] = {
    [MOMENT_FIRST_STEP] = "first_step", [MOMENT_STEADY] = "steady",   [MOMENT_SAVE] = "save",
    [MOMENT_RESUME] = "resume",         [MOMENT_LOGPROB] = "logprob",
};

/* The executor reads slices of a checkpoint through one buffer of 2^16 fp32 values. */
enum { RESUME_BUFFER_BYTES = (1 << 16) * 4 };

/* One part of a unit on its way to rank 0: `slice` elements at each of `ranks` ranks, `spread`
 * different parts of `padded` elements in all. */
struct gathered_part {
    uint64_t padded, slice, ranks, spread;
};

static struct gathered_part part_of(const struct budget_input *in, uint64_t padded, bool expert)
{
    const struct layout *l = &in->choices->layout;
    int shards = expert ? layout_expert_shards(l) : layout_dense_shards(l);
    if (in->choices->primitives.sharding == SHARDING_REPLICATED)
        shards = 1;
    return (struct gathered_part){ padded, padded / (uint64_t)shards,
                                   (uint64_t)(layout_world(l) / l->pp),
                                   (uint64_t)(expert ? l->ep * l->etp : l->tp) };
}

/* bf16 in plain host memory. Every rank copies its slice out; rank 0 takes in those of all ranks,
 * its own once more, and puts the whole together from them: 2 x (slice x (1 + ranks) + spread x
 * padded). executor/runtime/whole.c */
static uint64_t part_buffers(const struct gathered_part *p, int rank)
{
    uint64_t elements = p->slice;
    if (rank == 0)
        elements = add_sat(mul_sat(p->slice, 1 + p->ranks), mul_sat(p->spread, p->padded));
    return mul_sat(2, elements);
}

static void consider(const struct budget_input *in, uint64_t padded, bool expert, int rank,
                     struct gathered_part *largest)
{
    struct gathered_part part = part_of(in, padded, expert);
    if (padded > 0 && part_buffers(&part, rank) > part_buffers(largest, rank))
        *largest = part;
}

static void consider_unit(const struct budget_input *in, const struct unit *unit, int rank,
                          struct gathered_part *largest)
{
    consider(in, unit->dense, false, rank, largest);
    consider(in, unit->expert, true, rank, largest);
}

/* The part of a stage's units that takes the most; parts go one after another. */
static void consider_stage(struct predictor *p, const struct stage *stage, int rank,
                           struct gathered_part *largest)
{
    const struct units *units = shared_units(p);
    for (int c = 0; c < p->classes.count; c++)
        if (stage->classes[c])
            consider_unit(&p->in, &units->layer[c].unit, rank, largest);
    if (stage->has_embedding)
        consider_unit(&p->in, &units->embedding.unit, rank, largest);
    if (stage->has_head)
        consider_unit(&p->in, &units->head.unit, rank, largest);
    consider_unit(&p->in, &stage_extra(units, stage)->unit, rank, largest);
}

/* Rank 0 sees the units of all stages, the others those of their own. */
static struct gathered_part largest_part(struct predictor *p, int rank)
{
    struct gathered_part largest = { 0 };
    const struct layout *l = &p->in.choices->layout;
    int own = rank / (layout_world(l) / l->pp);
    for (int s = rank == 0 ? 0 : own; s < (rank == 0 ? l->pp : own + 1); s++)
        consider_stage(p, stage_at(p, s), rank, &largest);
    return largest;
}

uint64_t save_buffer_bytes(struct predictor *p, int rank)
{
    struct gathered_part part = largest_part(p, rank);
    return part_buffers(&part, rank);
}

/* What stays between steps: state, communicators, transfers between stages, and of the runtime all
 * but the workspace of attention. */
static uint64_t idle_bytes(const struct budget_input *in, const struct rank_budget *budget)
{
    static const enum item staying[] = { ITEM_COMMUNICATORS, ITEM_PIPELINE_BUFFERS, ITEM_CONTEXT,
                                         ITEM_MODULES, ITEM_SLACK };
    uint64_t ret = add_sat(budget->category_bytes[CATEGORY_STATIC], in->hardware->workspace_bytes);
    for (size_t i = 0; i < sizeof staying / sizeof *staying; i++)
        ret = add_sat(ret, budget->item_bytes[staying[i]]);
    return ret;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A forward that keeps nothing, with all that stays. */
static uint64_t logprob_peak(struct predictor *p, const struct rank_budget *budget)
{
    struct measured_layers rows = { .fullest = budget->routed_rows };
    struct walk_request request = {
        .predictor = p, .stage = budget->stage, .group = -1, .measured = &rows
    };
    struct walk_result result;
    if (logprob_passes(&p->in.choices->primitives) == 0)
        return 0;
    for (int i = 0; i < MODEL_MAX_LAYERS; i++)
        rows.rows[i] = budget->routed_rows;
    walk_forward_alone(&request, &result);
    return add_sat(result.peak, budget->item_bytes[ITEM_SLACK]);
}

/* What the optimizer's phase adds to what stays. */
static uint64_t optimizer_bytes(struct predictor *p, const struct rank_budget *budget)
{
    struct muon_bytes muon = stage_muon_bytes(p, shared_units(p), stage_at(p, budget->stage));
    return add_sat(muon.gathered, muon.workspace);
}

void budget_peaks(struct predictor *p, const struct rank_budget *budget, int rank,
                  struct rank_peaks *ret)
{
    const struct budget_input *in = &p->in;
    uint64_t idle = idle_bytes(in, budget), save = save_buffer_bytes(p, rank);
    uint64_t steady = budget->peak_bytes, moments = budget->item_bytes[ITEM_MOMENTS];
    bool host = in->hardware->host;
    memset(ret, 0, sizeof *ret);
    ret->bytes[MOMENT_STEADY] = steady;
    /* moments are there in the optimizer's phase, where all that stays is live, and before it not
     */
    uint64_t last = add_sat(idle, optimizer_bytes(p, budget));
    ret->bytes[MOMENT_FIRST_STEP] =
        bytes_overflowed(steady) ? steady : larger(steady - moments, last);
    ret->bytes[MOMENT_SAVE] = add_sat(idle, host ? save : 0);
    ret->bytes[MOMENT_RESUME] = add_sat(idle, host ? RESUME_BUFFER_BYTES : 0);
    ret->host_bytes[MOMENT_SAVE] = host ? 0 : save;
    ret->host_bytes[MOMENT_RESUME] = host ? 0 : RESUME_BUFFER_BYTES;
    ret->bytes[MOMENT_LOGPROB] = logprob_peak(p, budget);
    ret->binding = MOMENT_STEADY;
    for (int i = MOMENT_SAVE; i < MOMENT_COUNT; i++)
        if (ret->bytes[i] > ret->bytes[ret->binding])
            ret->binding = (enum moment)i;
}

static void logprob_text(struct predictor *p, const struct rank_budget *budget, char *ret,
                         size_t size)
{
    const struct budget_input *in = &p->in;
    char slots[32], passing[64] = "";
    const struct stage *stage = stage_at(p, budget->stage);
    uint64_t bytes = reference_slots_bytes(in, stage_largest_weights(p, shared_units(p), stage));
    if (bytes > 0)
        (void)snprintf(passing, sizeof passing, ", %s B for the reference's units from the host",
                       units_format_count(slots, sizeof slots, bytes));
    (void)snprintf(
        ret, size, "%d forward passes that keep nothing: a layer at work, and logits %s%s%s",
        logprob_passes(&in->choices->primitives),
        in->choices->primitives.loss == LOSS_FULL ? "whole" : "by tiles",
        in->choices->primitives.rl & RL_ENTROPY ? " with a tile for their entropy" : "", passing);
}

static void save_text(struct predictor *p, int rank, char *ret, size_t size)
{
    const struct budget_input *in = &p->in;
    struct gathered_part part = largest_part(p, rank);
    char slice[32], whole[32];
    size_t used = 0;
    text_append(ret, size, &used, "what stays between steps; %s bf16 unit by unit: ",
                in->hardware->host ? "beside it" : "in host memory");
    units_format_count(slice, sizeof slice, part.slice);
    units_format_count(whole, sizeof whole, mul_sat(part.spread, part.padded));
    if (rank == 0)
        text_append(ret, size, &used, "2 B x (%s elements x (1 + %llu ranks) + %s) at rank 0",
                    slice, (unsigned long long)part.ranks, whole);
    else
        text_append(ret, size, &used, "2 B x %s elements, sent to rank 0", slice);
}

void peaks_formula(struct predictor *p, const struct rank_budget *budget, int rank,
                   enum moment moment, char *ret, size_t size)
{
    char bytes[32];
    uint64_t state = add_sat(budget->item_bytes[ITEM_MASTER], budget->item_bytes[ITEM_MOMENTS]);
    if (size == 0)
        return;
    ret[0] = '\0';
    if (moment == MOMENT_FIRST_STEP)
        (void)snprintf(ret, size,
                       "less %s B of moments, where the first optimizer step makes them; this "
                       "engine makes them before it",
                       units_format_count(bytes, sizeof bytes, budget->item_bytes[ITEM_MOMENTS]));
    else if (moment == MOMENT_SAVE)
        save_text(p, rank, ret, size);
    else if (moment == MOMENT_LOGPROB)
        logprob_text(p, budget, ret, size);
    else if (moment == MOMENT_RESUME)
        (void)snprintf(ret, size,
                       "what stays between steps; slices are read through %d B of host memory. "
                       "Assumed: no second copy; one of master and moments would be %s B more",
                       RESUME_BUFFER_BYTES, units_format_count(bytes, sizeof bytes, state));
}
