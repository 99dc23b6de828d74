/* collective.c - how long collectives take: bytes over the rate that the group reaches, plus the
 * floor of one collective. */
#include "planner/predict/collective.h"

struct ranks dense_shard_ranks(const struct layout *l)
{
    return (struct ranks){ layout_dense_shards(l), l->tp };
}

struct ranks expert_shard_ranks(const struct layout *l)
{
    return (struct ranks){ layout_expert_shards(l), l->etp * l->ep };
}

/* Members of the group within one NVLink domain. */
static int near_members(const struct hardware *h, struct ranks ranks)
{
    int near = h->domain_gpus > 0 ? h->domain_gpus / ranks.stride : ranks.size;
    near = near < 1 ? 1 : near;
    return near < ranks.size ? near : ranks.size;
}

/* Where links join pairs, a rank reaches its near peers over one link each. */
static double link_rate(const struct hardware *h, int near)
{
    double peers = h->peer_link_bytes_per_second * (near > 1 ? near - 1 : 1);
    return peers > 0 && peers < h->link_bytes_per_second ? peers : h->link_bytes_per_second;
}

static double network_rate(const struct hardware *h)
{
    double rate = h->network_bytes_per_second * h->network_efficiency;
    return rate > 0 ? rate : h->link_bytes_per_second * h->gather_efficiency;
}

/* Rings enter and leave a domain through the adapters of all its members. */
static double ring_rate(const struct hardware *h, struct ranks ranks, double efficiency)
{
    int near = near_members(h, ranks);
    double link = link_rate(h, near) * efficiency;
    double network = near * network_rate(h);
    return near == ranks.size || link < network ? link : network;
}

/* bytes x (n - 1) / n over the rate. */
static double ring_seconds(const struct hardware *h, struct ranks ranks, double bytes,
                           double efficiency)
{
    if (ranks.size <= 1 || bytes <= 0)
        return 0;
    return h->collective_latency_seconds +
           over(bytes * (ranks.size - 1) / ranks.size, ring_rate(h, ranks, efficiency));
}

double gather_seconds(const struct hardware *h, struct ranks ranks, double bytes)
{
    return ring_seconds(h, ranks, bytes, h->gather_efficiency);
}

/* Where the machine says so, rings reach less when they add. */
double scatter_seconds(const struct hardware *h, struct ranks ranks, double bytes)
{
    bool said = h->scatter_efficiency > 0;
    return ring_seconds(h, ranks, bytes, said ? h->scatter_efficiency : h->gather_efficiency);
}

/* First every rank receives the part of one rank of each far node through its own adapter, then the
 * ranks of a node exchange these parts: bytes x (far - 1) / n over the network and
 * bytes x (near - 1) / near over links, one after the other. */
static double two_phases(const struct hardware *h, struct ranks ranks, double bytes,
                         double efficiency)
{
    int near = near_members(h, ranks), far = (ranks.size + near - 1) / near;
    if (ranks.size <= 1 || bytes <= 0)
        return 0;
    if (far == 1)
        return ring_seconds(h, ranks, bytes, efficiency);
    double network = over(bytes * (far - 1) / ranks.size, network_rate(h));
    double link = over(bytes * (near - 1) / near, link_rate(h, near) * efficiency);
    return (near > 1 ? 2 : 1) * h->collective_latency_seconds + network + link;
}

double context_gather_seconds(const struct hardware *h, struct ranks ranks, double bytes)
{
    return two_phases(h, ranks, bytes, h->gather_efficiency);
}

double context_scatter_seconds(const struct hardware *h, struct ranks ranks, double bytes)
{
    bool said = h->scatter_efficiency > 0;
    return two_phases(h, ranks, bytes, said ? h->scatter_efficiency : h->gather_efficiency);
}

double exchange_latency(const struct hardware *h)
{
    return h->exchange_latency_seconds > 0 ? h->exchange_latency_seconds
                                           : h->collective_latency_seconds;
}

/* The share for ranks of the domain and the share for the others travel at the same time. */
double exchange_seconds(const struct hardware *h, struct ranks ranks, double bytes)
{
    if (ranks.size <= 1 || bytes <= 0)
        return 0;
    int near = near_members(h, ranks);
    double inside =
        over(bytes * (near - 1) / ranks.size, link_rate(h, near) * h->exchange_efficiency);
    double outside = over(bytes * (ranks.size - near) / ranks.size, network_rate(h));
    return exchange_latency(h) + (inside > outside ? inside : outside);
}

double send_seconds(const struct hardware *h, struct ranks ranks, double bytes)
{
    if (ranks.size <= 1)
        return 0;
    bool near = near_members(h, ranks) > 1;
    double rate = near ? link_rate(h, 2) * h->gather_efficiency : network_rate(h);
    return h->collective_latency_seconds + over(bytes, rate);
}

double unit_gather_seconds(const struct budget_input *in, const struct unit *unit)
{
    const struct layout *l = &in->choices->layout;
    if (in->choices->primitives.sharding != SHARDING_FSDP)
        return 0;
    return gather_seconds(in->hardware, dense_shard_ranks(l), 2.0 * (double)unit->dense) +
           gather_seconds(in->hardware, expert_shard_ranks(l), 2.0 * (double)unit->expert);
}

double unit_scatter_seconds(const struct budget_input *in, const struct unit *unit)
{
    const struct layout *l = &in->choices->layout;
    const struct primitives *p = &in->choices->primitives;
    double bytes = (double)dtype_bytes(p->grad_dtype);
    if (p->sharding != SHARDING_FSDP && p->sharding != SHARDING_ZERO2)
        return 0;
    double dense = (double)unit->dense_trained.all, expert = (double)unit->expert_trained.all;
    return scatter_seconds(in->hardware, dense_shard_ranks(l), bytes * dense) +
           scatter_seconds(in->hardware, expert_shard_ranks(l), bytes * expert);
}
