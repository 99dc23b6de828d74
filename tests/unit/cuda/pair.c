#include "tests/unit/cuda/pair.h"

#include "tests/support/random.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t bytes_of(const struct array *a)
{
    return a->count * (a->kind == KIND_BF16 ? 2 : 4);
}

static void *device_memory(struct pair *p, uint64_t bytes)
{
    struct arena_source source = p->backends[DEVICE]->ops->arena_source(p->backends[DEVICE]);
    return source.reserve(source.context, bytes ? bytes : 16);
}

static void device_free(struct pair *p, void *memory)
{
    struct arena_source source = p->backends[DEVICE]->ops->arena_source(p->backends[DEVICE]);
    if (memory)
        source.release(source.context, memory, 0);
}

static bool set_workspaces(struct pair *p)
{
    for (int side = HOST; side < SIDES; side++) {
        struct backend *b = p->backends[side];
        uint64_t bytes = b->ops->workspace_bytes(b);
        p->workspaces[side] = side == HOST ? malloc(bytes) : device_memory(p, bytes);
        if (!p->workspaces[side])
            return false;
        b->ops->set_workspace(b, p->workspaces[side]);
    }
    return true;
}

int pair_open(struct pair *p)
{
    memset(p, 0, sizeof *p);
    p->seed = 20;
    p->backends[DEVICE] = backend_cuda_open(0, &p->diags);
    if (!p->backends[DEVICE]) {
        diag_list_print(stdout, &p->diags);
        int count;
        cudaError_t status = cudaGetDeviceCount(&count);
        return status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ? 77 : 1;
    }
    p->backends[HOST] = backend_host_open(&p->diags);
    if (!p->backends[HOST] || !set_workspaces(p)) {
        diag_list_print(stdout, &p->diags);
        return 1;
    }
    printf("%-24s %-40s %-14s %10s %9s\n", "operation", "shape", "result", "error", "allowed");
    return 0;
}

static void forget(struct pair *p)
{
    for (int i = 0; i < p->array_count; i++) {
        free(p->arrays[i].at[HOST]);
        device_free(p, p->arrays[i].at[DEVICE]);
    }
    p->array_count = 0;
}

void pair_close(struct pair *p)
{
    if (p->backends[DEVICE]) {
        forget(p);
        device_free(p, p->workspaces[DEVICE]);
        p->backends[DEVICE]->ops->close(p->backends[DEVICE]);
    }
    if (p->backends[HOST])
        p->backends[HOST]->ops->close(p->backends[HOST]);
    free(p->workspaces[HOST]);
}

void pair_case(struct pair *p, const char *operation, const char *format, ...)
{
    va_list arguments;
    forget(p);
    p->operation = operation;
    va_start(arguments, format);
    (void)vsnprintf(p->shape, sizeof p->shape, format, arguments);
    va_end(arguments);
}

static void row(struct pair *p, const char *what, double error, double allowed, bool good)
{
    p->rows++;
    p->failures += !good;
    printf("%-24s %-40s %-14s %10.3g %9.2g %s\n", p->operation, p->shape, what, error, allowed,
           good ? "" : "FAILED");
    (void)fflush(stdout);
}

bool pair_ran(struct pair *p, const char *what, int status)
{
    if (status == 0)
        return true;
    row(p, what, NAN, 0, false);
    diag_list_print(stdout, &p->diags);
    memset(&p->diags, 0, sizeof p->diags);
    return false;
}

void pair_upload(struct pair *p, const struct array *a)
{
    struct backend *b = p->backends[DEVICE];
    (void)pair_ran(p, "upload",
                   b->ops->upload(b, STREAM_COMPUTE, a->at[DEVICE], a->at[HOST],
                                  (uint64_t)bytes_of(a), &p->diags));
}

void *pair_download(struct pair *p, const struct array *a)
{
    struct backend *b = p->backends[DEVICE];
    void *got = malloc((size_t)bytes_of(a) + 1);
    if (got)
        (void)pair_ran(p, "download",
                       b->ops->download(b, STREAM_COMPUTE, got, a->at[DEVICE],
                                        (uint64_t)bytes_of(a), &p->diags));
    return got;
}

static struct array make(struct pair *p, enum kind kind, int64_t count)
{
    struct array a = { kind, count, { NULL, NULL } };
    a.at[HOST] = malloc((size_t)bytes_of(&a) + 1);
    a.at[DEVICE] = device_memory(p, (uint64_t)bytes_of(&a));
    if (p->array_count == ARRAYS_MAX || !a.at[HOST] || !a.at[DEVICE]) {
        printf("no memory for an array of %lld\n", (long long)count);
        exit(1);
    }
    p->arrays[p->array_count++] = a;
    return a;
}

