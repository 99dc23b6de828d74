/* budget.c - groups of equal ranks, the worst of them, and the phases of one. */
#include "planner/predict/budget.h"

#include "planner/predict/methods.h"

#include "base/checked.h"
#include "planner/predict/walk.h"

#include <stdio.h>
#include <string.h>

const char *const phase_kind_names[PHASE_COUNT] = { "start",    "forward", "loss",
                                                    "backward", "reduce",  "optimizer" };
const char *const basis_names[] = { "arithmetic", "measured", "assumed" };

/* Ranks of one expert-parallel coordinate that receive the same rows are one group. */
struct loads {
    int count;
    struct {
        int ep;    /* lowest coordinate */
        int group; /* whose rows: that coordinate's; -1: the fullest's */
        struct rows_received rows;
    } items[BUDGET_MAX_GROUPS];
};

static int load_find(const struct loads *loads, struct rows_received rows)
{
    for (int i = 0; i < loads->count; i++)
        if (loads->items[i].rows.point == rows.point && loads->items[i].rows.upper == rows.upper)
            return i;
    return -1;
}

/* Distinct loads over the expert-parallel coordinates. Where there are more than groups allow, the
 * rest joins the last group, which takes the larger of both. */
static void loads_init(const struct budget_input *in, struct loads *ret)
{
    int room = BUDGET_MAX_GROUPS / in->choices->layout.pp;
    bool even = in->routing.kind == ROUTING_BALANCED || in->routing.kind == ROUTING_NATURAL;
    int ep = in->model->moe.experts == 0 || even ? 1 : in->choices->layout.ep;
    room = room < 1 ? 1 : room;
    ret->count = 0;
    for (int i = 0; i < ep; i++) {
        int rank = ep == 1 ? -1 : i;
        struct rows_received rows = dispatch_rows(in, rank);
        if (load_find(ret, rows) >= 0)
            continue;
        bool full = ret->count == room;
        if (!full)
            ret->count++;
        else if (ret->items[room - 1].rows.point > rows.point)
            continue;
        ret->items[ret->count - 1].ep = i;
        ret->items[ret->count - 1].group = rank;
        ret->items[ret->count - 1].rows = rows;
    }
}

static void fill(const struct walk_result *t, struct rank_budget *ret)
{
    memcpy(ret->item_bytes, t->item, sizeof ret->item_bytes);
    memcpy(ret->item_max_bytes, t->max, sizeof ret->item_max_bytes);
    memset(ret->category_bytes, 0, sizeof ret->category_bytes);
    ret->arena_bytes = 0;
    for (int i = 0; i < ITEM_COUNT; i++) {
        uint64_t *category = &ret->category_bytes[item_infos[i].category];
        *category = add_sat(*category, t->item[i]);
        if (item_in_arena((enum item)i))
            ret->arena_bytes = add_sat(ret->arena_bytes, t->item[i]);
    }
    ret->peak_bytes = t->peak;
    ret->peak_phase = t->phase;
    ret->host_bytes = t->host_bytes;
}

/* A device reserves routed tensors at the plan's bound whatever arrives: what its peak would be
 * with all of that in use, less what is live, is slack. The host's memory is virtual until touched.
 */
static void add_slack(const struct walk_result *at_bound, struct rank_budget *ret)
{
    uint64_t slack = at_bound->peak > ret->peak_bytes ? at_bound->peak - ret->peak_bytes : 0;
    ret->item_bytes[ITEM_SLACK] = ret->item_max_bytes[ITEM_SLACK] = slack;
    ret->category_bytes[CATEGORY_RUNTIME] = add_sat(ret->category_bytes[CATEGORY_RUNTIME], slack);
    ret->peak_bytes = add_sat(ret->peak_bytes, slack);
}

static uint64_t upper_of(const struct walk_result *high)
{
    return add_sat(high->peak, walk_doubt_bytes(high));
}

/* One group from its stage and whose rows it receives. */
static void group_compute(struct predictor *p, int stage, int group,
                          const struct rows_received *rows, struct rank_budget *ret)
{
    struct walk_request request = {
        .predictor = p, .stage = stage, .detail = DETAIL_STAGES, .group = group
    };
    struct walk_result result, high;
    walk_stage(&request, &result);
    request.rows = ROWS_HIGH;
    walk_stage(&request, &high);
    fill(&result, ret);
    ret->stage = stage;
    ret->routed_rows = rows->point;
    ret->routed_rows_upper = rows->upper;
    ret->peak_upper_bytes = upper_of(&high);
    if (!p->in.hardware->host)
        add_slack(&high, ret);
    if (p->in.engine)
        p->in.engine->memory(&p->in, ret);
}

