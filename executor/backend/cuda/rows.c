#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

/* Rows of the embedding's gradient whose table fits into the scratch; more go in turn. */
enum { EMBED_ROWS = 1 << 18 };

int cuda_scatter_rows(struct backend *b, enum stream s, int64_t rows, int top_k, int64_t width,
                      const bf16 *from, const int32_t *slots, bf16 *to, const float *row_values,
                      float *to_values, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { from, to };
    if (cuda_check_rows("scatter", width, pointers, 2, reterr) != 0)
        return -1;
    return cuda_check(kernel_scatter_rows(c->streams[s], rows, top_k, width, from, slots, to,
                                          row_values, to_values),
                      "scatter", reterr);
}

int cuda_gather_rows(struct backend *b, enum stream s, int64_t rows, int64_t width,
                     const bf16 *from, const int32_t *map, bf16 *to, const float *from_values,
                     float *to_values, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { from, to };
    if (cuda_check_rows("gather", width, pointers, 2, reterr) != 0)
        return -1;
    return cuda_check(
        kernel_gather_rows(c->streams[s], rows, width, from, map, to, from_values, to_values),
        "gather", reterr);
}

int cuda_spread_rows(struct backend *b, enum stream s, int64_t rows, int64_t width,
                     const bf16 *from, const int32_t *map, bf16 *to, const float *from_values,
                     float *to_values, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { from, to };
    if (cuda_check_rows("spread", width, pointers, 2, reterr) != 0)
        return -1;
    return cuda_check(
        kernel_scatter_rows(c->streams[s], rows, 1, width, from, map, to, from_values, to_values),
        "spread", reterr);
}

int cuda_combine_rows(struct backend *b, enum stream s, int64_t rows, int top_k, int64_t width,
                      const bf16 *from, const int32_t *slots, const bf16 *base, bf16 *to,
                      const float *from_values, float *to_values, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { from, base, to };
    if (cuda_check_rows("combine", width, pointers, 3, reterr) != 0)
        return -1;
    return cuda_check(kernel_combine_rows(c->streams[s], rows, top_k, width, from, slots, base, to,
                                          from_values, to_values),
                      "combine", reterr);
}

int cuda_embed(struct backend *b, enum stream s, int64_t rows, int64_t width, const int32_t *ids,
               const bf16 *table, bf16 *out, struct diag_list *reterr)
{
    return cuda_gather_rows(b, s, rows, width, table, ids, out, NULL, NULL, reterr);
}

int cuda_embed_backward(struct backend *b, enum stream s, int64_t rows, int64_t width,
                        const int32_t *ids, const bf16 *dy, void *d_table, enum dtype grad_type,
                        struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    const void *const pointers[] = { dy, d_table };
    if (cuda_check_rows("embedding backward", width, pointers, 2, reterr) != 0)
        return -1;
    for (int64_t row = 0; row < rows; row += EMBED_ROWS) {
        int64_t count = rows - row < EMBED_ROWS ? rows - row : EMBED_ROWS;
        void *scratch =
            cuda_scratch(c, s, kernel_embed_backward_bytes(count), "embedding backward", reterr);
        if (!scratch || cuda_check(kernel_embed_backward(c->streams[s], count, width, ids + row,
                                                         dy + row * width, d_table,
                                                         grad_type == DTYPE_FP32, scratch),
                                   "embedding backward", reterr) != 0)
            return -1;
    }
    return 0;
}

int cuda_copy_rows(struct backend *b, enum stream s, int64_t rows, int64_t width, const bf16 *from,
                   int64_t from_stride, bf16 *to, int64_t to_stride, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    if (rows == 0 || width == 0)
        return 0;
    return cuda_check(cudaMemcpy2DAsync(to, (size_t)to_stride * sizeof *to, from,
                                        (size_t)from_stride * sizeof *from,
                                        (size_t)width * sizeof *to, (size_t)rows,
                                        cudaMemcpyDeviceToDevice, c->streams[s]),
                      "cudaMemcpy2DAsync", reterr);
}

int cuda_rows_to_bf16(struct backend *b, enum stream s, int64_t rows, int64_t width,
                      const float *from, int64_t from_stride, bf16 *to, int64_t to_stride,
                      struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { from, to };
    if (cuda_check_rows("rounding of rows", width, pointers, 2, reterr) != 0)
        return -1;
    if (from_stride % 4 != 0 || to_stride % 8 != 0)
        return cuda_refuse(reterr, "rounding of rows %lld and %lld apart: not multiples of 8",
                           (long long)from_stride, (long long)to_stride);
    return cuda_check(
        kernel_rows_to_bf16(c->streams[s], rows, width, from, from_stride, to, to_stride),
        "rounding of rows", reterr);
}
