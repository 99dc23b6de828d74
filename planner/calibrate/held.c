/* held.c - what is read as it is: what a device holds beside tensors; and a host's peaks, which are
 * the best that was measured. */
#include "planner/calibrate/form.h"

#include <string.h>

static const struct point *find(const struct points *points, const char *name)
{
    for (size_t i = 0; i < points->count; i++)
        if (points->points[i].kind == POINT_HELD && strcmp(points->points[i].name, name) == 0)
            return &points->points[i];
    return NULL;
}

static double bytes_of(const struct points *points, const char *name)
{
    const struct point *point = find(points, name);
    return point ? point->bytes : 0;
}

static void put(const struct points *points, const char *key, const char *name,
                struct calibration *ret, struct diag_list *reterr)
{
    const struct point *point = find(points, name);
    if (point)
        form_put(ret, key, point->bytes, -1, 1, reterr);
}

static double positive(double value)
{
    return value > 0 ? value : 0;
}

/* A further communicator tells what channels and peers cost; what the first takes beyond that it
 * takes once. */
static void put_communicators(const struct form_input *in, struct calibration *ret,
                              struct diag_list *reterr)
{
    const struct points *points = in->points;
    const struct point *next = find(points, "next communicator");
    int channels = in->ring_channels;
    if (!next || next->ranks < 2)
        return;
    double ring = bytes_of(points, "next gather"), peers = bytes_of(points, "next exchange");
    double first = bytes_of(points, "first communicator") + bytes_of(points, "its first gather");
    form_put(ret, "communicator_first_bytes", positive(first - ring), -1, 1, reterr);
    form_put(ret, "exchange_first_bytes", positive(bytes_of(points, "its first exchange") - peers),
             -1, 1, reterr);
    form_put(ret, "communicator_next_bytes", next->bytes, -1, 1, reterr);
    form_put(ret, "exchange_peer_bytes", peers / (next->ranks - 1), -1, 1, reterr);
    if (find(points, "copies communicator"))
        form_put(ret, "copy_exchange_bytes",
                 positive(bytes_of(points, "copies communicator") +
                          bytes_of(points, "copies exchange") - next->bytes),
                 -1, 1, reterr);
    if (channels > 0)
        form_put(ret, "channel_bytes", ring / channels, -1, 1, reterr);
}

int form_held(const struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    const struct points *points = in->points;
    if (points->memory_bytes > 0)
        form_put(ret, "memory_bytes", (double)points->memory_bytes, -1, 1, reterr);
    put(points, "workspace_bytes", "workspace", ret, reterr);
    put(points, "context_bytes", "context", ret, reterr);
    put(points, "modules_bytes", "libraries", ret, reterr);
    put_communicators(in, ret, reterr);
    return 0;
}

struct best {
    double rate;
    size_t points;
};

static void better(struct best *best, double amount, double seconds)
{
    double rate = amount / seconds;
    best->rate = rate > best->rate ? rate : best->rate;
    best->points++;
}

int form_peaks(struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    struct best flops = { 0 }, memory = { 0 }, link = { 0 };
    for (size_t i = 0; i < in->points->count && in->host; i++) {
        const struct point *p = &in->points->points[i];
        if (p->flops > 0)
            better(&flops, p->flops, p->seconds);
        else if (p->kind == POINT_COPY)
            better(&memory, p->bytes, p->seconds);
        else if (p->ranks > 1 && p->bytes > 0 && p->kind != POINT_HELD &&
                 p->kind != POINT_ALL_REDUCE)
            better(&link, p->bytes, p->seconds);
    }
    const struct {
        const char *key;
        const struct best *best;
        double *to;
    } peaks[] = { { "bf16_flops_per_second", &flops, &in->flops },
                  { "memory_bytes_per_second", &memory, &in->memory },
                  { "link_bytes_per_second", &link, &in->link },
                  { "network_bytes_per_second", &link, NULL } };
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        if (peaks[i].best->points == 0)
            continue;
        form_put(ret, peaks[i].key, peaks[i].best->rate, -1, peaks[i].best->points, reterr);
        if (peaks[i].to)
            *peaks[i].to = peaks[i].best->rate;
    }
    return 0;
}
