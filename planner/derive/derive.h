/* derive.h - from a question to a layout: each dimension has one responsibility, decided in order,
 * each decision with its reason and its price; then the verdict and, when nothing fits, the nearest
 * that does. Pure: no files, no printing. */
#ifndef RANKFIT_PLANNER_DERIVE_DERIVE_H
#define RANKFIT_PLANNER_DERIVE_DERIVE_H

#include "base/diag.h"
#include "base/plan/plan.h"
#include "planner/predict/budget.h"
#include "planner/predict/step_time.h"

#include <stdbool.h>

/* How a layout is chosen: the best of all by search, or the articles' ordered thresholds. */
enum policy { POLICY_BEST, POLICY_ARTICLES, POLICY_COUNT };
extern const char *const policy_names[POLICY_COUNT + 1]; /* up to a NULL */

/* Steps are compared by the upper end of their range: what is only assumed to hide does not. */
enum objective {
    OBJECTIVE_THROUGHPUT, /* of the shortest steps that fit the roomiest: see search_run */
    OBJECTIVE_HEADROOM,   /* the roomiest of steps that take up to a quarter more */
    OBJECTIVE_GPUS,       /* the fewest GPUs on which something fits, then the shortest step */
    OBJECTIVE_GPU_HOURS,  /* the fewest GPU-hours for a number of tokens */
    OBJECTIVE_COUNT
};
extern const char *const objective_names[OBJECTIVE_COUNT + 1]; /* up to a NULL */

struct question {
    const struct model *model;
    const struct model_sizes *sizes;
    const struct hardware *hardware;
    int gpus;
    uint64_t seq_tokens;
    int micro_batch;
    int64_t global_batch; /* 0: gpus * micro_batch, the same for all candidates */
    struct routing routing;
    double routing_quantile;
    const struct lengths *lengths; /* of packed pieces; NULL: all sequences have seq_tokens */
    uint64_t headroom_bytes, reserve_bytes;
    enum policy policy;
    enum objective objective; /* throughput or headroom: the number of GPUs is given */
    struct fixed_choices fixed;
    const struct engine_methods *engine; /* NULL: engine rankfit */
};

enum verdict { VERDICT_FITS, VERDICT_TIGHT, VERDICT_DOES_NOT_FIT };
extern const char *const verdict_names[];

/* memory_bytes - reserve - headroom; on `host` the ranks of a node share memory_bytes equally. */
uint64_t question_limit_bytes(const struct question *q);
uint64_t question_memory_bytes(const struct question *q);

/* Host memory that one rank may fill: its share of a node's. UINT64_MAX on `host`, whose ranks are
 * host memory themselves, and where the hardware file says nothing. */
uint64_t question_host_room(const struct question *q);

/* With defaults and fixed choices applied; the same for every candidate. */
int question_micro_batch(const struct question *q);
int64_t question_global_batch(const struct question *q);

/* exact.c. As if every degree that was not set were set to 1, every shard group to full width and
 * every primitive off. */
void question_fix_exactly(struct question *q);
struct candidate {
    struct choices choices;
    struct rank_budget worst;
    struct step_time time;
    double slowest_seconds; /* the upper end of the step's range; 0: not asked */
    enum verdict verdict;
};

enum { ANSWER_MAX_REASONS = 24, ANSWER_MAX_CANDIDATES = 8, ANSWER_MAX_NEAREST = 6 };

struct reason {
    char choice[64];   /* "ep=8" */
    char because[400]; /* with the price in GB and percent of the step */
    char brief[200];   /* the deciding fact and the best neighbour */
    bool decides;      /* of what is shown first */
};

struct nearest {
    char change[200];
    int gpus;            /* 0: unchanged */
    uint64_t seq_tokens; /* 0: unchanged */
    char set[96];        /* "" or "recompute=full" */
    uint64_t peak_bytes;
};

struct answer {
    struct candidate recommended;
    uint64_t limit_bytes;
    int reason_count, candidate_count, nearest_count;
    struct reason reasons[ANSWER_MAX_REASONS];
    struct candidate candidates[ANSWER_MAX_CANDIDATES]; /* runners-up, best first */
    struct nearest nearest[ANSWER_MAX_NEAREST];
    char binding[300]; /* what limits, in words */
    char chosen[300];  /* where keys were set: question_list_chosen */
    enum policy policy;
    bool uses_host; /* though host memory was not asked for: nothing else fits */
    bool has_other; /* what the other policy recommends */
    struct candidate other;
    bool has_offloaded; /* the best at the same degrees with state in host memory */
    struct candidate offloaded;
    long layouts, legal, fitting; /* looked at */
    double search_seconds;
    double derived_over_best; /* shortest step over the recommended; < 0: not searched */
};

/* By the question's policy and objective. The best uses no host memory unless it was asked for or
 * nothing else fits. 0 with an answer (also for does_not_fit); -1 when the fixed choices or the
 * input are illegal: every violation as a diagnostic. Warnings go to the list as well. */
int derive(const struct question *q, struct answer *ret, struct diag_list *reterr);

/* "ep=2 etp=2 recompute=full": keys of a layout that were not set and are not plain. */
void question_list_chosen(const struct question *q, const struct choices *choices, char *ret,
                          size_t size);

/* Brute force over every legal layout and primitive set that the planner knows, by the same
 * budgets: the judge of derive(). Returns how many layouts were looked at; best by tokens/s among
 * those that fit, in *ret (verdict does_not_fit and the smallest peak when none does). */
long search_all(const struct question *q, struct candidate *ret);

#endif
