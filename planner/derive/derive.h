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
    struct fixed_choices fixed;
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

struct candidate {
    struct choices choices;
    struct rank_budget worst;
    struct step_time time;
    enum verdict verdict;
};

/* What derivation decides by responsibility, not by time, as text: "cp=4", and where ranks span
 * several domains "cp=4 ep=8 tp=1": the expert group is as wide as the domain lets it be, and
 * tensors stay whole where gathers hide. */
void policy_format(const struct question *q, const struct candidate *derived, char *ret,
                   size_t size);

/* The same question with that, as if it had been said; what is said already stays. What the
 * decisions leave open is then compared with a search of it. */
void question_fix_policy(const struct question *q, const struct candidate *derived,
                         struct question *ret);

enum { POLICY_BYTES = 64 };
enum { ANSWER_MAX_REASONS = 24, ANSWER_MAX_CANDIDATES = 8, ANSWER_MAX_NEAREST = 6 };

struct reason {
    char choice[64];   /* "ep=8" */
    char because[400]; /* with the price in GiB and percent of the step */
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
    char policy[POLICY_BYTES];
    long layouts, legal, fitting; /* looked at */
    double search_seconds;
    double
        derived_over_best; /* tokens/s of the derived over the best searched; < 0: not searched */
};

/* 0 with an answer (also for does_not_fit); -1 when the fixed choices or the input are illegal:
 * every violation as a diagnostic. Warnings go to the list as well. */
int derive(const struct question *q, struct answer *ret, struct diag_list *reterr);

/* Brute force over every legal layout and primitive set that the planner knows, by the same
 * budgets: the judge of derive(). Returns how many layouts were looked at; best by tokens/s among
 * those that fit, in *ret (verdict does_not_fit and the smallest peak when none does). */
long search_all(const struct question *q, struct candidate *ret);

/* Searches every layout under the policy of question_fix_policy and fills derived_over_best,
 * layouts and search_seconds of an answer. derive() does so by itself for small worlds on the host
 * and for large ones; elsewhere it takes longer than derivation and is asked for. */
int answer_judge(const struct question *q, struct answer *answer, struct diag_list *reterr);

#endif
