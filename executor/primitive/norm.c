#include "executor/primitive/norm.h"

void residual_norm(struct work *w, int64_t rows, const void *x, const bf16 *weight, void *y)
{
    const struct model *m = &w->plan->model;

    if (m->norm_zero_centred)
        WORK_OP(w, rmsnorm_centred, rows, m->hidden, m->norm_eps, x, weight, y);
    else
        WORK_OP(w, rmsnorm, rows, m->hidden, m->norm_eps, x, weight, y);
}

void residual_norm_backward(struct work *w, int64_t rows, const void *dy, const void *x,
                            const bf16 *weight, void *dx, bool accumulate, void *d_weight)
{
    const struct model *m = &w->plan->model;
    enum dtype type = w->plan->choices.primitives.grad_dtype;

    if (m->norm_zero_centred)
        WORK_OP(w, rmsnorm_centred_backward, rows, m->hidden, m->norm_eps, dy, x, weight, dx,
                accumulate, d_weight, type);
    else
        WORK_OP(w, rmsnorm_backward, rows, m->hidden, m->norm_eps, dy, x, weight, dx, accumulate,
                d_weight, type);
}
