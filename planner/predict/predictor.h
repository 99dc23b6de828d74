/* predictor.h - what predicts: memory and step time of layouts of one question. What layouts share
 * (lists of a layer kind, its bytes and seconds, units of state, communicators, the places where a
 * peak can fall) is worked out once and remembered in tables of fixed size, so that the same code
 * serves one answer and a million. One predictor for a thread. */
#ifndef RANKFIT_PLANNER_PREDICT_PREDICTOR_H
#define RANKFIT_PLANNER_PREDICT_PREDICTOR_H

#include "planner/predict/step_time.h"

/* How much a predictor remembers. */
enum predictor_use { PREDICTOR_ONE_LAYOUT, PREDICTOR_MANY_LAYOUTS };

/* facts: all but choices and measured; what it points to must outlive the predictor. NULL: no
 * memory. */
struct predictor *predictor_open(const struct budget_input *facts, enum predictor_use use);
/* The same, whose seconds are those of the upper end of a step's range (range.h): the fullest rank
 * receives its upper rows, chunks hide nothing, state is gathered when it is needed. Whatever
 * bounds seconds from below then bounds these. */
struct predictor *predictor_open_slowest(const struct budget_input *facts, enum predictor_use use);
void predictor_close(struct predictor *predictor);
/* Before anything is asked: its tables take all of their memory from the system, so that what is
 * held does not depend on what will be. Returns how many bytes they are. */
uint64_t predictor_settle(struct predictor *predictor);

/* The layout that is asked about from now on; measured: at the rows that this rank received, NULL:
 * at the profile's. Both must stay as long as something is asked. */
void predictor_choose(struct predictor *predictor, const struct choices *choices,
                      const struct measured_rank *measured);
const struct budget_input *predictor_input(const struct predictor *predictor);

/* One layout asked about once: its worst rank and, unless NULL, its time. -1: no memory. */
int predict_once(const struct budget_input *in, struct rank_budget *ret_worst,
                 struct step_time *ret_time);

/* Of the worst rank of a layout, without a measurement. */
struct layout_peaks {
    uint64_t peak_bytes, peak_upper_bytes, host_bytes;
};
void predictor_peaks(struct predictor *predictor, const struct choices *choices,
                     struct layout_peaks *ret);

/* A bound of peak_upper_bytes from below, whatever is gathered ahead: with all layers recomputed
 * one for any recompute, else one that falls with every further layer that is. */
uint64_t predictor_floor(struct predictor *predictor, const struct choices *choices);

/* The same for whatever loss; for whatever sharding, shard widths and offload too, of choices whose
 * state is sharded over all ranks there are and offloaded where that is open. */
uint64_t predictor_state_floor(struct predictor *predictor, const struct choices *choices);
uint64_t predictor_body_floor(struct predictor *predictor, const struct choices *choices);
/* Of a plain schedule one for any chunks too; of a cap one for any that keeps more rows. */
uint64_t predictor_saved_floor(struct predictor *predictor, const struct choices *choices);

/* What the first stage holds alone, none of its layers at work: no less where it has more layers.
 */
uint64_t predictor_first_floor(struct predictor *predictor, const struct choices *choices);

/* Seconds that no sharding, loss, recompute, offload and nothing gathered ahead can take off. */
double predictor_least_seconds(struct predictor *predictor, const struct choices *choices);

/* What takes no less whatever is chosen: a micro-batch's loss; the end of a step. */
struct least_seconds {
    double loss, end;
};
/* The same as above with these; recompute as chosen: what more recompute cannot take off. */
double predictor_layer_seconds(struct predictor *predictor, const struct choices *choices,
                               const struct least_seconds *least);
/* The same of a plain schedule, its rows moved by SMs, for any chunks, cap and copy engines. */
double predictor_relaxed_seconds(struct predictor *predictor, const struct choices *choices,
                                 const struct least_seconds *least);
/* The last of these for the first stage alone: no less where it has more layers. */
double predictor_first_seconds(struct predictor *predictor, const struct choices *choices,
                               const struct least_seconds *least);
/* The loss alone, of a micro-batch. */
double predictor_loss_seconds(struct predictor *predictor, const struct choices *choices);
/* The update alone, of the stage that takes longest or of the first: of choices whose state is
 * sharded over all ranks one for any sharding. */
double predictor_update_seconds(struct predictor *predictor, const struct choices *choices,
                                bool first);

/* Items, seconds, bubble and exposed communication, and tokens per second; nothing of FLOPs, and
 * nothing of what hides a gather. */
void predictor_time(struct predictor *predictor, const struct choices *choices,
                    struct step_time *ret);
/* The upper end of a step's range, by a predictor of predictor_open_slowest. */
double predictor_slowest_seconds(struct predictor *slowest, const struct choices *choices);

#endif
