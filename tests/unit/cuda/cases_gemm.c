#include "tests/unit/cuda/cases.h"

#include <stdlib.h>
#include <string.h>

static const char *const form_names[] = { "forward", "input", "weight" };

static enum kind kind_of(enum dtype type)
{
    return type == DTYPE_FP32 ? KIND_FP32 : KIND_BF16;
}

/* Bf16 results may differ by a rounding, and rounded fp32 rows by one more. */
static double allowed_for(const struct gemm *g)
{
    if (g->a_type != g->b_type)
        return 2 * ROUNDED;
    return g->c_type == DTYPE_FP32 ? SUMMED : ROUNDED;
}

/* The definition in double, by index. */
static double element(const struct gemm *g, const struct array *a, const struct array *b,
                      int64_t row, int64_t column)
{
    double sum = 0;
    int64_t inner = g->form == GEMM_FORWARD ? g->k : g->form == GEMM_INPUT ? g->n : g->m;
    for (int64_t i = 0; i < inner; i++) {
        int64_t at_a = g->form == GEMM_WEIGHT ? i * g->a_stride + row : row * g->a_stride + i;
        int64_t at_b =
            g->form == GEMM_FORWARD ? column * g->b_stride + i : i * g->b_stride + column;
        sum += pair_double(a, a->at[HOST], at_a) * pair_double(b, b->at[HOST], at_b);
    }
    return sum;
}

static void product(struct pair *p, struct gemm g, int64_t padding)
{
    bool forward = g.form == GEMM_FORWARD, weight = g.form == GEMM_WEIGHT;
    int64_t rows = weight ? g.n : g.m, columns = forward ? g.n : g.k;
    g.a_stride = (forward ? g.k : g.n) + (g.a_type == g.b_type ? padding : 0);
    g.b_stride = g.k + padding;
    g.c_stride = columns + padding;
    pair_case(p, "gemm", "%s %lld x %lld x %lld %s.%s>%s%s", form_names[g.form], (long long)g.m,
              (long long)g.n, (long long)g.k, dtype_names[g.a_type], dtype_names[g.b_type],
              dtype_names[g.c_type], g.accumulate ? " +" : "");
    struct array a = pair_random(p, kind_of(g.a_type), g.m * g.a_stride, 1);
    struct array b = pair_random(p, kind_of(g.b_type), (weight ? g.m : g.n) * g.b_stride, 1);
    struct array c = pair_random(p, kind_of(g.c_type), rows * g.c_stride, 1);
    double *want = malloc((size_t)c.count * sizeof *want);
    for (int64_t i = 0; i < c.count; i++)
        want[i] = pair_double(&c, c.at[HOST], i);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++)
            want[r * g.c_stride + j] =
                (g.accumulate ? want[r * g.c_stride + j] : 0) + element(&g, &a, &b, r, j);
    g.a = a.at[DEVICE], g.b = b.at[DEVICE], g.c = c.at[DEVICE];
    struct backend *device = p->backends[DEVICE];
    if (pair_ran(p, "run", device->ops->gemm(device, STREAM_COMPUTE, &g, &p->diags)))
        pair_against(p, "against double", &c, want, allowed_for(&g));
    free(want);
}

