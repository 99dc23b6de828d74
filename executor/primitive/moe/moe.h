/* moe.h - a layer's routed experts.
 *
 * Contract
 *   What it does: chooses k experts a token (by the router, or given by the plan's routing
 *   profile), brings every token's row to the ranks that hold its experts, runs them, brings the
 *   results back, adds them to the residual weighted by the router; and all of it backwards.
 *   What it preserves: a token's result does not depend on ep or on what other tokens do; rows are
 *   never dropped; the weights of a profile's choices are still the router's, so the router learns.
 *   Memory bound: `plain`: for S = tokens * k rows sent and R received (R = S when ep is 1), the
 *   tensors of ARCHITECTURE.md's MoE tables; R may not exceed the plan's dispatch_bound_rows.
 *   How it is tested: against a second implementation without rows or exchanges, and ep 1 against
 *   ep 2 and 4 (tests/unit/executor). */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_MOE_MOE_H
#define RANKFIT_EXECUTOR_PRIMITIVE_MOE_MOE_H

#include "executor/primitive/linear.h"
#include "executor/primitive/state/state.h"

/* What the backward of one layer needs of its forward. */
struct moe_saved {
    struct buffer probs, choices, weights, slots; /* router's side, by token */
    struct buffer xe, we, map, h;                 /* experts' side, by row in expert order */
    /* Host memory. */
    int64_t *counts;                /* [experts] rows of this rank's tokens */
    int64_t *arrivals;              /* [ep, local experts] rows that came from each member */
    int64_t *offsets;               /* [local experts + 1] in expert order */
    int64_t *send_rows, *recv_rows; /* [ep] */
    int64_t received;               /* R */
};

struct moe_call {
    struct state *state;
    struct micro_batch *batch;
    int layer;
    enum keep keep;
    struct moe_saved *saved;
};

/* Host lists; -1 when there is no memory. */
int moe_saved_open(struct moe_saved *saved, const struct work *work);
void moe_saved_close(struct moe_saved *saved);

/* normed: the layer's second norm, given back as soon as the experts have it unless `normed_later`.
 * output: taken as output_owner, residual + experts. */
void moe_forward(const struct moe_call *call, struct buffer *normed, bool normed_later,
                 const struct buffer *residual, struct buffer *output, enum owner output_owner);

/* From the gradient of the output: adds to the gradients of experts and router, and into
 * d_normed, which is taken here when it holds nothing; so is normed, by `renorm`. */
void moe_backward(const struct moe_call *call, const struct buffer *d_output, struct buffer *normed,
                  struct buffer *d_normed, void (*renorm)(void *context, struct buffer *ret),
                  void *context);

/* routes.c */
int64_t moe_sent_rows(const struct moe_call *call);
/* Uploads the profile's choices; false when the router is to choose. */
bool moe_give_choices(const struct moe_call *call);
/* From counts: who sends and receives how much, where each expert's rows begin. */
void moe_plan_exchange(const struct moe_call *call);
/* Uploads map: expert order from arrival order. */
void moe_upload_map(const struct moe_call *call);

/* Sizes that forward and backward share. */
struct moe_shape {
    int64_t tokens, hidden, width, sent, received;
    int experts, local, top_k;
    bool exchanges; /* ep > 1 */
    int unit;
};
struct moe_shape moe_shape(const struct moe_call *call);
struct expert_linear moe_gate_up(const struct moe_call *call);
struct expert_linear moe_down(const struct moe_call *call);
/* Rows from the tokens' ranks to the experts' ranks, or back. */
void moe_send(const struct moe_call *call, bool back, const struct buffer *from,
              const struct buffer *to, uint64_t row_bytes);

#endif
