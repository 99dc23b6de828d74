#include "planner/predict/range.h"
#include "planner/predict/parts.h"
#include "planner/predict/predictor.h"

/* What a step of other software of the same arithmetic hides or has not. */
static const struct {
    enum time_item item;
    const char *what;
} hidable[] = {
    { TIME_EXPOSED_EXCHANGE, "expert exchanges hidden" },
    { TIME_EXPOSED_GATHER, "gathers and reductions of state hidden" },
    { TIME_EXPOSED_CONTEXT, "context collectives hidden" },
    { TIME_EXPOSED_TENSOR, "tensor collectives hidden" },
    { TIME_HOST, "launches replayed as graphs" },
};

static void add_cause(struct time_range *range, const char *what, double seconds)
{
    if (seconds == 0 || range->count == RANGE_CAUSES)
        return;
    range->causes[range->count++] = (struct range_cause){ what, seconds };
    *(seconds < 0 ? &range->fastest : &range->slowest) += seconds;
}

/* An item of every micro-batch is in the bubble too: (P - 1) / (v m) of it, as much as the slowest
 * stage's other seconds. */
static void faster(const struct budget_input *in, const struct step_time *time,
                   struct time_range *ret)
{
    const struct layout *l = &in->choices->layout;
    double turns = (double)micro_batches_of(in) * (l->vpp > 1 ? l->vpp : 1);
    double with_bubble = 1 + (turns > 0 ? (l->pp - 1) / turns : 0);
    for (size_t i = 0; i < sizeof hidable / sizeof *hidable; i++)
        add_cause(ret, hidable[i].what, -with_bubble * time->item_seconds[hidable[i].item]);
}

/* A step as the predictor is told now, and what it takes more than the one before. */
static double more_seconds(struct predictor *p, double *before)
{
    struct step_time time;
    step_time_compute(p, &time);
    double more = time.seconds > *before ? time.seconds - *before : 0;
    *before += more;
    return more;
}

/* -1: no memory. */
static int slower(struct predictor *p, const struct step_time *time, struct time_range *ret)
{
    struct budget_input facts = *predictor_input(p);
    struct hardware hardware = *facts.hardware;
    struct choices choices = *facts.choices;
    struct routed_rows rows = { .rows_received = dispatch_most_rows(&facts) };
    const struct measured_rank upper = { .routed_count = 1, .routed = &rows }, *measured = NULL;
    double before = time->seconds;
    facts.hardware = &hardware;
    hardware.exchange_overlap = hardware.copy_exchange_overlap = 0;
    struct predictor *hides_nothing = predictor_open(&facts, PREDICTOR_ONE_LAYOUT);
    if (!hides_nothing)
        return -1;
    if (facts.model->moe.experts > 0 && choices.layout.ep * choices.layout.etp > 1) {
        measured = &upper;
        predictor_choose(p, &choices, measured);
        add_cause(ret, "the fullest rank at its upper rows", more_seconds(p, &before));
        predictor_choose(hides_nothing, &choices, measured);
        add_cause(ret, "chunks that hide nothing", more_seconds(hides_nothing, &before));
    }
    choices.primitives.prefetch_units = 0;
    choices.primitives.comm_streams = 1;
    predictor_choose(measured ? hides_nothing : p, &choices, measured);
    add_cause(ret, "state gathered when it is needed",
              more_seconds(measured ? hides_nothing : p, &before));
    predictor_close(hides_nothing);
    return 0;
}

/* Rows dealt in turn: all wait for the rank whose pieces attend to the most keys. */
static double uneven_rows(const struct budget_input *in, const struct step_time *time)
{
    const struct rows_input input = { in->choices, in->seq_tokens, in->lengths };
    struct packed_rows rows;
    if (!rows_are_packed(&input))
        return 0;
    rows_init(&input, &rows);
    return (rows.imbalance - 1) * time->item_seconds[TIME_ATTENTION];
}

double predictor_slowest_seconds(struct predictor *slowest, const struct choices *choices)
{
    struct step_time time;
    predictor_time(slowest, choices, &time);
    return time.seconds + uneven_rows(predictor_input(slowest), &time);
}

int step_time_range(struct predictor *p, const struct step_time *time, struct time_range *ret)
{
    const struct budget_input in = *predictor_input(p);
    int rc = 0;
    *ret = (struct time_range){ .fastest = time->seconds, .slowest = time->seconds };
    faster(&in, time, ret);
    if (!in.measured)
        rc = slower(p, time, ret);
    predictor_choose(p, in.choices, in.measured);
    add_cause(ret, "attention of the fullest data-parallel rank", uneven_rows(&in, time));
    return rc;
}
