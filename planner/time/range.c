#include "planner/time/range.h"
#include "planner/budget/parts.h"

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
 * stage's other seconds (planner/time/stage.c). */
static void faster(const struct budget_input *in, const struct step_time *time,
                   struct time_range *ret)
{
    const struct layout *l = &in->choices->layout;
    double turns = (double)micro_batches_of(in) * (l->vpp > 1 ? l->vpp : 1);
    double with_bubble = 1 + (turns > 0 ? (l->pp - 1) / turns : 0);
    for (size_t i = 0; i < sizeof hidable / sizeof *hidable; i++)
        add_cause(ret, hidable[i].what, -with_bubble * time->item_seconds[hidable[i].item]);
}

/* A step of changed inputs, and what it takes more than the one before. */
static double more_seconds(const struct budget_input *in, double *before)
{
    struct step_time time;
    step_time_compute(in, &time);
    double more = time.seconds > *before ? time.seconds - *before : 0;
    *before += more;
    return more;
}

/* Rows of the fullest rank at the profile's quantile; where the router itself decides, the room
 * that an executor keeps for them. */
static uint64_t most_rows(const struct budget_input *in)
{
    uint64_t upper = dispatch_rows(in, -1).upper, room = dispatch_reserved(in);
    return in->routing.kind == ROUTING_NATURAL && room > upper ? room : upper;
}

static void slower(const struct budget_input *in, const struct step_time *time,
                   struct time_range *ret)
{
    struct budget_input changed = *in;
    struct hardware hardware = *in->hardware;
    struct choices choices = *in->choices;
    struct routed_rows rows = { .rows_received = most_rows(in) };
    const struct measured_rank upper = { .routed_count = 1, .routed = &rows };
    double before = time->seconds;
    if (in->model->moe.experts > 0 && choices.layout.ep > 1) {
        changed.measured = &upper;
        add_cause(ret, "the fullest rank at its upper rows", more_seconds(&changed, &before));
        hardware.exchange_overlap = hardware.copy_exchange_overlap = 0;
        changed.hardware = &hardware;
        add_cause(ret, "chunks that hide nothing", more_seconds(&changed, &before));
    }
    choices.primitives.prefetch_units = 0;
    choices.primitives.comm_streams = 1;
    changed.choices = &choices;
    add_cause(ret, "state gathered when it is needed", more_seconds(&changed, &before));
}

/* Rows dealt in turn: all wait for the rank whose pieces attend to the most keys. */
static void uneven_rows(const struct budget_input *in, const struct step_time *time,
                        struct time_range *ret)
{
    const struct rows_input input = { in->choices, in->seq_tokens, in->lengths };
    struct packed_rows rows;
    if (!rows_are_packed(&input))
        return;
    rows_init(&input, &rows);
    add_cause(ret, "attention of the fullest data-parallel rank",
              (rows.imbalance - 1) * time->item_seconds[TIME_ATTENTION]);
}

void step_time_range(const struct budget_input *in, const struct step_time *time,
                     struct time_range *ret)
{
    *ret = (struct time_range){ .fastest = time->seconds, .slowest = time->seconds };
    faster(in, time, ret);
    if (!in->measured)
        slower(in, time, ret);
    uneven_rows(in, time, ret);
}
