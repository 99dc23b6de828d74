/* bench.h - timing of one operation after another on the GPU: memory of random data, the median of
 * runs by events, a line of a table. The shapes are those of Qwen3-30B-A3B. */
#ifndef RANKFIT_TESTS_BENCH_CUDA_BENCH_H
#define RANKFIT_TESTS_BENCH_CUDA_BENCH_H

#include "executor/backend/cuda/cuda.h"

#include <stdint.h>

enum {
    TOKENS = 32768,
    HIDDEN = 2048,
    HEADS = 32,
    KV_HEADS = 4,
    HEAD = 128,
    Q = HEADS * HEAD,
    KV = KV_HEADS * HEAD,
    QKV = Q + 2 * KV,
    EXPERTS = 128,
    TOP_K = 8,
    WIDTH = 768,
    UP = 2 * WIDTH,
    VOCAB = 151936,
    TILE = 512,
    ROUTED = TOKENS * TOP_K,
    RUNS = 11,
    PIECE = 1 << 24
};

struct product;

struct bench {
    struct backend *backend;
    struct cuda *cuda;
    const struct backend_ops *ops;
    cudaEvent_t start, stop;
    struct diag_list diags;
    double copy; /* bytes a second */
    uint16_t *piece;
    void *held[48];
    int held_count;
    int64_t offsets[EXPERTS + 1];
    double sink;                   /* of sums that nothing reads */
    const struct product *product; /* under way */
    struct attention_gradient attention;
};

/* What an operation runs on; each case uses what it needs. */
struct operands {
    void *a, *b, *c, *d, *e, *f, *g;
};

struct bench_case {
    const char *name, *shape;
    double bytes, operations; /* one of them */
    int (*run)(struct bench *b, const struct operands *o);
};

/* 0; 77 without a GPU; 1 where opening fails otherwise. */
int bench_open(struct bench *b);
void bench_close(struct bench *b);

/* Device memory, as it comes or of random data; held until bench_release. */
void *bench_memory(struct bench *b, uint64_t bytes);
void *bench_random(struct bench *b, uint64_t bytes);
void *bench_indices(struct bench *b, const int32_t *values, uint64_t count);
void bench_release(struct bench *b);

/* Seconds of the case's median run; 0 with a line where it fails. */
double bench_seconds(struct bench *b, const struct bench_case *c, const struct operands *o);
/* Prints the case's line. The case called "copy" sets what the others are compared with. */
void bench_measure(struct bench *b, const struct bench_case *c, const struct operands *o);

void bench_rows(struct bench *b, int32_t *choices, const int32_t *slots);
void bench_products(struct bench *b);
void bench_attention(struct bench *b);

/* Choices of distinct experts, uniform; slots in expert order; the experts' loads in b->offsets. */
void bench_routes(struct bench *b, int32_t *choices, int32_t *slots);

#define RUN(name, ...)                                                                             \
    static int run_##name(struct bench *b, const struct operands *o)                               \
    {                                                                                              \
        return b->ops->__VA_ARGS__;                                                                \
    }
#define ON b->backend, STREAM_COMPUTE

#endif
