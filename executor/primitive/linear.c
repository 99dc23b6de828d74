#include "executor/primitive/linear.h"

static struct gemm forward_gemm(const struct linear *l, const void *x, const bf16 *weight, void *y)
{
    return (struct gemm){ .form = GEMM_FORWARD,
                          .m = l->rows,
                          .plan_rows = l->plan_rows,
                          .n = l->out,
                          .k = l->in,
                          .a = x,
                          .b = weight,
                          .c = y,
                          .a_type = DTYPE_BF16,
                          .b_type = DTYPE_BF16,
                          .c_type = l->output_type,
                          .a_stride = l->in,
                          .b_stride = l->in,
                          .c_stride = l->out };
}

static struct gemm input_gemm(const struct linear *l, const void *dy, const bf16 *weight, void *dx)
{
    return (struct gemm){ .form = GEMM_INPUT,
                          .m = l->rows,
                          .plan_rows = l->plan_rows,
                          .n = l->out,
                          .k = l->in,
                          .a = dy,
                          .b = weight,
                          .c = dx,
                          .a_type = l->output_type,
                          .b_type = DTYPE_BF16,
                          .c_type = l->input_type,
                          .a_stride = l->out,
                          .b_stride = l->in,
                          .c_stride = l->in };
}

static struct gemm weight_gemm(const struct linear *l, const void *dy, const void *x, void *dweight)
{
    return (struct gemm){ .form = GEMM_WEIGHT,
                          .m = l->rows,
                          .plan_rows = l->plan_rows,
                          .n = l->out,
                          .k = l->in,
                          .a = dy,
                          .b = x,
                          .c = dweight,
                          .a_type = l->output_type,
                          .b_type = DTYPE_BF16,
                          .c_type = l->gradient_type,
                          .a_stride = l->out,
                          .b_stride = l->in,
                          .c_stride = l->in,
                          .accumulate = true };
}

void linear_forward(struct work *w, const struct linear *l, const void *x, const bf16 *weight,
                    void *y, bool accumulate)
{
    struct gemm g = forward_gemm(l, x, weight, y);
    g.accumulate = accumulate;
    WORK_OP(w, gemm, &g);
}

void linear_input(struct work *w, const struct linear *l, const void *dy, const bf16 *weight,
                  void *dx, bool accumulate)
{
    struct gemm g = input_gemm(l, dy, weight, dx);
    g.accumulate = accumulate;
    WORK_OP(w, gemm, &g);
}

void linear_weight(struct work *w, const struct linear *l, const void *dy, const void *x,
                   void *dweight)
{
    struct gemm g = weight_gemm(l, dy, x, dweight);
    WORK_OP(w, gemm, &g);
}

static void run_experts(struct work *w, const struct expert_linear *l, struct gemm gemm)
{
    struct expert_gemm g = { .gemm = gemm,
                             .experts = l->experts,
                             .offsets = l->offsets,
                             .weight_stride = l->weight_stride };
    WORK_OP(w, expert_gemm, &g);
}

void expert_forward(struct work *w, const struct expert_linear *l, const void *x,
                    const bf16 *weight, void *y)
{
    run_experts(w, l, forward_gemm(&l->linear, x, weight, y));
}

void expert_input(struct work *w, const struct expert_linear *l, const void *dy, const bf16 *weight,
                  void *dx)
{
    run_experts(w, l, input_gemm(&l->linear, dy, weight, dx));
}

void expert_weight(struct work *w, const struct expert_linear *l, const void *dy, const void *x,
                   void *dweight)
{
    run_experts(w, l, weight_gemm(&l->linear, dy, x, dweight));
}
