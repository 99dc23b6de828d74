/* stage_time.h - the seconds of one pipeline stage from its layers, counted by class. Internal to
 * planner/predict. */
#ifndef RANKFIT_PLANNER_PREDICT_STAGE_TIME_H
#define RANKFIT_PLANNER_PREDICT_STAGE_TIME_H

#include "planner/predict/clock.h"
#include "planner/predict/collective.h"
#include "planner/step/layer.h"

/* One layer of a kind and one micro-batch, without its unit's collectives. */
struct kind_seconds {
    struct pass layer[2];      /* [recomputed]: all passes */
    double forward, hiding[2]; /* what a gather, and a reduce-scatter, can hide behind */
    double alone;              /* a forward with the collectives inside the layer */
};
void kind_seconds_init(const struct budget_input *in, const struct machine *machine,
                       const struct step_sizes *sizes, enum mixer mixer,
                       const struct step_layer *layer, struct kind_seconds *ret);

struct unit_seconds {
    double gather, scatter;
};
void unit_seconds_init(const struct budget_input *in, const struct unit *unit,
                       struct unit_seconds *ret);

/* Muon on a layer's matrices of one part: orthogonalizing all of them; the longest one; gathering
 * momenta and returning updates. */
struct muon_seconds {
    double products, longest, exchange;
};
struct muon_unit {
    struct muon_seconds dense, expert;
};
/* muon_seconds.c - of a kind of layer. */
void muon_unit_init(const struct budget_input *in, const struct machine *machine, enum mixer mixer,
                    enum ffn ffn, struct muon_unit *ret);

/* loss_seconds.c - the head and its loss, forward and backward, of one micro-batch. */
void loss_cost(const struct budget_input *in, const struct machine *machine, struct pass *ret);
/* Seconds of the head without gradients, for log-probabilities; 0 where there is no such pass. */
double logprob_head_seconds(const struct budget_input *in, const struct machine *machine);

/* mtp_seconds.c - adds to a layer of the kind the join that makes it a trained MTP layer. */
void add_joins(const struct budget_input *in, const struct machine *machine,
               struct kind_seconds *ret);

/* The same for all stages of a layout. */
struct predictor;
struct units;
struct loss_shared;
struct step_terms {
    const struct budget_input *in;
    const struct machine *machine;
    const struct layer_classes *classes;
    const struct units *units;
    const struct loss_shared *loss;
    const struct kind_seconds *kinds; /* of the classes, and behind them of an MTP layer */
};
void step_terms_init(struct predictor *predictor, struct step_terms *ret);
const struct kind_seconds *terms_prediction(const struct step_terms *terms); /* NULL: none */

/* Elements of a stage's state, before they are sharded. */
struct stage_sums {
    struct trained_sum {
        double all, second;
    } dense, expert;                      /* trained elements of all that it holds */
    double dense_weights, expert_weights; /* of layers, embedding and head, frozen ones too */
    double buffered;                      /* dense ones of full gradients in one micro-batch */
    double copied;                        /* of the embedding, where another stage holds it too */
};
void stage_sums_init(const struct step_terms *terms, const struct stage *stage,
                     struct stage_sums *ret);

/* gather.c - of one micro-batch: seconds of gathers and reduce-scatters that nothing hides; of
 * gathers alone, in a forward that keeps nothing. */
double exposed_gathers(const struct step_terms *terms, const struct stage *stage);
double exposed_forward_gathers(const struct step_terms *terms, const struct stage *stage);

/* end.c - trained elements of a stage's parts. */
struct elements {
    double dense, expert; /* whole */
    double n, e;          /* ranks that share them */
    double gradients;     /* a rank's: held for the whole step */
    double updated;       /* a rank's */
    double second;        /* of these, with a second moment */
};
void elements_init(const struct budget_input *in, const struct stage_sums *sums,
                   struct elements *ret);
/* What comes once a step, into item. */
void end_of_step(const struct step_terms *terms, const struct stage *stage,
                 const struct stage_sums *sums, const struct elements *part, double *item);
/* muon_seconds.c - adds what a stage's matrices take at the end of a step: bringing them together,
 * and orthogonalizing those of the fullest rank. */
void muon_end(const struct step_terms *terms, const struct stage *stage, double *item);

/* The slowest stage so far, and the end of the step that takes longest. */
struct step_sums {
    bool any;
    struct pass slowest;
    double slowest_seconds, longest_end;
    double slowest_logprob, reference_link; /* one micro-batch's pass; beyond it, from the host */
    double end[TIME_ITEM_COUNT];
};
void step_sums_add(const struct step_terms *terms, const struct stage *stage,
                   struct step_sums *sums);

/* Items and their sum, bubble and exposed communication; no rates. */
void step_seconds(const struct budget_input *in, const struct step_sums *sums,
                  struct step_time *ret);

#endif
