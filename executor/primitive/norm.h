/* norm.h - the RMS norms of the residual stream, [rows, hidden] bf16, with the model's epsilon and
 * its way of storing weights (as they are, or one less). */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_NORM_H
#define RANKFIT_EXECUTOR_PRIMITIVE_NORM_H

#include "executor/primitive/work.h"

void residual_norm(struct work *w, int64_t rows, const void *x, const bf16 *weight, void *y);
/* dx: written, or added to; d_weight: added to, in the plan's grad_dtype. */
void residual_norm_backward(struct work *w, int64_t rows, const void *dy, const void *x,
                            const bf16 *weight, void *dx, bool accumulate, void *d_weight);

#endif
