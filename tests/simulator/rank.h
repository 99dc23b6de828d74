/* rank.h - the state of a played step, shared by the simulator's sources. */
#ifndef RANKFIT_TESTS_SIMULATOR_RANK_H
#define RANKFIT_TESTS_SIMULATOR_RANK_H

#include "tests/simulator/simulator.h"

#include "base/model/tensor.h"

#include <stdbool.h>

enum {
    SIM_MAX_CHUNKS = 64,
    SIM_MAX_PARTS = 4,
    SIM_MAX_USES = 2 * MODEL_MAX_LAYERS + 3,
    SIM_MAX_PREDICTIONS = 16,
    SIM_MAX_INPUTS = 8 + SIM_MAX_PREDICTIONS
};

/* A tensor alive; bytes 0: none. */
struct held {
    enum item item;
    uint64_t bytes;
};

/* What one part of a unit of state has: elements, padded, and the ranks that share them. Of the
 * trained ones, those with a second moment. */
struct part {
    uint64_t elements, trained, second;
    int shards;
    enum mesh mesh;
};
struct unit {
    int count;
    struct part part[SIM_MAX_PARTS];
};

/* Full gradients of up to two units that are reduced together. */
struct unit_gradients {
    const struct unit *unit, *second;
    struct held full[SIM_MAX_PARTS];
};

/* Tensors that a layer keeps from forward or replay to its backward. */
struct kept_rows {
    struct held xe, we, map, h;
};
struct kept {
    struct kept_rows rows, chunk[SIM_MAX_CHUNKS];
    struct held x1;
    struct held qkv, o, lse;                                                /* attention */
    struct held query_latent, latent, q, kv;                                /* through latents */
    struct held index_key, index_weights, index_query, choices;             /* indexers */
    struct held in, b, a, triangle, gate;                                   /* linear attention */
    struct held probs, chosen, weights, slots, latent_sum, hs, scalar_gate; /* experts */
    struct held hd;                                                         /* dense MLP */
};

/* A micro-batch on its way through the stage. */
struct pass {
    int micro_batch;
    struct held inputs[SIM_MAX_INPUTS], offsets, dx;
    struct held input[SIM_MAX_PREDICTIONS];     /* of a prediction layer */
    struct held state[1 + SIM_MAX_PREDICTIONS]; /* what the trunk and each prediction give */
    struct held *choices, *latent_sum;          /* one a layer; beside checkpoints */
    struct kept *kept;
};

/* A run of layers that a micro-batch passes at once: all of the stage's, or one of vpp. */
struct run {
    int from, to;
    bool first, last; /* of the stage */
};

struct rank {
    const struct sim_job *job;
    const struct model *m;
    const struct layout *l;
    const struct primitives *p;
    struct sim_result *ledger;
    struct sim_phase phase;
    uint64_t phase_most; /* alive in it so far */
    int stage, first, layers;
    int predictions; /* trained prediction layers, which stand behind the stage's layers */
    bool has_embedding, has_head;
    uint64_t T, N, A, H; /* local tokens; those of a region that tp splits; of the context group */
    uint64_t tp, cp, rows;
    uint64_t longest, pieces; /* tokens of the longest sequence; packed pieces, or 0 */
    int micro_batches;
    bool forward_only, first_step;
    uint64_t moments;      /* that a first step makes at its end */
    uint64_t delta_inputs; /* matrices that read a delta net's input */
    bool fused_experts;    /* gate and up of an expert are one matrix */
    struct unit embedding, head, prediction, extra, frozen;
    struct unit *layer; /* one a layer of the stage */
    /* Uses of units in order, and what is gathered for each. */
    int uses, next_use, order[SIM_MAX_USES];
    bool issued[SIM_MAX_USES];
    struct held gathered[SIM_MAX_USES][SIM_MAX_PARTS];
    struct held old[SIM_MAX_PARTS], old_receive[SIM_MAX_PARTS]; /* gradients of the unit before */
    struct pass *passes;                                        /* one a micro-batch */
    /* Offloaded checkpoints. */
    uint64_t alive, most_alive, on_host;
};

