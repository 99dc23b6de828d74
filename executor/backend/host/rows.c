#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

static void copy_row(bf16 *to, const bf16 *from, int64_t width)
{
    memcpy(to, from, (size_t)width * sizeof *to);
}

int host_scatter_rows(struct backend *b, enum stream s, int64_t rows, int top_k, int64_t width,
                      const bf16 *from, const int32_t *slots, bf16 *to, const float *row_values,
                      float *to_values, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++)
        for (int j = 0; j < top_k; j++) {
            int64_t i = r * top_k + j;
            copy_row(to + slots[i] * width, from + r * width, width);
            if (row_values)
                to_values[slots[i]] = row_values[i];
        }
    return 0;
}

int host_gather_rows(struct backend *b, enum stream s, int64_t rows, int64_t width,
                     const bf16 *from, const int32_t *map, bf16 *to, const float *from_values,
                     float *to_values, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t i = 0; i < rows; i++) {
        copy_row(to + i * width, from + map[i] * width, width);
        if (from_values)
            to_values[i] = from_values[map[i]];
    }
    return 0;
}

int host_spread_rows(struct backend *b, enum stream s, int64_t rows, int64_t width,
                     const bf16 *from, const int32_t *map, bf16 *to, const float *from_values,
                     float *to_values, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t i = 0; i < rows; i++) {
        copy_row(to + map[i] * width, from + i * width, width);
        if (from_values)
            to_values[map[i]] = from_values[i];
    }
    return 0;
}

/* Adds the chosen rows column block by column block, so that the sums stay in registers. */
HOST_HOT
static void combine_row(int top_k, int64_t width, const bf16 *from, const int32_t *slots,
                        const bf16 *base, bf16 *to)
{
    enum { BLOCK = 64 };
    for (int64_t at = 0; at < width; at += BLOCK) {
        int64_t count = width - at < BLOCK ? width - at : BLOCK;
        float sums[BLOCK] = { 0 };
        for (int64_t i = 0; i < count && base; i++)
            sums[i] = bf16_to_float(base[at + i]);
        for (int j = 0; j < top_k; j++) {
            const bf16 *row = from + slots[j] * width + at;
            for (int64_t i = 0; i < count; i++)
                sums[i] += bf16_to_float(row[i]);
        }
        for (int64_t i = 0; i < count; i++)
            to[at + i] = bf16_from_float(sums[i]);
    }
}

int host_combine_rows(struct backend *b, enum stream s, int64_t rows, int top_k, int64_t width,
                      const bf16 *from, const int32_t *slots, const bf16 *base, bf16 *to,
                      const float *from_values, float *to_values, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++) {
        combine_row(top_k, width, from, slots + r * top_k, base ? base + r * width : NULL,
                    to + r * width);
        for (int j = 0; j < top_k && from_values; j++)
            to_values[r * top_k + j] = from_values[slots[r * top_k + j]];
    }
    return 0;
}

int host_copy_rows(struct backend *b, enum stream s, int64_t rows, int64_t width, const bf16 *from,
                   int64_t from_stride, bf16 *to, int64_t to_stride, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++)
        copy_row(to + r * to_stride, from + r * from_stride, width);
    return 0;
}

HOST_HOT
static void round_row(int64_t width, const float *from, bf16 *to)
{
    for (int64_t i = 0; i < width; i++)
        to[i] = bf16_from_float(from[i]);
}

int host_rows_to_bf16(struct backend *b, enum stream s, int64_t rows, int64_t width,
                      const float *from, int64_t from_stride, bf16 *to, int64_t to_stride,
                      struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++)
        round_row(width, from + r * from_stride, to + r * to_stride);
    return 0;
}
