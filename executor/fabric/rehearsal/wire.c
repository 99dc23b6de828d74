#include "executor/fabric/rehearsal/wire.h"

bool wire_is_near(const struct hardware *hardware, int rank, int other)
{
    int domain = hardware->domain_gpus;
    return domain <= 0 || rank / domain == other / domain;
}

struct wire wire_of(const struct hardware *hardware, const int *ranks, int count, int rank)
{
    struct wire ret = { .hardware = hardware, .members = count };
    for (int i = 0; i < count; i++)
        ret.near += wire_is_near(hardware, rank, ranks[i]);
    return ret;
}

/* What is carried at a rate that is not known takes no time. */
static double seconds_at(double bytes, double rate)
{
    return bytes > 0 && rate > 0 ? bytes / rate : 0;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

static double network_rate(const struct hardware *h)
{
    return h->network_bytes_per_second * h->network_efficiency;
}

/* Facts that a machine need not have stand for another when they are 0. */
static double fact(double value, double otherwise)
{
    return value > 0 ? value : otherwise;
}

double wire_ring_seconds(const struct wire *wire, uint64_t bytes, bool sums)
{
    const struct hardware *h = wire->hardware;
    double reached =
        sums ? fact(h->scatter_efficiency, h->gather_efficiency) : h->gather_efficiency;
    double passing = (double)bytes * (wire->members - 1);
    double link = seconds_at(passing, h->link_bytes_per_second * reached);
    double network = 0;

    if (passing <= 0)
        return 0;
    if (wire->near < wire->members)
        network = seconds_at(passing, network_rate(h) * wire->near);
    return h->collective_latency_seconds + longer(link, network);
}

double wire_exchange_seconds(const struct wire *wire, const struct wire_rows *bytes, bool copies)
{
    const struct hardware *h = wire->hardware;
    double sms = h->exchange_efficiency;
    double reached = copies ? fact(h->copy_exchange_efficiency, sms) : sms;
    double near = longer((double)bytes->near_sent, (double)bytes->near_received);
    double far = longer((double)bytes->far_sent, (double)bytes->far_received);
    double link = seconds_at(near, h->link_bytes_per_second * reached);

    if (near <= 0 && far <= 0)
        return 0;
    return fact(h->exchange_latency_seconds, h->collective_latency_seconds) +
           longer(link, seconds_at(far, network_rate(h)));
}