/* Rows computed alone and in groups are the same bits as all at once. */
static void rows_apart(struct pair *p, enum gemm_form form, int64_t n, int64_t k)
{
    enum { ROWS = 600 };
    static const int64_t pieces[] = { 1, 64, 200, 600 };
    struct backend *device = p->backends[DEVICE];
    int64_t in = form == GEMM_FORWARD ? k : n, out = form == GEMM_FORWARD ? n : k;
    pair_case(p, "gemm", "%s, rows apart, n %lld, k %lld", form_names[form], (long long)n,
              (long long)k);
    struct array a = pair_random(p, KIND_BF16, ROWS * in, 1);
    struct array b = pair_random(p, KIND_BF16, n * k, 1);
    void *whole = NULL;
    for (int i = 3; i >= 0; i--) {
        struct array c = pair_poison(p, KIND_BF16, ROWS * out);
        struct gemm g = { form,       pieces[i],  n,  k, NULL, b.at[DEVICE], NULL, DTYPE_BF16,
                          DTYPE_BF16, DTYPE_BF16, in, k, out,  false,        0 };
        for (int64_t row = 0; row < ROWS; row += pieces[i]) {
            g.m = ROWS - row < pieces[i] ? ROWS - row : pieces[i];
            g.a = (bf16 *)a.at[DEVICE] + row * in;
            g.c = (bf16 *)c.at[DEVICE] + row * out;
            (void)pair_ran(p, "run", device->ops->gemm(device, STREAM_COMPUTE, &g, &p->diags));
        }
        void *got = pair_download(p, &c);
        if (whole)
            pair_figure(p, "same bits", got && memcmp(got, whole, (size_t)(ROWS * out) * 2) == 0, 1,
                        0);
        if (whole)
            free(got);
        else
            whole = got;
    }
    free(whole);
}

/* Sums over few rows, down to one: blocks that share a sum must not each count the same row. */
static void few_rows(struct pair *p)
{
    for (int64_t m = 1; m <= 40; m++) {
        int64_t n = m % 2 ? 8 : 96;
        product(p, (struct gemm){ .form = GEMM_WEIGHT, .m = m, .n = n, .k = 8 }, 0);
        product(p,
                (struct gemm){ .form = GEMM_WEIGHT,
                               .m = m,
                               .n = 64,
                               .k = n,
                               .c_type = DTYPE_FP32,
                               .accumulate = true },
                0);
    }
    for (int64_t m = 1000; m < 1100; m += 24)
        product(p,
                (struct gemm){ .form = GEMM_WEIGHT, .m = m, .n = 8, .k = 8, .c_type = DTYPE_FP32 },
                0);
}

/* A sum over few rows is the same bits before and after one over many. */
static void history(struct pair *p)
{
    const int64_t n = 64, k = 128, many = 9000, rows[] = { 7, many, 7 };
    struct backend *device = p->backends[DEVICE];
    pair_case(p, "gemm", "weight, 7 rows before and after %lld", (long long)many);
    struct array a = pair_random(p, KIND_BF16, many * n, 1);
    struct array b = pair_random(p, KIND_BF16, many * k, 1);
    void *got[3];
    for (int i = 0; i < 3; i++) {
        struct array c = pair_poison(p, KIND_FP32, n * k);
        const struct gemm g = { .form = GEMM_WEIGHT,
                                .m = rows[i],
                                .n = n,
                                .k = k,
                                .a = a.at[DEVICE],
                                .b = b.at[DEVICE],
                                .c = c.at[DEVICE],
                                .c_type = DTYPE_FP32,
                                .a_stride = n,
                                .b_stride = k,
                                .c_stride = k };
        (void)pair_ran(p, "run", device->ops->gemm(device, STREAM_COMPUTE, &g, &p->diags));
        got[i] = pair_download(p, &c);
    }
    bool same = got[0] && got[2] && memcmp(got[0], got[2], (size_t)(n * k) * sizeof(float)) == 0;
    pair_figure(p, "same bits", same, 1, 0);
    for (int i = 0; i < 3; i++)
        free(got[i]);
}

