/* estimator.h - peaks and step times of many layouts of one question. The same figures as
 * budget_worst and step_time_compute, to the bit; but what layouts share (liveness tables of a
 * layer kind, units of state, communicators, the places where a peak can fall) is worked out once,
 * in tables of fixed size. One estimator for a thread. */
#ifndef RANKFIT_PLANNER_ESTIMATE_ESTIMATOR_H
#define RANKFIT_PLANNER_ESTIMATE_ESTIMATOR_H

#include "planner/time/step_time.h"

struct estimator;

/* facts: all but choices and measured; what it points to must outlive the estimator. NULL: no
 * memory. */
struct estimator *estimator_open(const struct budget_input *facts);
void estimator_close(struct estimator *estimator);
/* Before anything is asked: its tables take all of their memory from the system, so that what is
 * held does not depend on what will be. Returns how many bytes they are. */
uint64_t estimator_settle(struct estimator *estimator);

/* Of the worst rank, as budget_worst finds it. */
struct peaks {
    uint64_t peak_bytes, peak_upper_bytes, host_bytes;
};
void estimator_peaks(struct estimator *estimator, const struct choices *choices, struct peaks *ret);

/* A bound of peak_upper_bytes from below, whatever is gathered ahead: with all layers recomputed
 * one for any recompute, else one that falls with every further layer that is. */
uint64_t estimator_floor(struct estimator *estimator, const struct choices *choices);

/* The same for whatever loss; for whatever sharding, shard widths and offload too, of choices whose
 * state is sharded over all ranks there are and offloaded where that is open. */
uint64_t estimator_state_floor(struct estimator *estimator, const struct choices *choices);
uint64_t estimator_body_floor(struct estimator *estimator, const struct choices *choices);
/* Of a plain schedule one for any chunks too; of a cap one for any that keeps more rows. */
uint64_t estimator_saved_floor(struct estimator *estimator, const struct choices *choices);

/* What the first stage holds alone, none of its layers at work: no less where it has more layers.
 */
uint64_t estimator_first_floor(struct estimator *estimator, const struct choices *choices);

/* Seconds that no sharding, loss, recompute, offload and nothing gathered ahead can take off. */
double estimator_least_seconds(struct estimator *estimator, const struct choices *choices);

/* What takes no less whatever is chosen: a micro-batch's loss; the end of a step. */
struct least_seconds {
    double loss, end;
};
/* The same as above with these; recompute as chosen: what more recompute cannot take off. */
double estimator_layer_seconds(struct estimator *estimator, const struct choices *choices,
                               const struct least_seconds *least);
/* The same of a plain schedule, its rows moved by SMs, for any chunks, cap and copy engines. */
double estimator_relaxed_seconds(struct estimator *estimator, const struct choices *choices,
                                 const struct least_seconds *least);
/* The last of these for the first stage alone: no less where it has more layers. */
double estimator_first_seconds(struct estimator *estimator, const struct choices *choices,
                               const struct least_seconds *least);
/* The loss alone, of a micro-batch. */
double estimator_loss_seconds(struct estimator *estimator, const struct choices *choices);
/* The update alone, of the stage that takes longest or of the first: of choices whose state is
 * sharded over all ranks one for any sharding. */
double estimator_update_seconds(struct estimator *estimator, const struct choices *choices,
                                bool first);

/* Items, seconds, bubble and exposed communication as step_time_compute finds them; tokens per
 * second too; nothing of FLOPs, and nothing of what hides a gather. */
void estimator_time(struct estimator *estimator, const struct choices *choices,
                    struct step_time *ret);

#endif
