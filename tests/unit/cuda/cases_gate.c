#include "tests/unit/cuda/cases.h"

/* Gates lie behind the heads of q in rows of a fused projection. */
static void gate(struct pair *p, int64_t rows, int heads, int head_dim)
{
    int64_t width = (int64_t)heads * head_dim, row = 2 * width + 64;
    pair_case(p, "output_gate", "%lld rows, %d x %d", (long long)rows, heads, head_dim);
    struct array o = pair_random(p, KIND_BF16, rows * width, 1);
    struct array fused = pair_random(p, KIND_BF16, rows * row, 2);
    struct array og = pair_poison(p, KIND_BF16, rows * width);
    struct array d_o = pair_random(p, KIND_BF16, rows * width, 1);
    struct array d_fused = pair_random(p, KIND_BF16, rows * row, 1);
    struct output_gate_gradient sides[SIDES];
    for (int i = 0; i < SIDES; i++) {
        bf16 *first = fused.at[i], *gradient = d_fused.at[i];
        sides[i] = (struct output_gate_gradient){ .forward = { .rows = rows,
                                                               .heads = heads,
                                                               .head_dim = head_dim,
                                                               .o = o.at[i],
                                                               .gate = first + head_dim,
                                                               .row_stride = row,
                                                               .head_stride = 2 * (int64_t)head_dim,
                                                               .og = og.at[i] },
                                                  .d_o = d_o.at[i],
                                                  .d_gate = gradient + head_dim };
    }
    PAIR_RUN(p, output_gate, &sides[side].forward);
    pair_compare(p, "og", &og, ROUNDED);
    PAIR_RUN(p, output_gate_backward, &sides[side]);
    pair_compare(p, "d_o", &d_o, ROUNDED);
    pair_compare(p, "d_gate", &d_fused, ROUNDED);
}

static void bias(struct pair *p, int64_t rows, int64_t width, enum dtype type)
{
    int64_t stride = width + 24;
    pair_case(p, "add_bias", "%lld x %lld, %s", (long long)rows, (long long)width,
              dtype_names[type]);
    struct array y = pair_random(p, KIND_BF16, rows * stride, 1);
    struct array value = pair_random(p, KIND_BF16, width, 1);
    struct array gradient = pair_random(p, type == DTYPE_FP32 ? KIND_FP32 : KIND_BF16, width, 1);
    PAIR_RUN(p, add_bias, rows, width, value.at[side], y.at[side], stride);
    pair_compare(p, "y", &y, ROUNDED);
    PAIR_RUN(p, add_bias_backward, rows, width, y.at[side], stride, gradient.at[side], type);
    pair_compare(p, "d_bias", &gradient, type == DTYPE_FP32 ? SUMMED : ROUNDED);
}

static void strided(struct pair *p, int64_t rows, int64_t width)
{
    pair_case(p, "copy_rows, rows_to_bf16", "%lld x %lld", (long long)rows, (long long)width);
    struct array from = pair_random(p, KIND_BF16, rows * (width + 8), 1);
    struct array floats = pair_random(p, KIND_FP32, rows * (width + 4), 1);
    struct array to = pair_random(p, KIND_BF16, rows * (width + 16), 1);
    struct array rounded = pair_random(p, KIND_BF16, rows * (width + 16), 1);
    PAIR_RUN(p, copy_rows, rows, width, from.at[side], width + 8, to.at[side], width + 16);
    pair_compare(p, "copied", &to, 0);
    PAIR_RUN(p, rows_to_bf16, rows, width, floats.at[side], width + 4, rounded.at[side],
             width + 16);
    pair_compare(p, "rounded", &rounded, 0);
}

void cases_gate(struct pair *p)
{
    gate(p, 33, 16, 256);
    gate(p, 7, 3, 64);
    bias(p, 300, 2048, DTYPE_FP32);
    bias(p, 5, 24, DTYPE_BF16);
    bias(p, 5000, 520, DTYPE_FP32);
    strided(p, 100, 512);
    strided(p, 3, 2056);
}
