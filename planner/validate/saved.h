/* saved.h - what Megatron keeps from forward to backward, and beside its gradients, where engine
 * rankfit makes it again or has no use for it: layers that are not recomputed, gradients that
 * matmuls add to directly. Each rule a formula on facts of model and layout. */
#ifndef RANKFIT_PLANNER_VALIDATE_SAVED_H
#define RANKFIT_PLANNER_VALIDATE_SAVED_H

#include "planner/report/prediction.h"

struct saved_item {
    const char *name, *mechanism;
    uint64_t bytes; /* of all layers of the stage and micro-batches in flight */
};
enum { SAVED_ITEMS_MAX = 8 };

struct saved {
    int count;
    struct saved_item item[SAVED_ITEMS_MAX];
    uint64_t bytes; /* the sum */
};

/* Of the ranks of `rank`'s group. The plan must recompute nothing, and mixers be softmax attention
 * with keys of their own or through latents: -1 with a diagnostic at `at`. */
int engine_saved(const struct prediction *prediction, const struct rank_budget *rank, struct pos at,
                 struct saved *ret, struct diag_list *reterr);

#endif