/* A forward that keeps nothing, what attention made, or all that stays; a replay. */
enum mode { PLAIN, KEEP_ATTENTION, SAVE, REPLAY };

/* One layer at work. */
struct layer {
    struct rank *s;
    struct pass *pass;
    int local, index; /* in the stage, in the model; prediction layers follow */
    bool predicted;
    enum mixer mixer;
    enum ffn ffn;
    enum mode mode;
    struct kept *k;
    uint64_t S, R; /* routed rows sent, received */
};

/* trained.c */
bool trains(const struct rank *s, enum component component);
/* Of the adapters of a component's matrices; 0: none. */
uint64_t adapter_rank(const struct rank *s, enum component component);
/* Whether the layer's weights of a component are trained. */
bool layer_trains(const struct layer *y, enum component component);
/* Whether backward reads what products of the component read. */
bool reads_inputs(const struct layer *y, enum component component);
/* The same of a layer's mixer; [T, r] of the adapters of all matrices that read its input. */
bool mixer_reads(const struct layer *y);
struct held input_adapter(struct layer *y);
struct held output_adapter(struct layer *y);
/* What the output's gradients read again, `bytes`, beside the adapter; its gradient is left. */
struct held output_backward(struct layer *y, uint64_t bytes);
bool is_matrix(const struct tensor *tensor);
void count_adapted(struct rank *s);
/* Width of the adapters of an expert's gate and up projections. */
uint64_t expert_up_adapters(const struct rank *s);
bool is_muons(const struct rank *s, const struct tensor *tensor);
void play_optimizer(struct rank *s);

/* ledger.c */
struct held make(struct rank *s, enum item item, uint64_t bytes);
uint64_t make_size(uint64_t bytes); /* as the arena rounds it */
void drop(struct rank *s, struct held *t);
void drop_all(struct rank *s, struct held *const *list, size_t count);
void enter(struct rank *s, enum sim_phase_kind kind, int micro_batch, int layer);
void end_phase(struct rank *s);
struct held working(struct layer *y, uint64_t bytes);
struct held keep(struct layer *y, enum item item, uint64_t bytes);
void unless_kept(struct layer *y, struct held *t); /* releases it where it does not stay */
/* The same of what attention makes; a replay that finds it there does not attend. */
struct held attended(struct layer *y, uint64_t bytes);
void unless_attended(struct layer *y, struct held *t);
bool attends(const struct layer *y);
/* [T, H] when tensor parallelism gathers or sums; none otherwise. */
struct held whole_hidden(struct layer *y);

/* simulator.c: a micro-batch arrives, and is done with. */
struct pass *begin_pass(struct rank *s, int micro_batch);
void end_pass(struct rank *s, struct pass *pass);
struct run run_of(const struct rank *s, int index);

/* rows.c: tokens of a row at all ranks that share it; of the longest piece with its padding; of a
 * micro-batch with the most pieces how many, 0 where none are packed. */
uint64_t sim_row(const struct sim_job *job);
uint64_t sim_longest(const struct sim_job *job);
uint64_t sim_pieces(const struct sim_job *job);

/* units.c: state, what is gathered, gradients on their way */
void units_init(struct rank *s);
void units_done(struct rank *s);
void make_state(struct rank *s);
/* Moments that a first step makes before it updates. */
void make_moments(struct rank *s);
/* The most that saving one part of a unit takes at rank 0, or at the others. */
uint64_t save_most(struct rank *s, bool first_rank);
/* Device memory that the reference model's units pass through in its pass. */
struct held make_reference_slots(struct rank *s);
/* Uses of a pass over the layers `from` to `to`: the embedding before the first; behind the last
 * the prediction layers, the head, and then the layers once more. */
void begin_order(struct rank *s, const struct run *run, bool returns);
void begin_use(struct rank *s, int use);
void end_use(struct rank *s, int use);
struct unit_gradients open_gradients(struct rank *s, const struct unit *unit,
                                     const struct unit *second);
void close_gradients(struct rank *s, struct unit_gradients *gradients);
void drop_old(struct rank *s);
void reduce_state(struct rank *s);
uint64_t sim_vocab(const struct rank *s);

