/* parts.h - the pieces of a budget, one source file each, put together by walk.c. Internal to
 * planner/predict. All sizes are of one rank; bytes saturate (base/checked.h). */
#ifndef RANKFIT_PLANNER_PREDICT_PARTS_H
#define RANKFIT_PLANNER_PREDICT_PARTS_H

#include "planner/predict/budget.h"
#include "planner/predict/layer_bytes.h"
#include "planner/predict/stages.h"

#include "base/hardware/hardware.h"

/* trained.c - what of a part is trained: padded elements that have a gradient and a master weight,
 * and of these the ones with a second moment. */
struct trained {
    uint64_t all, second;
};

/* A unit of state (the embedding, a layer, the head): padded elements of its dense and its expert
 * part on this rank's slice of tp, ep and etp, before sharding. Weights, frozen ones and adapters
 * included; and what is trained. */
struct unit {
    uint64_t dense, expert;
    struct trained dense_trained, expert_trained;
};
/* A layer's unit, tensor by tensor; the head's of its matrix and its norm. */
struct unit trained_layer_unit(const struct budget_input *in, int layer);
struct unit trained_head_unit(const struct budget_input *in, uint64_t matrix, uint64_t norm);
/* Matrices of a mixer that read its normed input; each may have an adapter. */
int mixer_input_matrices(const struct budget_input *in, enum mixer mixer);
/* Whether no primitive makes state other than that of AdamW over all weights. */
bool trains_plainly(const struct primitives *p);
/* Bytes of a trained element: of its master weight; of one moment. */
uint64_t master_bytes(const struct primitives *p);
uint64_t moment_bytes(const struct primitives *p);
uint64_t padded_elements(uint64_t elements, int shards);

/* muon.c - orthogonalization of one matrix at a time at the end of the step. */
bool muon_updates(const struct primitives *p, const struct layer_tensor *tensor);
/* Ranks among which the matrices of a part are dealt: those that hold one copy of them. */
int muon_dense_ranks(const struct budget_input *in);
int muon_expert_ranks(const struct budget_input *in);
struct muon_bytes {
    uint64_t gathered, workspace;
};
/* Raises *ret to what the matrices of a kind of layer need. */
void muon_bytes_raise(const struct budget_input *in, enum mixer mixer, enum ffn ffn,
                      struct muon_bytes *ret);

/* state.c */

/* Vocabulary rows of a rank: padded where tp does not divide them. */
uint64_t vocab_rows(const struct budget_input *in);

/* Units at the ends of the pipeline as stage `index` would hold them, and its extra state: of MTP
 * layers and the vision tower. */
struct end_units {
    struct unit embedding, head, prediction, extra; /* prediction: of all such layers */
};
void end_units_init(const struct budget_input *in, int index, struct end_units *ret);
struct unit layer_unit(const struct budget_input *in, int layer);
/* Whether a stage holds the embedding: its first, a tied head's, and that of trained MTP layers. */
static inline bool stage_holds_embedding(const struct model *model, const struct stage *stage)
{
    return stage->has_embedding ||
           (stage->has_head && (model->tied || model_predicts(model)));
}
/* Adds a unit's state to items; what is held without being trained; returns what the host keeps
 * instead. */
void unit_state_add(const struct budget_input *in, const struct unit *unit, uint64_t *items);
void frozen_state_add(const struct budget_input *in, uint64_t *items);
uint64_t state_offload(const struct primitives *p, uint64_t *items);

/* reference.c - what reinforcement learning adds to state. The reference model's weights; what the
 * host holds of them is returned. */
uint64_t reference_add(const struct budget_input *in, uint64_t *items);
/* Device memory that its units pass through where the host holds them, of the largest unit's
 * `weights` bytes: those of two units. */
uint64_t reference_slots_bytes(const struct budget_input *in, uint64_t weights);
/* What is beside a layer's input while a pass that keeps nothing is at the layer, the place-th of a
 * run of layers from `first` on: what an indexer chose, experts' sums at their latent width. */
uint64_t passing_extras_bytes(const struct budget_input *in, int first, int layers, int place);
/* Passes beside the step: 0 to 2. */
int logprob_passes(const struct primitives *p);

/* Bytes of one part held by a rank for each element width. */
uint64_t arena_bytes(uint64_t elements, uint64_t element_bytes);

/* units.c - what gathering a unit and reducing its gradients takes. */
uint64_t unit_gathered_bytes(const struct budget_input *in, const struct unit *unit);
struct unit_gradient {
    uint64_t dense, expert;                 /* full buffers */
    uint64_t dense_receive, expert_receive; /* 1/shards */
};
void unit_gradient_bytes(const struct budget_input *in, const struct unit *unit,
                         struct unit_gradient *ret);
