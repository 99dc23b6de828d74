/* exposed.c - collectives inside a layer: expert exchange, context and tensor parallelism. A replay
 * repeats those of the forward. */
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

struct view {
    struct ranks ranks;
    double tokens, all;
    double gathered; /* elements a token of keys and values, or of latents and index keys */
    double queries;  /* elements a token of queries and outputs */
    double keys;     /* of keys and values that heads are exchanged with; of `heads` heads */
    double heads;
};

static double gather_kv(const struct hardware *h, const struct view *v)
{
    return gather_seconds(h, v->ranks, 2 * v->gathered * v->all);
}

/* q, k, v and o to whole heads over `size` ranks; key heads repeat where they are fewer. */
static double heads_seconds(const struct hardware *h, const struct view *v, int size)
{
    double repeated = v->heads > 0 && size > v->heads ? size / v->heads : 1;
    struct ranks ranks = { size, v->ranks.stride };
    return exchange_seconds(h, ranks, 2 * v->tokens * (v->queries + repeated * v->keys));
}

/* Ulysses goes over as many ranks as there are key heads and divide the group. */
static int inner_ranks(const struct view *v)
{
    int inner = v->heads < v->ranks.size ? (int)v->heads : v->ranks.size;
    while (inner > 1 && v->ranks.size % inner)
        inner--;
    return inner > 1 ? inner : 1;
}

/* What a ring's blocks leave after attention, a pass; fp32 gradients circulate beside blocks. */
static void ring(const struct hardware *h, const struct view *v, struct layer_cost *cost)
{
    double whole = gather_kv(h, v);
    double left = whole - cost->forward.item[TIME_ATTENTION];
    double back = 3 * whole - cost->backward.item[TIME_ATTENTION];
    cost->forward.item[TIME_EXPOSED_CONTEXT] += left > 0 ? left : 0;
    cost->backward.item[TIME_EXPOSED_CONTEXT] += back > 0 ? back : 0;
}

/* Ulysses inside, a ring over as many ranks as that leaves, of blocks as large. */
static void hierarchical(const struct hardware *h, const struct view *v, struct layer_cost *cost)
{
    int inner = inner_ranks(v);
    struct view outer = *v;
    double split = heads_seconds(h, v, inner);
    outer.ranks = (struct ranks){ v->ranks.size / inner, v->ranks.stride * inner };
    outer.all = v->tokens * outer.ranks.size;
    ring(h, &outer, cost);
    cost->forward.item[TIME_EXPOSED_CONTEXT] += split;
    cost->backward.item[TIME_EXPOSED_CONTEXT] += 2 * split;
}

/* allgather_kv: bf16 keys and values in each pass, fp32 gradients reduce-scattered. ulysses: q, k,
 * v, o in each pass, and their gradients. ring: blocks hide behind attention. */
static void softmax_context(const struct budget_input *in, const struct view *v,
                            struct layer_cost *cost)
{
    const struct hardware *h = in->hardware;
    struct pass *f = &cost->forward, *b = &cost->backward;
    double whole = gather_kv(h, v), split = heads_seconds(h, v, v->ranks.size);
    switch (in->choices->primitives.context) {
    case CONTEXT_ALLGATHER_KV:
        f->item[TIME_EXPOSED_CONTEXT] = whole;
        b->item[TIME_EXPOSED_CONTEXT] =
            whole + scatter_seconds(h, v->ranks, 4 * v->gathered * v->all);
        break;
    case CONTEXT_ULYSSES:
        f->item[TIME_EXPOSED_CONTEXT] = split;
        b->item[TIME_EXPOSED_CONTEXT] = 2 * split;
        break;
    case CONTEXT_HIERARCHICAL:
        hierarchical(h, v, cost);
        break;
    case CONTEXT_RING:
        ring(h, v, cost);
        break;
    case CONTEXT_NONE:
    case CONTEXT_COUNT:
        break;
    }
    cost->replay.item[TIME_EXPOSED_CONTEXT] = f->item[TIME_EXPOSED_CONTEXT];
}

