/* time.c - formulas of traffic, seconds and FLOPs. */
#include "planner/rules/formula.h"

/* bf16 and fp32 bytes of an element; FLOPs of a parameter and token: forward, replay, gradient of
 * the input, gradient of the weight, two each. */
static const double bf16 = 2, fp32 = 4, flops_a_pass = 2, passes = 4;

/* The experts of one layer that an expert-parallel rank needs whole, bf16. Bytes. */
double formula_layer_experts(const double *in)
{
    double params = in[0], layers = in[1], experts = in[2], ep = in[3];
    return params / layers * experts * bf16 / ep;
}

/* Gathered forward, gathered again backward, gradients scattered in fp32: 1 + 1 + 2 times the bf16
 * bytes; of (n - 1) / n of it for n shards, taken as 1. Bytes. */
double formula_expert_traffic(const double *in)
{
    double weights = in[0];
    return weights * (1 + 1 + fp32 / bf16);
}

/* The same for the dense part of a layer. Bytes. */
double formula_dense_traffic(const double *in)
{
    double params = in[0], layers = in[1], dense = in[2];
    return params / layers * dense * (bf16 + bf16 + fp32);
}

/* Both parts of a layer. Bytes. */
double formula_layer_traffic(const double *in)
{
    double experts = in[0], dense = in[1];
    return experts + dense;
}

/* Bytes over the rate of a rank's network. Seconds. */
double formula_wire(const double *in)
{
    double bytes = in[0], rate = in[1];
    return bytes / rate;
}

/* Keys and values gathered forward and backward in bf16, their gradients scattered in fp32.
 * Seconds. */
double formula_context_wire(const double *in)
{
    double bytes = in[0], rate = in[1];
    return bytes * (1 + 1 + fp32 / bf16) / rate;
}

/* Parameters of a layer that a token uses: the dense part and k of E experts. */
double formula_layer_active(const double *in)
{
    double params = in[0], layers = in[1], dense = in[2], experts = in[3];
    double chosen = in[4], all = in[5];
    return params / layers * (dense + experts * chosen / all);
}

/* Products of a layer with full recompute: four passes of 2 FLOPs. FLOP a token. */
double formula_layer_products(const double *in)
{
    double active = in[0];
    return active * flops_a_pass * passes;
}

/* Tokens whose computation lasts as long as a transfer: peak rate, the share of it that is reached,
 * seconds, FLOPs of products and attention's time over theirs. */
double formula_tokens_to_hide_behind(const double *in)
{
    double peak = in[0], reached = in[1], seconds = in[2], flops = in[3], attention = in[4];
    return peak * reached * seconds / (flops * (1 + attention));
}

/* The other way round: seconds of T tokens. */
double formula_layer_time(const double *in)
{
    double peak = in[0], reached = in[1], tokens = in[2], flops = in[3], attention = in[4];
    return flops * tokens * (1 + attention) / (peak * reached);
}

/* A part over its whole. */
double formula_share(const double *in)
{
    double part = in[0], whole = in[1];
    return part / whole;
}

/* FLOP/s that were counted, over the dense peak. */
double formula_utilization(const double *in)
{
    double rate = in[0], peak = in[1];
    return rate / peak;
}

/* The same when what was counted holds replays: less those, h hardware FLOPs being one model FLOP.
 */
double formula_utilization_without_replay(const double *in)
{
    double rate = in[0], hardware_over_model = in[1], peak = in[2];
    return rate / hardware_over_model / peak;
}

/* The other way round: with the replays that the count left out. */
double formula_utilization_with_replay(const double *in)
{
    double rate = in[0], hardware_over_model = in[1], peak = in[2];
    return rate * hardware_over_model / peak;
}

/* Products forward and backward are 2 + 4 FLOPs a parameter; a replay adds the forward's. */
double formula_replay_tax(const double *in)
{
    double forward = in[0], backward = in[1];
    return (2 * forward + backward) / (forward + backward);
}
