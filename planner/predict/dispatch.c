/* dispatch.c - how many routed rows a rank sends, receives, keeps and has in flight. */
#include "planner/predict/parts.h"

#include "base/checked.h"
#include "base/layout/trained.h"

#include <limits.h>

static const double bound_quantile = 0.9999;

static struct routing_shape routing_shape_of(const struct budget_input *in)
{
    const struct model *m = in->model;
    return (struct routing_shape){ norm_tokens(in), m->moe.top_k, m->moe.experts,
                                   in->choices->layout.ep };
}

/* Rows sent: the k choices of each local token. With ETP every rank of its group gets all rows of
 * the group's tokens. */
static uint64_t sent_rows(const struct budget_input *in)
{
    return mul_sat(norm_tokens(in), (uint64_t)in->model->moe.top_k);
}

/* Tokens a source puts into one chunk under a cap. */
static uint64_t capped_tokens(const struct budget_input *in)
{
    uint64_t cap = in->choices->primitives.moe_cap_tokens, tokens = norm_tokens(in);
    return cap == 0 || cap > tokens ? tokens : cap;
}

/* ep x min(k, E / ep) x tokens: every source sends all it can to this rank. */
static uint64_t worst_rows(const struct budget_input *in, uint64_t tokens)
{
    uint64_t ep = (uint64_t)in->choices->layout.ep, k = (uint64_t)in->model->moe.top_k;
    uint64_t local = (uint64_t)in->model->moe.experts / ep;
    return mul3_sat(ep, k < local ? k : local, tokens);
}

struct rows_received dispatch_rows(const struct budget_input *in, int ep_rank)
{
    const struct layout *l = &in->choices->layout;
    if (in->model->moe.experts == 0)
        return (struct rows_received){ 0, 0 };
    uint64_t etp = (uint64_t)l->etp, sent = mul_sat(sent_rows(in), etp);
    if (l->ep == 1)
        return (struct rows_received){ sent, sent };
    struct routing_shape shape = routing_shape_of(in);
    struct routing_load load;
    routing_load(&in->routing, &shape, ep_rank, in->routing_quantile, &load);
    /* a router's own choices follow no profile: nothing but arithmetic bounds them */
    if (in->routing.kind == ROUTING_NATURAL)
        load.upper_rows = worst_rows(in, norm_tokens(in));
    return (struct rows_received){ mul_sat(load.point_rows, etp), mul_sat(load.upper_rows, etp) };
}

static int chunk_count(const struct budget_input *in)
{
    const struct primitives *p = &in->choices->primitives;
    uint64_t tokens = capped_tokens(in), chunks = 1;
    if (p->moe == MOE_CHUNKED && p->moe_chunks > 1)
        return p->moe_chunks;
    if (p->moe == MOE_CAPPED && tokens > 0)
        chunks = div_up(norm_tokens(in), tokens);
    return chunks < INT_MAX ? (int)chunks : INT_MAX;
}

/* Chunked: exchanges of a chunk overlap the work of another. Capped: chunks one after another, each
 * replayed by itself. */
void dispatch_init(const struct budget_input *in, uint64_t received, struct dispatch *ret)
{
    const struct primitives *p = &in->choices->primitives;
    int chunks = chunk_count(in);
    uint64_t n = (uint64_t)chunks;
    bool waits = p->wgrad_delay == WGRAD_DELAY_ALL || p->wgrad_delay > chunks;
    ret->chunks = chunks;
    ret->delay = waits ? chunks : p->wgrad_delay;
    if (!has_component(trained_components(p), COMPONENT_EXPERTS))
        ret->delay = 0; /* adapters' gradients wait for nothing */
    if (p->moe == MOE_CAPPED)
        ret->delay = 0; /* nothing of a chunk outlives it */
    ret->overlaps = p->moe == MOE_CHUNKED && n > 1;
    ret->sent = sent_rows(in);
    ret->received = received;
    ret->chunk_sent = div_up(ret->sent, n);
    ret->chunk_received = div_up(received, n);
}

/* Room for the routed tensors. The host's memory is virtual until touched, so it takes the bound
 * that cannot be exceeded, as a device does for natural routing; else a device takes the load
 * exceeded once in ten thousand layers. */
uint64_t dispatch_bound(const struct budget_input *in)
{
    const struct layout *l = &in->choices->layout;
    if (in->model->moe.experts == 0)
        return 0;
    uint64_t etp = (uint64_t)l->etp;
    if (l->ep == 1)
        return mul_sat(sent_rows(in), etp);
    uint64_t bound = mul_sat(worst_rows(in, norm_tokens(in)), etp);
    if (in->hardware->host || in->choices->primitives.moe == MOE_CAPPED ||
        in->routing.kind == ROUTING_NATURAL)
        return bound;
    struct routing_shape shape = routing_shape_of(in);
    struct routing_load load;
    routing_load(&in->routing, &shape, -1, bound_quantile, &load);
    uint64_t upper = mul_sat(load.upper_rows, etp);
    return upper < bound ? upper : bound;
}

/* Rows that a device reserves: the bound, or under chunks the sum of each chunk's own. Every chunk
 * has room for the load of its tokens at the bound's quantile; of a router's own choices, for its
 * part of the layer's. */
uint64_t dispatch_reserved(const struct budget_input *in)
{
    const struct layout *l = &in->choices->layout;
    uint64_t bound = dispatch_bound(in), n = (uint64_t)chunk_count(in);
    if (n == 1 || l->ep == 1 || in->model->moe.experts == 0 ||
        in->routing.kind == ROUTING_NATURAL || in->choices->primitives.moe != MOE_CHUNKED)
        return bound;
    struct routing_shape shape = routing_shape_of(in);
    struct routing_load load;
    shape.tokens = div_up(shape.tokens, n);
    routing_load(&in->routing, &shape, -1, bound_quantile, &load);
    uint64_t chunk = mul_sat(load.upper_rows, (uint64_t)l->etp);
    return mul_sat(n, chunk < bound ? chunk : bound);
}

uint64_t dispatch_most_rows(const struct budget_input *in)
{
    uint64_t upper = dispatch_rows(in, -1).upper, room = dispatch_reserved(in);
    return in->routing.kind == ROUTING_NATURAL && room > upper ? room : upper;
}
