#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

static int check_stride(int64_t stride, struct diag_list *reterr)
{
    return stride % 8 == 0
               ? 0
               : cuda_refuse(reterr, "bias: rows %lld elements apart, not a multiple of 8",
                             (long long)stride);
}

int cuda_add_bias(struct backend *b, enum stream s, int64_t rows, int64_t width, const bf16 *bias,
                  bf16 *y, int64_t stride, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { bias, y };
    if (cuda_check_rows("bias", width, pointers, 2, reterr) != 0 ||
        check_stride(stride, reterr) != 0)
        return -1;
    return cuda_check(kernel_add_bias(c->streams[s], rows, width, bias, y, stride), "bias", reterr);
}

int cuda_add_bias_backward(struct backend *b, enum stream s, int64_t rows, int64_t width,
                           const bf16 *dy, int64_t stride, void *d_bias, enum dtype grad_type,
                           struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    const void *const pointers[] = { dy };
    if (cuda_check_rows("bias backward", width, pointers, 1, reterr) != 0 ||
        check_stride(stride, reterr) != 0)
        return -1;
    int blocks = cuda_sum_blocks(c, width);
    float *partial =
        cuda_scratch(c, s, 4 * (uint64_t)width * (uint64_t)blocks, "bias backward", reterr);
    if (!partial)
        return -1;
    return cuda_check(kernel_add_bias_backward(c->streams[s], rows, width, dy, stride, d_bias,
                                               grad_type == DTYPE_FP32, partial, blocks),
                      "bias backward", reterr);
}
