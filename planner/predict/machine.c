/* machine.c - what one unit of work takes, from the efficiencies of the hardware file. */
#include "planner/predict/clock.h"
#include "planner/predict/collective.h"

#include <math.h>

/* Rows an expert at which grouped matmuls reach their efficiency, and below which they lose in
 * proportion, where the machine does not say what a call and its operands cost. GPUs: public
 * fused-MoE tables of the H100. Host: 8 rows reach a third of the rate of 64 and more, one core of
 * an AMD EPYC. */
enum { DEVICE_PLATEAU_ROWS = 512, HOST_PLATEAU_ROWS = 64 };

static double factor_or_one(double factor)
{
    return factor > 0 ? factor : 1;
}

/* Of attention's efficiency at head dim 128; in between in proportion. */
static double head_factor(double at64, double at256, int head_dim)
{
    double narrow = factor_or_one(at64), wide = factor_or_one(at256);
    if (head_dim <= 64)
        return narrow;
    if (head_dim >= 256)
        return wide;
    if (head_dim <= 128)
        return narrow + (1 - narrow) * (head_dim - 64) / 64;
    return 1 + (wide - 1) * (head_dim - 128) / 128;
}

/* Keys that attention sees in one call: of a whole piece, of a rank's share of it where blocks go
 * round a ring, of a window where that is shorter. */
static double call_keys(const struct budget_input *in)
{
    double keys = piece_tokens(in) / ring_ranks(in), window = in->model->gqa.window_tokens;
    return window > 0 && window < keys ? window : keys;
}

/* Causal attention fills its tiles and the device only where there are many keys, and its keys
 * leave the cache where there are more: 1 + half / s + s / fade times as long for s keys. Keys that
 * have left cannot leave again: what is lost ends where calibration ends. */
void attention_rates(const struct budget_input *in, const struct machine *machine,
                     double *ret_forward, double *ret_backward)
{
    const struct hardware *h = in->hardware;
    double keys = call_keys(in), filled = 1 + over(h->attention_half_tokens, keys);
    double fading = fmin(keys, ATTENTION_FADE_MOST_TOKENS);
    *ret_forward = machine->attention_flop * (filled + over(fading, h->attention_fade_tokens));
    *ret_backward = machine->attention_back * filled;
}

void machine_init(const struct budget_input *in, struct machine *ret)
{
    const struct hardware *h = in->hardware;
    const struct gqa *g = &in->model->gqa;
    double kept = h->sustained_share > 0 ? h->sustained_share : 1;
    double peak = kept * h->bf16_flops_per_second, memory = h->memory_bytes_per_second;
    double forward =
        head_factor(h->attention_head64_factor, h->attention_head256_factor, g->head_dim);
    double backward = head_factor(h->attention_backward_head64_factor,
                                  h->attention_backward_head256_factor, g->head_dim);
    bool fine = h->expert_gemm_call_seconds > 0 || h->expert_gemm_traffic_share > 0;
    *ret = (struct machine){
        .flop = over(1, peak * h->gemm_efficiency),
        .expert_flop = over(1, peak * h->expert_gemm_efficiency),
        .attention_flop = over(1, peak * h->attention_forward_efficiency * forward),
        .attention_back = over(1, peak * h->attention_backward_efficiency * backward),
        .operand_byte = over(h->gemm_traffic_share, memory),
        .expert_operand_byte = over(h->expert_gemm_traffic_share, memory),
        .moved_byte = over(1, memory * h->memory_efficiency),
        .call = h->gemm_call_seconds,
        .expert_call = h->expert_gemm_call_seconds,
        .kernel = h->elementwise_call_seconds,
        .launch = h->launch_seconds,
        .product_launch = h->gemm_launch_seconds > 0 ? h->gemm_launch_seconds : h->launch_seconds,
        .plateau = fine      ? 0
                   : h->host ? HOST_PLATEAU_ROWS
                             : DEVICE_PLATEAU_ROWS,
    };
}