static int ranks_a_stage(const struct layout *l)
{
    return layout_world(l) / l->pp;
}

static int ep_coordinate(const struct layout *l, int rank)
{
    return rank / l->etp % l->ep;
}

static const uint64_t *chunks_of(const struct budget_input *in, const struct routed_rows *routed)
{
    const struct primitives *p = &in->choices->primitives;
    bool told = p->moe == MOE_CHUNKED && routed->chunk_count == (size_t)p->moe_chunks;
    return told ? routed->chunk_rows_received : NULL;
}

/* The rows of one micro-batch, or (-1) each layer's largest over all of them. */
static void measured_layers_init(const struct budget_input *in, const struct stage *stage,
                                 int micro_batch, struct measured_layers *ret)
{
    const struct measured_rank *m = in->measured;
    uint64_t most = 0, absent = m->routed_count == 0 ? dispatch_rows(in, -1).point : 0;
    for (int i = 0; i < stage->layers; i++) {
        ret->rows[i] = absent;
        ret->chunks[i] = NULL;
    }
    for (size_t i = 0; i < m->routed_count; i++) {
        const struct routed_rows *routed = &m->routed[i];
        int layer = routed->layer - stage->first;
        bool asked = micro_batch < 0 || routed->micro_batch == micro_batch;
        if (!asked || layer < 0 || layer >= stage->layers ||
            routed->rows_received < ret->rows[layer])
            continue;
        ret->rows[layer] = routed->rows_received;
        ret->chunks[layer] = chunks_of(in, routed);
    }
    for (int i = 0; i < stage->layers; i++)
        most = ret->rows[i] > most ? ret->rows[i] : most;
    ret->fullest = most;
}

/* A stage alone holds one micro-batch at a time; the stages of a pipeline hold several, of which
 * any may be the fullest. Layers are not fullest in the same micro-batch, and what they save for
 * the backward adds up; and chunks of a fuller layer may still be smaller. */
static int measured_passes(const struct budget_input *in)
{
    int ret = 1;
    if (in->choices->layout.pp > 1)
        return 0;
    for (size_t i = 0; i < in->measured->routed_count; i++)
        if (in->measured->routed[i].micro_batch >= ret)
            ret = in->measured->routed[i].micro_batch + 1;
    return ret;
}

/* The larger of both: peak, and every item's own. */
static void raise_to(const struct walk_result *other, struct walk_result *ret)
{
    uint64_t max[ITEM_COUNT];
    for (int i = 0; i < ITEM_COUNT; i++)
        max[i] = other->max[i] > ret->max[i] ? other->max[i] : ret->max[i];
    if (other->peak > ret->peak)
        *ret = *other;
    memcpy(ret->max, max, sizeof max);
}

/* The fullest of all passes of a measured rank; returns the most rows of any layer. */
static uint64_t measured_walk(struct predictor *p, const struct stage *stage,
                              struct walk_result *ret)
{
    struct measured_layers layers;
    struct walk_request request = { .predictor = p, .stage = stage->index, .measured = &layers };
    int passes = measured_passes(&p->in);
    uint64_t fullest = 0;
    memset(ret, 0, sizeof *ret);
    for (int i = passes > 0 ? 0 : -1; i < passes; i++) {
        struct walk_result one;
        measured_layers_init(&p->in, stage, i, &layers);
        fullest = layers.fullest > fullest ? layers.fullest : fullest;
        walk_stage(&request, &one);
        raise_to(&one, ret);
    }
    return fullest;
}

/* A measured rank alone, at the rows that it received. */
static void measured_compute(struct predictor *p, struct rank_budget *ret)
{
    const struct layout *l = &p->in.choices->layout;
    int rank = p->in.measured->rank;
    const struct stage *stage = &shared_pipeline(p, DETAIL_LAYERS)->stages[rank / ranks_a_stage(l)];
    struct walk_request request = {
        .predictor = p, .stage = stage->index, .group = -1, .rows = ROWS_HIGH
    };
    struct walk_result result, at_bound;
    ret->routed_rows = ret->routed_rows_upper = measured_walk(p, stage, &result);
    fill(&result, ret);
    ret->rank = rank;
    ret->stage = stage->index;
    ret->ep_coordinate = ep_coordinate(l, rank);
    ret->peak_upper_bytes = upper_of(&result);
    if (p->in.hardware->host)
        return;
    request.detail = DETAIL_STAGES;
    walk_stage(&request, &at_bound);
    add_slack(&at_bound, ret);
    ret->peak_upper_bytes = upper_of(&at_bound);
}

