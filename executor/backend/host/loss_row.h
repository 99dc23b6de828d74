/* loss_row.h - what the losses share: the largest of a row of logits, the sum of its exponentials,
 * and the check of a target. */
#ifndef RANKFIT_EXECUTOR_BACKEND_HOST_LOSS_ROW_H
#define RANKFIT_EXECUTOR_BACKEND_HOST_LOSS_ROW_H

#include "executor/backend/backend.h"

/* count >= 1; type of the row: fp32 or bf16. */
float loss_row_largest(const void *row, enum dtype type, int64_t count);

/* Sum of exp(row[i] - largest). */
double loss_row_sum(const void *row, enum dtype type, int64_t count, float largest);

/* -1 with a diagnostic when a target is not below vocab; below 0 it is one that does not count. */
int loss_check_targets(int64_t rows, int64_t vocab, const int32_t *targets,
                       struct diag_list *reterr);

#endif
