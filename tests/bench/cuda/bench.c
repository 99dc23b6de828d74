#include "tests/bench/cuda/bench.h"

#include "tests/support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *bench_memory(struct bench *b, uint64_t bytes)
{
    void *block = NULL;
    if (cudaMalloc(&block, bytes) != cudaSuccess) {
        printf("no memory for %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    b->held[b->held_count++] = block;
    return block;
}

void bench_release(struct bench *b)
{
    while (b->held_count > 0)
        (void)cudaFree(b->held[--b->held_count]);
}

/* Random numbers of sizes 2^-8 to 1, read as bf16 or as fp32. */
void *bench_random(struct bench *b, uint64_t bytes)
{
    char *block = bench_memory(b, bytes);
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        uint64_t left = bytes - at < PIECE ? bytes - at : PIECE;
        (void)cudaMemcpy(block + at, b->piece, left, cudaMemcpyHostToDevice);
    }
    return block;
}

void *bench_indices(struct bench *b, const int32_t *values, uint64_t count)
{
    void *block = bench_memory(b, count * 4);
    (void)cudaMemcpy(block, values, count * 4, cudaMemcpyHostToDevice);
    return block;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double bench_seconds(struct bench *b, const struct bench_case *c, const struct operands *o)
{
    float times[RUNS];
    cudaStream_t stream = b->cuda->streams[STREAM_COMPUTE];
    for (int i = -2; i < RUNS; i++) {
        (void)cudaEventRecord(b->start, stream);
        if (c->run(b, o) != 0) {
            printf("%-22s %-30s failed\n", c->name, c->shape);
            diag_list_print(stdout, &b->diags);
            memset(&b->diags, 0, sizeof b->diags);
            return 0;
        }
        (void)cudaEventRecord(b->stop, stream);
        if (cudaEventSynchronize(b->stop) != cudaSuccess) {
            printf("%-22s %-30s %s\n", c->name, c->shape, cudaGetErrorString(cudaGetLastError()));
            return 0;
        }
        if (i >= 0)
            (void)cudaEventElapsedTime(&times[i], b->start, b->stop);
    }
    qsort(times, RUNS, sizeof times[0], by_value);
    return 1e-3 * (double)times[RUNS / 2];
}

void bench_measure(struct bench *b, const struct bench_case *c, const struct operands *o)
{
    double time = bench_seconds(b, c, o);
    if (time <= 0)
        return;
    printf("%-22s %-30s %9.3f ms ", c->name, c->shape, 1e3 * time);
    if (c->operations > 0)
        printf("%8.0f TFLOP/s\n", c->operations / time * 1e-12);
    else
        printf("%8.0f GB/s %5.0f %%\n", c->bytes / time * 1e-9,
               b->copy > 0 ? 100 * c->bytes / time / b->copy : 100.0);
    if (strcmp(c->name, "copy") == 0)
        b->copy = c->bytes / time;
    (void)fflush(stdout);
}

void bench_routes(struct bench *b, int32_t *choices, int32_t *slots)
{
    uint64_t seed = 3;
    int64_t place[EXPERTS] = { 0 };
    for (int64_t i = 0; i < ROUTED; i++) {
        int64_t row = i / TOP_K * TOP_K;
        bool again = true;
        while (again) {
            choices[i] = (int32_t)random_below(&seed, EXPERTS);
            again = false;
            for (int64_t j = row; j < i; j++)
                again = again || choices[j] == choices[i];
        }
        place[choices[i]]++;
    }
    b->offsets[0] = 0;
    for (int e = 0; e < EXPERTS; e++) {
        b->offsets[e + 1] = b->offsets[e] + place[e];
        place[e] = b->offsets[e];
    }
    for (int64_t i = 0; i < ROUTED; i++)
        slots[i] = (int32_t)place[choices[i]]++;
}

int bench_open(struct bench *b)
{
    uint64_t seed = 1;
    memset(b, 0, sizeof *b);
    b->backend = backend_cuda_open(0, &b->diags);
    b->piece = malloc(PIECE);
    if (!b->backend || !b->piece) {
        diag_list_print(stdout, &b->diags);
        int count;
        cudaError_t status = cudaGetDeviceCount(&count);
        return status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ? 77 : 1;
    }
    b->cuda = (struct cuda *)b->backend;
    b->ops = b->backend->ops;
    /* Sign and fraction at random, exponents of 2^-1 to 2^-8. */
    for (int i = 0; i < PIECE / 2; i++) {
        uint64_t bits = random_next(&seed);
        b->piece[i] = (uint16_t)((bits & 0x807f) | (119 + (bits >> 20) % 8) << 7);
    }
    void *workspace = NULL;
    if (cudaMalloc(&workspace, b->ops->workspace_bytes(b->backend)) != cudaSuccess ||
        cudaEventCreate(&b->start) != cudaSuccess || cudaEventCreate(&b->stop) != cudaSuccess)
        return 1;
    b->ops->set_workspace(b->backend, workspace);
    return 0;
}

void bench_close(struct bench *b)
{
    bench_release(b);
    if (b->backend)
        b->ops->close(b->backend);
    free(b->piece);
}
