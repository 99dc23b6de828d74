/* modules.h - what torchtitan's modules hold at their fullest under FSDP2 and automatic
 * differentiation, nothing compiled: dense layers of softmax attention, one stage, one micro-batch
 * a step. All of it, where saved.h tells what comes beside engine rankfit's. What a version does
 * otherwise is a fact of it; no constant is fitted. */
#ifndef RANKFIT_PLANNER_VALIDATE_MODULES_H
#define RANKFIT_PLANNER_VALIDATE_MODULES_H

#include "planner/validate/saved.h"

struct module_facts {
    bool one_root;    /* embedding, last norm and head are one unit, there through the backward */
    bool fused_norms; /* a norm keeps its input; otherwise that in fp32, and the normed in bf16 */
    bool foreach;     /* AdamW makes square roots of all second moments at once */
    int logit_bytes, logit_bytes_tp; /* held of each logit at the loss's fullest, without and with
                                        a vocabulary split by tp */
};

/* Of the ranks of `rank`'s group; items at the fullest moment. recompute=none keeps what autograd
 * saves; full each layer's input; selective the layer's input, attention and every other matmul.
 * -1 with a diagnostic at `at` where a plan is none of these. */
int modules_held(const struct prediction *prediction, const struct rank_budget *rank,
                 const struct module_facts *facts, struct pos at, struct saved *ret,
                 struct diag_list *reterr);

#endif
