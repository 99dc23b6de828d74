/* Cross-entropy where a cluster of blocks holds a row of logits in its registers: each is read once
 * and its gradient written once. For compute capability 9.0 and newer; cross_entropy.cu has the
 * others and what does not fit. */
#include "executor/backend/cuda/device.cuh"
#include "executor/backend/cuda/kernels.h"

#include <cfloat>
#include <cooperative_groups.h>

namespace
{

constexpr int THREADS = 512, BLOCKS = 8, FEW = 5, MOST = 8;

/* The sum of exp(x - largest) of what has been seen; starts below every number but -infinity, so
 * that no difference of infinities arises. */
struct soft {
    float largest, sum;
};

/* A block's vectors of eight of a row: [first, last), THREADS apart in each thread. */
struct part {
    int64_t first, last;
};

template <int VECTORS, typename T>
__device__ __forceinline__ void load_part(const part &p, const T *row, float (&x)[VECTORS][8])
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        int64_t at = p.first + v * THREADS + threadIdx.x;
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[v][i] = -FLT_MAX;
        if (at < p.last)
            load_eight(row + 8 * at, x[v]);
    }
}

/* The thread's own sum; x becomes exp(x - largest). */
template <int VECTORS> __device__ __forceinline__ soft exponentiate(float (&x)[VECTORS][8])
{
    soft s = { -FLT_MAX, 0 };
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            s.largest = fmaxf(s.largest, x[v][i]);
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[v][i] = __expf(x[v][i] - s.largest);
            s.sum += x[v][i];
        }
    return s;
}

template <int VECTORS, typename G>
__device__ __forceinline__ void write_part(const part &p, float (&x)[VECTORS][8], float factor,
                                           G *gradient)
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        int64_t at = p.first + v * THREADS + threadIdx.x;
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[v][i] *= factor;
        if (at < p.last)
            store_eight(gradient + 8 * at, x[v]);
    }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ soft join(soft a, soft b)
{
    float largest = fmaxf(a.largest, b.largest);
    return { largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest) };
}

/* Over `lanes` neighbours, a power of two. */
__device__ __forceinline__ soft join_lanes(soft s, int lanes)
{
    for (int step = lanes / 2; step > 0; step /= 2) {
        soft other = { __shfl_xor_sync(EVERY_LANE, s.largest, step),
                       __shfl_xor_sync(EVERY_LANE, s.sum, step) };
        s = join(s, other);
    }
    return s;
}

/* Over all blocks of the cluster, in every thread. No block may end before the others have read. */
__device__ __forceinline__ soft cluster_join(soft s)
{
    __shared__ soft room[WARP], mine, all;
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    s = join_lanes(s, WARP);
    if (lane == 0)
        room[warp] = s;
    __syncthreads();
    if (warp == 0) {
        s = join_lanes(lane < THREADS / WARP ? room[lane] : soft{ -FLT_MAX, 0 }, WARP);
        if (lane == 0)
            mine = s;
    }
    cluster.sync();
    if (warp == 0) {
        s = join_lanes(*cluster.map_shared_rank(&mine, lane % BLOCKS), BLOCKS);
        if (lane == 0)
            all = s;
    }
    cluster.sync();
    return all;
}

#endif

/* The thread that writes the target's vector reads its logit first, and corrects its gradient last:
 * the gradient may take the logits' place. */
template <int VECTORS, typename T, typename G>
__global__ void __launch_bounds__(THREADS, VECTORS <= FEW ? 2 : 1)
    held(int64_t vocab, const T *logits, const int32_t *targets, float scale, G *d_logits,
         double *losses, int64_t *bad)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    int64_t row = blockIdx.x / BLOCKS, share = (vocab / 8 + BLOCKS - 1) / BLOCKS;
    part p = { (blockIdx.x % BLOCKS) * share, 0 };
    p.last = p.first + share < vocab / 8 ? p.first + share : vocab / 8;
    G *gradient = d_logits + row * vocab;
    float x[VECTORS][8] = {};
    int32_t target = targets[row];
    if (target < 0 || target >= vocab) {
        write_part(p, x, 0, gradient);
        if (blockIdx.x % BLOCKS == 0 && threadIdx.x == 0)
            losses[row] = 0;
        if (blockIdx.x % BLOCKS == 0 && threadIdx.x == 0 && target >= 0)
            *bad = row + 1;
        return;
    }
    int64_t at = target / 8;
    bool owns = at >= p.first && at < p.last && (at - p.first) % THREADS == threadIdx.x;
    float wanted = owns ? load_one(logits + row * vocab + target) : 0;
    load_part(p, logits + row * vocab, x);
    soft own = exponentiate(x), s = cluster_join(own);
    write_part(p, x, __expf(own.largest - s.largest) * (scale / s.sum), gradient);
    if (owns) {
        double above = static_cast<double>(wanted) - static_cast<double>(s.largest);
        losses[row] = log(static_cast<double>(s.sum)) - above;
        store_one(gradient + target,
                  static_cast<float>((exp(above) / static_cast<double>(s.sum) - 1.0) * scale));
    }
#endif
}

/* Machine code for clusters, and a device that launches them. */
template <typename K> bool runs(K *kernel)
{
    int device = 0, clusters = 0;
    cudaFuncAttributes code;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device) == cudaSuccess &&
           clusters != 0 && cudaFuncGetAttributes(&code, kernel) == cudaSuccess &&
           code.ptxVersion >= 90;
}

template <int VECTORS, typename T, typename G>
cudaError_t launch(cudaStream_t stream, int64_t rows, int64_t vocab, const T *logits,
                   const int32_t *targets, float scale, G *d_logits, double *losses, int64_t *bad)
{
    if (!runs(held<VECTORS, T, G>))
        return cudaErrorNotSupported;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = BLOCKS;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(rows * BLOCKS));
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, held<VECTORS, T, G>, vocab, logits, targets, scale, d_logits,
                              losses, bad);
}

template <typename T, typename G>
cudaError_t launch_any(cudaStream_t stream, int64_t rows, int64_t vocab, const T *logits,
                       const int32_t *targets, float scale, G *d_logits, double *losses,
                       int64_t *bad)
{
    constexpr int64_t EACH = int64_t(8) * BLOCKS * THREADS;
    if (vocab % 8 != 0 || vocab > MOST * EACH)
        return cudaErrorNotSupported;
    if (vocab <= FEW * EACH)
        return launch<FEW>(stream, rows, vocab, logits, targets, scale, d_logits, losses, bad);
    return launch<MOST>(stream, rows, vocab, logits, targets, scale, d_logits, losses, bad);
}

} // namespace

cudaError_t kernel_cross_entropy_held(cudaStream_t stream, int64_t rows, int64_t vocab,
                                      const float *logits, const int32_t *targets, float scale,
                                      uint16_t *d_logits, double *losses, int64_t *bad)
{
    return launch_any(stream, rows, vocab, logits, targets, scale, d_logits, losses, bad);
}

cudaError_t kernel_cross_entropy_held_in_place(cudaStream_t stream, int64_t rows, int64_t vocab,
                                               void *logits, bool is_float, const int32_t *targets,
                                               float scale, double *losses, int64_t *bad)
{
    float *floats = static_cast<float *>(logits);
    uint16_t *halves = static_cast<uint16_t *>(logits);
    return is_float ? launch_any(stream, rows, vocab, floats, targets, scale, floats, losses, bad)
                    : launch_any(stream, rows, vocab, halves, targets, scale, halves, losses, bad);
}
