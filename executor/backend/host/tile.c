#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/tile.h"

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
static bool has_avx2(void)
{
    return false;
}
#endif

static inline __attribute__((always_inline)) float load(const void *line, enum dtype type,
                                                        int64_t i)
{
    return type == DTYPE_FP32 ? ((const float *)line)[i] : bf16_to_float(((const bf16 *)line)[i]);
}

static const void *element(const void *matrix, enum dtype type, int64_t index)
{
    return (const char *)matrix + index * (int64_t)dtype_bytes(type);
}

/* Up to 16 lines from inner element `first` on; out is the strip. */
static void pack_plain(const void *from, enum dtype type, int64_t stride, int64_t lines,
                       int64_t first, int64_t inner, int strip, float *out)
{
    for (int64_t line = 0; line < lines; line++) {
        const void *at = element(from, type, line * stride);
        for (int64_t i = first; i < inner; i++)
            out[i * strip + line] = load(at, type, i);
    }
}

#if defined(__x86_64__)
AVX2 static inline __m256 load_eight(const void *line, enum dtype type, int64_t i)
{
    if (type == DTYPE_FP32)
        return _mm256_loadu_ps((const float *)line + i);
    const void *at = (const bf16 *)line + i;
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), 16));
}

/* Rows become columns, in three rounds of exchange at distances of 1, 2 and 4. */
AVX2 static inline void transpose_eight(__m256 *rows)
{
    __m256 pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0x44);
            fours[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        rows[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}

/* Up to eight lines, the six of a narrow strip or half of a wide one, eight inner elements at a
 * time; missing lines become 0. Returns how many inner elements are done. */
AVX2 static int64_t pack_eight(const void *from, enum dtype type, int64_t stride, int64_t lines,
                               int64_t inner, int strip, float *out)
{
    int64_t done = 0;
    for (; done + 8 <= inner; done += 8) {
        __m256 rows[8];
        for (int64_t line = 0; line < 8; line++)
            rows[line] = line < lines ? load_eight(element(from, type, line * stride), type, done)
                                      : _mm256_setzero_ps();
        transpose_eight(rows);
        for (int64_t i = 0; i < 8; i++) {
            float *to = out + (done + i) * strip;
            if (strip == TILE_COLUMNS) {
                _mm256_storeu_ps(to, rows[i]);
                continue;
            }
            _mm_storeu_ps(to, _mm256_castps256_ps128(rows[i]));
            _mm_storel_pi((void *)(to + 4), _mm256_extractf128_ps(rows[i], 1));
        }
    }
    return done;
}
#else
static int64_t pack_eight(const void *from, enum dtype type, int64_t stride, int64_t lines,
                          int64_t inner, int strip, float *out)
{
    (void)from, (void)type, (void)stride, (void)lines, (void)inner, (void)strip, (void)out;
    return 0;
}
#endif

void tile_pack_lines(const void *from, enum dtype type, int64_t stride, int64_t count,
                     int64_t inner, int strip, float *out)
{
    bool wide = has_avx2();
    for (int64_t at = 0; at < count; at += strip, out += strip * inner) {
        int64_t lines = count - at < strip ? count - at : strip, done = 0;
        const void *first = element(from, type, at * stride);
        if (lines < strip)
            memset(out, 0, (size_t)(strip * inner) * sizeof *out);
        for (int64_t half = 0; wide && half < lines; half += 8)
            done = pack_eight(element(first, type, half * stride), type, stride, lines - half,
                              inner, strip, out + half);
        pack_plain(first, type, stride, lines, done, inner, strip, out);
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
AVX2 static void multiply_avx2(int64_t inner, const float *a, const float *b, float *c,
                               int64_t stride)
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
#else
static void multiply_avx2(int64_t inner, const float *a, const float *b, float *c, int64_t stride)
{
    multiply_plain(inner, a, b, c, stride);
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
