/* linear.h - the three products of a linear layer Y = X W^T with dense rows: X [rows, in],
 * W [out, in], Y [rows, out]. Activations and weights are bf16 unless said. */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_LINEAR_H
#define RANKFIT_EXECUTOR_PRIMITIVE_LINEAR_H

#include "executor/primitive/work.h"

struct linear {
    int64_t rows, in, out;
    enum dtype output_type;   /* of Y and its gradient */
    enum dtype gradient_type; /* of the gradient of W */
    enum dtype input_type;    /* of the gradient of X */
    int64_t plan_rows;        /* rows that the product is planned for, as struct gemm has it */
};

void linear_forward(struct work *w, const struct linear *l, const void *x, const bf16 *weight,
                    void *y, bool accumulate);
void linear_input(struct work *w, const struct linear *l, const void *dy, const bf16 *weight,
                  void *dx, bool accumulate);
/* Adds to dweight. */
void linear_weight(struct work *w, const struct linear *l, const void *dy, const void *x,
                   void *dweight);

/* The same for the rows of each expert; `rows` of the layer is not used. */
struct expert_linear {
    struct linear linear;
    int experts;
    const int64_t *offsets; /* host memory, experts + 1 */
    int64_t weight_stride;  /* elements from one expert's matrix to the next one's */
};

void expert_forward(struct work *w, const struct expert_linear *l, const void *x,
                    const bf16 *weight, void *y);
void expert_input(struct work *w, const struct expert_linear *l, const void *dy, const bf16 *weight,
                  void *dx);
void expert_weight(struct work *w, const struct expert_linear *l, const void *dy, const void *x,
                   void *dweight);

#endif
