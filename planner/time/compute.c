/* compute.c - seconds of computation in one layer: FLOPs over the reached share of the dense peak,
 * bytes over the reached share of the memory's rate. */
#include "planner/time/cost.h"

/* Rows an expert at which grouped matmuls reach the efficiency of the hardware file; half of it at
 * half of these. GPUs: public fused-MoE tables of the H100. Host: 8 rows reach a third of the rate
 * of 64 and more, one core of an AMD EPYC. */
enum { DEVICE_PLATEAU_ROWS = 512, HOST_PLATEAU_ROWS = 64 };

/* Backward of flash attention and of the chunked delta rule, in forwards. 2.5: the scores and four
 * products of their gradients against two. 2.7: public GB200 timings, 4.74 - 1.27 over 1.27 ms. */
static const double attention_backward = 2.5, delta_backward = 2.7;

enum { DELTA_REFERENCE = 32 * 128 * 128 }; /* state of the hardware file's timing */

static double matmul_seconds(const struct hardware *h, double flops)
{
    return over(flops, h->bf16_flops_per_second * h->gemm_efficiency);
}

/* Weights of a layer that multiply every local token; MACs a token on this rank of tp. */
static double dense_macs(const struct model *m, const struct residency_shape *s, enum mixer mixer,
                         enum ffn ffn)
{
    const uint64_t *w = s->width;
    double hidden = (double)m->hidden, macs;
    if (mixer == MIXER_GQA)
        macs = hidden * (double)(w[WIDTH_QKV] + w[WIDTH_QUERY]);
    else
        macs =
            hidden * (double)(w[WIDTH_DELTA_IN] + 2 * w[WIDTH_DELTA_HEADS] + w[WIDTH_DELTA_VALUE]);
    if (ffn == FFN_DENSE)
        return macs + 3 * hidden * (double)w[WIDTH_DENSE];
    double router =
        hidden * m->moe.experts * over((double)s->rows[ROWS_NORM], (double)s->rows[ROWS_TOKENS]);
    return macs + router + 3 * hidden * (double)w[WIDTH_SHARED];
}

/* 2 x 3 H f a row, at an efficiency that falls where experts get few rows. */
static double expert_seconds(const struct budget_input *in, uint64_t received)
{
    const struct hardware *h = in->hardware;
    const struct model *m = in->model;
    const struct layout *l = &in->choices->layout;
    struct dispatch d;
    dispatch_init(in, received, &d);
    double rows = over((double)d.chunk_received, (double)m->moe.experts / l->ep);
    double plateau = h->host ? HOST_PLATEAU_ROWS : DEVICE_PLATEAU_ROWS;
    double share = rows < plateau ? rows / plateau : 1;
    double flops = 6.0 * (double)received * m->hidden * m->moe.width / l->etp;
    return over(flops, h->bf16_flops_per_second * h->expert_gemm_efficiency * share);
}

/* 2 x 2 x Q a query and key; causal: half of the keys. Zig-zag order gives all ranks of a context
 * group the same share. A window of w of S tokens: w (1 - w / 2S). */
static double attention_flops(const struct budget_input *in, const struct residency_shape *s)
{
    double seq = (double)in->seq_tokens, keys = seq / 2, window = in->model->gqa.window_tokens;
    if (window > 0 && window < seq)
        keys = window * (1 - window / (2 * seq));
    return 4.0 * (double)s->rows[ROWS_TOKENS] * (double)s->width[WIDTH_QUERY] * keys;
}

static void mixer_cost(const struct budget_input *in, const struct residency_shape *s,
                       enum mixer mixer, struct layer_cost *ret)
{
    const struct hardware *h = in->hardware;
    if (mixer == MIXER_GQA) {
        double flops = attention_flops(in, s), peak = h->bf16_flops_per_second;
        ret->forward.item[TIME_ATTENTION] = over(flops, peak * h->attention_forward_efficiency);
        ret->backward.item[TIME_ATTENTION] =
            over(attention_backward * flops, peak * h->attention_backward_efficiency);
        return;
    }
    double scale = (double)s->width[WIDTH_DELTA_STATE] / DELTA_REFERENCE;
    double seconds = h->delta_rule_seconds_per_token * scale * (double)s->rows[ROWS_TOKENS];
    ret->forward.item[TIME_LINEAR_ATTENTION] = seconds;
    ret->backward.item[TIME_LINEAR_ATTENTION] = delta_backward * seconds;
}

/* Kernels of a pass: about one a step of the liveness tables, and the matmuls of every local
 * expert, chunk by chunk. */
static void launch_cost(const struct budget_input *in, uint64_t received, enum mixer mixer,
                        enum ffn ffn, struct layer_cost *ret)
{
    struct dispatch d;
    dispatch_init(in, received, &d);
    double local = ffn == FFN_MOE ? (double)in->model->moe.experts / in->choices->layout.ep : 0;
    ret->forward.launches = residency_mixer_forward[mixer]->steps +
                            residency_ffn_forward[ffn]->steps + 2 * local * d.chunks;
    ret->backward.launches = residency_mixer_backward[mixer]->steps +
                             residency_ffn_backward[ffn]->steps + 4 * local * d.chunks;
}

void compute_cost(const struct budget_input *in, const struct residency_shape *shape,
                  uint64_t received, enum mixer mixer, enum ffn ffn, struct layer_cost *ret)
{
    const struct hardware *h = in->hardware;
    double rate = h->memory_bytes_per_second * h->memory_efficiency;
    double flops =
        2.0 * (double)shape->rows[ROWS_TOKENS] * dense_macs(in->model, shape, mixer, ffn);
    struct pass *forward = &ret->forward, *backward = &ret->backward;
    forward->item[TIME_MATMUL] = matmul_seconds(h, flops);
    backward->item[TIME_MATMUL] = 2 * forward->item[TIME_MATMUL];
    if (ffn == FFN_MOE) {
        forward->item[TIME_EXPERTS] = expert_seconds(in, received);
        backward->item[TIME_EXPERTS] = 2 * forward->item[TIME_EXPERTS];
    }
    mixer_cost(in, shape, mixer, ret);
    struct residency_shape whole = *shape; /* all chunks */
    whole.rows[ROWS_RECV] = whole.rows[ROWS_CHUNK] = received;
    forward->item[TIME_ELEMENTWISE] =
        over(residency_traffic_bytes(&whole, mixer, ffn, false), rate);
    backward->item[TIME_ELEMENTWISE] =
        over(residency_traffic_bytes(&whole, mixer, ffn, true), rate);
    launch_cost(in, received, mixer, ffn, ret);
}

/* Three matmuls of T x H x V / tp; logits written and read once, their gradient likewise. Strips
 * make the logits, and write and read them, a second time. */
double loss_seconds(const struct budget_input *in)
{
    const struct hardware *h = in->hardware;
    double tokens = (double)local_tokens(in);
    double vocab = (double)in->model->vocab / in->choices->layout.tp;
    int visits = in->choices->primitives.vocab_strip > 0 ? 2 : 1;
    double bytes = 2 * tokens * vocab * (4 * visits + 2);
    return matmul_seconds(h, 2.0 * (2 + visits) * tokens * in->model->hidden * vocab) +
           over(bytes, h->memory_bytes_per_second * h->memory_efficiency);
}

double compute_seconds(const struct pass *pass)
{
    double sum = 0;
    for (int i = TIME_MATMUL; i <= TIME_ELEMENTWISE; i++)
        sum += pass->item[i];
    return sum;
}
