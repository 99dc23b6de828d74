/* reference.h - the same models once more: one token after another, in double precision, without
 * tiles, rows, exchanges or any operation of the executor. Gradients by central differences. */
#ifndef RANKFIT_TESTS_UNIT_EXECUTOR_REFERENCE_H
#define RANKFIT_TESTS_UNIT_EXECUTOR_REFERENCE_H

#include "base/plan/plan.h"

enum { REFERENCE_MAX_TENSORS = 128 };

struct reference_tensor {
    char name[128];
    uint64_t elements;
    double *values;
};

struct reference {
    const struct plan *plan;
    uint64_t seed;  /* of the routing profile */
    const int *ids; /* [global_batch, seq + 1]: each token's target is the next one */
    double *hidden; /* out: [global_batch * seq, hidden], normed */
    int count;
    struct reference_tensor tensors[REFERENCE_MAX_TENSORS];
};

/* Mean loss over all tokens. Fails the test when a tensor is missing. */
double reference_loss(struct reference *r);
/* d loss / d element by a central difference of step `h`. */
double reference_slope(struct reference *r, int tensor, uint64_t element, double h);

#endif