/* What a token brings along, by kind: expanded or absorbed heads are exchanged, latents gathered.
 */
static void softmax_view(const struct budget_input *in, const struct residency_shape *s,
                         enum mixer mixer, struct view *ret)
{
    const uint64_t *w = s->width;
    ret->gathered = (double)w[WIDTH_KEY_VALUE];
    ret->queries = 2 * (double)w[WIDTH_QUERY];
    ret->keys = 2 * (double)w[WIDTH_KEY];
    ret->heads =
        (double)div_up((uint64_t)in->model->gqa.kv_heads, (uint64_t)in->choices->layout.tp);
    if (!mixer_is_latent(mixer))
        return;
    ret->gathered = (double)w[WIDTH_LATENT_KEY];
    ret->queries = (double)(w[WIDTH_QUERY] + w[WIDTH_VALUE]);
    ret->keys = ret->queries;
    if (mixer == MIXER_MLA)
        return;
    ret->gathered += mixer == MIXER_DSA ? (double)w[WIDTH_INDEX_KEY] : 0;
    ret->queries = (double)(w[WIDTH_ABSORBED] + w[WIDTH_ABSORBED_OUT]);
    ret->keys = (double)w[WIDTH_LATENT_KEY];
    ret->heads = 1;
}

struct recurrence {
    double split, state; /* elements a token in and out; elements of the state */
};

static struct recurrence recurrence_of(const struct budget_input *in,
                                       const struct residency_shape *s, enum mixer mixer)
{
    const uint64_t *w = s->width;
    if (mixer == MIXER_LIGHTNING)
        return (struct recurrence){ 4 * (double)w[WIDTH_LIGHTNING],
                                    (double)w[WIDTH_LIGHTNING] * in->model->lightning.head_dim };
    if (mixer == MIXER_MAMBA)
        return (struct recurrence){ (double)(w[WIDTH_MAMBA_CHANNELS] + w[WIDTH_MAMBA_INNER]),
                                    (double)w[WIDTH_MAMBA_INNER] * in->model->mamba.state };
    return (struct recurrence){ (double)(w[WIDTH_DELTA_CONV] + w[WIDTH_DELTA_VALUE]),
                                (double)w[WIDTH_DELTA_STATE] };
}

/* head_split: q, k, v and o exchanged. state_pass: states go from rank to rank in turn, and hidden
 * states are reordered from zig-zag to sequence order and back. */
static void linear_context(const struct budget_input *in, const struct residency_shape *s,
                           enum mixer mixer, const struct view *v, struct layer_cost *cost)
{
    const struct hardware *h = in->hardware;
    struct recurrence r = recurrence_of(in, s, mixer);
    double seconds = 0;
    if (in->choices->primitives.linear_context == LINEAR_CONTEXT_HEAD_SPLIT) {
        seconds = exchange_seconds(h, v->ranks, 2 * v->tokens * r.split);
    } else if (in->choices->primitives.linear_context == LINEAR_CONTEXT_STATE_PASS) {
        double state = 4.0 * r.state * in->choices->layout.micro_batch;
        double hidden = 2.0 * (double)s->rows[ROWS_NORM] * in->model->hidden;
        seconds = (v->ranks.size - 1) * send_seconds(h, v->ranks, state) +
                  2 * exchange_seconds(h, v->ranks, hidden);
    }
    cost->forward.item[TIME_EXPOSED_CONTEXT] = seconds;
    cost->replay.item[TIME_EXPOSED_CONTEXT] = seconds;
    cost->backward.item[TIME_EXPOSED_CONTEXT] = 2 * seconds;
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
    if (l->cp == 1)
        return;
    double tokens = (double)shape.rows[ROWS_TOKENS];
    struct view v = { .ranks = { l->cp, l->tp }, .tokens = tokens, .all = tokens * l->cp };
    softmax_view(in, &shape, mixer, &v);
    if (mixer_is_softmax(mixer))
        softmax_context(in, &v, cost);
    else if (mixer_is_linear(mixer))
        linear_context(in, &shape, mixer, &v, cost);
}