/* checkpoints.c */
/* What the host's memory for them is filled with at the most. */
uint64_t host_checkpoints(const struct rank *s);
/* The input of a layer; what waits beside it, by its place in the stage. */
void make_checkpoint(struct rank *s);
void make_extras(struct rank *s, struct pass *pass, int local);
void drop_checkpoint(struct rank *s, struct pass *pass, int local);
bool is_recomputed(const struct rank *s, int local);
enum mode forward_mode(const struct rank *s, int local);

/* loss.c */
/* The head's gradients, with the embedding's where they are tied: none where shards travel. */
struct unit_gradients open_head(struct rank *s);
/* On a state, which is released: dx is made, or added to where it is there. */
void play_loss(struct rank *s, struct pass *pass, struct held *state);
/* The log-probabilities of a micro-batch's tokens, whose last state is there, without gradients. */
void play_log_probabilities(struct rank *s, struct held *state);

/* logprob.c */
void play_forward_alone(struct rank *s);

/* predicted.c: trained prediction layers. Forward they begin their use, backward they end it. */
void predictions_forward(struct rank *s, struct pass *pass, int use);
void predictions_backward(struct rank *s, struct pass *pass, int use);

/* layer.c, and what halves of a layer share */
/* Kinds of a layer of the stage, or of a prediction layer behind them. */
enum mixer mixer_of(const struct rank *s, int local);
enum ffn ffn_of(const struct rank *s, int local);
void layer_forward(struct rank *s, struct pass *pass, int local, enum mode mode);
void layer_backward(struct rank *s, struct pass *pass, int local);
void make_output(struct layer *y);

/* The mixers: each makes x1 at its end, or starts from dx. */
void attention_forward(struct layer *y);
void attention_backward(struct layer *y);
void latent_forward(struct layer *y);
void latent_backward(struct layer *y);
void sparse_forward(struct layer *y);
void sparse_backward(struct layer *y);
void delta_forward(struct layer *y);
void delta_backward(struct layer *y);
void lightning_forward(struct layer *y);
void lightning_backward(struct layer *y);
void mamba_forward(struct layer *y);
void mamba_backward(struct layer *y);
/* Their last step forward, and c7 to c9: the normed input again, its gradient. */
bool ends_early(const struct layer *y); /* no half behind it asks for what is made again */
void mixer_output(struct layer *y);
void mixer_input_backward(struct layer *y, struct held *const *after, size_t count, bool gathers);

/* Feed-forward halves. */
void dense_forward(struct layer *y);
void dense_backward(struct layer *y);
void moe_forward(struct layer *y);
void moe_backward(struct layer *y);
void router_forward(struct layer *y);
void shared_forward(struct layer *y, struct held *n2);
/* Whether backward reads the normed input of the experts. again: rows are dispatched from it. */
bool reads_n2(const struct layer *y);
bool reads_n2_late(const struct layer *y); /* after the shared expert's */
void shared_backward(struct layer *y, bool again, struct held *n2, struct held *dn2);
void chunked_forward(struct layer *y);
void chunked_backward(struct layer *y);
bool exchanges(const struct rank *s);
uint64_t expert_width(const struct rank *s);
uint64_t latent_bytes(const struct rank *s); /* [N, latent width of the experts] */
void keep_latent_sum(struct layer *y);
uint64_t gate_up_width(const struct rank *s, uint64_t width);

/* context.c: what context parallelism moves at attention or a recurrence; scratch of backward. */
enum { CONTEXT_HELD = 16 };
struct context_held {
    int count;
    struct held held[CONTEXT_HELD];
};
struct context_held context_make(struct layer *y, bool backward);
void context_drop(struct layer *y, struct context_held *c);
bool gathers_keys(const struct rank *s);
uint64_t attention_scratch(const struct rank *s);
uint64_t latent_scratch(const struct rank *s);
uint64_t head_block(const struct rank *s);

static inline uint64_t split(int count, uint64_t ranks)
{
    return ((uint64_t)count + ranks - 1) / ranks;
}

#endif
