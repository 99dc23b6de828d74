/* exposed.c - collectives inside a layer: expert exchange and tensor parallelism; context.c has
 * those of contexts. A replay repeats those of the forward. */
#include "planner/time/cost.h"

#include "base/checked.h"

/* One exchange of routed rows: copy engines have a rate of their own. */
static double rows_seconds(const struct budget_input *in, struct ranks ranks, double bytes)
{
    const struct hardware *h = in->hardware;
    double seconds = exchange_seconds(h, ranks, bytes), latency = exchange_latency(h);
    bool copies = in->choices->primitives.exchange == EXCHANGE_COPY;
    if (!copies || h->copy_exchange_efficiency <= 0)
        return seconds;
    return latency + (seconds - latency) * h->exchange_efficiency / h->copy_exchange_efficiency;
}

static double hidden_share(const struct budget_input *in)
{
    const struct hardware *h = in->hardware;
    bool copies = in->choices->primitives.exchange == EXCHANGE_COPY;
    return copies && h->copy_exchange_overlap > 0 ? h->copy_exchange_overlap : h->exchange_overlap;
}

/* At the better rate, hidden as far as any chunks can. */
double least_exchange_share(const struct hardware *h)
{
    double hidden = h->exchange_overlap, rate = 1;
    hidden = h->copy_exchange_overlap > hidden ? h->copy_exchange_overlap : hidden;
    if (h->copy_exchange_efficiency > h->exchange_efficiency)
        rate = over(h->exchange_efficiency, h->copy_exchange_efficiency);
    return hidden < 1 ? (1 - hidden) * rate : 0;
}

/* Two exchanges a pass of R x H x 2 bytes, one in a replay; a row goes to all etp ranks that split
 * its expert, and comes back from each. Chunks hide a share of the shorter of
 * exchange and expert matmul; the first dispatch and the last return have nothing to hide behind.
 */
static void exchange_cost(const struct budget_input *in, uint64_t received, double exchanges,
                          struct pass *pass)
{
    uint64_t etp = (uint64_t)in->choices->layout.etp;
    struct ranks ranks = { in->choices->layout.ep * in->choices->layout.etp, 1 };
    struct dispatch d;
    dispatch_init(in, received, &d);
    uint64_t sent = mul_sat(d.chunk_sent, etp);
    uint64_t rows = d.chunk_received > sent ? d.chunk_received : sent;
    double bytes = 2.0 * (double)rows * model_routed_width(in->model);
    double seconds = exchanges * d.chunks * rows_seconds(in, ranks, bytes);
    double experts = pass->item[TIME_EXPERTS];
    if (d.overlaps)
        seconds -=
            hidden_share(in) * (d.chunks - 1) / d.chunks * (seconds < experts ? seconds : experts);
    pass->item[TIME_EXPOSED_EXCHANGE] = seconds;
}

static struct ranks tensor_ranks(const struct budget_input *in)
{
    return (struct ranks){ in->choices->layout.tp, 1 };
}

/* Elements a token that are gathered for a mixer's products: its normed input, or the latents that
 * each rank makes of its own tokens, with the indexer's keys and fp32 weights. */
static double mixer_input(const struct budget_input *in, const struct residency_shape *s,
                          enum mixer mixer)
{
    const uint64_t *w = s->width;
    double query = in->model->mla.q_rank > 0 ? (double)w[WIDTH_QUERY_LATENT] : in->model->hidden;
    if (!mixer_is_latent(mixer))
        return in->model->hidden;
    return query + (double)w[WIDTH_LATENT_KEY] +
           (mixer == MIXER_DSA ? (double)(w[WIDTH_INDEX_KEY] + 2 * w[WIDTH_INDEX_HEADS]) : 0);
}

/* With sequence parallelism between the regions. A mixer: its input gathered, its output's sums
 * scattered; backward its output's gradient gathered, its input's scattered, and the input gathered
 * once more where it is not kept (latents are). */
static void mixer_tensor_cost(const struct budget_input *in, const struct residency_shape *s,
                              enum mixer mixer, struct layer_cost *cost)
{
    const struct hardware *h = in->hardware;
    double token = 2.0 * (double)local_tokens(in);
    double input = gather_seconds(h, tensor_ranks(in), token * mixer_input(in, s, mixer));
    double output = gather_seconds(h, tensor_ranks(in), token * in->model->hidden);
    if (mixer == MIXER_NONE)
        return;
    cost->forward.item[TIME_EXPOSED_TENSOR] += input + output;
    cost->replay.item[TIME_EXPOSED_TENSOR] += input + output;
    cost->backward.item[TIME_EXPOSED_TENSOR] +=
        output + (mixer_is_latent(mixer) ? input : 2 * input);
}

/* A dense MLP or a shared expert likewise; a replay ends before the sum. Routed rows are of each
 * rank's own tokens. */
static void ffn_tensor_cost(const struct budget_input *in, enum ffn ffn, struct layer_cost *cost)
{
    double one = embedding_tensor_seconds(in);
    if (ffn == FFN_NONE || (ffn == FFN_MOE && in->model->moe.shared_width == 0))
        return;
    cost->forward.item[TIME_EXPOSED_TENSOR] += 2 * one;
    cost->replay.item[TIME_EXPOSED_TENSOR] += one;
    cost->backward.item[TIME_EXPOSED_TENSOR] += 3 * one;
}

double embedding_tensor_seconds(const struct budget_input *in)
{
    double bytes = 2.0 * (double)local_tokens(in) * in->model->hidden;
    return gather_seconds(in->hardware, tensor_ranks(in), bytes);
}

void exposed_cost(const struct budget_input *in, uint64_t received, enum mixer mixer, enum ffn ffn,
                  struct layer_cost *cost)
{
    const struct layout *l = &in->choices->layout;
    struct residency_shape shape;
    if (ffn == FFN_MOE && l->ep * l->etp > 1) {
        exchange_cost(in, received, 2, &cost->forward);
        exchange_cost(in, received, 1, &cost->replay);
        exchange_cost(in, received, 2, &cost->backward);
        if (cost->nested.item[TIME_EXPERTS] > 0)
            exchange_cost(in, received, 1, &cost->nested);
    }
    if (l->tp == 1 && l->cp == 1)
        return;
    working_shape(in, received, &shape);
    if (l->tp > 1) {
        mixer_tensor_cost(in, &shape, mixer, cost);
        ffn_tensor_cost(in, ffn, cost);
    }
    if (l->cp > 1)
        context_cost(in, &shape, mixer, cost);
}
