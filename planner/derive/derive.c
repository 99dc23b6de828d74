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

/* Few enough layouts to look at all of them at once: a small world on what the host runs. */
static bool searched_at_once(const struct space *space)
{
    enum { SMALL_WORLD = 8 };
    return space->q->hardware->host && space->q->gpus <= SMALL_WORLD && !space->open_tp &&
           !space->open_pp && !space->open_etp;
}

/* Decisions and their words. */
static int answer_question(struct space *space, struct answer *ret, struct diag_list *reterr)
{
    struct decision decision;

    ret->limit_bytes = space->limit_bytes;
    if (!decide(space, &decision))
        return report_illegal(space, reterr);
    ret->recommended = decision.chosen;
    policy_format(space->q, &decision.chosen, ret->policy, sizeof ret->policy);
    binding_write(space, &decision.chosen, ret->binding, sizeof ret->binding);
    neighbours_write(space, &decision, ret);
    reasons_write(space, &decision, ret);
    if (decision.chosen.verdict == VERDICT_DOES_NOT_FIT)
        nearest_write(space, &decision, ret);
    warn(space, &decision.chosen, reterr);
    if (decision.best_seconds > 0)
        ret->derived_over_best = decision.best_seconds / decision.chosen.time.seconds;
    ret->layouts = space->layouts;
    ret->legal = space->legal;
    ret->fitting = space->fitting;
    return 0;
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
    if (!space.predictor)
        return diag_no_memory(reterr);
    int rc = answer_question(&space, ret, reterr);
    predictor_close(space.predictor);
    if (space.no_memory)
        return diag_no_memory(reterr);
    if (rc != 0)
        return -1;
    ret->search_seconds = now_seconds() - start;
    return searched_at_once(&space) ? answer_judge(q, ret, reterr) : 0;
}

int answer_judge(const struct question *q, struct answer *answer, struct diag_list *reterr)
{
    const struct search_options options = { .fits_only = true };
    const struct candidate *derived = &answer->recommended;
    struct search_result *result = calloc(1, sizeof *result);
    struct question same_policy;

    question_fix_policy(q, derived, &same_policy);
    if (!result)
        return diag_no_memory(reterr);
    int rc = search_run(&same_policy, &options, result, reterr);
    if (rc == 0) {
        answer->layouts += (long)result->layouts;
        answer->search_seconds += result->seconds;
        if (result->any && derived->verdict == VERDICT_FITS)
            answer->derived_over_best = result->best.time.seconds / derived->time.seconds;
    }
    free(result);
    return rc;
}
