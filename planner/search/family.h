/* family.h - one factorization of the world after another, its layouts judged or skipped by proof.
 * Internal to planner/search; one worker for a thread. */
#ifndef RANKFIT_PLANNER_SEARCH_FAMILY_H
#define RANKFIT_PLANNER_SEARCH_FAMILY_H

#include "planner/estimate/estimator.h"
#include "planner/search/front.h"
#include "planner/search/search.h"
#include "planner/search/space.h"
#include "planner/search/variant.h"

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

/* worker.c */
int worker_init(struct worker *worker, const struct space *space, struct shared_search *shared);
void worker_done(struct worker *worker);
bool score_better(const struct score *a, const struct score *b);
/* Whether nothing that takes `seconds` and `bytes`, or more of both, is of interest. */
bool worker_is_hopeless(const struct worker *worker, double seconds, uint64_t bytes);
/* A peak above this is of no interest. */
uint64_t worker_most_bytes(const struct worker *worker);
/* Judges one layout; true when it is as wanted. *ret_bytes, where given: its upper estimate. */
bool worker_judge(struct worker *worker, const struct choices *choices, double seconds,
                  uint64_t *ret_bytes);

/* body.c - everything of one factorization: tp, pp, cp, ep, etp are given. */
void worker_search(struct worker *worker, uint64_t unit, const struct degrees *degrees);
/* Its leanest layouts alone, which set a bound for what comes after. */
void worker_probe(struct worker *worker, uint64_t unit, const struct degrees *degrees);

/* family.c - one sharding, width, offload and loss: recompute, tiles, what runs ahead. */
struct family {
    struct degrees degrees;
    struct settings settings; /* all but recompute, ahead, tile */
    struct choices choices;   /* of the member that is looked at */
    struct variants variants;
    struct knob tiles, levels;
};
void family_search(struct worker *worker, struct family *family);
/* Its leanest member alone. */
void family_probe(struct worker *worker, struct family *family);

/* Lists of a family's members: tiles of its loss, the fastest first; levels of what runs ahead
 * that its sharding tells apart. */
struct knob family_tiles(const struct space *space, const struct layout *layout, enum loss loss);
struct knob family_levels(const struct space *space, enum sharding sharding);

/* What bounds layouts from below, whatever their choices leave open. */
struct bounds {
    uint64_t (*floor)(struct estimator *estimator, const struct choices *choices);
    double (*seconds)(struct estimator *estimator, const struct choices *choices);
};
/* Whether no variant from `from` on is of interest; *ret_first: the first whose floor is. Floors
 * fall from variant to variant, seconds rise; of `least` and `fastest`, which may be the same. */
bool variants_are_hopeless(struct worker *worker, const struct variants *variants, int from,
                           const struct bounds *bounds, struct choices *least,
                           struct choices *fastest, int *ret_first);

#endif
