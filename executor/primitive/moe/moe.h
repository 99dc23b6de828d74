/* moe.h - a layer's routed experts.
 *
 * Contract
 *   What it does: chooses k experts a token (by the router, or given by the plan's routing
 *   profile), brings every token's row to the ranks that hold its experts, runs them, brings the
 *   results back, adds them to the residual weighted by the router; and all of it backwards.
 *   `plain` does so for all tokens at once. `chunked` cuts the tokens into moe_chunks runs of
 *   ceil(tokens / n), the last ones shorter or empty: the exchanges of one run are started, and
 *   waited for only when another has been through its experts. Plain is the schedule of one run.
 *   What it preserves: a token's result does not depend on ep, on the run it is in, or on what
 *   other tokens do: hidden states are equal to the bit under every schedule. Rows are never
 *   dropped; the weights of a profile's choices are still the router's, so the router learns.
 *   Gradients of experts are sums over runs in ascending order, each run's in expert order: they
 *   differ between schedules by the order of fp32 sums, and not at all between delays.
 *   Memory bound: for S = tokens * k rows sent and R received (R = S when ep is 1), the tensors of
 *   ARCHITECTURE.md's MoE tables and "Chunked MoE"; at most two exchanges are under way. R may not
 *   exceed the plan's dispatch_bound_rows; a run never exceeds what its senders can send, and of a
 *   device, where the plan's routing is a profile, may not exceed the load of that profile that is
 *   exceeded once in ten thousand.
 *   wgrad_delay: the weight gradients of a run wait until the input gradients of the run so many
 *   places on (or the last) are there; what they need (a, dy, xe, dh) lives as long.
 *   How it is tested: against a second implementation without rows or exchanges; ep 1 against ep 2
 *   and 4; chunked against plain, and delays against each other, for drawn tokens, chunks, ep and
 *   routing (tests/unit/executor); bytes against the planner's tables (tests/paired). */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_MOE_MOE_H
#define RANKFIT_EXECUTOR_PRIMITIVE_MOE_MOE_H

#include "executor/primitive/linear.h"
#include "executor/primitive/state/state.h"

/* A run of tokens on its way through the experts: what its backward needs, and what is there only
 * within a pass. */
struct moe_chunk {
    int64_t first, tokens;        /* of this rank */
    int64_t sent, received, room; /* rows; room: what can be received at the most */
    struct buffer xe, we, map, h; /* rows received, in expert order */
    struct buffer a, dy;          /* backward: until the weight gradients */
    /* Host memory. */
    int64_t *counts;                /* [experts] rows of this rank's tokens */
    int64_t *arrivals;              /* [ep, local experts] rows that came from each member */
    int64_t *offsets;               /* [local experts + 1] in expert order */
    int64_t *send_rows, *recv_rows; /* [ep] */
};

/* What the backward of one layer needs of its forward. */
struct moe_saved {
    struct buffer probs, choices, weights, slots; /* by token; slots count within a chunk */
    int count;
    struct moe_chunk *chunks;
    /* Host memory. */
    int64_t *lists;               /* behind those of the chunks */
    int64_t *outgoing, *incoming; /* [ep, chunks, local experts] rows, as they are exchanged */
    int batches;
    int32_t **drawn; /* [batches] choices of the profile, which no step changes; NULL: to draw */
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

/* The same up to the experts' gate and up products, m6: all that the backward needs. call->keep is
 * KEEP_OWN. */
void moe_replay(const struct moe_call *call, struct buffer *normed, bool normed_later);

/* From the gradient of the output: adds to the gradients of experts and router, and into
 * d_normed, which is taken here when it holds nothing; so is normed, by `renorm`. */
void moe_backward(const struct moe_call *call, const struct buffer *d_output, struct buffer *normed,
                  struct buffer *d_normed, void (*renorm)(void *context, struct buffer *ret),
                  void *context);

/* routes.c */
/* Uploads the profile's choices; false when the router is to choose. */
bool moe_give_choices(const struct moe_call *call);
/* From the choices: slots, and for every chunk who sends and receives how much and where each
 * expert's rows begin. */
void moe_plan_exchange(const struct moe_call *call);
/* Uploads map: expert order from arrival order. */
void moe_upload_map(const struct moe_call *call, const struct moe_chunk *chunk);

/* Sizes that forward and backward share. */
struct moe_shape {
    int64_t tokens, hidden, width;
    int experts, local, top_k;
    bool exchanges; /* ep > 1 */
    int unit;
};
struct moe_shape moe_shape(const struct moe_call *call);
/* The layer's router over `rows` tokens, without its tensors. */
struct router moe_router(const struct moe_call *call, int64_t rows);
struct expert_linear moe_gate_up(const struct moe_call *call, const struct moe_chunk *chunk);
struct expert_linear moe_down(const struct moe_call *call, const struct moe_chunk *chunk);
/* A tensor of rows that a chunk receives. */
struct buffer moe_take_rows(const struct moe_call *call, const struct moe_chunk *chunk,
                            enum owner owner, int64_t width, uint64_t element_bytes);

/* exchange.c: a chunk's rows on their way from the tokens' ranks to the experts' ranks, or back,
 * with one fp32 value a row beside them or without. The four calls follow each other; other work
 * may be done between start and wait. */
struct moe_exchange {
    const struct moe_chunk *chunk;
    bool back, values;
    struct buffer from, from_values, to, to_values;
    struct transfer *rows_way, *values_way;
};
/* Takes what is to be sent. */
void moe_exchange_open(const struct moe_call *call, struct moe_exchange *exchange);
/* Takes what is to be received, and starts. */
void moe_exchange_start(const struct moe_call *call, struct moe_exchange *exchange);
/* All is there; what was sent is given back. */
void moe_exchange_wait(const struct moe_call *call, struct moe_exchange *exchange);
/* What was received is given back. */
void moe_exchange_close(const struct moe_call *call, struct moe_exchange *exchange);

/* rows.c */
/* Whether the backward brings each chunk's rows again, so that those of one chunk are there at a
 * time. */
bool moe_replays_chunks(const struct moe_call *call);
/* m3: takes what is to be sent and fills it. */
void moe_rows_open(const struct moe_call *call, const struct moe_chunk *chunk,
                   const struct buffer *normed, struct moe_exchange *ret);
/* m4 ended, m5. */
void moe_rows_arrive(const struct moe_call *call, struct moe_chunk *chunk,
                     struct moe_exchange *arrived);
/* m5 with ep 1. */
void moe_rows_here(const struct moe_call *call, struct moe_chunk *chunk,
                   const struct buffer *normed);
/* m6 */
void moe_rows_gate_up(const struct moe_call *call, struct moe_chunk *chunk);

#endif
