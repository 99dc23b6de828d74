/* routing.h - what experts receive. Closed-form loads of a rank for the planner, and the same
 * profiles as draws for the executor and for tests. Profiles: balanced, natural, "P:h" (80:4),
 * "zipf:A". */
#ifndef RANKFIT_BASE_ROUTING_ROUTING_H
#define RANKFIT_BASE_ROUTING_ROUTING_H

#include "base/diag.h"

#include <stddef.h>
#include <stdint.h>

enum routing_kind { ROUTING_BALANCED, ROUTING_NATURAL, ROUTING_HOT, ROUTING_ZIPF };

struct routing {
    enum routing_kind kind;
    double hot_fraction;  /* ROUTING_HOT: probability that a token is hot (80:4 -> 0.8) */
    int hot_experts;      /* ROUTING_HOT: experts 0..hot_experts-1 */
    double zipf_exponent; /* ROUTING_ZIPF: choice weights ~ (rank + 1)^-A, distinct choices */
};

int routing_parse(const char *text, struct pos at, struct routing *ret, struct diag_list *reterr);
void routing_format(const struct routing *routing, char *ret, size_t size);

/* Rows that one expert-parallel rank receives in one layer and micro-batch. */
struct routing_load {
    double mean_rows; /* of the fullest rank by expectation */
    double variance_rows;
    uint64_t point_rows;   /* the planner's point estimate: mean of the fullest rank, rounded up */
    uint64_t upper_rows;   /* exceeded on any of the ep ranks with probability <= 1 - quantile */
    uint64_t bound_rows;   /* cannot be exceeded: ep * tokens * min(k, E / ep) */
    uint64_t copies_point; /* deduplicated tokens received: a token counts once a rank */
};

/* Beyond these the closed form of zipf gives the hard bound. */
enum { ROUTING_MAX_TOP_K = 256, ROUTING_MAX_EXPERTS = 4096 };

struct routing_shape {
    uint64_t tokens; /* local tokens of one source rank */
    int top_k, experts, ep;
};

/* Closed form, no sampling; under a microsecond, some tens of them for zipf. For `balanced` the
 * point is tokens * k exactly and the upper bound that of uniform random routing; `natural` is
 * predicted as `balanced`. rank -1: the fullest rank. */
void routing_load(const struct routing *routing, const struct routing_shape *shape, int rank,
                  double quantile, struct routing_load *ret);

/* The k distinct experts of one token, a pure function of its arguments so that every layout draws
 * the same (token: index in the global batch of the step). ROUTING_NATURAL, which the router itself
 * decides, draws uniformly. ret: top_k entries; 1 <= top_k <= experts.
 * Balanced: choice j of token t is number t * k + j of an endless walk over the experts in
 * digit-reversed order (base: the prime factors of E, twos first), started at a point that depends
 * on seed and layer. Any E choices in a row hit every expert once, and where ep is a product of the
 * first of those factors (every power of two that divides E) any ep choices in a row hit every rank
 * once: each source's contiguous range of T tokens sends every rank exactly T * k / ep rows when
 * that is a whole number, T * k / E rows to every expert likewise. */
void routing_draw(const struct routing *routing, uint64_t seed, int layer, uint64_t token,
                  int top_k, int experts, int *ret);

#endif
