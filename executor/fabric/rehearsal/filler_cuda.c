/* filler_cuda.c - a rehearsal's collectives on the communication stream of a GPU. What a ring's
 * kernels would take of the multiprocessors and of the memory's bandwidth, paced kernels take; an
 * exchange on the copy engines is copies, and waits in one thread for the rest of its time. */
#include "executor/backend/cuda/streams.h"
#include "executor/fabric/rehearsal/fabric_rehearsal.h"
#include "executor/fabric/rehearsal/filler.h"
#include "executor/fabric/rehearsal/paced.h"

#include <stdlib.h>

/* Blocks of a collective where the machine's facts do not tell its channels. */
enum { USUAL_BLOCKS = 16, CARRY_PIECES = 16 };

/* A collective, under way or noted for the time it took. */
struct transfer {
    struct transfer *next; /* in the list of all, or of idle ones */
    cudaEvent_t begun, done;
};

struct held {
    struct held *next;
    void *memory;
};

struct cuda_filler {
    struct filler base;
    cudaStream_t compute, communication;
    cudaEvent_t fork;
    struct transfer *current, *noted, *idle;
    struct held *held;
    uint64_t *mark; /* device memory: when the copies that are under way began */
    int blocks;
    bool within; /* a collective: between begin and end */
};

static struct cuda_filler *own(struct filler *filler)
{
    return (struct cuda_filler *)filler;
}

static int check(cudaError_t status, const char *what, struct diag_list *reterr)
{
    if (status == cudaSuccess)
        return 0;
    return diag_error(reterr, (struct pos){ 0 }, "rehearsal, %s: %s", what,
                      cudaGetErrorString(status));
}

static struct pace pace_of(const struct cuda_filler *f, double seconds)
{
    return (struct pace){ .stream = f->communication, .blocks = f->blocks, .seconds = seconds };
}

static struct transfer *new_transfer(struct cuda_filler *f)
{
    struct transfer *t = f->idle;
    if (t) {
        f->idle = t->next;
        return t;
    }
    t = calloc(1, sizeof *t);
    if (t && cudaEventCreate(&t->begun) == cudaSuccess) {
        if (cudaEventCreate(&t->done) == cudaSuccess)
            return t;
        (void)cudaEventDestroy(t->begun);
    }
    free(t);
    return NULL;
}

static int begin(struct filler *filler, struct diag_list *reterr)
{
    struct cuda_filler *f = own(filler);
    struct transfer *t = new_transfer(f);

    if (!t)
        return diag_error(reterr, (struct pos){ 0 }, "no memory left for a transfer");
    t->next = f->noted;
    f->current = f->noted = t;
    cudaError_t status = cudaEventRecord(f->fork, f->compute);
    if (status == cudaSuccess)
        status = cudaStreamWaitEvent(f->communication, f->fork, 0);
    if (status == cudaSuccess)
        status = cudaEventRecord(t->begun, f->communication);
    f->within = true;
    return check(status, "begin", reterr);
}

static int wait_for(struct filler *filler, struct transfer *t, struct diag_list *reterr)
{
    return check(cudaStreamWaitEvent(own(filler)->compute, t->done, 0), "wait", reterr);
}

static int end(struct filler *filler, struct transfer **ret, struct diag_list *reterr)
{
    struct cuda_filler *f = own(filler);

    f->within = false;
    if (check(cudaEventRecord(f->current->done, f->communication), "end", reterr) != 0)
        return -1;
    if (!ret)
        return wait_for(filler, f->current, reterr);
    *ret = f->current;
    return 0;
}

static double busy_seconds(struct filler *filler)
{
    struct cuda_filler *f = own(filler);
    double ret = 0;

    while (f->noted) {
        struct transfer *t = f->noted;
        float milliseconds = 0;
        if (cudaEventElapsedTime(&milliseconds, t->begun, t->done) == cudaSuccess)
            ret += (double)milliseconds * 1e-3;
        f->noted = t->next;
        t->next = f->idle;
        f->idle = t;
    }
    return ret;
}

static int copy(struct filler *filler, void *to, const void *from, uint64_t bytes,
                struct diag_list *reterr)
{
    const struct cuda_filler *f = own(filler);

    if (to == from || bytes == 0)
        return 0;
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                 f->within ? f->communication : f->compute),
                 "copy", reterr);
}

/* Nothing to move, but time to pass, or nothing to move from. */
static int fill_empty(struct cuda_filler *f, void *to, uint64_t bytes, double seconds,
                      struct diag_list *reterr)
{
    const struct pace pace = pace_of(f, seconds);
    cudaError_t status = paced_mark(f->communication, f->mark);

    if (status == cudaSuccess && bytes > 0)
        status = cudaMemsetAsync(to, 0, bytes, f->communication);
    if (status == cudaSuccess && seconds > 0)
        status = paced_wait(&pace, f->mark);
    return check(status, "fill", reterr);
}

static int fill(struct filler *filler, void *to, uint64_t bytes, const void *from,
                uint64_t from_bytes, double seconds, struct diag_list *reterr)
{
    struct cuda_filler *f = own(filler);
    const struct pace pace = pace_of(f, seconds);

    if (bytes == 0 || from_bytes == 0)
        return fill_empty(f, to, bytes, seconds, reterr);
    return check(paced_fill(&pace, to, bytes, from, from_bytes), "fill", reterr);
}

