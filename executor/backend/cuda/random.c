#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

int cuda_draw_normal(struct backend *b, enum stream s, int64_t count, float *to, uint64_t key,
                     uint64_t first, double deviation, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    return cuda_check(kernel_draw_normal(c->streams[s], count, to, key, first, deviation),
                      "draw_normal", reterr);
}
