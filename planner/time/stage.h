/* stage.h - the seconds of one pipeline stage from sums over its layers, so that whoever has the
 * sums need not go through the layers. Internal to planner/time and planner/estimate. */
#ifndef RANKFIT_PLANNER_TIME_STAGE_H
#define RANKFIT_PLANNER_TIME_STAGE_H

#include "planner/time/cost.h"

/* One layer of a kind and one micro-batch, without its unit's collectives. */
struct kind_seconds {
    struct pass layer[2];      /* [recomputed]: all passes */
    double forward, hiding[2]; /* what a gather, and a reduce-scatter, can hide behind */
    double alone;              /* a forward with the collectives inside the layer */
};
void kind_seconds_init(const struct budget_input *in, const struct machine *machine,
                       uint64_t received, enum mixer mixer, enum ffn ffn, struct kind_seconds *ret);

/* Muon on a layer's matrices of one part: orthogonalizing all of them; the longest one; gathering
 * momenta and returning updates. */
struct muon_seconds {
    double products, longest, exchange;
};
struct muon_unit {
    struct muon_seconds dense, expert;
};
struct unit_seconds {
    double gather, scatter;
};
void unit_seconds_init(const struct budget_input *in, const struct unit *unit,
                       struct unit_seconds *ret);

/* predicted.c - one trained prediction layer, its join included. */
void predicted_seconds_init(const struct budget_input *in, const struct machine *machine,
                            uint64_t received, struct kind_seconds *ret);

/* muon.c - of a kind of layer; zero under another optimizer. */
void muon_unit_init(const struct budget_input *in, const struct machine *machine, enum mixer mixer,
                    enum ffn ffn, struct muon_unit *ret);

/* The same for all stages. kinds: of those that there are. */
struct step_terms {
    const struct budget_input *in;
    const struct machine *machine;
    const struct kind_seconds *kinds[MIXER_COUNT][FFN_COUNT];
    struct unit_seconds units[MIXER_COUNT][FFN_COUNT]; /* of the model's first layer of the kind */
    struct unit_seconds embedding, head, prediction;   /* prediction: of all such layers */
    const struct unit *embedding_unit, *head_unit;
    const struct kind_seconds *predicted; /* NULL: there are no prediction layers, or untrained */
    const struct pass *loss;
    double logprob; /* seconds of the head without gradients; 0 where no pass needs it */
    /* Under Muon, of those that there are: as kinds. Nobody else looks at it. */
    const struct muon_unit *muon[MIXER_COUNT][FFN_COUNT];
};

struct stage_sums {
    bool has_embedding, has_head;
    int index, first, count;               /* which stage; its layers */
    int layers[MIXER_COUNT][FFN_COUNT][2]; /* [recomputed] */
    struct trained_sum {
        double all, second;
    } dense, expert;                      /* trained elements of all that it holds */
    double dense_weights, expert_weights; /* of layers, embedding and head, frozen ones too */
    double buffered;                      /* dense ones of full gradients in one micro-batch */
    double copied;                        /* of the embedding, where another stage holds it too */
};

/* Adds `times` parts; exact, as are whole numbers below 2^53. */
static inline void trained_sum_add(struct trained_sum *sum, double times,
                                   const struct trained *part)
{
    sum->all += times * (double)part->all;
    sum->second += times * (double)part->second;
}
static inline void stage_sums_add_layers(struct stage_sums *sums, double times,
                                         const struct unit *unit)
{
    sums->dense_weights += times * (double)unit->dense;
    sums->expert_weights += times * (double)unit->expert;
    trained_sum_add(&sums->dense, times, &unit->dense_trained);
    trained_sum_add(&sums->expert, times, &unit->expert_trained);
}

/* What a stage may hold beside its layers; extra: prediction layers and vision tower of this one.
 */
struct stage_ends {
    const struct unit *embedding, *head, *prediction, *extra;
};
/* Adds them to the sums of a stage that has all else. */
void stage_sums_add_ends(const struct budget_input *in, const struct stage_ends *ends,
                         struct stage_sums *ret);

/* gather.c - of one micro-batch: seconds of gathers and reduce-scatters that nothing hides; of
 * gathers alone, in a forward that keeps nothing. */
double exposed_gathers(const struct step_terms *terms, const struct stage_sums *stage);
double exposed_forward_gathers(const struct step_terms *terms, const struct stage_sums *stage);

/* predicted.c - adds all prediction layers' layers and losses in one micro-batch. */
void predictions_add(const struct step_terms *terms, struct pass *ret);

/* end.c - trained elements of a stage's parts. */
struct elements {
    double dense, expert; /* whole */
    double n, e;          /* ranks that share them */
    double gradients;     /* a rank's: held for the whole step */
    double updated;       /* a rank's */
    double second;        /* of these, with a second moment */
};
void elements_init(const struct budget_input *in, const struct stage_sums *stage,
                   struct elements *ret);
/* What comes once a step, into item. */
void end_of_step(const struct step_terms *terms, const struct stage_sums *stage,
                 const struct elements *part, double *item);

/* muon.c - adds what a stage's matrices take at the end of a step: bringing them together, and
 * orthogonalizing those of the fullest rank. */
void muon_end(const struct step_terms *terms, const struct stage_sums *stage, double *item);

/* The slowest stage so far, and the end of the step that takes longest. */
struct step_sums {
    bool any;
    struct pass slowest;
    double slowest_seconds, longest_end;
    double slowest_logprob, reference_link; /* one micro-batch's pass; beyond it, from the host */
    double end[TIME_ITEM_COUNT];
};
void step_sums_add(const struct step_terms *terms, const struct stage_sums *stage,
                   struct step_sums *sums);

/* Items and their sum, bubble and exposed communication; no rates. */
void step_seconds(const struct budget_input *in, const struct step_sums *sums,
                  struct step_time *ret);

#endif