/* Bytes [begin, end) of the whole, from wherever they repeat. */
static cudaError_t carry_piece(const struct cuda_filler *f, char *to, uint64_t first, uint64_t last,
                               const char *from, uint64_t from_bytes)
{
    cudaError_t status = cudaSuccess;

    while (first < last && status == cudaSuccess) {
        uint64_t place = first % from_bytes, bytes = from_bytes - place;
        bytes = bytes < last - first ? bytes : last - first;
        status = cudaMemcpyAsync(to + first, from + place, bytes, cudaMemcpyDeviceToDevice,
                                 f->communication);
        first += bytes;
    }
    return status;
}

static int carry(struct filler *filler, void *to, uint64_t bytes, const void *from,
                 uint64_t from_bytes, double seconds, struct diag_list *reterr)
{
    struct cuda_filler *f = own(filler);

    if (bytes == 0 || from_bytes == 0)
        return fill_empty(f, to, bytes, seconds, reterr);
    cudaError_t status = paced_mark(f->communication, f->mark);
    for (uint64_t i = 0; i < CARRY_PIECES && status == cudaSuccess; i++) {
        const struct pace pace = pace_of(f, seconds * (double)(i + 1) / CARRY_PIECES);
        uint64_t first = bytes / CARRY_PIECES * i;
        uint64_t last = i + 1 == CARRY_PIECES ? bytes : bytes / CARRY_PIECES * (i + 1);
        status = carry_piece(f, to, first, last, from, from_bytes);
        if (status == cudaSuccess)
            status = paced_wait(&pace, f->mark);
    }
    return check(status, "copies", reterr);
}

static int sum(struct filler *filler, void *to, const void *from, uint64_t elements, int slices,
               enum dtype dtype, double seconds, struct diag_list *reterr)
{
    struct cuda_filler *f = own(filler);
    const struct pace pace = pace_of(f, seconds);
    return check(paced_sum(&pace, to, from, elements, slices, dtype == DTYPE_FP32), "sum", reterr);
}

static int scale(struct filler *filler, void *values, uint64_t elements, int factor,
                 enum dtype dtype, double seconds, struct diag_list *reterr)
{
    struct cuda_filler *f = own(filler);
    const struct pace pace = pace_of(f, seconds);
    return check(paced_scale(&pace, values, elements, (float)factor, dtype == DTYPE_FP32), "sum",
                 reterr);
}

static int hold(struct filler *filler, uint64_t bytes, struct diag_list *reterr)
{
    struct cuda_filler *f = own(filler);
    struct held *held = calloc(1, sizeof *held);

    if (!held)
        return diag_error(reterr, (struct pos){ 0 }, "no memory left for a communicator");
    held->next = f->held;
    f->held = held;
    cudaError_t status = cudaMalloc(&held->memory, bytes);
    if (status != cudaSuccess)
        return diag_error(reterr, (struct pos){ 0 },
                          "memory for communicators: %llu bytes wanted: %s",
                          (unsigned long long)bytes, cudaGetErrorString(status));
    return 0;
}

static void close_filler(struct filler *filler)
{
    struct cuda_filler *f = own(filler);

    (void)busy_seconds(filler);
    while (f->idle) {
        struct transfer *t = f->idle;
        f->idle = t->next;
        (void)cudaEventDestroy(t->begun);
        (void)cudaEventDestroy(t->done);
        free(t);
    }
    while (f->held) {
        struct held *held = f->held;
        f->held = held->next;
        (void)cudaFree(held->memory);
        free(held);
    }
    if (f->mark)
        (void)cudaFree(f->mark);
    if (f->fork)
        (void)cudaEventDestroy(f->fork);
    free(f);
}

static const struct filler_ops cuda_ops = {
    .begin = begin,
    .end = end,
    .wait = wait_for,
    .copy = copy,
    .fill = fill,
    .carry = carry,
    .sum = sum,
    .scale = scale,
    .busy_seconds = busy_seconds,
    .hold = hold,
    .close = close_filler,
};

static struct filler *open_filler(struct backend *cuda, const struct hardware *hardware,
                                  struct diag_list *reterr)
{
    struct cuda_filler *f = calloc(1, sizeof *f);

    if (!f) {
        diag_error(reterr, (struct pos){ 0 }, "no memory left for the fabric");
        return NULL;
    }
    f->base.ops = &cuda_ops;
    f->compute = backend_cuda_stream(cuda, STREAM_COMPUTE);
    f->communication = backend_cuda_stream(cuda, STREAM_COMMUNICATION);
    f->blocks = hardware->ring_channels > 0 ? hardware->ring_channels : USUAL_BLOCKS;
    cudaError_t status = cudaEventCreateWithFlags(&f->fork, cudaEventDisableTiming);
    if (status == cudaSuccess)
        status = cudaMalloc((void **)&f->mark, sizeof *f->mark);
    if (check(status, "fabric", reterr) == 0)
        return &f->base;
    close_filler(&f->base);
    return NULL;
}

struct fabric *fabric_rehearsal_open_cuda(struct fabric *host, struct backend *cuda,
                                          const struct rehearsal_world *world,
                                          struct diag_list *reterr)
{
    struct filler *filler = open_filler(cuda, world->hardware, reterr);
    struct fabric *f = filler ? rehearsal_open(host, filler, world, reterr) : NULL;

    if (filler && !f)
        filler->ops->close(filler);
    return f;
}