/* The sum of twelve uniform values has variance one (Irwin-Hall); four draws of sixteen bits each
 * make one value cheap. */
static double normal(uint64_t *seed)
{
    double sum = -6;
    for (int i = 0; i < 3; i++) {
        uint64_t bits = random_next(seed);
        for (int j = 0; j < 4; j++, bits >>= 16)
            sum += (double)(bits & 0xffff) * 0x1p-16;
    }
    return sum;
}

uint16_t pair_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

struct array pair_random(struct pair *p, enum kind kind, int64_t count, double scale)
{
    struct array a = make(p, kind, count);
    for (int64_t i = 0; i < count; i++) {
        float value = (float)(scale * normal(&p->seed));
        if (kind == KIND_BF16)
            ((uint16_t *)a.at[HOST])[i] = pair_bf16(value);
        else
            ((float *)a.at[HOST])[i] = value;
    }
    pair_upload(p, &a);
    return a;
}

struct array pair_poison(struct pair *p, enum kind kind, int64_t count)
{
    struct array a = make(p, kind, count);
    memset(a.at[HOST], 0xff, (size_t)bytes_of(&a));
    pair_upload(p, &a);
    return a;
}

struct array pair_indices(struct pair *p, int64_t count, uint64_t below)
{
    struct array a = make(p, KIND_INT32, count);
    for (int64_t i = 0; i < count; i++)
        ((int32_t *)a.at[HOST])[i] = (int32_t)random_below(&p->seed, below);
    pair_upload(p, &a);
    return a;
}

double pair_double(const struct array *a, const void *values, int64_t i)
{
    float value = 0;
    uint32_t bits;
    switch (a->kind) {
    case KIND_INT32:
        return ((const int32_t *)values)[i];
    case KIND_FP32:
        return (double)((const float *)values)[i];
    case KIND_BF16:
        bits = (uint32_t)((const uint16_t *)values)[i] << 16;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    return NAN;
}

/* ||got - want|| / ||want||, and ||want|| squared. */
static double distance(const struct array *a, const void *got, const double *want, double *ret_size)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < a->count; i++) {
        double difference = pair_double(a, got, i) - want[i];
        apart += difference * difference;
        size += want[i] * want[i];
    }
    *ret_size = size;
    return size > 0 ? sqrt(apart / size) : sqrt(apart);
}

/* The first elements that are far off are told on failure. */
static void compare(struct pair *p, const char *what, const struct array *a, const void *got,
                    const double *want, double allowed)
{
    double size = 0, error = distance(a, got, want, &size);
    bool good = error <= allowed;
    row(p, what, error, allowed, good);
    double rms = sqrt(size / (double)(a->count ? a->count : 1));
    for (int64_t i = 0, told = 0; i < a->count && !good && told < 4; i++) {
        double difference = fabs(pair_double(a, got, i) - want[i]);
        if (difference <= 4 * allowed * rms)
            continue;
        printf("    element %lld of %lld: %g, wanted %g\n", (long long)i, (long long)a->count,
               pair_double(a, got, i), want[i]);
        told++;
    }
}

void pair_against(struct pair *p, const char *what, const struct array *a, const double *want,
                  double allowed)
{
    void *got = pair_download(p, a);
    if (got)
        compare(p, what, a, got, want, allowed);
    free(got);
}

static double *host_values(const struct array *a)
{
    double *ret = malloc((size_t)(a->count + 1) * sizeof *ret);
    for (int64_t i = 0; ret && i < a->count; i++)
        ret[i] = pair_double(a, a->at[HOST], i);
    return ret;
}

void pair_compare(struct pair *p, const char *what, const struct array *a, double allowed)
{
    double *want = host_values(a);
    if (want)
        pair_against(p, what, a, want, allowed);
    free(want);
}

double pair_distance(struct pair *p, const struct array *a)
{
    double *want = host_values(a), size = 0, ret = NAN;
    void *got = pair_download(p, a);
    if (want && got)
        ret = distance(a, got, want, &size);
    free(want);
    free(got);
    return ret;
}

void pair_figure(struct pair *p, const char *what, double got, double want, double allowed)
{
    double error = want != 0 ? fabs(got - want) / fabs(want) : fabs(got);
    row(p, what, error, allowed, error <= allowed);
}
