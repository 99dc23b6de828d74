#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

int cuda_swiglu(struct backend *b, enum stream s, int64_t rows, int64_t width, const bf16 *h,
                const float *row_weight, bf16 *a, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { h, a };
    if (cuda_check_rows("SwiGLU", width, pointers, 2, reterr) != 0)
        return -1;
    return cuda_check(kernel_swiglu(c->streams[s], rows, width, h, row_weight, a), "SwiGLU",
                      reterr);
}

int cuda_swiglu_backward(struct backend *b, enum stream s, int64_t rows, int64_t width,
                         const bf16 *da, const float *row_weight, bf16 *h, float *d_row_weight,
                         struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { da, h };
    if (cuda_check_rows("SwiGLU backward", width, pointers, 2, reterr) != 0)
        return -1;
    return cuda_check(
        kernel_swiglu_backward(c->streams[s], rows, width, da, row_weight, h, d_row_weight),
        "SwiGLU backward", reterr);
}

int cuda_sigmoid(struct backend *b, enum stream s, int64_t count, float *values,
                 struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    return cuda_check(kernel_sigmoid(c->streams[s], count, values), "sigmoid", reterr);
}

int cuda_sigmoid_backward(struct backend *b, enum stream s, int64_t count, const float *values,
                          float *d_values, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    return cuda_check(kernel_sigmoid_backward(c->streams[s], count, values, d_values),
                      "sigmoid backward", reterr);
}
