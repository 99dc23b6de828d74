#include "executor/backend/host/host.h"

static const void *rows_at(const void *matrix, enum dtype type, int64_t elements)
{
    return (const char *)matrix + elements * (int64_t)dtype_bytes(type);
}

/* The product of expert e: its rows of the routed side, its weight. */
static struct gemm product_of(const struct expert_gemm *g, int e)
{
    struct gemm one = g->gemm;
    int64_t first = g->offsets[e], weight = e * g->weight_stride;
    bool is_weight = one.form == GEMM_WEIGHT;
    int64_t c = is_weight ? weight : first * one.c_stride;
    one.m = g->offsets[e + 1] - first;
    one.a = rows_at(one.a, one.a_type, first * one.a_stride);
    one.b = rows_at(one.b, one.b_type, is_weight ? first * one.b_stride : weight);
    one.c = (char *)one.c + c * (int64_t)dtype_bytes(one.c_type);
    return one;
}

int host_expert_gemm(struct backend *b, enum stream s, const struct expert_gemm *g,
                     struct diag_list *reterr)
{
    for (int e = 0; e < g->experts; e++) {
        struct gemm one = product_of(g, e);
        if (host_gemm(b, s, &one, reterr))
            return -1;
    }
    return 0;
}
