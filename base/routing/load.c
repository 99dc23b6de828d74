/* Rows and copies that a rank receives, in closed form. ep * T tokens choose independently; each
 * sends X rows to the rank, a bounded number whose mean, variance and P(X > 0) follow from the
 * profile. Sums of them have a tail that Bernstein's inequality bounds without any assumption. */
#include "base/checked.h"
#include "base/routing/race.h"
#include "base/routing/routing.h"

#include <math.h>

/* One token's rows at one rank. */
struct token_rows {
    double mean, variance;
    double present; /* P(X > 0) */
    int most;
};

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

/* Drawing n of N without replacement, K of which lie on the rank: mean n K/N, variance n K/N
 * (1 - K/N) (N - n)/(N - 1), P(0) = prod (N - K - i)/(N - i). */
static struct token_rows hypergeometric(int population, int on_rank, int draws)
{
    struct token_rows ret = { 0, 0, 0, at_most(on_rank, draws) };
    double absent = 1.0;

    if (population == 0 || draws == 0)
        return ret;
    double share = (double)on_rank / population;
    ret.mean = draws * share;
    if (population > 1)
        ret.variance = ret.mean * (1.0 - share) * (population - draws) / (population - 1.0);
    for (int i = 0; i < draws && absent > 0; i++)
        absent *= (double)(population - on_rank - i) / (population - i);
    ret.present = 1.0 - (absent > 0 ? absent : 0.0);
    return ret;
}

/* Two independent draws added. */
static struct token_rows sum_of(struct token_rows a, struct token_rows b)
{
    return (struct token_rows){ a.mean + b.mean, a.variance + b.variance,
                                1.0 - (1.0 - a.present) * (1.0 - b.present), a.most + b.most };
}

/* a with probability p, else b: E Var + Var E. */
static struct token_rows mixture(double p, struct token_rows a, struct token_rows b)
{
    struct token_rows ret = { p * a.mean + (1.0 - p) * b.mean, 0,
                              p * a.present + (1.0 - p) * b.present, 0 };
    double apart = a.mean - b.mean;

    ret.variance = p * a.variance + (1.0 - p) * b.variance + p * (1.0 - p) * apart * apart;
    if (p > 0)
        ret.most = a.most;
    if (p < 1 && b.most > ret.most)
        ret.most = b.most;
    return ret;
}

static struct token_rows hot_rows(const struct routing *routing, const struct routing_shape *shape,
                                  int rank)
{
    int width = shape->experts / shape->ep, k = shape->top_k;
    int hot = at_most(routing->hot_experts, shape->experts), others = shape->experts - hot;
    int hot_here = hot - rank * width;

    hot_here = hot_here < 0 ? 0 : at_most(hot_here, width);
    int from_hot = at_most(k, hot);
    int spill = k > others ? k - others : 0; /* a cold token where the others are too few */
    struct token_rows hot_token = sum_of(hypergeometric(hot, hot_here, from_hot),
                                         hypergeometric(others, width - hot_here, k - from_hot));
    struct token_rows cold_token = sum_of(hypergeometric(hot, hot_here, spill),
                                          hypergeometric(others, width - hot_here, k - spill));
    return mixture(routing->hot_fraction, hot_token, cold_token);
}

/* From the distribution of X by its tail: E X = sum P(X >= j), E X^2 = sum (2j - 1) P(X >= j). */
static struct token_rows zipf_rows(const struct routing *routing, const struct routing_shape *shape,
                                   int rank)
{
    double at_least[ROUTING_MAX_TOP_K];
    int width = shape->experts / shape->ep, k = shape->top_k;
    struct token_rows ret = { 0, 0, 0, at_most(k, width) };
    double square = 0;

    race_at_least(routing->zipf_exponent, shape->experts, k, rank * width, width, at_least);
    for (int j = 1; j <= k; j++) {
        ret.mean += at_least[j - 1];
        square += (2 * j - 1) * at_least[j - 1];
    }
    ret.variance = square > ret.mean * ret.mean ? square - ret.mean * ret.mean : 0.0;
    ret.present = at_least[0];
    return ret;
}

static struct token_rows rows_of(const struct routing *routing, const struct routing_shape *shape,
                                 int rank)
{
    switch (routing->kind) {
    case ROUTING_HOT:
        return hot_rows(routing, shape, rank);
    case ROUTING_ZIPF:
        return zipf_rows(routing, shape, rank);
    case ROUTING_BALANCED:
    case ROUTING_NATURAL:
        break;
    }
    return hypergeometric(shape->experts, shape->experts / shape->ep, shape->top_k);
}

