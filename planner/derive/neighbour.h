/* neighbour.h - the layouts next to a decision: what one would take instead, and what would fit if
 * the question were another. */
#ifndef RANKFIT_PLANNER_DERIVE_NEIGHBOUR_H
#define RANKFIT_PLANNER_DERIVE_NEIGHBOUR_H

#include "planner/derive/decide.h"

/* One choice of a search with another value, all else that is open chosen anew, and where that
 * stands. */
enum standing { NEIGHBOUR_ILLEGAL, NEIGHBOUR_TOO_LARGE, NEIGHBOUR_FITS };
struct neighbour {
    const char *key;
    int value;     /* of a degree; 0: of another key */
    char name[40]; /* "ep 4" */
    enum standing standing;
    uint64_t missing_bytes;     /* too large: beyond the limit at its leanest */
    struct candidate candidate; /* that fits, at least tightly */
    char rule[160];             /* illegal: the rule that refuses it */
};
enum { NEIGHBOURS_MAX = 32 };
struct neighbours {
    int count;
    struct neighbour items[NEIGHBOURS_MAX];
};

/* Of the layout that decide_best chose; those that fit become the runners-up, best first. -1: no
 * memory. */
int neighbours_search(struct space *space, const struct decision *decision, struct neighbours *ret,
                      struct answer *ret_answer);

/* Runners-up of the ordered decisions: one degree changed, settings chosen anew; deduplicated, best
 * first. */
void neighbours_write(struct space *space, const struct decision *decision, struct answer *ret);

/* For a question without a layout that fits: more GPUs, a shorter sequence, another setting. Every
 * entry has been asked again and fits. */
void nearest_write(const struct space *space, const struct decision *decision, struct answer *ret);

#endif
