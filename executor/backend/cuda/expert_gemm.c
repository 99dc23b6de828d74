#include "executor/backend/cuda/cuda.h"

static const void *at(const void *matrix, enum dtype type, int64_t elements)
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
    one.a = at(one.a, one.a_type, first * one.a_stride);
    one.b = at(one.b, one.b_type, is_weight ? first * one.b_stride : weight);
    one.c = (char *)one.c + c * (int64_t)dtype_bytes(one.c_type);
    return one;
}

int cuda_fork_lanes(const struct cuda *c, struct diag_list *reterr)
{
    if (cuda_check(cudaEventRecord(c->fork, c->lanes[0]), "cudaEventRecord", reterr) != 0)
        return -1;
    for (int i = 1; i < CUDA_LANES; i++)
        if (cuda_check(cudaStreamWaitEvent(c->lanes[i], c->fork, 0), "cudaStreamWaitEvent",
                       reterr) != 0)
            return -1;
    return 0;
}

int cuda_join_lanes(const struct cuda *c, struct diag_list *reterr)
{
    for (int i = 1; i < CUDA_LANES; i++)
        if (cuda_check(cudaEventRecord(c->joins[i], c->lanes[i]), "cudaEventRecord", reterr) != 0 ||
            cuda_check(cudaStreamWaitEvent(c->lanes[0], c->joins[i], 0), "cudaStreamWaitEvent",
                       reterr) != 0)
            return -1;
    return 0;
}

/* Experts take the lanes in turn; those without rows take none. The communication stream has one
 * panel and works through them in order. */
int cuda_expert_gemm(struct backend *b, enum stream s, const struct expert_gemm *g,
                     struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    bool spread = s == STREAM_COMPUTE;
    if (g->gemm.a_type != g->gemm.b_type)
        return cuda_refuse(reterr, "expert GEMM: operands of two types");
    if (spread && cuda_fork_lanes(c, reterr) != 0)
        return -1;
    int turn = 0, failed = 0;
    for (int e = 0; e < g->experts && !failed; e++) {
        struct gemm one = product_of(g, e);
        int lane = spread ? turn % CUDA_LANES : CUDA_LANES;
        if (one.m == 0 && (one.form != GEMM_WEIGHT || one.accumulate))
            continue;
        failed =
            cuda_multiply(c, spread ? c->lanes[lane] : c->streams[s], lane, &one, true, reterr);
        turn++;
    }
    return spread && cuda_join_lanes(c, reterr) != 0 ? -1 : failed;
}
