/* simulator.h - one training step of one rank played event by event, as ARCHITECTURE.md ("The
 * training step, tensor by tensor") tells it: every tensor is made under its owner, rounded up to
 * the arena's 256 bytes, and released when its words say. A slow second opinion on the closed form
 * of budgets. Owns: sizes of units of state, schedules, lives of tensors. Shares with the planner
 * what base/ says of models, layouts and routing, and must not know the planner. Communicators,
 * context, modules and slack, which are measured, are not played. */
#ifndef RANKFIT_TESTS_SIMULATOR_SIMULATOR_H
#define RANKFIT_TESTS_SIMULATOR_SIMULATOR_H

#include "base/hardware/hardware.h"
#include "base/item.h"
#include "base/layout/key.h"
#include "base/layout/lengths.h"
#include "base/model/model.h"
#include "base/routing/routing.h"

#include <stddef.h>
#include <stdint.h>

enum sim_phase_kind { SIM_START, SIM_FORWARD, SIM_LOSS, SIM_BACKWARD, SIM_REDUCE, SIM_OPTIMIZER };

/* layer -1: none, or the embedding's. */
struct sim_phase {
    enum sim_phase_kind kind;
    int stage, micro_batch, layer;
};

struct sim_job {
    const struct model *model;
    const struct hardware *hardware;
    const struct choices *choices;
    uint64_t seq_tokens;
    int rank;
    const uint64_t *received;      /* routed rows of each layer of the model; NULL: sim_rows() */
    const uint64_t *const *chunks; /* of them, those of each chunk; NULL: an even share by tokens */
    struct routing routing;
    const struct lengths *lengths; /* of packed pieces; NULL: all sequences have seq_tokens */
    /* Told, unless NULL, when a phase ends: the most that was alive in it. */
    void (*phase_ended)(const struct sim_phase *phase, uint64_t bytes, void *context);
    void *context;
};

struct sim_result {
    uint64_t live[ITEM_COUNT], max[ITEM_COUNT], at_peak[ITEM_COUNT];
    uint64_t total, peak;
    struct sim_phase phase; /* of the peak */
    uint64_t host_bytes;    /* what the host holds instead */
};

/* Plays the whole step; what was made for it has been released at its end. */
void simulate(const struct sim_job *job, struct sim_result *ret);

/* The first step of an engine that makes moments when its optimizer first needs them. */
void simulate_first(const struct sim_job *job, struct sim_result *ret);

/* The passes for log-probabilities that are beside the step (`rl`), one after another. */
void simulate_log_probabilities(const struct sim_job *job, struct sim_result *ret);

/* Plain memory that saving takes at the rank, unit by unit. */
uint64_t simulate_save(const struct sim_job *job);

/* What stays between two steps. */
void simulate_rest(const struct sim_job *job, struct sim_result *ret);

/* Rows that the rank receives in a layer: the profile's mean for its place in the expert group. */
uint64_t sim_rows(const struct sim_job *job);

#endif