uint64_t unit_receive_bytes(const struct budget_input *in, const struct unit *unit);
/* Under ring_dtp the head's shards circulate: nothing of it is gathered. */
bool head_circulates(const struct budget_input *in);

/* checkpoints.c - micro-batches in flight and what each holds. */
struct in_flight {
    int micro_batches;        /* whose inputs are held, the current one included */
    uint64_t other_layers;    /* layer inputs held for all runs of layers but the one at work */
    uint64_t other_extras;    /* what these hold beside */
    uint64_t checkpoint;      /* bytes of one layer's input */
    uint64_t inputs;          /* bytes of one micro-batch's ids and targets */
    int first, layers;        /* the stage's first layer (0 without extras); how many */
    int run;                  /* of these, passed at once */
    uint64_t choices;         /* what a recomputed layer with an indexer saves beside */
    uint64_t latent_sum;      /* ... with experts that work at a latent width */
    int recomputed;           /* layers of the stage that are recomputed: its first ones */
    uint64_t device_limit;    /* offload: of inputs, what stays on the device; else UINT64_MAX */
    uint64_t offloaded_bytes; /* on the host, at the most */
};
/* Of a stage with so many layers. */
void in_flight_init(const struct budget_input *in, int stage, int layers, struct in_flight *ret);
/* All but `checkpoint` and `inputs`, which are there already. */
void in_flight_counts(const struct budget_input *in, int stage, int layers, struct in_flight *ret);
/* Runs of a stage: vpp, or one more where vpp does not divide its layers. */
static inline int run_count(int run, int layers)
{
    return (layers + run - 1) / run;
}
/* Whether one more input than `layers` of the run at work would not add to the device's. */
bool checkpoints_are_full(const struct in_flight *f, int layers);
/* `inputs` of layers of the run at work and those of all other runs in flight; beside them what
 * `layers` layers from `from` on save. */
uint64_t checkpoint_bytes(const struct budget_input *in, const struct in_flight *f, int inputs,
                          int from, int layers);
/* The latter alone. */
uint64_t extras_bytes(const struct budget_input *in, const struct in_flight *f, int from,
                      int layers);
uint64_t chosen_bytes(const struct budget_input *in); /* keys that one layer's indexer chose */
uint64_t inputs_bytes(const struct budget_input *in); /* of one micro-batch */
int inputs_values(const struct budget_input *in);     /* of 4 bytes, for a token */

/* passes.c - what the runs of layers that are not at work hold, pass by pass. */
enum way { WAY_FORWARD, WAY_BACKWARD, WAYS };
/* Kept by one pass of a run while it is in flight, beside its layers' inputs. */
struct run_bytes {
    uint64_t saved, extras;
};
/* The fullest pass of a run, and the first of these; what is beside it. */
struct beside {
    int micro_batch;                  /* of the pass */
    int order;                        /* among all passes of the step; 0: where all are alike */
    uint64_t runs;                    /* others in flight */
    uint64_t micro_batches;           /* in flight, the pass's own included */
    uint64_t saved, extras;           /* of the others */
    uint64_t most_saved, most_extras; /* of each the most beside any pass of the run: beside_most */
};
/* of, ret: one a run of the stage, of which run_count() tells how many; ret from run `from` on. */
void beside_init(const struct budget_input *in, int stage, const struct in_flight *f,
                 const struct run_bytes *of, int from, struct beside (*ret)[WAYS]);
/* of: as before, of all runs. */
void beside_most(const struct budget_input *in, int stage, const struct in_flight *f,
                 const struct run_bytes *of, struct beside (*beside)[WAYS]);

/* dispatch.c - routed rows of one layer and micro-batch. */
struct dispatch {
    uint64_t sent, received;             /* whole micro-batch */
    uint64_t chunk_sent, chunk_received; /* of one chunk */
    int chunks, delay;                   /* delay: chunks that weight gradients wait */
    bool overlaps;                       /* exchanges of one chunk beside the work of another */
};
/* Rows that the ranks of one expert-parallel coordinate receive (-1: the fullest): the point
 * estimate and the one exceeded with the quantile's probability. */
struct rows_received {
    uint64_t point, upper;
};
struct rows_received dispatch_rows(const struct budget_input *in, int ep_rank);
void dispatch_init(const struct budget_input *in, uint64_t received, struct dispatch *ret);
uint64_t dispatch_bound(const struct budget_input *in);
uint64_t dispatch_reserved(const struct budget_input *in);
/* Rows of the fullest rank at the profile's quantile; where the router itself decides, the room
 * that an executor keeps for them. */
uint64_t dispatch_most_rows(const struct budget_input *in);