static void find_worst(struct budget *ret)
{
    ret->worst = 0;
    for (int i = 1; i < ret->count; i++)
        if (ret->groups[i].peak_upper_bytes > ret->groups[ret->worst].peak_upper_bytes)
            ret->worst = i;
}

void budget_compute(struct predictor *p, struct budget *ret)
{
    const struct layout *l = &p->in.choices->layout;
    ret->count = 0;
    ret->worst = 0;
    ret->dispatch_bound_rows = dispatch_bound(&p->in);
    if (p->in.measured) {
        ret->count = 1;
        measured_compute(p, &ret->groups[0]);
        return;
    }
    struct loads loads;
    loads_init(&p->in, &loads);
    for (int s = 0; s < l->pp; s++)
        for (int i = 0; i < loads.count; i++) {
            struct rank_budget *group = &ret->groups[ret->count++];
            group_compute(p, s, loads.items[i].group, &loads.items[i].rows, group);
            group->ep_coordinate = loads.items[i].ep;
            group->rank = s * ranks_a_stage(l) + loads.items[i].ep * l->etp;
        }
    find_worst(ret);
}

void budget_worst(struct predictor *p, struct rank_budget *ret)
{
    const struct layout *l = &p->in.choices->layout;
    struct rows_received rows = dispatch_rows(&p->in, -1);
    for (int s = 0; s < l->pp; s++) {
        struct rank_budget group;
        group_compute(p, s, -1, &rows, &group);
        group.rank = s * ranks_a_stage(l);
        group.ep_coordinate = 0;
        if (s == 0 || group.peak_upper_bytes > ret->peak_upper_bytes)
            *ret = group;
    }
}

static int groups_a_stage(const struct budget_input *in, const struct budget *budget)
{
    return budget->count / in->choices->layout.pp;
}

/* Index among a stage's groups of one expert-parallel coordinate. */
static int load_of(const struct budget_input *in, const struct budget *budget, int ep)
{
    int groups = groups_a_stage(in, budget);
    if (groups <= 1)
        return 0;
    struct rows_received rows = dispatch_rows(in, ep);
    for (int i = 0; i < groups; i++)
        if (budget->groups[i].routed_rows == rows.point &&
            budget->groups[i].routed_rows_upper == rows.upper)
            return i;
    return groups - 1;
}

int budget_group_of(const struct budget_input *in, const struct budget *budget, int rank)
{
    const struct layout *l = &in->choices->layout;
    if (in->measured || budget->count == 0)
        return 0;
    return rank / ranks_a_stage(l) * groups_a_stage(in, budget) +
           load_of(in, budget, ep_coordinate(l, rank));
}

static void append_range(char *ret, size_t size, int from, int to)
{
    size_t used = strlen(ret);
    const char *comma = used ? "," : "";
    if (from == to)
        (void)snprintf(ret + used, size - used, "%s%d", comma, from);
    else
        (void)snprintf(ret + used, size - used, "%s%d-%d", comma, from, to);
}

void budget_group_ranks(const struct budget_input *in, const struct budget *budget, int group,
                        char *ret, size_t size)
{
    const struct layout *l = &in->choices->layout;
    int from = -1, per_stage = groups_a_stage(in, budget), last_ep = -1, load = 0;
    if (size == 0)
        return;
    ret[0] = '\0';
    if (in->measured) {
        append_range(ret, size, in->measured->rank, in->measured->rank);
        return;
    }
    if (per_stage < 1)
        return;
    int first = group / per_stage * ranks_a_stage(l), end = first + ranks_a_stage(l);
    for (int rank = first; rank <= end; rank++) {
        int ep = ep_coordinate(l, rank);
        if (ep != last_ep)
            load = load_of(in, budget, ep);
        last_ep = ep;
        bool member = rank < end && load == group % per_stage;
        if (member && from < 0)
            from = rank;
        if (!member && from >= 0) {
            append_range(ret, size, from, rank - 1);
            from = -1;
        }
    }
}
