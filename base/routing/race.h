/* race.h - k of E experts drawn without replacement by weight, seen as a race: expert i arrives
 * after an exponential time of rate p_i, and the first k to arrive are chosen. Private to
 * base/routing. */
#ifndef RANKFIT_BASE_ROUTING_RACE_H
#define RANKFIT_BASE_ROUTING_RACE_H

/* ret[j - 1] = P(at least j of the k chosen are among the experts first..first+width-1), for j =
 * 1..k. Weights (i + 1)^-exponent over `experts` experts; 1 <= k <= experts, k <=
 * ROUTING_MAX_TOP_K, experts <= ROUTING_MAX_EXPERTS. Relative error of the sum below 1e-4 (tested).
 */
void race_at_least(double exponent, int experts, int k, int first, int width, double *ret);

#endif