/* Rows exceeded with probability at most exp(-log_odds). Bernstein: for n independent X with
 * variance v and X - mean <= M, P(S - n mean >= d) <= exp(-d^2 / 2 / (n v + M d / 3)); solved for
 * d. */
static double tail_rows(struct token_rows token, double tokens, double log_odds)
{
    double third = (token.most - token.mean) * log_odds / 3.0;
    if (third < 0)
        third = 0;
    return tokens * token.mean + third +
           sqrt(third * third + 2.0 * tokens * token.variance * log_odds);
}

static uint64_t whole_rows(double rows, uint64_t bound)
{
    double up = ceil(rows - 1e-6); /* a mean that is whole may lie a rounding error above */
    return up >= (double)bound ? bound : up <= 0 ? 0 : (uint64_t)up;
}

/* Under zipf the other ranks hold no more than rank 0 and no more than it leaves; their variance is
 * at most m (1 - m / width), that of independent choices with the same mean (sampling without
 * replacement only lowers it), which grows up to m = width / 2. */
static struct token_rows zipf_others(const struct routing_shape *shape, struct token_rows fullest)
{
    int experts_here = shape->experts / shape->ep;
    double left = shape->top_k - fullest.mean, width = experts_here;
    double mean = left < fullest.mean ? left : fullest.mean;
    double widest = mean < width / 2 ? mean : width / 2;

    return (struct token_rows){ mean, widest * (1.0 - widest / width), fullest.present,
                                fullest.most };
}

/* The fullest rank by expectation, and the largest upper bound of all ranks. Rows fall off with the
 * rank, or, where few tokens are hot, rise; between them lies at most one rank with some hot
 * experts. */
static struct token_rows fullest_rank(const struct routing *routing,
                                      const struct routing_shape *shape, double tokens,
                                      double log_odds, double *ret_upper)
{
    struct token_rows fullest = rows_of(routing, shape, 0);

    *ret_upper = tail_rows(fullest, tokens, log_odds);
    if (shape->ep == 1)
        return fullest;
    if (routing->kind == ROUTING_ZIPF)
        *ret_upper = fmax(*ret_upper, tail_rows(zipf_others(shape, fullest), tokens, log_odds));
    if (routing->kind != ROUTING_HOT)
        return fullest;
    int partly = routing->hot_experts / (shape->experts / shape->ep);
    const int ranks[2] = { at_most(partly, shape->ep - 1), shape->ep - 1 };
    for (int i = 0; i < 2; i++) {
        struct token_rows other = rows_of(routing, shape, ranks[i]);
        *ret_upper = fmax(*ret_upper, tail_rows(other, tokens, log_odds));
        if (other.mean > fullest.mean)
            fullest = other;
    }
    return fullest;
}

/* Every token of a balanced draw meets min(k, ep) ranks (routing_draw's walk visits them in turn).
 */
static double balanced_present(const struct routing_shape *shape)
{
    return (double)at_most(shape->top_k, shape->ep) / shape->ep;
}

void routing_load(const struct routing *routing, const struct routing_shape *shape, int rank,
                  double quantile, struct routing_load *ret)
{
    uint64_t all = mul_sat((uint64_t)shape->ep, shape->tokens);
    int width = shape->experts / shape->ep;
    double tokens = (double)all, upper;
    double left = fmax(1.0 - quantile, 1e-15); /* a quantile of 1 would ask for the hard bound */
    double log_odds = log(shape->ep / left);
    struct token_rows token;

    ret->bound_rows = mul_sat(all, (uint64_t)at_most(shape->top_k, width));
    if (routing->kind == ROUTING_ZIPF &&
        (shape->top_k > ROUTING_MAX_TOP_K || shape->experts > ROUTING_MAX_EXPERTS)) {
        *ret = (struct routing_load){ (double)ret->bound_rows, 0,  ret->bound_rows, ret->bound_rows,
                                      ret->bound_rows,         all };
        return;
    }
    if (rank < 0) {
        token = fullest_rank(routing, shape, tokens, log_odds, &upper);
    } else {
        token = rows_of(routing, shape, rank);
        upper = tail_rows(token, tokens, log_odds);
    }
    if (routing->kind == ROUTING_BALANCED)
        token.present = balanced_present(shape);
    ret->mean_rows = tokens * token.mean;
    ret->variance_rows = tokens * token.variance;
    ret->point_rows = whole_rows(ret->mean_rows, ret->bound_rows);
    ret->copies_point = whole_rows(tokens * token.present, all);
    ret->upper_rows = whole_rows(upper, ret->bound_rows);
    if (routing->kind == ROUTING_BALANCED || routing->kind == ROUTING_NATURAL)
        ret->point_rows = mul_sat(shape->tokens, (uint64_t)shape->top_k);
}
