/* links.c - seconds of the collectives inside a layer: exchange of routed rows, tensor parallelism;
 * context_links.c has those of contexts. */
#include "planner/predict/layer_seconds.h"

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

/* Chunks hide a share of the shorter of exchange and expert GEMMs; the first dispatch and the last
 * return have nothing to hide behind. */
double exchange_overlap(const struct budget_input *in)
{
    struct dispatch d;
    dispatch_init(in, 0, &d);
    return d.overlaps ? hidden_share(in) * (d.chunks - 1) / d.chunks : 0;
}

/* All chunks of R x H x 2 bytes one way; a row goes to all etp ranks that split its expert, and
 * comes back from each. */
static double dispatch_seconds(const struct budget_input *in, const struct step_sizes *sizes)
{
    const struct layout *l = &in->choices->layout;
    uint64_t n = (uint64_t)sizes->chunks.count;
    uint64_t sent = mul_sat(div_up(sizes->rows[ROWS_SENT], n), (uint64_t)l->etp);
    uint64_t received = div_up(sizes->rows[ROWS_RECV], n);
    struct ranks ranks = { l->ep * l->etp, 1 };
    double bytes =
        2.0 * (double)(received > sent ? received : sent) * (double)sizes->width[WIDTH_ROUTED];
    return (double)n * rows_seconds(in, ranks, bytes);
}

static struct ranks tensor_ranks(const struct budget_input *in)
{
    return (struct ranks){ in->choices->layout.tp, 1 };
}

/* Elements a token that are gathered for a mixer's products: its normed input, or the latents that
 * each rank makes of its own tokens, with the indexer's keys and fp32 weights. */
static double mixer_input(const struct budget_input *in, const struct step_sizes *s,
                          enum mixer mixer)
{
    const uint64_t *w = s->width;
    double query = in->model->mla.q_rank > 0 ? (double)w[WIDTH_QUERY_LATENT] : in->model->hidden;
    if (!mixer_is_latent(mixer))
        return in->model->hidden;
    return query + (double)w[WIDTH_LATENT_KEY] +
           (mixer == MIXER_DSA ? (double)(w[WIDTH_INDEX_KEY] + 2 * w[WIDTH_INDEX_HEADS]) : 0);
}

double hidden_tensor_seconds(const struct budget_input *in)
{
    double bytes = 2.0 * (double)local_tokens(in) * in->model->hidden;
    return gather_seconds(in->hardware, tensor_ranks(in), bytes);
}

void layer_links(const struct budget_input *in, const struct step_sizes *sizes, enum mixer mixer,
                 double *ret)
{
    const struct layout *l = &in->choices->layout;
    double token = 2.0 * (double)local_tokens(in);
    if (l->ep * l->etp > 1)
        ret[LINK_DISPATCH] = dispatch_seconds(in, sizes);
    if (l->tp > 1) {
        ret[LINK_TENSOR_INPUT] =
            gather_seconds(in->hardware, tensor_ranks(in), token * mixer_input(in, sizes, mixer));
        ret[LINK_TENSOR_HIDDEN] = hidden_tensor_seconds(in);
    }
    if (l->cp > 1)
        context_links(in, sizes, mixer, ret);
}
