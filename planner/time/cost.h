/* cost.h - seconds of one layer kind, pass by pass; of collectives; of the loss. Internal to
 * planner/time. */
#ifndef RANKFIT_PLANNER_TIME_COST_H
#define RANKFIT_PLANNER_TIME_COST_H

#include "planner/budget/parts.h"
#include "planner/time/step_time.h"

/* collective.c - a group of `size` ranks, `stride` apart. */
struct ranks {
    int size, stride;
};
struct ranks dense_shard_ranks(const struct layout *l);
struct ranks expert_shard_ranks(const struct layout *l);

/* All-gather of `bytes` in all (the whole tensor); reduce-scatter likewise. */
double gather_seconds(const struct hardware *h, struct ranks ranks, double bytes);
double scatter_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* All-to-all: `bytes` leave or reach one rank, its own share included. */
double exchange_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* Its least time. */
double exchange_latency(const struct hardware *h);
/* One message to the next of the group. */
double send_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* Gathering a unit's weights; reduce-scattering its gradients. */
double unit_gather_seconds(const struct budget_input *in, const struct unit *unit);
double unit_scatter_seconds(const struct budget_input *in, const struct unit *unit);

/* pieces.c - mean over a row's tokens: of the keys that a causal query attends to, of at most
 * `most` (0: any), padding included; of the length of its own piece, without padding. */
double causal_keys(const struct budget_input *in, double most);
/* Of those in its chunk. */
double chunk_keys(const struct budget_input *in, double chunk);
double piece_tokens(const struct budget_input *in);

/* machine.c - what one unit of work takes on this machine for this model and sequence, taken once
 * for a step. */
struct machine {
    double flop, expert_flop;                 /* seconds a FLOP of products */
    double attention_flop, attention_back;    /* of attention, forward and backward */
    double operand_byte, expert_operand_byte; /* seconds a byte of a product's operands */
    double moved_byte;                        /* of elementwise kernels */
    double call, expert_call, kernel;         /* seconds of one call, beside its work */
    double launch, product_launch;            /* host's seconds for one operation, one product */
    double plateau;                           /* rows an expert of full efficiency; 0: any */
};
void machine_init(const struct budget_input *in, struct machine *ret);

/* One pass: seconds of each time item that the pass itself knows. */
struct pass {
    double item[TIME_ITEM_COUNT];
};
double pass_seconds(const struct pass *pass);
/* Sum of the items that keep the device at work or waiting for its host. */
double compute_seconds(const struct pass *pass);

/* walk.c - a pass in the order of its operations: the host puts them on the device's queue, the
 * device works through it. Two clocks, so that what the host adds shows where it does. */
struct walk {
    const struct machine *machine;
    struct pass *pass;
    double device, host, busy;
};
void walk_begin(struct walk *w, const struct machine *machine, struct pass *pass);
/* `calls` operations that take `seconds` together. */
void walk_run(struct walk *w, enum time_item item, double calls, double seconds);
/* `calls` products of `flops` and `bytes` of operands in all. */
void walk_multiply(struct walk *w, enum time_item item, double calls, double flops, double bytes);
/* A product of c[m, n] over k; c_bytes: of one element of c, counted twice where it is added to. */
void walk_product(struct walk *w, enum time_item item, double m, double n, double k,
                  double c_bytes);
/* One product an expert and chunk, `experts` of them over `rows` rows in all, each with a weight of
 * n x k; weight_bytes: read or written for an element of it. */
void walk_experts(struct walk *w, double experts, double rows, double n, double k,
                  double weight_bytes);
/* An elementwise kernel that reads and writes `bytes`; several that do so together. */
void walk_move(struct walk *w, enum time_item item, double bytes);
void walk_moves(struct walk *w, enum time_item item, double calls, double bytes);
/* The host waits for the device `times` times: it reads what was just computed. */
void walk_read(struct walk *w, int times);
/* Writes down what the host added. */
void walk_end(struct walk *w);

