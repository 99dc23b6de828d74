/* latency.h - `count` products of 16 x 8 x 16, one after another in one warp; to: 32 floats. */
#ifndef RANKFIT_TESTS_BENCH_CUDA_LATENCY_H
#define RANKFIT_TESTS_BENCH_CUDA_LATENCY_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C"
#endif
    cudaError_t
    latency_chain(cudaStream_t stream, int count, float *to);

#endif