void cases_gemm(struct pair *p)
{
    static const int64_t shapes[][3] = {
        { 64, 48, 96 }, { 129, 256, 72 }, { 1, 8, 8 }, { 200, 1, 64 }, { 0, 16, 8 }
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int form = GEMM_FORWARD; form <= GEMM_WEIGHT; form++)
            for (int bits = 0; bits < 8; bits++)
                product(p,
                        (struct gemm){ .form = (enum gemm_form)form,
                                       .m = shapes[i][0],
                                       .n = shapes[i][1],
                                       .k = shapes[i][2],
                                       .a_type = bits & 1 ? DTYPE_FP32 : DTYPE_BF16,
                                       .c_type = bits & 2 ? DTYPE_FP32 : DTYPE_BF16,
                                       .accumulate = bits & 4 },
                        i % 2 ? 8 : 0);
    product(p, (struct gemm){ .form = GEMM_FORWARD, .m = 70, .n = 33, .k = 17 }, 0);
    product(p,
            (struct gemm){ .form = GEMM_WEIGHT,
                           .m = 3000,
                           .n = 64,
                           .k = 64,
                           .accumulate = true,
                           .c_type = DTYPE_FP32 },
            0);
    rows_apart(p, GEMM_FORWARD, 2048, 512);
    rows_apart(p, GEMM_INPUT, 1536, 2048);
    rows_apart(p, GEMM_FORWARD, 128, 2048);
    few_rows(p);
    history(p);
    for (int form = GEMM_FORWARD; form <= GEMM_WEIGHT; form++)
        product(
            p,
            (struct gemm){
                .form = (enum gemm_form)form, .m = 33, .n = 40000, .k = 24, .accumulate = true },
            0);
    rows_apart(p, GEMM_INPUT, 40000, 128);
}

enum { EXPERTS = 9, INPUTS = 64, OUTS = 48 };

static void experts(struct pair *p, const int64_t *offsets, enum gemm_form form, enum dtype c_type,
                    bool accumulate)
{
    int64_t rows = offsets[EXPERTS], stride = OUTS * INPUTS + 64;
    bool forward = form == GEMM_FORWARD, weight = form == GEMM_WEIGHT;
    pair_case(p, "expert_gemm", "%s, 9 experts, %lld rows, %s%s", form_names[form], (long long)rows,
              dtype_names[c_type], accumulate ? " +" : "");
    struct array a = pair_random(p, KIND_BF16, rows * (forward ? INPUTS : OUTS), 1);
    struct array b = pair_random(p, KIND_BF16, weight ? rows * INPUTS : EXPERTS * stride, 1);
    struct array c = pair_random(p, kind_of(c_type),
                                 weight ? EXPERTS * stride : rows * (forward ? OUTS : INPUTS), 1);
    struct expert_gemm sides[SIDES];
    for (int i = 0; i < SIDES; i++)
        sides[i] = (struct expert_gemm){ .gemm = { .form = form,
                                                   .n = OUTS,
                                                   .k = INPUTS,
                                                   .a = a.at[i],
                                                   .b = b.at[i],
                                                   .c = c.at[i],
                                                   .c_type = c_type,
                                                   .a_stride = forward ? INPUTS : OUTS,
                                                   .b_stride = INPUTS,
                                                   .c_stride = forward ? OUTS : INPUTS,
                                                   .accumulate = accumulate },
                                         .experts = EXPERTS,
                                         .offsets = offsets,
                                         .weight_stride = stride };
    PAIR_RUN(p, expert_gemm, &sides[side]);
    pair_compare(p, "c", &c, c_type == DTYPE_FP32 ? SUMMED : ROUNDED);
}

void cases_expert_gemm(struct pair *p)
{
    static const int64_t mixed[EXPERTS + 1] = { 0, 17, 17, 18, 50, 120, 250, 251, 251, 300 };
    static const int64_t few[EXPERTS + 1] = { 0, 1, 3, 6, 13, 29, 60, 60, 75, 80 };
    static const int64_t uneven[EXPERTS + 1] = { 0,    5000, 5001, 5003, 5007,
                                                 5015, 5031, 5062, 6200, 6205 };
    const int64_t *const loads[] = { mixed, few, uneven };
    for (int i = 0; i < 3; i++) {
        experts(p, loads[i], GEMM_FORWARD, DTYPE_BF16, false);
        experts(p, loads[i], GEMM_INPUT, DTYPE_BF16, false);
        experts(p, loads[i], GEMM_WEIGHT, DTYPE_FP32, true);
        experts(p, loads[i], GEMM_WEIGHT, DTYPE_BF16, true);
        experts(p, loads[i], GEMM_WEIGHT, DTYPE_FP32, false);
    }
}
