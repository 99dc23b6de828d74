/* delta_reference.h - the gated delta net token by token in double precision: what enters the rule,
 * the rule as a recurrence, the gated norm. No chunks, no solves, nothing of the executor. */
#ifndef RANKFIT_TESTS_UNIT_EXECUTOR_DELTA_REFERENCE_H
#define RANKFIT_TESTS_UNIT_EXECUTOR_DELTA_REFERENCE_H

/* One sequence of one value head. q, k are unit vectors; o, k, ... of token t begin at t * key or
 * t * value. state [key, value]: in, before the first token; out, behind the last. */
struct delta_sequence {
    int tokens, key, value;
    const double *q, *k, *v, *decay, *beta;
    double *state, *o;
};
void delta_reference_rule(const struct delta_sequence *s);

/* silu of a causal convolution's sum at token t of one channel: x[t - width + 1] ... x[t], of which
 * those before token 0 are `before` (width - 1 values) or zeros. stride: between tokens of x. */
double delta_reference_convolve(const double *x, int stride, int t, int width, const double *conv,
                                const double *before);
/* In place: to length 1. */
void delta_reference_unit(double *x, int width);
double delta_reference_decay(double a, double log_rate, double step);
/* on = norm(o) weight silu(z) */
void delta_reference_gated_norm(const double *o, const double *z, const double *weight, int width,
                                double eps, double *on);

#endif