/* What the operations of a layer are counted from. */
struct layer_shape {
    const struct budget_input *in;
    const struct machine *machine;
    const struct residency_shape *shape;
    double hidden;          /* H */
    double tokens, normed;  /* T, T / tp */
    double sent, received;  /* routed rows of the micro-batch: S, R */
    double experts;         /* local ones */
    double gradient_bytes;  /* of one element of a weight's gradient */
    double attention_flops; /* of one forward */
    int chunks;
    unsigned when;
    bool local;                /* attention over a window or a chunk of its own */
    bool attended;             /* a replay beside what attention made */
    unsigned trained, adapted; /* bit i: component i */
    double rank;               /* of adapters */
};
void layer_shape_init(const struct budget_input *in, const struct machine *machine,
                      const struct residency_shape *shape, uint64_t received,
                      struct layer_shape *ret);

static inline double width_of(const struct layer_shape *s, enum width width)
{
    return (double)s->shape->width[width];
}

/* weight.c - what trained weights and adapters add beside x W and its dx. Experts' operate on the
 * rows received, a call for each expert and chunk. */
/* The gradient [m, n] of a component's weight over k rows, added to. */
void weight_gradient(struct walk *w, const struct layer_shape *s, enum component component,
                     double m, double n, double k);
void expert_gradient(struct walk *w, const struct layer_shape *s, double n, double k);
/* Of `parts` matrices that read the same input and write `out` elements together. */
void adapter_forward(struct walk *w, const struct layer_shape *s, enum component component,
                     double rows, double in, double out, int parts);
void adapter_backward(struct walk *w, const struct layer_shape *s, enum component component,
                      double rows, double in, double out, int parts);
void expert_adapter_forward(struct walk *w, const struct layer_shape *s, double in, double out,
                            int parts);
void expert_adapter_backward(struct walk *w, const struct layer_shape *s, double in, double out,
                             int parts);
/* Whether backward reads what the component's products read: for a gradient or an adapter. */
bool inputs_are_read(const struct layer_shape *s, enum component component);

/* mixer.c and ffn.c: the two halves. replay: the forward again, up to the last tensor that backward
 * needs. */
void mixer_forward(struct walk *w, const struct layer_shape *s, enum mixer mixer);
void mixer_backward(struct walk *w, const struct layer_shape *s, enum mixer mixer);
void ffn_forward(struct walk *w, const struct layer_shape *s, enum ffn ffn, bool replay);
void ffn_backward(struct walk *w, const struct layer_shape *s, enum ffn ffn);

/* ordered.c: attention's backward under attention_deterministic. */
void ordered_attention_backward(struct walk *w, const struct layer_shape *s);

/* latent.c and state_space.c: kinds of mixers that no executor runs. */
void latent_forward(struct walk *w, const struct layer_shape *s, enum mixer mixer);
void latent_back(struct walk *w, const struct layer_shape *s, enum mixer mixer);
/* Of sparse attention with an indexer: what that chose is saved, what it projects is made again. */
void chosen_replay(struct walk *w, const struct layer_shape *s, enum mixer mixer);
void state_space_forward(struct walk *w, const struct layer_shape *s, enum mixer mixer);
void state_space_back(struct walk *w, const struct layer_shape *s, enum mixer mixer);

/* The passes of one layer kind. nested: what a layer that is kept replays all the same. */
struct layer_cost {
    struct pass forward, replay, backward, nested;
};
void compute_cost(const struct layer_shape *s, enum mixer mixer, enum ffn ffn,
                  struct layer_cost *ret);

/* loss.c - the head and its loss, forward and backward, of one micro-batch. */
void loss_cost(const struct budget_input *in, const struct machine *machine, struct pass *ret);

/* Seconds of the head without gradients, for log-probabilities; 0 where there is no such pass. */
double logprob_head_seconds(const struct budget_input *in, const struct machine *machine);

/* exposed.c - collectives inside a layer that nothing hides; adds to the cost. */
void exposed_cost(const struct budget_input *in, uint64_t received, enum mixer mixer, enum ffn ffn,
                  struct layer_cost *cost);

/* context.c - those of contexts, cp > 1. */
void context_cost(const struct budget_input *in, const struct residency_shape *shape,
                  enum mixer mixer, struct layer_cost *cost);

/* One collective of the embedding's rows over ranks of tp, which split the vocabulary: partial sums
 * brought to the ranks that keep them, or their gradients gathered. */
double embedding_tensor_seconds(const struct budget_input *in);

/* Of a plain schedule's exchange on SMs, what chunks and copy engines leave exposed at least. */
double least_exchange_share(const struct hardware *h);

/* a / b, or 0 where a machine does not say b. */
static inline double over(double a, double b)
{
    return b > 0 ? a / b : 0;
}

#endif
