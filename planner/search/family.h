/* family.h - one factorization of the world after another, its layouts judged or skipped by proof.
 * Internal to planner/search; one worker for a thread. */
#ifndef RANKFIT_PLANNER_SEARCH_FAMILY_H
#define RANKFIT_PLANNER_SEARCH_FAMILY_H

#include "planner/predict/predictor.h"
#include "planner/search/search.h"
#include "planner/search/space.h"
#include "planner/search/variant.h"

#include <stdatomic.h>

/* The aim of a search: the shortest step that fits, by the upper or by the point estimate of
 * memory; the smallest upper estimate of memory. Then, among those whose step is within a share of
 * the shortest: the shortest expected step; the most memory to spare. */
enum goal { GOAL_FITS, GOAL_TIGHT, GOAL_SMALLEST, GOAL_EXPECTED, GOAL_ROOMIEST };

/* Smaller is better; where all is equal, what comes first in the order of the space. */
struct score {
    double first, second, third;
    uint64_t unit, member;
};

struct found {
    bool any;
    struct score score;
    struct choices choices;
};

/* The fastest layout whose upper estimate is at most `bytes`. `bound`: no larger first score is of
 * interest, as the bits of a double. */
struct step {
    uint64_t bytes;
    _Atomic uint64_t bound;
};

/* What workers share. Steps from most bytes to least, so that bounds rise: one, or those of a
 * front. Where the smallest or the roomiest is sought there is one, whose bound is of bytes. */
struct shared_search {
    enum goal goal;
    enum goal fits;                     /* of the last two goals: FITS or TIGHT */
    double most_seconds, most_expected; /* the same: of a layout that is of interest */
    uint64_t same_bytes;                /* of memory to spare: less of a difference is none */
    bool skip_nothing;
    int step_count;
    struct step steps[FRONT_MAX];
};

struct worker {
    struct shared_search *shared;
    struct space space;
    struct predictor *predictor;
    struct predictor *slowest; /* for the upper end of a step's range */
    uint64_t unit, member;
    struct found found[FRONT_MAX]; /* of each step */
    uint64_t layouts, legal, judged;
    bool possible; /* some factorization is legal */
};

/* worker.c */
int worker_init(struct worker *worker, const struct space *space, struct shared_search *shared);
void worker_done(struct worker *worker);
void found_take(struct found *found, const struct found *other);
void step_set(struct step *step, uint64_t bytes, double bound);
/* A floor of more bytes is not on a step, nor on those of fewer bytes. */
uint64_t worker_most_bytes(const struct worker *worker, int step);
/* The step of fewest bytes that something of `bytes` or more may be on; -1: none. */
int worker_step(const struct worker *worker, uint64_t bytes);
/* Whether so many seconds are of no interest on a step, nor on those of more bytes. */
bool worker_is_slow(const struct worker *worker, int step, double seconds);
/* Whether nothing that takes `seconds` and `bytes`, or more of both, is of interest. */
bool worker_is_hopeless(const struct worker *worker, double seconds, uint64_t bytes);
double worker_seconds(struct worker *worker, const struct choices *choices);
/* The point estimate of a step. */
double worker_expected(struct worker *worker, const struct choices *choices);
/* Judges one layout; true when it is on the last step, and so on all. */
bool worker_judge(struct worker *worker, const struct choices *choices, double seconds);
/* The same where the smallest is sought; returns its upper estimate. */
uint64_t worker_weigh(struct worker *worker, const struct choices *choices);
/* The same where the shortest expected step is sought; true when it fits. */
bool worker_expect(struct worker *worker, const struct choices *choices);
/* Where the most memory to spare is sought: units of it that a layout takes; 0: it does not fit.
 * Takes a layout of so many. */
uint64_t worker_room(struct worker *worker, const struct choices *choices);
void worker_take_room(struct worker *worker, const struct choices *choices, uint64_t units);

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
    uint64_t (*floor)(struct predictor *predictor, const struct choices *choices);
    double (*seconds)(struct predictor *predictor, const struct choices *choices,
                      const struct least_seconds *least);
};
/* Variants from `from` on, whose floors fall from one to the next and whose seconds rise; floors
 * are those of `least`, seconds of `fastest`, which may be the same. first: the first whose floor
 * is of interest; last_step: the last on which the leanest may be. */
struct ladder {
    const struct variants *variants;
    const struct bounds *bounds;
    struct choices *least, *fastest;
    const struct least_seconds *seconds; /* for the bounds */
    int from, first, last_step;
};
/* ladder.c. The floor of a variant, which falls from one to the next. */
uint64_t ladder_floor(struct worker *worker, const struct ladder *ladder, int variant);
/* False when none is of interest for its bytes. */
bool ladder_init(struct worker *worker, struct ladder *ladder);
/* Whether none is for its seconds and bytes. */
bool ladder_is_hopeless(struct worker *worker, const struct ladder *ladder);
/* Of the variants from `from` on the first whose floor may be on a step, where that of the last is.
 */
int ladder_first_on(struct worker *worker, const struct ladder *ladder, int step, int from);

#endif
