/* tile.h - the product that GEMM and attention are made of: packed fp32 strips multiplied into an
 * fp32 panel. Each element is one chain of additions in the order of the inner index, whatever its
 * row, its column or the number of rows: that is what makes a row's result independent of the
 * others. (A BLAS does not promise it: OpenBLAS's sgemm rounds differently by a row's place.) */
#ifndef RANKFIT_EXECUTOR_BACKEND_HOST_TILE_H
#define RANKFIT_EXECUTOR_BACKEND_HOST_TILE_H

#include "base/layout/primitives.h"

#include <stdint.h>

enum { TILE_ROWS = 6, TILE_COLUMNS = 16 };

/* Rows or columns rounded up to whole strips. */
static inline int64_t tile_padded(int64_t count, int64_t strip)
{
    return (count + strip - 1) / strip * strip;
}

/* Packs `count` lines of `inner` elements, each line's elements adjacent and lines `stride` apart,
 * into strips: out[(line / strip) * strip * inner + i * strip + line % strip]. Missing lines of the
 * last strip become 0. */
void tile_pack_lines(const void *from, enum dtype type, int64_t stride, int64_t count,
                     int64_t inner, int strip, float *out);

/* The same strips from a matrix whose rows are the inner index. */
void tile_pack_columns(const void *from, enum dtype type, int64_t stride, int64_t count,
                       int64_t inner, int strip, float *out);

/* c[rows, columns] += a . b for packed a (strips of 6) and b (strips of 16). c has room for whole
 * strips; c_stride elements between its rows. */
void tile_multiply(int64_t rows, int64_t columns, int64_t inner, const float *a, const float *b,
                   float *c, int64_t c_stride);

#endif
