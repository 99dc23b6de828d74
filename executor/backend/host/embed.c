#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

#include <stdlib.h>

/* Rows sorted at a time, and columns summed at a time: both halves of the workspace. */
enum { SORTED_ROWS = HOST_WORKSPACE_BYTES / 2 / 8, SUM_COLUMNS = 4096 };

int host_embed(struct backend *b, enum stream s, int64_t rows, int64_t width, const int32_t *ids,
               const bf16 *table, bf16 *out, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < rows; r++)
        memcpy(out + r * width, table + ids[r] * width, (size_t)width * sizeof *out);
    return 0;
}

static int compare_keys(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Sums the rows of `count` keys, all of one token, in the order of rows, and adds them once: a
 * token that is frequent is not rounded once for each time it occurs. */
static void add_token(const uint64_t *keys, int64_t count, int64_t width, const bf16 *dy,
                      void *d_table, enum dtype grad_type, float *sums)
{
    int64_t id = (int64_t)(keys[0] >> 32);
    for (int64_t at = 0; at < width; at += SUM_COLUMNS) {
        int64_t columns = width - at < SUM_COLUMNS ? width - at : SUM_COLUMNS;
        memset(sums, 0, (size_t)columns * sizeof *sums);
        for (int64_t i = 0; i < count; i++) {
            const bf16 *row = dy + (int64_t)(keys[i] & UINT32_MAX) * width + at;
            for (int64_t c = 0; c < columns; c++)
                sums[c] += bf16_to_float(row[c]);
        }
        for (int64_t c = 0; c < columns; c++)
            add_typed(d_table, grad_type, id * width + at + c, sums[c]);
    }
}

int host_embed_backward(struct backend *b, enum stream s, int64_t rows, int64_t width,
                        const int32_t *ids, const bf16 *dy, void *d_table, enum dtype grad_type,
                        struct diag_list *reterr)
{
    (void)s;
    float *sums = host_workspace(b, HOST_WORKSPACE_FLOATS, "embedding backward", reterr);
    if (!sums)
        return -1;
    uint64_t *keys = (uint64_t *)(void *)(sums + HOST_WORKSPACE_FLOATS / 2);
    for (int64_t at = 0; at < rows; at += SORTED_ROWS) {
        int64_t count = rows - at < SORTED_ROWS ? rows - at : SORTED_ROWS;
        for (int64_t i = 0; i < count; i++)
            keys[i] = (uint64_t)(uint32_t)ids[at + i] << 32 | (uint64_t)i;
        qsort(keys, (size_t)count, sizeof *keys, compare_keys);
        for (int64_t first = 0, last; first < count; first = last) {
            for (last = first + 1; last < count && keys[last] >> 32 == keys[first] >> 32; last++)
                ;
            add_token(keys + first, last - first, width, dy + at * width, d_table, grad_type, sums);
        }
    }
    return 0;
}
