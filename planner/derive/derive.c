#include "planner/derive/derive.h"
#include "planner/derive/neighbour.h"
#include "planner/derive/reason.h"
#include "planner/search/search.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_seconds(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now))
        return 0;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Nothing legal is left: the plainest completion of what was fixed shows what is wrong with it. */
static int report_illegal(struct space *space, struct diag_list *reterr)
{
    struct degrees degrees = space_fixed_degrees(space);
    struct settings settings = space_leanest(space);
    struct choices choices;

    settings.chunks = space->chunks.values[0];
    settings.linear_context = LINEAR_CONTEXT_STATE_PASS; /* asks for no divisor of heads */
    space_complete(space, &degrees, &settings, &choices);
    struct legality_input in = space_legality_input(space, &choices);
    if (legality_check(&in, reterr))
        return -1;
    diag_error(reterr, (struct pos){ 0 }, "no layout of %d GPUs is legal for %s with these choices",
               space->q->gpus, space->q->model->name);
    return diag_hint(reterr, "leave some of the choices to derivation, or take another number of "
                             "GPUs");
}

static void warn(const struct space *space, const struct candidate *candidate,
                 struct diag_list *reterr)
{
    struct legality_input in = space_legality_input(space, &candidate->choices);
    legality_check(&in, reterr);
}

static void warn_of_host(const struct decision *decision, struct diag_list *reterr)
{
    char value[64], bytes[32];
    choice_format(&decision->chosen.choices, choice_key_find("offload"), value, sizeof value);
    diag_warning(reterr, (struct pos){ 0 },
                 "nothing fits without host memory: %s per rank are used by offload=%s",
                 size_text(bytes, sizeof bytes, decision->chosen.worst.host_bytes), value);
    diag_hint(reterr, "--set offload=none shows what would fit without it");
}

/* The recommendation of the other policy. */
static int ask_other_policy(struct space *space, struct answer *ret)
{
    struct decision other;
    struct space apart = *space;
    bool best = space->q->policy == POLICY_BEST;
    if (ret->recommended.verdict == VERDICT_DOES_NOT_FIT)
        return 0;
    apart.lighter = 0;
    ret->has_other = best ? decide(&apart, &other) : decide_best(&apart, &other);
    space->no_memory |= apart.no_memory;
    if (ret->has_other)
        ret->other = other.chosen;
    if (!best && other.best_seconds > 0)
        ret->derived_over_best = other.best_seconds / ret->recommended.slowest_seconds;
    return 0;
}

/* The same degrees with state or layer inputs in host memory. */
static void ask_offloaded(struct space *space, const struct decision *decision, struct answer *ret)
{
    struct question q = *space->q;
    struct search_options options;
    struct diag_list errors = { .count = 0 };
    struct search_result *result;
    if (!space->open_offload || q.hardware->host || decision->uses_host || q.policy != POLICY_BEST)
        return;
    question_fix_degrees(&q, &decision->degrees);
    best_options(&q, &options);
    options.host_memory = options.offloads = options.fits_only = true;
    result = calloc(1, sizeof *result);
    if (!result || search_run(&q, &options, result, &errors) != 0)
        space->no_memory = true;
    else if (result->any) {
        ret->has_offloaded = true;
        ret->offloaded = result->best;
    }
    free(result);
}

static int explain(struct space *space, const struct decision *decision, struct answer *ret)
{
    struct neighbours *neighbours = NULL;
    if (decision->searched) {
        neighbours = calloc(1, sizeof *neighbours);
        if (!neighbours || neighbours_search(space, decision, neighbours, ret) != 0) {
            free(neighbours);
            return -1;
        }
        ask_offloaded(space, decision, ret);
    } else {
        neighbours_write(space, decision, ret);
    }
    reasons_write(space, decision, neighbours, ret);
    free(neighbours);
    return 0;
}

/* Decisions and their words. */
static int answer_question(struct space *space, struct answer *ret, struct diag_list *reterr)
{
    struct decision decision = { .found = false };
    bool best = space->q->policy == POLICY_BEST;

    ret->limit_bytes = space->limit_bytes;
    ret->policy = space->q->policy;
    if (!(best ? decide_best(space, &decision) : decide(space, &decision)))
        return space->no_memory ? -1 : report_illegal(space, reterr);
    ret->recommended = decision.chosen;
    ret->uses_host = decision.uses_host;
    if (space->q->fixed.set != 0)
        question_list_chosen(space->q, &decision.chosen.choices, ret->chosen, sizeof ret->chosen);
    if (decision.best_seconds > 0)
        ret->derived_over_best = decision.best_seconds / decision.chosen.slowest_seconds;
    ret->layouts = space->layouts;
    ret->legal = space->legal;
    ret->fitting = space->fitting;
    binding_write(space, &decision.chosen, ret->binding, sizeof ret->binding);
    if (explain(space, &decision, ret) != 0)
        space->no_memory = true;
    if (decision.chosen.verdict == VERDICT_DOES_NOT_FIT)
        nearest_write(space, &decision, ret);
    warn(space, &decision.chosen, reterr);
    if (decision.uses_host)
        warn_of_host(&decision, reterr);
    return ask_other_policy(space, ret);
}

int derive(const struct question *q, struct answer *ret, struct diag_list *reterr)
{
    struct space space;
    double start = now_seconds();

    memset(ret, 0, sizeof *ret);
    ret->derived_over_best = -1;
    if (q->gpus < 1 || q->gpus > LAYOUT_MAX_RANKS)
        return diag_error(reterr, (struct pos){ 0 }, "%d GPUs: a world has 1 to %d", q->gpus,
                          LAYOUT_MAX_RANKS);
    space_init(&space, q);
    struct budget_input facts = space_budget_input(&space, NULL);
    space.predictor = predictor_open(&facts, PREDICTOR_MANY_LAYOUTS);
    space.slowest = predictor_open_slowest(&facts, PREDICTOR_MANY_LAYOUTS);
    int rc = -1;
    if (space.predictor && space.slowest)
        rc = answer_question(&space, ret, reterr);
    else
        space.no_memory = true;
    predictor_close(space.predictor);
    predictor_close(space.slowest);
    if (space.no_memory)
        return diag_no_memory(reterr);
    if (rc != 0)
        return -1;
    ret->search_seconds = now_seconds() - start;
    return 0;
}
