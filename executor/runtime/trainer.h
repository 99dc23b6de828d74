/* trainer.h - one rank's training of one plan: set up once, then step after step. Owns groups,
 * arena, state; borrows plan, fabric, backend and data. Knows nothing of files or of how it was
 * started. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_TRAINER_H
#define RANKFIT_EXECUTOR_RUNTIME_TRAINER_H

#include "base/plan/measurement.h"
#include "executor/nn/transformer.h"
#include "executor/runtime/data.h"

/* How a run is set up. */
struct trainer_options {
    uint64_t seed;
    long refused_take;   /* the arena refuses this take, counted from 1 over all passes; 0: none */
    uint64_t live_limit; /* of this rank's tensors; 0: none */
    /* Called as each phase of a real step begins; the step fails unless it returns 0. May be NULL.
     */
    int (*on_phase)(enum run_phase phase, int step, void *context, struct diag_list *reterr);
    void *context;
    struct observers observers;
};

struct trainer {
    struct work work;
    struct meshes mesh;
    struct state state;
    struct transformer transformer;
    struct buffer workspace;
    const struct data *data;
    int32_t *ids, *targets; /* host memory, one micro-batch */
    bf16 *hidden;           /* host memory for every micro-batch's final hidden, when asked for */
    uint64_t *chunk_rows;   /* what work.routed says of chunks */
    double phase_seconds[PHASE_TIME_COUNT]; /* of the last step */
    /* Called when gradients are summed, before they are clipped; may be NULL. */
    void (*on_gradients)(struct trainer *trainer, void *context);
    void *on_gradients_context;
    struct trainer_options options;
};

struct step_result {
    double loss; /* mean over the step's tokens, all ranks */
    double gradient_norm, seconds;
};

/* Dry pass, reservation, first weights. trainer_close is due in any case. trainer_open: the options
 * are the seed and nothing else. */
int trainer_open_with(struct trainer *trainer, const struct plan *plan, struct fabric *fabric,
                      struct backend *backend, const struct data *data,
                      const struct trainer_options *options, struct diag_list *reterr);
int trainer_open(struct trainer *trainer, const struct plan *plan, struct fabric *fabric,
                 struct backend *backend, const struct data *data, uint64_t seed,
                 struct diag_list *reterr);
void trainer_close(struct trainer *trainer);

/* step from 1. -1 with a diagnostic; the trainer is then good for closing only. */
int trainer_step(struct trainer *trainer, int step, struct step_result *ret);

/* What was measured begins anew: the arena's maxima and the routed rows are those of the steps that
 * follow. */
void trainer_measure(struct trainer *trainer);

/* Keeps the normed final hidden states of each step in trainer->hidden. */
int trainer_keep_hidden(struct trainer *trainer);

/* First sequence of a micro-batch in the global batch of a step, for the rank that works on part
 * data_rank of it. */
uint64_t trainer_first_sequence(const struct plan *plan, int data_rank, int micro_batch);
int64_t trainer_batch_tokens(const struct plan *plan);
/* Which tokens of each of those sequences `rank` holds. */
struct zigzag trainer_order(const struct plan *plan, int rank);

#endif
