/* collective.h - how long collectives take among a group of ranks. */
#ifndef RANKFIT_PLANNER_PREDICT_COLLECTIVE_H
#define RANKFIT_PLANNER_PREDICT_COLLECTIVE_H

#include "planner/predict/parts.h"

/* A group of `size` ranks, `stride` apart. */
struct ranks {
    int size, stride;
};
struct ranks dense_shard_ranks(const struct layout *l);
struct ranks expert_shard_ranks(const struct layout *l);

/* All-gather of `bytes` in all (the whole tensor); reduce-scatter likewise. */
double gather_seconds(const struct hardware *h, struct ranks ranks, double bytes);
double scatter_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* The same among the ranks that share a sequence, in two dimensions where these span nodes. */
double context_gather_seconds(const struct hardware *h, struct ranks ranks, double bytes);
double context_scatter_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* All-to-all: `bytes` leave or reach one rank, its own share included. */
double exchange_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* Its least time. */
double exchange_latency(const struct hardware *h);
/* One message to the next of the group. */
double send_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* Gathering a unit's weights; reduce-scattering its gradients. */
double unit_gather_seconds(const struct budget_input *in, const struct unit *unit);
double unit_scatter_seconds(const struct budget_input *in, const struct unit *unit);

/* One collective of hidden states over ranks of tp: partial sums of embeddings, or gradients. */
double hidden_tensor_seconds(const struct budget_input *in);
/* Of a plain schedule's exchange on SMs, what chunks and copy engines leave exposed at least. */
double least_exchange_share(const struct hardware *h);

/* pieces.c - mean over a row's tokens: of the keys that a causal query attends to, of at most
 * `most` (0: any), padding included; of the length of its own piece, without padding. */
double causal_keys(const struct budget_input *in, double most);
/* Of those in its chunk. */
double chunk_keys(const struct budget_input *in, double chunk);
double piece_tokens(const struct budget_input *in);

/* a / b, or 0 where a machine does not say b. */
static inline double over(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* context_links.c: ranks among which blocks of keys go round; 1: none do. */
int ring_ranks(const struct budget_input *in);

#endif
