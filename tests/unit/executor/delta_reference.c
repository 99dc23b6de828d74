#include "tests/unit/executor/delta_reference.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* S <- g S; S <- S + k (beta (v - S^T k))^T; o = S^T q / sqrt(key) */
static void step(const struct delta_sequence *s, int t)
{
    const double *q = s->q + t * s->key, *k = s->k + t * s->key, *v = s->v + t * s->value;

    for (int i = 0; i < s->key * s->value; i++)
        s->state[i] *= exp(s->decay[t]);
    for (int j = 0; j < s->value; j++) {
        double held = 0, out = 0;
        for (int i = 0; i < s->key; i++)
            held += s->state[i * s->value + j] * k[i];
        for (int i = 0; i < s->key; i++) {
            s->state[i * s->value + j] += k[i] * s->beta[t] * (v[j] - held);
            out += s->state[i * s->value + j] * q[i];
        }
        s->o[t * s->value + j] = out / sqrt(s->key);
    }
}

void delta_reference_rule(const struct delta_sequence *s)
{
    for (int t = 0; t < s->tokens; t++)
        step(s, t);
}

double delta_reference_convolve(const double *x, int stride, int t, int width, const double *conv,
                                const double *before)
{
    double sum = 0;
    for (int tap = 0; tap < width; tap++) {
        int from = t - width + 1 + tap;
        if (from >= 0)
            sum += conv[tap] * x[from * stride];
        else if (before)
            sum += conv[tap] * before[width - 1 + from];
    }
    return sum * sigmoid(sum);
}

void delta_reference_unit(double *x, int width)
{
    double sum = 1e-6;
    for (int i = 0; i < width; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < width; i++)
        x[i] /= sqrt(sum);
}

double delta_reference_decay(double a, double log_rate, double step)
{
    return -exp(log_rate) * log(1 + exp(a + step));
}

void delta_reference_gated_norm(const double *o, const double *z, const double *weight, int width,
                                double eps, double *on)
{
    double sum = 0;
    for (int i = 0; i < width; i++)
        sum += o[i] * o[i];
    for (int i = 0; i < width; i++)
        on[i] = o[i] / sqrt(sum / width + eps) * weight[i] * z[i] * sigmoid(z[i]);
}
