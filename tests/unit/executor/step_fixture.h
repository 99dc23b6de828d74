/* step_fixture.h - small models, plans made without a planner, and a training step run on the ranks
 * at hand or on this rank alone. For tests started by mpirun. */
#ifndef RANKFIT_TESTS_UNIT_EXECUTOR_STEP_FIXTURE_H
#define RANKFIT_TESTS_UNIT_EXECUTOR_STEP_FIXTURE_H

#include "executor/runtime/dump.h"
#include "executor/runtime/trainer.h"

enum { SEQ_TOKENS = 24 };

/* MoE: 2 layers of 8 experts top 2 and a gated shared one, head norms. Dense: 2 layers, tied. */
void step_moe_model(struct model *ret);
void step_dense_model(struct model *ret);
/* Everything that attention may have: an output gate, biases, a window of 7 tokens, rotary
 * embedding on half of the head, head norms and other norms centred at zero; over the experts of
 * the first or the MLP of the second. */
void step_featured_model(struct model *ret, bool moe);

/* A delta net and a layer of gated attention, as the published hybrids name and store them. */
enum hybrid { HYBRID_QWEN3_5_MOE, HYBRID_QWEN3_NEXT, HYBRID_QWEN3_5_DENSE };
void step_hybrid_model(struct model *ret, enum hybrid kind);

/* Degrees of a plan; zeros mean 1. */
struct step_layout {
    int fsdp, d_rep, ep, e_fsdp, e_rep;
    int micro_batch, micro_batches;
    enum sharding sharding;
    int prefetch_units, comm_streams, cp;
    int chunks, wgrad_delay; /* of the experts; chunks 0: plain */
};
void step_plan(struct plan *ret, const struct model *model, const struct step_layout *layout,
               const char *routing);

/* What a run leaves at rank 0. */
struct step_run {
    struct dump dump; /* of the first step */
    double loss[3], norm[3];
    struct arena_record memory;
};

/* Runs up to 3 steps; fails the test with the diagnostics when it cannot. */
void step_run(struct fabric *fabric, const struct plan *plan, int steps, struct step_run *ret);

/* A world of this rank alone beside the real one. */
struct fabric *step_alone(struct fabric *fabric);
void step_alone_close(struct fabric *alone);

/* What the ranks run on: the host (step_host.c), or GPUs (tests/unit/cuda/step_cuda.c). */
struct fabric *step_open_fabric(int *argc, char ***argv, struct diag_list *reterr);
struct backend *step_open_backend(struct diag_list *reterr);
void step_close_backend(struct backend *backend);
extern const bool step_has_latents; /* whether the backend runs MLA */

/* The processes of this test; opened by step_main before the tests run. */
extern struct fabric *step_fabric;
struct CMUnitTest;
int step_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests,
              unsigned long count);

#endif
