#include "planner/predict/predictor.h"

#include "planner/predict/shared.h"
#include "planner/predict/walk.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* Places of each table. */
static const struct capacity {
    size_t bodies, units, links, losses, pipelines, structures;
} capacities[] = {
    [PREDICTOR_ONE_LAYOUT] = { 4, 4, 4, 4, 4, 16 },
    [PREDICTOR_MANY_LAYOUTS] = { 256, 512, 512, 64, 128, 64 },
};
enum { MEMOS = 6 };

static int memos_init(struct predictor *p, const struct capacity *places)
{
    size_t pipeline = pipeline_size(p->in.model->layers);
    if (memo_init(&p->bodies, places->bodies, sizeof(struct body_key), body_size(p)) != 0 ||
        memo_init(&p->units, places->units, sizeof(struct units_key), sizeof(struct units)) != 0 ||
        memo_init(&p->links, places->links, sizeof(struct links_key), sizeof(struct links)) != 0 ||
        memo_init(&p->losses, places->losses, sizeof(struct loss_key),
                  sizeof(struct loss_shared)) != 0 ||
        memo_init(&p->pipelines, places->pipelines, sizeof(struct pipeline_key), pipeline) != 0 ||
        memo_init(&p->structures, places->structures, sizeof(struct step_kind),
                  sizeof(struct structure)) != 0)
        return -1;
    p->bodies.clear_size = sizeof(struct body);
    p->pipelines.clear_size = offsetof(struct pipeline, stages);
    p->units.clear_size = offsetof(struct units, muon);
    p->structures.clear_size = sizeof(struct step_kind);
    return 0;
}

static struct predictor *open_as(const struct budget_input *facts, enum predictor_use use,
                                 bool slowest)
{
    struct predictor *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->in = *facts;
    p->in.measured = NULL;
    p->in.slowest = slowest;
    if (slowest) {
        p->hides_nothing = *facts->hardware;
        p->hides_nothing.exchange_overlap = p->hides_nothing.copy_exchange_overlap = 0;
        p->in.hardware = &p->hides_nothing;
    }
    layer_classes_init(facts->model, facts->sizes, &p->classes);
    machine_init(&p->in, &p->machine);
    if (memos_init(p, &capacities[use]) == 0)
        return p;
    predictor_close(p);
    return NULL;
}

struct predictor *predictor_open(const struct budget_input *facts, enum predictor_use use)
{
    return open_as(facts, use, false);
}

struct predictor *predictor_open_slowest(const struct budget_input *facts, enum predictor_use use)
{
    return open_as(facts, use, true);
}

static void list_memos(struct predictor *p, struct memo *ret[MEMOS])
{
    struct memo *const memos[MEMOS] = { &p->bodies, &p->units,     &p->links,
                                        &p->losses, &p->pipelines, &p->structures };
    memcpy(ret, memos, sizeof memos);
}

void predictor_close(struct predictor *p)
{
    struct memo *memos[MEMOS];
    if (!p)
        return;
    list_memos(p, memos);
    for (int i = 0; i < MEMOS; i++)
        memo_done(memos[i]);
    free(p);
}

uint64_t predictor_settle(struct predictor *p)
{
    struct memo *memos[MEMOS];
    uint64_t bytes = 0;
    list_memos(p, memos);
    for (int i = 0; i < MEMOS; i++) {
        memo_settle(memos[i]);
        bytes += memos[i]->places * memos[i]->entry_size;
    }
    return bytes;
}

void predictor_choose(struct predictor *p, const struct choices *choices,
                      const struct measured_rank *measured)
{
    p->in.choices = choices;
    p->in.measured = measured;
    memset(&p->current, 0, sizeof p->current);
}

const struct budget_input *predictor_input(const struct predictor *p)
{
    return &p->in;
}

int predict_once(const struct budget_input *in, struct rank_budget *ret_worst,
                 struct step_time *ret_time)
{
    struct predictor *p = predictor_open(in, PREDICTOR_ONE_LAYOUT);
    if (!p)
        return -1;
    predictor_choose(p, in->choices, in->measured);
    budget_worst(p, ret_worst);
    if (ret_time)
        step_time_compute(p, ret_time);
    predictor_close(p);
    return 0;
}

static struct layout_peaks with_doubt(const struct walk_result *point,
                                      const struct walk_result *high)
{
    uint64_t upper = add_sat(high->peak, walk_doubt_bytes(high));
    return (struct layout_peaks){ point->peak, upper, high->host_bytes };
}

/* A device reserves for the upper estimate; with more rows no tensor is smaller, so that peak is
 * the larger one. */
static struct layout_peaks stage_peaks(struct predictor *p, const struct stage *stage)
{
    struct walk_request request = {
        .predictor = p, .stage = stage->index, .group = -1, .rows = ROWS_HIGH, .peak_only = true
    };
    struct walk_result point, high;
    const uint64_t *rows = shared_body(p, -1)->rows;
    bool host = p->in.hardware->host;
    walk_stage(&request, &high);
    point = high;
    request.rows = ROWS_POINT;
    if (rows[ROWS_POINT] > rows[ROWS_HIGH] || (host && rows[ROWS_POINT] < rows[ROWS_HIGH]))
        walk_stage(&request, &point);
    if (!host && high.peak > point.peak)
        point = high;
    return with_doubt(&point, &high);
}

void predictor_peaks(struct predictor *p, const struct choices *choices, struct layout_peaks *ret)
{
    predictor_choose(p, choices, NULL);
    if (p->in.engine) {
        struct rank_budget worst;
        budget_worst(p, &worst);
        *ret = (struct layout_peaks){ worst.peak_bytes, worst.peak_upper_bytes, worst.host_bytes };
        return;
    }
    const struct pipeline *pipeline = shared_pipeline(p, DETAIL_WORST);
    for (int i = 0; i < pipeline->count; i++) {
        struct layout_peaks one = stage_peaks(p, &pipeline->stages[i]);
        if (i == 0 || one.peak_upper_bytes > ret->peak_upper_bytes)
            *ret = one;
    }
}

void predictor_time(struct predictor *p, const struct choices *choices, struct step_time *ret)
{
    struct step_sums sums = { .any = false };
    struct step_terms terms;
    predictor_choose(p, choices, NULL);
    const struct pipeline *pipeline = shared_pipeline(p, DETAIL_WORST);
    step_terms_init(p, &terms);
    for (int i = 0; i < pipeline->count; i++)
        step_sums_add(&terms, &pipeline->stages[i], &sums);
    step_seconds(&p->in, &sums, ret);
    ret->tokens_per_second_per_gpu =
        over(step_tokens_of(&p->in), ret->seconds * layout_world(&choices->layout));
}
