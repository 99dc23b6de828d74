#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

#include <math.h>

int cuda_add(struct backend *b, enum stream s, int64_t count, const void *from, void *to,
             enum dtype dtype, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    return cuda_check(kernel_add(c->streams[s], count, from, to, dtype == DTYPE_FP32), "add",
                      reterr);
}

int cuda_to_bf16(struct backend *b, enum stream s, int64_t count, const float *from, bf16 *to,
                 struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    return cuda_check(kernel_to_bf16(c->streams[s], count, from, to), "to_bf16", reterr);
}

/* Settles the stream's losses too, since it waits for them anyway. */
int cuda_sum_squares(struct backend *b, enum stream s, int64_t count, const void *values,
                     enum dtype dtype, double *ret_sum, struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    if (c->losses[s].count > 0 && cuda_settle(c, s, reterr) != 0)
        return -1;
    double *partial = cuda_scratch(c, s, KERNEL_SUM_BLOCKS * sizeof *partial, "squares", reterr);
    struct cuda_ledger *ledger = cuda_ledger(c, s, "squares", reterr);
    if (!partial || !ledger)
        return -1;
    if (cuda_check(kernel_sum_squares(c->streams[s], count, values, dtype == DTYPE_FP32, partial,
                                      &ledger->sum),
                   "squares", reterr) != 0 ||
        cuda_read_back(c, s, &ledger->sum, sizeof ledger->sum, reterr) != 0)
        return -1;
    *ret_sum = *(const double *)c->pinned;
    return 0;
}

int cuda_adamw(struct backend *b, enum stream s, const struct adamw *a, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const struct kernel_adamw_args args = {
        .count = a->count,
        .gradient = a->gradient,
        .is_float = a->grad_type == DTYPE_FP32,
        .master = a->master,
        .moment1 = a->moment1,
        .moment2 = a->moment2,
        .weight = a->weight,
        .scale = a->scale,
        .rate = a->rate,
        .beta1 = a->beta1,
        .beta2 = a->beta2,
        .epsilon = a->epsilon,
        .decay = a->decay,
        .first_left = (float)(1.0 - pow((double)a->beta1, a->step)),
        .second_left = (float)(1.0 - pow((double)a->beta2, a->step)),
    };
    return cuda_check(kernel_adamw(c->streams[s], &args), "AdamW", reterr);
}
