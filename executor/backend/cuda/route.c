#include "base/model/model.h"
#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

static int check_router(int experts, int top_k, struct diag_list *reterr)
{
    if (experts > KERNEL_EXPERTS_MAX || top_k > KERNEL_TOP_K_MAX)
        return cuda_refuse(reterr, "router: top %d of %d experts, at most %d of %d on this backend",
                           top_k, experts, KERNEL_TOP_K_MAX, KERNEL_EXPERTS_MAX);
    if (top_k < 1 || top_k > experts)
        return cuda_refuse(reterr, "router: top %d of %d experts", top_k, experts);
    return 0;
}

static int check_groups(const struct router *r, struct diag_list *reterr)
{
    if (r->groups <= 1)
        return 0;
    if (r->groups <= ROUTER_MAX_GROUPS && r->experts % r->groups == 0 && r->group_limit >= 1 &&
        r->group_limit <= r->groups && r->top_k <= r->group_limit * (r->experts / r->groups))
        return 0;
    return cuda_refuse(reterr, "router: top %d of %d experts in %d of %d groups", r->top_k,
                       r->experts, r->group_limit, r->groups);
}

static struct kernel_router_args args_of(const struct router *r)
{
    return (struct kernel_router_args){ .rows = r->rows,
                                        .experts = r->experts,
                                        .top_k = r->top_k,
                                        .normalize = r->normalize_top_k,
                                        .given = r->given,
                                        .sigmoid = r->sigmoid,
                                        .groups = r->groups > 1 ? r->groups : 1,
                                        .group_limit = r->groups > 1 ? r->group_limit : 1,
                                        .scaling = r->scaling > 0 ? r->scaling : 1.0F,
                                        .correction = r->correction,
                                        .probs = r->probs,
                                        .choices = r->choices,
                                        .weights = r->weights };
}

int cuda_router(struct backend *b, enum stream s, const struct router *r, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    if (check_router(r->experts, r->top_k, reterr) != 0 || check_groups(r, reterr) != 0)
        return -1;
    const struct kernel_router_args args = args_of(r);
    return cuda_check(kernel_router(c->streams[s], &args), "router", reterr);
}

int cuda_router_backward(struct backend *b, enum stream s, const struct router *r,
                         const float *d_weights, float *d_logits, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    if (check_router(r->experts, r->top_k, reterr) != 0)
        return -1;
    const struct kernel_router_args args = args_of(r);
    return cuda_check(kernel_router_backward(c->streams[s], &args, d_weights, d_logits),
                      "router backward", reterr);
}

int cuda_sort_choices(struct backend *b, enum stream s, int64_t rows, int top_k, int experts,
                      const int32_t *choices, int32_t *slots, int64_t *counts,
                      struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    int64_t total = rows * top_k, chunks = kernel_sort_chunks(total);
    uint64_t loads_bytes = (uint64_t)(experts + 1) * sizeof(int32_t);
    if (total > INT32_MAX)
        return cuda_refuse(reterr, "%lld routed rows do not fit 32-bit slots", (long long)total);
    if (check_router(experts, 1, reterr) != 0)
        return -1;
    int32_t *starts = cuda_scratch(c, s, (uint64_t)(chunks + 1) * loads_bytes, "sort", reterr);
    if (!starts)
        return -1;
    int32_t *loads = starts + chunks * (experts + 1);
    if (cuda_check(
            kernel_sort_choices(c->streams[s], total, experts, choices, slots, starts, loads),
            "sort of choices", reterr) != 0 ||
        cuda_read_back(c, s, loads, loads_bytes, reterr) != 0)
        return -1;
    const int32_t *read = c->pinned;
    for (int e = 0; e < experts; e++)
        counts[e] = read[e];
    if (read[experts] > 0)
        return cuda_refuse(reterr, "%d choices are outside the %d experts", read[experts], experts);
    return 0;
}
