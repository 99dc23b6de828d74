/* host_link.c - copies between the device and page-locked host memory, each way and both at once.
 * The host backend has no such link: what copies between two places cost there is memory's rate. */
#include "executor/calibrate/bench.h"

struct link {
    void *there, *back; /* host memory */
    uint64_t bytes;
};

static int run_to(struct bench *b, void *operation)
{
    const struct link *l = operation;
    return b->ops->upload(b->backend, STREAM_COMMUNICATION, b->block, l->there, l->bytes,
                          b->errors) == 0
               ? b->ops->sync(b->backend, STREAM_COMMUNICATION, b->errors)
               : -1;
}

static int run_from(struct bench *b, void *operation)
{
    const struct link *l = operation;
    return b->ops->download(b->backend, STREAM_COMPUTE, l->back, b->block + b->block_bytes / 2,
                            l->bytes, b->errors);
}

static int run_both(struct bench *b, void *operation)
{
    const struct link *l = operation;
    if (b->ops->upload(b->backend, STREAM_COMMUNICATION, b->block, l->there, l->bytes, b->errors))
        return -1;
    if (run_from(b, operation) != 0)
        return -1;
    return b->ops->sync(b->backend, STREAM_COMMUNICATION, b->errors);
}

static int measure(struct bench *b, struct link *l)
{
    struct point point = { .bytes = (double)l->bytes };
    point.kind = POINT_TO_DEVICE;
    (void)snprintf(point.name, sizeof point.name, "to the device");
    if (bench_time(b, run_to, l, true, &point) != 0)
        return -1;
    point.kind = POINT_FROM_DEVICE;
    (void)snprintf(point.name, sizeof point.name, "from the device");
    if (bench_time(b, run_from, l, true, &point) != 0)
        return -1;
    if (b->calibration->host)
        return 0;
    point.kind = POINT_BOTH_WAYS;
    (void)snprintf(point.name, sizeof point.name, "both ways");
    return bench_time(b, run_both, l, true, &point);
}

static int measure_all(struct bench *b, struct link *l, uint64_t most)
{
    for (l->bytes = most; l->bytes >= most / 16; l->bytes /= 4)
        if (measure(b, l) != 0)
            return -1;
    return 0;
}

static int of_device(struct bench *b)
{
    const struct calibrate_device *d = &b->calibration->device;
    uint64_t most = UINT64_C(512) << 20;
    most = most > b->block_bytes / 2 ? b->block_bytes / 2 : most;
    struct link l = { .there = d->pin(most), .back = d->pin(most) };
    int ret = 0;
    if (l.there && l.back)
        ret = measure_all(b, &l, most);
    d->unpin(l.there);
    d->unpin(l.back);
    return ret;
}

static int of_host(struct bench *b)
{
    uint64_t most = b->calibration->quick ? UINT64_C(4) << 20 : UINT64_C(128) << 20;
    struct link l = { .there = b->block + b->block_bytes / 4,
                      .back = b->block + b->block_bytes / 4 * 3 };
    return measure_all(b, &l, most);
}

/* The first piece of the block is overwritten with itself or with what it was copied to. */
int bench_host_link(struct bench *b)
{
    int ret = 0;
    if (b->calibration->host)
        ret = of_host(b);
    else if (b->calibration->device.pin)
        ret = of_device(b);
    bench_clear(b);
    return ret;
}
