/* layout.h - which ranks work together. Pure arithmetic on degrees: no files, no model, no machine.
 * Two views of the same ranks, innermost axis first:
 *     dense  tp, cp, fsdp, d_rep, pp        world = tp * cp * fsdp * d_rep * pp
 *     expert etp, ep, e_fsdp, e_rep, pp     world = etp * ep * e_fsdp * e_rep * pp */
#ifndef RANKFIT_BASE_LAYOUT_LAYOUT_H
#define RANKFIT_BASE_LAYOUT_LAYOUT_H

#include <stdint.h>

enum { LAYOUT_MAX_STAGES = 128, LAYOUT_MAX_RANKS = 65536 };

struct layout {
    int tp, pp, vpp, cp, ep, etp;
    int fsdp, d_rep;   /* dp = fsdp * d_rep */
    int e_fsdp, e_rep; /* e_dp = e_fsdp * e_rep */
    int micro_batch;   /* sequences of one micro-batch of one data-parallel rank */
    int micro_batches; /* accumulated per step: global_batch / (dp * micro_batch) */
    int stage_layers[LAYOUT_MAX_STAGES]; /* pp entries, summing to the model's layers */
};

enum axis {
    AXIS_TP,
    AXIS_CP,
    AXIS_FSDP,
    AXIS_D_REP,
    AXIS_PP, /* dense view */
    AXIS_ETP,
    AXIS_EP,
    AXIS_E_FSDP,
    AXIS_E_REP,
    AXIS_E_PP, /* expert view */
    AXIS_COUNT
};
extern const char *const axis_names[AXIS_COUNT];

static inline int layout_dp(const struct layout *l)
{
    return l->fsdp * l->d_rep;
}
static inline int layout_e_dp(const struct layout *l)
{
    return l->e_fsdp * l->e_rep;
}
static inline int layout_world(const struct layout *l)
{
    return l->tp * l->cp * l->fsdp * l->d_rep * l->pp;
}

int layout_degree(const struct layout *layout, enum axis axis);

/* Coordinate of rank along axis, 0..degree-1. */
int layout_coordinate(const struct layout *layout, enum axis axis, int rank);

/* Ranks that differ from `rank` only along the axes of `axes` (bits 1 << axis, all of one view), in
 * ascending rank order; returns how many. ret needs room for the product of the degrees. */
int layout_group(const struct layout *layout, unsigned axes, int rank, int *ret);

/* The groups that hold one copy of sharded state: dense fsdp x cp, experts e_fsdp. */
static inline int layout_dense_shards(const struct layout *l)
{
    return l->fsdp * l->cp;
}
static inline int layout_expert_shards(const struct layout *l)
{
    return l->e_fsdp;
}

/* First layer of a stage and the stage of a rank. */
int layout_first_layer(const struct layout *layout, int stage);
int layout_stage(const struct layout *layout, int rank);

/* Splits layers over pp stages as evenly as can be, remainders to inner stages. */
void layout_split_layers(struct layout *layout, int layers);

/* The same, where the last stage carries `more` layers that are not of the stack: trained
 * prediction layers. They count as its layers while it keeps one of its own. */
void layout_split_with_last(struct layout *layout, int layers, int more);

/* Tokens one rank holds of one micro-batch: micro_batch * seq / cp. */
uint64_t layout_local_tokens(const struct layout *layout, uint64_t seq_tokens);

/* Rows of a vocabulary whose matrices tp ranks share: its own where tp divides it, else the next
 * multiple of 128 x tp (Megatron-LM's make-vocab-size-divisible-by, NVIDIA/Megatron-LM). */
uint64_t layout_padded_vocab(uint64_t vocab, int tp);

#endif
