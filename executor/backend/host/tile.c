#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/tile.h"

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

HOST_HOT
static void pack_bf16_strip(const bf16 *from, int64_t stride, int64_t count, int64_t inner,
                            int strip, float *out)
{
    for (int64_t line = 0; line < count; line++)
        for (int64_t i = 0; i < inner; i++)
            out[i * strip + line] = bf16_to_float(from[line * stride + i]);
}

static void pack_float_strip(const float *from, int64_t stride, int64_t count, int64_t inner,
                             int strip, float *out)
{
    for (int64_t line = 0; line < count; line++)
        for (int64_t i = 0; i < inner; i++)
            out[i * strip + line] = from[line * stride + i];
}

void tile_pack_lines(const void *from, enum dtype type, int64_t stride, int64_t count,
                     int64_t inner, int strip, float *out)
{
    for (int64_t at = 0; at < count; at += strip, out += strip * inner) {
        int64_t lines = count - at < strip ? count - at : strip;
        if (lines < strip)
            memset(out, 0, (size_t)(strip * inner) * sizeof *out);
        if (type == DTYPE_BF16)
            pack_bf16_strip((const bf16 *)from + at * stride, stride, lines, inner, strip, out);
        else
            pack_float_strip((const float *)from + at * stride, stride, lines, inner, strip, out);
    }
}

HOST_HOT
static void pack_bf16_row(const bf16 *from, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = bf16_to_float(from[i]);
}

void tile_pack_columns(const void *from, enum dtype type, int64_t stride, int64_t count,
                       int64_t inner, int strip, float *out)
{
    for (int64_t at = 0; at < count; at += strip, out += strip * inner) {
        int64_t columns = count - at < strip ? count - at : strip;
        if (columns < strip)
            memset(out, 0, (size_t)(strip * inner) * sizeof *out);
        for (int64_t i = 0; i < inner; i++) {
            if (type == DTYPE_BF16)
                pack_bf16_row((const bf16 *)from + i * stride + at, columns, out + i * strip);
            else
                memcpy(out + i * strip, (const float *)from + i * stride + at,
                       (size_t)columns * sizeof *out);
        }
    }
}

static void multiply_plain(int64_t inner, const float *a, const float *b, float *c, int64_t stride)
{
    for (int64_t i = 0; i < inner; i++, a += TILE_ROWS, b += TILE_COLUMNS)
        for (int r = 0; r < TILE_ROWS; r++)
            for (int j = 0; j < TILE_COLUMNS; j++)
                c[r * stride + j] += a[r] * b[j];
}

#if defined(__x86_64__)
/* One row of the strip: two accumulators of eight. */
#define LOAD_ROW(r)                                                                                \
    __m256 low##r = _mm256_loadu_ps(c + (r)*stride);                                               \
    __m256 high##r = _mm256_loadu_ps(c + (r)*stride + 8)
#define ADD_ROW(r)                                                                                 \
    value = _mm256_broadcast_ss(a + (r));                                                          \
    low##r = _mm256_fmadd_ps(value, left, low##r);                                                 \
    high##r = _mm256_fmadd_ps(value, right, high##r)
#define STORE_ROW(r)                                                                               \
    _mm256_storeu_ps(c + (r)*stride, low##r);                                                      \
    _mm256_storeu_ps(c + (r)*stride + 8, high##r)

/* Twelve accumulators, two loads of b and one broadcast of a fill fifteen of the sixteen registers;
 * in arrays the compiler would keep them in memory. */
__attribute__((target("avx2,fma"))) static void
multiply_avx2(int64_t inner, const float *a, const float *b, float *c, int64_t stride)
{
    LOAD_ROW(0);
    LOAD_ROW(1);
    LOAD_ROW(2);
    LOAD_ROW(3);
    LOAD_ROW(4);
    LOAD_ROW(5);
    for (int64_t i = 0; i < inner; i++, a += TILE_ROWS, b += TILE_COLUMNS) {
        __m256 left = _mm256_loadu_ps(b), right = _mm256_loadu_ps(b + 8), value;
        ADD_ROW(0);
        ADD_ROW(1);
        ADD_ROW(2);
        ADD_ROW(3);
        ADD_ROW(4);
        ADD_ROW(5);
    }
    STORE_ROW(0);
    STORE_ROW(1);
    STORE_ROW(2);
    STORE_ROW(3);
    STORE_ROW(4);
    STORE_ROW(5);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
static void multiply_avx2(int64_t inner, const float *a, const float *b, float *c, int64_t stride)
{
    multiply_plain(inner, a, b, c, stride);
}

static bool has_avx2(void)
{
    return false;
}
#endif

void tile_multiply(int64_t rows, int64_t columns, int64_t inner, const float *a, const float *b,
                   float *c, int64_t c_stride)
{
    bool wide = has_avx2();
    for (int64_t j = 0; j < columns; j += TILE_COLUMNS)
        for (int64_t r = 0; r < rows; r += TILE_ROWS) {
            float *corner = c + r * c_stride + j;
            if (wide)
                multiply_avx2(inner, a + r * inner, b + j * inner, corner, c_stride);
            else
                multiply_plain(inner, a + r * inner, b + j * inner, corner, c_stride);
        }
}
