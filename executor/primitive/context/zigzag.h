/* zigzag.h - which tokens of a sequence a rank of a context-parallel group holds. Pure arithmetic.
 *
 * A sequence is cut into 2 cp equal chunks; rank r holds chunks r and 2 cp - 1 - r, in this order,
 * so that every rank sees as many keys through the causal mask as any other. With cp 1 there is one
 * run, the whole sequence. Rows of a rank: sequence after sequence, run after run. */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_CONTEXT_ZIGZAG_H
#define RANKFIT_EXECUTOR_PRIMITIVE_CONTEXT_ZIGZAG_H

#include <stdint.h>

struct zigzag {
    int64_t seq_tokens; /* of a whole sequence: a multiple of 2 cp when cp is above 1 */
    int cp, rank;       /* ranks of the group, and this one's place in it */
};

/* Runs of neighbouring tokens that a rank holds of one sequence: 1 or 2. */
static inline int zigzag_runs(const struct zigzag *z)
{
    return z->cp > 1 ? 2 : 1;
}

static inline int64_t zigzag_run_tokens(const struct zigzag *z)
{
    return z->seq_tokens / ((int64_t)z->cp * zigzag_runs(z));
}

/* Number of a run's chunk in the sequence; its first token is that many runs from the start. */
static inline int zigzag_chunk(const struct zigzag *z, int run)
{
    return run == 0 ? z->rank : 2 * z->cp - 1 - z->rank;
}

static inline int64_t zigzag_run_first(const struct zigzag *z, int run)
{
    return zigzag_chunk(z, run) * zigzag_run_tokens(z);
}

/* Tokens of one sequence on this rank. */
static inline int64_t zigzag_tokens(const struct zigzag *z)
{
    return z->seq_tokens / z->cp;
}

/* Index of this rank's row among the group's tokens in sequence order. */
static inline int64_t zigzag_token(const struct zigzag *z, int64_t row)
{
    int64_t here = zigzag_tokens(z), length = zigzag_run_tokens(z), place = row % here;
    return row / here * z->seq_tokens + zigzag_run_first(z, (int)(place / length)) + place % length;
}

#endif