/* sizes.c - values of the operation lists' symbols, and the conditions of a kind of layer. */
void layer_sizes(const struct budget_input *in, uint64_t received, struct step_sizes *ret);
void layer_sizes_mixer(const struct budget_input *in, enum mixer mixer, struct step_sizes *sizes);
void layer_kind(const struct budget_input *in, enum mixer mixer, enum ffn ffn,
                struct step_kind *ret);
/* Heads whose keys and values are expanded from gathered latents at a time. */
uint64_t latent_head_block(const struct budget_input *in);
uint64_t local_tokens(const struct budget_input *in); /* T */
uint64_t all_tokens(const struct budget_input *in);   /* of a micro-batch at all ranks of cp */
/* Tokens of the longest sequence, or packed piece with its padding. */
uint64_t longest_sequence(const struct budget_input *in);
/* Of the micro-batch with the most packed pieces, how many; 0: none are packed. */
uint64_t packed_pieces(const struct budget_input *in);
int packed_micro_batches(const struct budget_input *in);
/* Of a step; asked many times for every layout. */
static inline int micro_batches_of(const struct budget_input *in)
{
    const struct choices *c = in->choices;
    return c->primitives.tokens_per_gpu == 0 ? c->layout.micro_batches : packed_micro_batches(in);
}
double step_tokens_of(const struct budget_input *in); /* trained on in a step, by all ranks */
uint64_t norm_tokens(const struct budget_input *in);  /* T / tp */

/* context.c - what context parallelism adds at attention in one piece (allgather_kv has rows in the
 * liveness tables), and attention's workspace. */
struct context_bytes {
    uint64_t forward, backward, workspace;
};
void context_bytes(const struct budget_input *in, enum mixer mixer, struct context_bytes *ret);

/* loss.c - the three moments of the loss: normed, tiles at work, gradient stream made. */
struct loss_bytes {
    uint64_t normed, tiles, stream; /* loss_working */
    uint64_t logits;                /* during the tiles */
};
void loss_bytes(const struct budget_input *in, struct loss_bytes *ret);
/* The same for log-probabilities without gradients; no stream. */
void logprob_bytes(const struct budget_input *in, struct loss_bytes *ret);

/* predicted.c - moments of trained prediction layers, between the stage's forward and its loss. */
enum predicted_gather {
    PREDICTED_OWN,      /* the use of the prediction layers is current */
    PREDICTED_AND_HEAD, /* the head's is, and theirs is still there */
    PREDICTED_GONE      /* the head's alone */
};
struct predicted_moment {
    enum phase_kind kind;
    int layer; /* from 0: of the prediction layers */
    int mode;  /* enum step_mode of the layer at work; -1: none */
    int saved; /* prediction layers, but the one at work, whose saved tensors are there */
    enum predicted_gather gather;
    uint64_t checkpoints;                   /* beside the stage's */
    uint64_t working, loss_working, logits; /* without what the layer at work has */
    uint64_t gradients;                     /* gathered */
};
enum { PREDICTED_MAX = 16 * 8 + 1 };
struct predicted {
    int count;
    bool saves;
    uint64_t pending; /* gradients on their way when the main loss begins */
    struct predicted_moment moments[PREDICTED_MAX];
};
/* Full gradients of the head, of the prediction layers and of the embedding. */
struct predicted_gradients {
    struct unit_gradient head, own, embedding;
};
void predicted_init(const struct budget_input *in, const struct loss_bytes *loss,
                    const struct predicted_gradients *gradients, struct predicted *ret);

/* The choices under which an MTP layer runs: all that it has is trained, even where the trunk's kinds
 * are frozen. */
struct choices predicted_choices(const struct budget_input *in);

/* pipeline.c, communicators.c, runtime.c */
uint64_t pipeline_bytes(const struct budget_input *in, int stage);
int held_micro_batches(const struct budget_input *in, int stage);
/* Layers that are passed at once: all of a stage's, or a run of vpp. */
static inline int run_layers(int vpp, int layers)
{
    return vpp > 1 && layers >= vpp ? layers / vpp : layers;
}
/* Past the last use of a unit that is gathered ahead while use `use` of a stage is current.
 * head_uses: between forward and backward; 0 without a head. */
int pass_end(const struct layout *layout, int layers, bool embeds, int head_uses, int use);
uint64_t communicator_bytes(const struct budget_input *in);
int communicator_count(const struct budget_input *in);
/* "world of 64, tp of 4, ep = e_fsdp of 8": each communicator of a rank, by what it is for. */
void communicator_list(const struct budget_input *in, char *ret, size_t size);
void runtime_add(const struct budget_input *in, uint64_t *items);
/* What packing may add to the live bytes: a modelled share of what comes and goes. */
uint64_t runtime_doubt_bytes(uint64_t dynamic_and_logits_bytes);

#endif
