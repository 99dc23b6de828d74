/* decide.h - the decisions of a derivation, in order, inside the planner only: degrees by policy
 * and by what fits, then the cheapest settings that fit. Words and prices are reason.h's matter. */
#ifndef RANKFIT_PLANNER_DERIVE_DECIDE_H
#define RANKFIT_PLANNER_DERIVE_DECIDE_H

#include "planner/search/space.h"

/* Below this much device memory a sequence is cut to pieces of 16K-32K tokens whatever else fits;
 * at or above it (MI300X class) it is cut as little as fits. */
#define SMALL_MEMORY_BYTES UINT64_C(180000000000)
#define MOST_LOCAL_SEQUENCE UINT64_C(32768)
#define LEAST_LOCAL_SEQUENCE UINT64_C(16384)

struct decision {
    struct degrees degrees;
    struct candidate chosen; /* judged and timed */
    bool found;              /* any legal layout at all */
    bool searched;           /* by search: the best of all */
    bool uses_host;          /* ... of state in host memory, for nothing else fits */
    int policy_cp;           /* the first cp tried */
    bool wide_ep;            /* nothing inside the domain fits */
    bool ep_for_speed; /* narrower than the policy's: that would take 3 % more than the fastest */
    int fastest_ep;    /* of those inside the domain */
    double ep_behind_fastest; /* share of the step */
    int wider_ep;             /* that of the policy */
    double wider_ep_behind;   /* what it would take over this one */
    bool cp_beyond_policy;    /* the policy's takes 3 % more */
    double best_seconds;      /* searched: the shortest step, at the upper end of its range */
    double tile_gain;         /* of larger tiles that raise the peak; 0: none */
    bool cp_for_speed, pp_for_speed, tp_for_speed, tp_saves_recompute;
};

/* Only worlds of thousands of GPUs in which nothing fits have more layouts to look at. */
enum { DECIDE_MOST_VISITS = 4000 };

/* EP, CP, PP, TP in that order of willingness; true when some legal layout exists. The chosen
 * candidate is the first that fits at its leanest; else the first tight one; else the smallest.
 * most_visits bounds the layouts looked at. */
bool decide_degrees(struct space *space, int most_visits, struct decision *ret);

/* Sharding, shard widths and settings: the fastest that fits at the decided degrees; among equally
 * fast ones the leanest; never worse than *chosen. */
void decide_settings(struct space *space, struct decision *decision);

/* A larger cp where its room saves recompute; stages or tensor parallelism where gathers do not
 * hide and the step gets faster by them. */
void decide_speed(struct space *space, struct decision *decision);

/* Larger tiles of the loss where they fit and save a hundredth of the step, though the peak rises.
 */
void decide_tiles(struct space *space, struct decision *decision);

/* Fewer layers on the last stage where that is faster, or alone fits; every layout completed after
 * it is split alike. */
void decide_stages(struct space *space, struct decision *decision);

/* best.c - by search, whatever the thresholds of the others; false when no legal layout exists. */
bool decide_best(struct space *space, struct decision *ret);
/* As if these had been set, where they are not. */
void question_fix_degrees(struct question *q, const struct degrees *degrees);
struct degrees degrees_of(const struct layout *layout);
/* Notes by how many layers the last stage of a layout is lighter. */
void note_lighter_end(struct space *space, const struct layout *found);

/* All of the ordered decisions; false when no legal layout exists. */
bool decide(struct space *space, struct decision *ret);

/* The largest number of ranks that reach each other at link speed. */
int link_domain(const struct space *space);
int question_link_domain(const struct question *q);
/* Whether a group of all ranks leaves that domain. */
bool gathers_cross_network(const struct space *space);
/* The widest expert group inside it beside the other degrees; at least that of the degrees. */
int widest_ep(const struct space *space, const struct degrees *degrees);
/* Whether gathers that do not hide are worth a degree. */
bool gathers_matter(const struct candidate *c);

#endif
