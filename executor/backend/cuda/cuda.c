#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/streams.h"

#include <stdlib.h>

static void *reserve(void *context, uint64_t bytes)
{
    void *block = NULL;
    (void)context;
    if (cudaMalloc(&block, bytes) == cudaSuccess)
        return block;
    (void)cudaGetLastError(); /* out of memory is the arena's to report, not the next call's */
    return NULL;
}

static void release(void *context, void *block, uint64_t bytes)
{
    (void)context, (void)bytes;
    (void)cudaFree(block);
}

static uint64_t available(void *context)
{
    size_t left = 0, all = 0;
    (void)context;
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? left : 0;
}

static struct arena_source arena_source(struct backend *b)
{
    return (struct arena_source){ reserve, release, b, available };
}

static uint64_t workspace_bytes(const struct backend *b)
{
    (void)b;
    return CUDA_WORKSPACE_BYTES;
}

static void set_workspace(struct backend *b, void *workspace)
{
    ((struct cuda *)b)->workspace = workspace;
}

static int cuda_zero(struct backend *b, enum stream s, void *to, uint64_t bytes,
                     struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    if (bytes == 0)
        return 0;
    return cuda_check(cudaMemsetAsync(to, 0, bytes, c->streams[s]), "cudaMemsetAsync", reterr);
}

static int cuda_copy(struct backend *b, enum stream s, void *to, const void *from, uint64_t bytes,
                     struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    if (bytes == 0)
        return 0;
    return cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->streams[s]),
                      "cudaMemcpyAsync on the device", reterr);
}

static int cuda_upload(struct backend *b, enum stream s, void *to, const void *host, uint64_t bytes,
                       struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    if (bytes == 0)
        return 0;
    return cuda_check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, c->streams[s]),
                      "cudaMemcpyAsync to the device", reterr);
}

static int cuda_download(struct backend *b, enum stream s, void *host, const void *from,
                         uint64_t bytes, struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    if (bytes > 0 &&
        cuda_check(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, c->streams[s]),
                   "cudaMemcpyAsync to the host", reterr) != 0)
        return -1;
    return cuda_settle(c, s, reterr);
}

static int cuda_sync(struct backend *b, enum stream s, struct diag_list *reterr)
{
    return cuda_settle((struct cuda *)b, s, reterr);
}

static uint64_t cuda_device_bytes(struct backend *b)
{
    size_t left = 0, all = 0;
    (void)b;
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? all - left : 0;
}

static void cuda_close(struct backend *b)
{
    struct cuda *c = (struct cuda *)b;
    for (int i = 0; i < STREAM_COUNT; i++)
        if (c->streams[i])
            (void)cudaStreamSynchronize(c->streams[i]);
    attention_plans_close(c->attention_plans);
    gemm_plans_close(c->gemm_plans);
    if (c->cudnn)
        (void)cudnnDestroy(c->cudnn);
    if (c->lt)
        (void)cublasLtDestroy(c->lt);
    (void)cudaFreeHost(c->pinned);
    if (c->fork)
        (void)cudaEventDestroy(c->fork);
    for (int i = 0; i < CUDA_LANES; i++) {
        if (c->joins[i])
            (void)cudaEventDestroy(c->joins[i]);
        if (i > 0 && c->lanes[i])
            (void)cudaStreamDestroy(c->lanes[i]);
    }
    for (int i = 0; i < STREAM_COUNT; i++)
        if (c->streams[i])
            (void)cudaStreamDestroy(c->streams[i]);
    free(c);
}

static const struct backend_ops cuda_ops = {
    .name = "cuda",
    .arena_source = arena_source,
    .workspace_bytes = workspace_bytes,
    .set_workspace = set_workspace,
    .attention_workspace_bytes = cuda_attention_workspace_bytes,
    .zero = cuda_zero,
    .copy = cuda_copy,
    .upload = cuda_upload,
    .download = cuda_download,
    .sync = cuda_sync,
    .device_bytes = cuda_device_bytes,
    .gemm = cuda_gemm,
    .expert_gemm = cuda_expert_gemm,
    .rmsnorm = cuda_rmsnorm,
    .rmsnorm_backward = cuda_rmsnorm_backward,
    .rope = cuda_rope,
    .rope_backward = cuda_rope_backward,
    .attention = cuda_attention,
    .attention_backward = cuda_attention_backward,
    .swiglu = cuda_swiglu,
    .swiglu_backward = cuda_swiglu_backward,
    .router = cuda_router,
    .router_backward = cuda_router_backward,
    .sort_choices = cuda_sort_choices,
    .scatter_rows = cuda_scatter_rows,
    .gather_rows = cuda_gather_rows,
    .spread_rows = cuda_spread_rows,
    .combine_rows = cuda_combine_rows,
    .add = cuda_add,
    .embed = cuda_embed,
    .embed_backward = cuda_embed_backward,
    .cross_entropy = cuda_cross_entropy,
    .sigmoid = cuda_sigmoid,
    .sigmoid_backward = cuda_sigmoid_backward,
    .sum_squares = cuda_sum_squares,
    .adamw = cuda_adamw,
    .to_bf16 = cuda_to_bf16,
    .close = cuda_close,
    .rmsnorm_centred = cuda_rmsnorm_centred,
    .rmsnorm_centred_backward = cuda_rmsnorm_centred_backward,
    .output_gate = cuda_output_gate,
    .output_gate_backward = cuda_output_gate_backward,
    .add_bias = cuda_add_bias,
    .add_bias_backward = cuda_add_bias_backward,
    .cross_entropy_in_place = cuda_cross_entropy_in_place,
    .strip_loss = cuda_strip_loss,
    .strip_gradient = cuda_strip_gradient,
    .copy_rows = cuda_copy_rows,
    .rows_to_bf16 = cuda_rows_to_bf16,
    .draw_normal = cuda_draw_normal,
    .delta_workspace_bytes = cuda_delta_workspace_bytes,
    .delta_input = cuda_delta_input,
    .delta_input_backward = cuda_delta_input_backward,
    .delta_tails = cuda_delta_tails,
    .delta_tails_backward = cuda_delta_tails_backward,
    .delta_combine = cuda_delta_combine,
    .delta_rule = cuda_delta_rule,
    .delta_rule_backward = cuda_delta_rule_backward,
    .gated_norm = cuda_gated_norm,
    .gated_norm_backward = cuda_gated_norm_backward,
    .zero_aside = cuda_zero_aside,
    .await_aside = cuda_await_aside,
};

