/* rope.c - frequencies of rotary embedding, plain and stretched. With theta, d rotary dimensions
 * and pair i the plain frequency is f = theta^(-2i / d); s is the factor, C the original tokens.
 *
 * linear: f / s.
 * dynamic (NTK): theta becomes theta (s N / C - (s - 1))^(d / (d - 2)), N = max(tokens, C).
 * llama3: pairs of more than C / low positions a turn have f / s, those of fewer than C / high have
 * f; between, both are mixed by how many turns C has (Llama 3.1's published code).
 * yarn: pairs of more than `high` turns in C have f, of fewer than `low` f / s; between, a ramp
 * over the pair's index (Peng et al. 2023, section 3.2). */
#include "base/model/model.h"

#include <math.h>

static const double turn = 6.283185307179586476925286766559;

static double plain(double theta, int pair, int rotary_dim)
{
    return pow(theta, -2.0 * pair / rotary_dim);
}

static double dynamic_theta(const struct gqa *gqa, int64_t tokens, int rotary_dim)
{
    double original = (double)gqa->rope.original_tokens, s = gqa->rope.factor;
    double longest = (double)tokens > original ? (double)tokens : original;
    if (original <= 0 || rotary_dim <= 2)
        return gqa->rope_theta;
    return gqa->rope_theta * pow(s * longest / original - (s - 1), rotary_dim / (rotary_dim - 2.0));
}

static double llama3(const struct rope_scaling *rope, double f)
{
    double turns = (double)rope->original_tokens * f / turn;
    double share = (turns - rope->low) / (rope->high - rope->low);
    share = fmin(fmax(share, 0), 1);
    return (1 - share) * f / rope->factor + share * f;
}

/* The pair, in fractions of one, that makes `turns` turns in the original tokens. */
static double pair_of(const struct gqa *gqa, double turns, int rotary_dim)
{
    return rotary_dim * log((double)gqa->rope.original_tokens / (turns * turn)) /
           (2 * log(gqa->rope_theta));
}

static double yarn(const struct gqa *gqa, int pair, int rotary_dim)
{
    const struct rope_scaling *rope = &gqa->rope;
    double f = plain(gqa->rope_theta, pair, rotary_dim);
    double first = pair_of(gqa, rope->high, rotary_dim);
    double last = pair_of(gqa, rope->low, rotary_dim);

    if (!rope->unrounded) {
        first = floor(first);
        last = ceil(last);
    }
    first = fmax(first, 0);
    last = fmin(last, rotary_dim - 1);
    if (last == first)
        last += 0.001;
    double share = fmin(fmax((pair - first) / (last - first), 0), 1);
    return share * f / rope->factor + (1 - share) * f;
}

void model_rope_frequencies(const struct gqa *gqa, int64_t tokens, int rotary_dim, double *ret)
{
    const struct rope_scaling *rope = &gqa->rope;
    double theta = gqa->rope_theta;

    if (rope->form == ROPE_DYNAMIC)
        theta = dynamic_theta(gqa, tokens, rotary_dim);
    for (int i = 0; i < rotary_dim / 2; i++) {
        ret[i] = plain(theta, i, rotary_dim);
        if (rope->form == ROPE_LINEAR)
            ret[i] /= rope->factor;
        else if (rope->form == ROPE_LLAMA3)
            ret[i] = llama3(rope, ret[i]);
        else if (rope->form == ROPE_YARN)
            ret[i] = yarn(gqa, i, rotary_dim);
    }
}
