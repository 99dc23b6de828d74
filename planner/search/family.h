/* family.h - one factorization of the world after another, its layouts judged or skipped by proof.
 * Internal to planner/search; one worker for a thread. */
#ifndef RANKFIT_PLANNER_SEARCH_FAMILY_H
#define RANKFIT_PLANNER_SEARCH_FAMILY_H

#include "planner/estimate/estimator.h"
#include "planner/search/front.h"
#include "planner/search/search.h"
#include "planner/search/space.h"

#include <stdatomic.h>

/* What is wanted of a layout. */
enum goal { GOAL_FITS, GOAL_TIGHT, GOAL_SMALLEST };

/* Smaller is better; where all is equal, what comes first in the order of the space. */
struct score {
    double first, second;
    uint64_t unit, member;
};

/* What workers share. `bound` is the smallest first score of any, as the bits of a double. */
struct shared_search {
    enum goal goal;
    bool front, skip_nothing;
    _Atomic uint64_t bound;
};

struct worker {
    struct shared_search *shared;
    struct space space;
    struct estimator *estimator;
    uint64_t unit, member;
    bool any;
    struct score best_score;
    struct choices best;
    struct front front;
    uint64_t layouts, legal, judged;
};

int worker_init(struct worker *worker, const struct space *space, struct shared_search *shared);
void worker_done(struct worker *worker);

/* tp, pp, cp, ep, etp are given. */
void worker_search(struct worker *worker, uint64_t unit, const struct degrees *degrees);

bool score_better(const struct score *a, const struct score *b);

#endif