cudaStream_t backend_cuda_stream(const struct backend *b, enum stream s)
{
    return ((const struct cuda *)b)->streams[s];
}

cudaStream_t backend_cuda_lane(const struct backend *b, int lane)
{
    return lane > 0 && lane < CUDA_LANES ? ((const struct cuda *)b)->lanes[lane] : NULL;
}

static int open_device(struct cuda *c, struct diag_list *reterr)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice)
        return cuda_check(status, "looking for a GPU", reterr);
    if (cuda_check(status, "cudaGetDeviceCount", reterr) != 0)
        return -1;
    if (c->device < 0 || c->device >= count)
        return cuda_refuse(reterr, "GPU %d asked for, %d there", c->device, count);
    if (cuda_check(cudaSetDevice(c->device), "cudaSetDevice", reterr) != 0)
        return -1;
    if (cuda_check(
            cudaDeviceGetAttribute(&c->multiprocessors, cudaDevAttrMultiProcessorCount, c->device),
            "cudaDeviceGetAttribute", reterr) != 0)
        return -1;
    return cuda_check(cudaDeviceGetAttribute(&c->block_shared_bytes,
                                             cudaDevAttrMaxSharedMemoryPerBlockOptin, c->device),
                      "cudaDeviceGetAttribute", reterr);
}

static int open_streams(struct cuda *c, struct diag_list *reterr)
{
    for (int i = 0; i < STREAM_COUNT; i++)
        if (cuda_check(cudaStreamCreateWithFlags(&c->streams[i], cudaStreamNonBlocking),
                       "cudaStreamCreateWithFlags", reterr) != 0)
            return -1;
    c->lanes[0] = c->streams[STREAM_COMPUTE];
    for (int i = 0; i < CUDA_LANES; i++) {
        if (i > 0 && cuda_check(cudaStreamCreateWithFlags(&c->lanes[i], cudaStreamNonBlocking),
                                "cudaStreamCreateWithFlags", reterr) != 0)
            return -1;
        if (cuda_check(cudaEventCreateWithFlags(&c->joins[i], cudaEventDisableTiming),
                       "cudaEventCreateWithFlags", reterr) != 0)
            return -1;
    }
    return cuda_check(cudaEventCreateWithFlags(&c->fork, cudaEventDisableTiming),
                      "cudaEventCreateWithFlags", reterr);
}

static int open_libraries(struct cuda *c, struct diag_list *reterr)
{
    c->gemm_plans = gemm_plans_open();
    c->attention_group_bytes = CUDA_ATTENTION_GROUP_BYTES;
    c->attention_plans = attention_plans_open();
    if (!c->gemm_plans || !c->attention_plans)
        return cuda_refuse(reterr, "no memory to open the CUDA backend");
    if (cuda_check(cudaMallocHost(&c->pinned, CUDA_PINNED_BYTES), "cudaMallocHost", reterr) != 0 ||
        cuda_check_lt(cublasLtCreate(&c->lt), "cublasLtCreate", reterr) != 0)
        return -1;
    return cuda_check_dnn(cudnnCreate(&c->cudnn), "cudnnCreate", reterr);
}

struct backend *backend_cuda_open(int device, struct diag_list *reterr)
{
    struct cuda *c = calloc(1, sizeof *c);
    if (!c) {
        (void)cuda_refuse(reterr, "no memory to open the CUDA backend");
        return NULL;
    }
    c->base.ops = &cuda_ops;
    c->device = device;
    if (open_device(c, reterr) != 0 || open_streams(c, reterr) != 0 ||
        open_libraries(c, reterr) != 0) {
        cuda_close(&c->base);
        return NULL;
    }
    return &c->base;
}
