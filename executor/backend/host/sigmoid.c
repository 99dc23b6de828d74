#include "executor/backend/host/host.h"

#include <math.h>

int host_sigmoid(struct backend *b, enum stream s, int64_t count, float *values,
                 struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t i = 0; i < count; i++)
        values[i] = 1 / (1 + expf(-values[i]));
    return 0;
}

int host_sigmoid_backward(struct backend *b, enum stream s, int64_t count, const float *values,
                          float *d_values, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t i = 0; i < count; i++)
        d_values[i] *= values[i] * (1 - values[i]);
    return 0;
}
