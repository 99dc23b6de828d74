#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

/* Blocks a multiprocessor that leave partial sums: enough to fill it, few enough to sum. */
enum { BLOCKS_EACH = 4 };

static int check_width(const char *operation, int64_t width, struct diag_list *reterr)
{
    if (width <= KERNEL_NORM_WIDTH_MAX)
        return 0;
    return cuda_refuse(reterr, "%s: width %lld, at most %d on this backend", operation,
                       (long long)width, KERNEL_NORM_WIDTH_MAX);
}

int cuda_rmsnorm(struct backend *b, enum stream s, int64_t rows, int64_t width, double eps,
                 const bf16 *x, const bf16 *w, bf16 *y, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { x, w, y };
    if (cuda_check_rows("norm", width, pointers, 3, reterr) != 0 ||
        check_width("norm", width, reterr) != 0)
        return -1;
    return cuda_check(kernel_rmsnorm(c->streams[s], rows, width, (float)eps, x, w, y), "norm",
                      reterr);
}

int cuda_rmsnorm_backward(struct backend *b, enum stream s, int64_t rows, int64_t width, double eps,
                          const bf16 *dy, const bf16 *x, const bf16 *w, bf16 *dx,
                          bool accumulate_dx, void *dw, enum dtype grad_type,
                          struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    const void *const pointers[] = { dy, x, w, dx };
    if (cuda_check_rows("norm backward", width, pointers, 4, reterr) != 0 ||
        check_width("norm backward", width, reterr) != 0)
        return -1;
    int blocks = BLOCKS_EACH * c->multiprocessors;
    int most = (int)((int64_t)CUDA_SCRATCH_BYTES / (4 * width));
    blocks = blocks < most ? blocks : most;
    float *partial = cuda_scratch(c, s, (uint64_t)(4 * width * blocks), "norm backward", reterr);
    if (!partial)
        return -1;
    return cuda_check(kernel_rmsnorm_backward(c->streams[s], rows, width, (float)eps, dy, x, w, dx,
                                              accumulate_dx, dw, grad_type == DTYPE_FP32, partial,
                                              blocks),
                      "norm backward", reterr);
}
