#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"
#include "executor/backend/host/tile.h"

#include <cblas.h>

/* The three panels of the workspace, the same for every shape: a [384, 256], b [256, 256] and the
 * fp32 result [384, 256]. */
enum {
    PANEL_ROWS = 384,
    PANEL_COLUMNS = 256,
    PANEL_INNER = 256,
    A_FLOATS = PANEL_ROWS * PANEL_INNER,
    B_FLOATS = PANEL_COLUMNS * PANEL_INNER,
    C_FLOATS = PANEL_ROWS * PANEL_COLUMNS
};
_Static_assert(A_FLOATS + B_FLOATS + C_FLOATS <= HOST_WORKSPACE_FLOATS, "the panels fit");
_Static_assert(PANEL_ROWS % TILE_ROWS == 0 && PANEL_COLUMNS % TILE_COLUMNS == 0,
               "panels are whole strips");

struct panels {
    float *a, *b, *c;
};

/* What the three forms have in common: out[rows, columns] = sum over inner. */
struct product {
    const struct gemm *gemm;
    int64_t rows, columns, inner;
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static const void *element(const void *matrix, enum dtype type, int64_t index)
{
    return (const char *)matrix + index * (int64_t)dtype_bytes(type);
}

/* One panel of the result, inner block after inner block. */
static void multiply_rows(const struct product *p, const struct panels *panels, int64_t row,
                          int64_t rows, int64_t column, int64_t columns)
{
    const struct gemm *g = p->gemm;
    for (int64_t at = 0; at < p->inner; at += PANEL_INNER) {
        int64_t inner = smaller(p->inner - at, PANEL_INNER);
        tile_pack_lines(element(g->a, g->a_type, row * g->a_stride + at), g->a_type, g->a_stride,
                        rows, inner, TILE_ROWS, panels->a);
        if (g->form == GEMM_FORWARD)
            tile_pack_lines(element(g->b, g->b_type, column * g->b_stride + at), g->b_type,
                            g->b_stride, columns, inner, TILE_COLUMNS, panels->b);
        else
            tile_pack_columns(element(g->b, g->b_type, at * g->b_stride + column), g->b_type,
                              g->b_stride, columns, inner, TILE_COLUMNS, panels->b);
        tile_multiply(rows, columns, inner, panels->a, panels->b, panels->c, PANEL_COLUMNS);
    }
}

HOST_HOT
static void widen_row(const bf16 *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = bf16_to_float(from[i]);
}

static void widen(const void *from, enum dtype type, int64_t stride, int64_t rows, int64_t columns,
                  float *to, int64_t to_stride)
{
    for (int64_t r = 0; r < rows; r++) {
        const void *row = element(from, type, r * stride);
        if (type == DTYPE_BF16)
            widen_row(row, columns, to + r * to_stride);
        else
            memcpy(to + r * to_stride, row, (size_t)columns * sizeof *to);
    }
}

/* A weight's gradient sums over rows, block after block: no row's own result is at stake, so this
 * form is left to the BLAS. */
static void multiply_weight(const struct product *p, const struct panels *panels, int64_t row,
                            int64_t rows, int64_t column, int64_t columns)
{
    const struct gemm *g = p->gemm;
    for (int64_t at = 0; at < p->inner; at += PANEL_INNER) {
        int64_t inner = smaller(p->inner - at, PANEL_INNER);
        widen(element(g->a, g->a_type, at * g->a_stride + row), g->a_type, g->a_stride, inner, rows,
              panels->a, PANEL_ROWS);
        widen(element(g->b, g->b_type, at * g->b_stride + column), g->b_type, g->b_stride, inner,
              columns, panels->b, PANEL_COLUMNS);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)rows, (blasint)columns,
                    (blasint)inner, 1.0F, panels->a, PANEL_ROWS, panels->b, PANEL_COLUMNS, 1.0F,
                    panels->c, PANEL_COLUMNS);
    }
}

HOST_HOT
static void store_bf16(const float *from, int64_t count, bf16 *to, bool accumulate)
{
    if (accumulate)
        for (int64_t i = 0; i < count; i++)
            to[i] = bf16_from_float(bf16_to_float(to[i]) + from[i]);
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = bf16_from_float(from[i]);
}

static void store_float(const float *from, int64_t count, float *to, bool accumulate)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = accumulate ? to[i] + from[i] : from[i];
}

static void store(const struct gemm *g, const float *panel, int64_t row, int64_t rows,
                  int64_t column, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = (row + r) * g->c_stride + column;
        if (g->c_type == DTYPE_BF16)
            store_bf16(panel + r * PANEL_COLUMNS, columns, (bf16 *)g->c + at, g->accumulate);
        else
            store_float(panel + r * PANEL_COLUMNS, columns, (float *)g->c + at, g->accumulate);
    }
}

static struct product product_of(const struct gemm *g)
{
    switch (g->form) {
    case GEMM_FORWARD:
        return (struct product){ g, g->m, g->n, g->k };
    case GEMM_INPUT:
        return (struct product){ g, g->m, g->k, g->n };
    case GEMM_WEIGHT:
        return (struct product){ g, g->n, g->k, g->m };
    }
    return (struct product){ g, 0, 0, 0 };
}

int host_gemm(struct backend *b, enum stream s, const struct gemm *g, struct diag_list *reterr)
{
    (void)s;
    float *workspace = host_workspace(b, HOST_WORKSPACE_FLOATS, "GEMM", reterr);
    if (!workspace)
        return -1;
    struct panels panels = { workspace, workspace + A_FLOATS, workspace + A_FLOATS + B_FLOATS };
    struct product p = product_of(g);
    for (int64_t row = 0; row < p.rows; row += PANEL_ROWS) {
        int64_t rows = smaller(p.rows - row, PANEL_ROWS);
        for (int64_t column = 0; column < p.columns; column += PANEL_COLUMNS) {
            int64_t columns = smaller(p.columns - column, PANEL_COLUMNS);
            memset(panels.c, 0,
                   (size_t)(tile_padded(rows, TILE_ROWS) * PANEL_COLUMNS) * sizeof(float));
            if (g->form == GEMM_WEIGHT)
                multiply_weight(&p, &panels, row, rows, column, columns);
            else
                multiply_rows(&p, &panels, row, rows, column, columns);
            store(g, panels.c, row, rows, column, columns);
        }
    }
    return 0;
}
