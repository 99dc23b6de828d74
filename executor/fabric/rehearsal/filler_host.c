/* filler_host.c - the communication stream of a host: what is asked for is copied at once, and is
 * there when the stream's clock says so. Whoever waits sleeps until then. */
#include "executor/backend/host/bf16.h"
#include "executor/fabric/rehearsal/filler.h"

#include <stdlib.h>
#include <time.h>

struct transfer {
    double ends;
};

struct host_filler {
    struct filler base;
    double ends; /* of all that has been asked for */
    double busy; /* since it was last asked */
};

static struct host_filler *own(struct filler *filler)
{
    return (struct host_filler *)filler;
}

static double now(void)
{
    struct timespec time = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void sleep_until(double end)
{
    double left = end - now();
    struct timespec pause = { 0 };

    if (left <= 0)
        return;
    pause.tv_sec = (time_t)left;
    pause.tv_nsec = (long)((left - (double)pause.tv_sec) * 1e9);
    while (nanosleep(&pause, &pause) != 0)
        ;
}

static void pass(struct filler *filler, double seconds)
{
    own(filler)->ends += seconds;
    own(filler)->busy += seconds;
}

static double busy_seconds(struct filler *filler)
{
    double ret = own(filler)->busy;
    own(filler)->busy = 0;
    return ret;
}

/* Behind whatever is still on its way. */
static int begin(struct filler *filler, struct diag_list *reterr)
{
    double time = now();
    (void)reterr;
    if (own(filler)->ends < time)
        own(filler)->ends = time;
    return 0;
}

static int end(struct filler *filler, struct transfer **ret, struct diag_list *reterr)
{
    if (!ret) {
        sleep_until(own(filler)->ends);
        return 0;
    }
    *ret = malloc(sizeof **ret);
    if (!*ret)
        return diag_error(reterr, (struct pos){ 0 }, "no memory left for a transfer");
    (*ret)->ends = own(filler)->ends;
    return 0;
}

static int wait_for(struct filler *filler, struct transfer *t, struct diag_list *reterr)
{
    (void)filler;
    (void)reterr;
    sleep_until(t->ends);
    free(t);
    return 0;
}

static int copy(struct filler *filler, void *to, const void *from, uint64_t bytes,
                struct diag_list *reterr)
{
    (void)filler;
    (void)reterr;
    if (to != from && bytes > 0)
        memmove(to, from, bytes);
    return 0;
}

static int fill(struct filler *filler, void *to, uint64_t bytes, const void *from,
                uint64_t from_bytes, double seconds, struct diag_list *reterr)
{
    char *at = to;

    if (from_bytes == 0 && bytes > 0)
        memset(to, 0, bytes);
    for (uint64_t done = 0; from_bytes > 0 && done < bytes; done += from_bytes) {
        uint64_t rest = bytes - done;
        (void)copy(filler, at + done, from, rest < from_bytes ? rest : from_bytes, reterr);
    }
    pass(filler, seconds);
    return 0;
}

static float load(const void *values, uint64_t i, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? bf16_to_float(((const bf16 *)values)[i])
                               : ((const float *)values)[i];
}

static void store(void *values, uint64_t i, enum dtype dtype, float value)
{
    if (dtype == DTYPE_BF16)
        ((bf16 *)values)[i] = bf16_from_float(value);
    else
        ((float *)values)[i] = value;
}

static int sum(struct filler *filler, void *to, const void *from, uint64_t elements, int slices,
               enum dtype dtype, double seconds, struct diag_list *reterr)
{
    (void)reterr;
    for (uint64_t i = 0; i < elements; i++) {
        float total = 0;
        for (int s = 0; s < slices; s++)
            total += load(from, (uint64_t)s * elements + i, dtype);
        store(to, i, dtype, total);
    }
    pass(filler, seconds);
    return 0;
}

static int scale(struct filler *filler, void *values, uint64_t elements, int factor,
                 enum dtype dtype, double seconds, struct diag_list *reterr)
{
    (void)reterr;
    for (uint64_t i = 0; i < elements; i++)
        store(values, i, dtype, load(values, i, dtype) * (float)factor);
    pass(filler, seconds);
    return 0;
}

static int hold(struct filler *filler, uint64_t bytes, struct diag_list *reterr)
{
    (void)filler;
    (void)bytes;
    (void)reterr;
    return 0;
}

static void close_filler(struct filler *filler)
{
    free(filler);
}

struct filler *filler_host_open(void)
{
    static const struct filler_ops ops = {
        .begin = begin,
        .end = end,
        .wait = wait_for,
        .copy = copy,
        .fill = fill,
        .carry = fill,
        .sum = sum,
        .scale = scale,
        .busy_seconds = busy_seconds,
        .hold = hold,
        .close = close_filler,
    };
    struct host_filler *filler = calloc(1, sizeof *filler);

    if (!filler)
        return NULL;
    filler->base.ops = &ops;
    return &filler->base;
}
