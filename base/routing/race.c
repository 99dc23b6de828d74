#include "base/routing/race.h"
#include "base/routing/routing.h"

#include <math.h>
#include <string.h>

/* Derivation. Let A(t), B(t) count the arrivals by time t inside and outside the range. At least j
 * of the first k arrivals are inside exactly when the j-th inside comes before the (k - j + 1)-th
 * outside: P = integral over t of P(B(t) <= k - j) d P(A(t) >= j). A and B are sums of independent
 * indicators with P(arrived) = 1 - exp(-p_i t), whose distributions follow by adding one expert at
 * a time. The integral is a Stieltjes sum over times in geometric progression, improved by
 * Richardson's step (error falls with the fourth power of the step). */

enum { STEPS = 40 }; /* even */

/* P(count <= c) for c = 0..k-1, inside and outside, at one time. */
struct snapshot {
    double inside[ROUTING_MAX_TOP_K], outside[ROUTING_MAX_TOP_K];
};

struct race {
    int experts, k, first, width;
    double rates[ROUTING_MAX_EXPERTS]; /* sum to one */
};

static void set_rates(struct race *race, double exponent)
{
    double total = 0;
    for (int i = 0; i < race->experts; i++)
        total += race->rates[i] = pow(i + 1.0, -exponent);
    for (int i = 0; i < race->experts; i++)
        race->rates[i] /= total;
}

/* Adds one more indicator to the distribution of a count, cut off at k - 1. */
static void add_indicator(double *density, int k, double arrived)
{
    for (int c = k - 1; c > 0; c--)
        density[c] += arrived * (density[c - 1] - density[c]);
    density[0] *= 1.0 - arrived;
}

static void accumulate(double *density, int k)
{
    for (int c = 1; c < k; c++)
        density[c] += density[c - 1];
}

static void take_snapshot(const struct race *race, double time, struct snapshot *ret)
{
    memset(ret->inside, 0, (size_t)race->k * sizeof *ret->inside);
    memset(ret->outside, 0, (size_t)race->k * sizeof *ret->outside);
    ret->inside[0] = ret->outside[0] = 1.0;
    for (int i = 0; i < race->experts; i++) {
        int offset = i - race->first;
        double *density = offset >= 0 && offset < race->width ? ret->inside : ret->outside;
        double arrived = isinf(time) ? 1.0 : -expm1(-race->rates[i] * time);
        add_indicator(density, race->k, arrived);
    }
    accumulate(ret->inside, race->k);
    accumulate(ret->outside, race->k);
}

/* scale x P(B <= k - j) dP(A >= j) over one interval, for each j. */
static void add_interval(const struct snapshot *from, const struct snapshot *to, int k,
                         double scale, double *ret)
{
    for (int j = 1; j <= k; j++)
        ret[j - 1] += scale * (from->inside[j - 1] - to->inside[j - 1]) * 0.5 *
                      (from->outside[k - j] + to->outside[k - j]);
}

/* Expected arrivals by `time`. */
static double expected_arrivals(const struct race *race, double time)
{
    double sum = 0;
    for (int i = 0; i < race->experts; i++)
        sum += -expm1(-race->rates[i] * time);
    return sum;
}

/* A time by which k arrivals are all but certain, or all that matters has happened: expected
 * arrivals of k + 5 sqrt(k) + 3, or all experts but a hundredth. */
static double last_time(const struct race *race)
{
    double wanted = race->k + 5.0 * sqrt(race->k) + 3.0;
    double most = race->experts - 0.01;
    double time = race->k;

    while (expected_arrivals(race, time) < (wanted < most ? wanted : most))
        time *= 2.0;
    return time;
}

void race_at_least(double exponent, int experts, int k, int first, int width, double *ret)
{
    struct race race = { .experts = experts, .k = k, .first = first, .width = width };
    struct snapshot shots[3];

    set_rates(&race, exponent);
    memset(ret, 0, (size_t)k * sizeof *ret);

    double start = 0.02, ratio = pow(last_time(&race) / start, 1.0 / STEPS), time = start;
    take_snapshot(&race, 0.0, &shots[1]);
    take_snapshot(&race, time, &shots[0]);
    add_interval(&shots[1], &shots[0], k, 1.0, ret);
    for (int step = 0; step < STEPS; step += 2) {
        take_snapshot(&race, time * ratio, &shots[1]);
        take_snapshot(&race, time * ratio * ratio, &shots[2]);
        add_interval(&shots[0], &shots[1], k, 4.0 / 3.0, ret);
        add_interval(&shots[1], &shots[2], k, 4.0 / 3.0, ret);
        add_interval(&shots[0], &shots[2], k, -1.0 / 3.0, ret);
        shots[0] = shots[2];
        time *= ratio * ratio;
    }
    take_snapshot(&race, INFINITY, &shots[1]);
    add_interval(&shots[0], &shots[1], k, 1.0, ret);
}
