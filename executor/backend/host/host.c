#include "executor/backend/host/host.h"

#include "base/units.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Address space now, pages when first touched: a reservation larger than what is used costs
 * nothing. */
static void *reserve(void *context, uint64_t bytes)
{
    (void)context;
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

static void release(void *context, void *block, uint64_t bytes)
{
    (void)context;
    (void)munmap(block, bytes);
}

static struct arena_source arena_source(struct backend *b)
{
    (void)b;
    return (struct arena_source){ .reserve = reserve, .release = release };
}

static uint64_t workspace_bytes(const struct backend *b)
{
    (void)b;
    return HOST_WORKSPACE_BYTES;
}

static void set_workspace(struct backend *b, void *workspace)
{
    ((struct host *)b)->workspace = workspace;
}

float *host_workspace(struct backend *b, int64_t floats, const char *operation,
                      struct diag_list *reterr)
{
    static const struct pos nowhere = { NULL, 0, 0 };
    struct host *host = (struct host *)b;
    if (host->workspace && floats <= HOST_WORKSPACE_FLOATS)
        return host->workspace;
    char there[32];
    (void)diag_error(
        reterr, nowhere, "%s wants %lld floats of workspace, %s there", operation,
        (long long)floats,
        host->workspace ? units_format_count(there, sizeof there, HOST_WORKSPACE_FLOATS) : "none");
    return NULL;
}

static int host_zero(struct backend *b, enum stream s, void *to, uint64_t bytes,
                     struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    if (bytes > 0)
        memset(to, 0, bytes);
    return 0;
}

/* Serves upload and download too: it is all one memory. */
static int host_copy(struct backend *b, enum stream s, void *to, const void *from, uint64_t bytes,
                     struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    if (bytes > 0)
        memmove(to, from, bytes);
    return 0;
}

static int host_sync(struct backend *b, enum stream s, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    return 0;
}

static uint64_t host_device_bytes(struct backend *b)
{
    (void)b;
    return 0;
}

static void host_close(struct backend *b)
{
    free(b);
}

static const struct backend_ops host_ops = {
    .name = "host",
    .arena_source = arena_source,
    .workspace_bytes = workspace_bytes,
    .set_workspace = set_workspace,
    .attention_workspace_bytes = host_attention_workspace_bytes,
    .zero = host_zero,
    .copy = host_copy,
    .upload = host_copy,
    .download = host_copy,
    .sync = host_sync,
    .device_bytes = host_device_bytes,
    .gemm = host_gemm,
    .expert_gemm = host_expert_gemm,
    .rmsnorm = host_rmsnorm,
    .rmsnorm_backward = host_rmsnorm_backward,
    .rope = host_rope,
    .rope_backward = host_rope_backward,
    .attention = host_attention,
    .attention_backward = host_attention_backward,
    .swiglu = host_swiglu,
    .swiglu_backward = host_swiglu_backward,
    .router = host_router,
    .router_backward = host_router_backward,
    .sort_choices = host_sort_choices,
    .scatter_rows = host_scatter_rows,
    .gather_rows = host_gather_rows,
    .spread_rows = host_spread_rows,
    .combine_rows = host_combine_rows,
    .add = host_add,
    .embed = host_embed,
    .embed_backward = host_embed_backward,
    .cross_entropy = host_cross_entropy,
    .sigmoid = host_sigmoid,
    .sigmoid_backward = host_sigmoid_backward,
    .sum_squares = host_sum_squares,
    .adamw = host_adamw,
    .to_bf16 = host_to_bf16,
    .close = host_close,
    .column_norm = host_column_norm,
    .column_norm_backward = host_column_norm_backward,
    .part_rope = host_part_rope,
    .join_keys = host_join_keys,
    .join_keys_backward = host_join_keys_backward,
    .rmsnorm_centred = host_rmsnorm_centred,
    .rmsnorm_centred_backward = host_rmsnorm_centred_backward,
    .output_gate = host_output_gate,
    .output_gate_backward = host_output_gate_backward,
    .add_bias = host_add_bias,
    .add_bias_backward = host_add_bias_backward,
    .cross_entropy_in_place = host_cross_entropy_in_place,
    .strip_loss = host_strip_loss,
    .strip_gradient = host_strip_gradient,
    .copy_rows = host_copy_rows,
    .rows_to_bf16 = host_rows_to_bf16,
    .delta_workspace_bytes = host_delta_workspace_bytes,
    .delta_input = host_delta_input,
    .delta_input_backward = host_delta_input_backward,
    .delta_tails = host_delta_tails,
    .delta_tails_backward = host_delta_tails_backward,
    .delta_combine = host_delta_combine,
    .delta_rule = host_delta_rule,
    .delta_rule_backward = host_delta_rule_backward,
    .gated_norm = host_gated_norm,
    .gated_norm_backward = host_gated_norm_backward,
};

/* OpenBLAS maps a buffer of this size for each thread, and tries for ever where it cannot (0.3.21,
 * x86-64: BUFFER_SIZE). A product that needs one makes it map the buffer now. */
static int take_blas_buffer(struct diag_list *reterr)
{
    enum { SIDE = 96 };
    const uint64_t buffer_bytes = UINT64_C(1) << 27, rest_bytes = UINT64_C(1) << 25;
    static const struct pos nowhere = { NULL, 0, 0 };
    float *square = calloc(SIDE * SIDE, 2 * sizeof *square);
    void *probe = reserve(NULL, buffer_bytes + rest_bytes);
    char wanted[32];
    if (probe)
        release(NULL, probe, buffer_bytes + rest_bytes);
    if (probe && square)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, square, SIDE,
                    square, SIDE, 0, square + SIDE * SIDE, SIDE);
    bool done = probe && square;
    free(square);
    if (done)
        return 0;
    diag_error(reterr, nowhere, "no memory for OpenBLAS, which wants %s bytes of address space",
               units_format_count(wanted, sizeof wanted, buffer_bytes + rest_bytes));
    return diag_hint(reterr, "raise the limit of the process: ulimit -v");
}

struct backend *backend_host_open(struct diag_list *reterr)
{
    static const struct pos nowhere = { NULL, 0, 0 };
    struct host *host = calloc(1, sizeof *host);
    if (!host) {
        (void)diag_error(reterr, nowhere, "no memory to open the host backend");
        return NULL;
    }
    host->base.ops = &host_ops;
    openblas_set_num_threads(1);
    if (take_blas_buffer(reterr) != 0) {
        free(host);
        return NULL;
    }
    return &host->base;
}
