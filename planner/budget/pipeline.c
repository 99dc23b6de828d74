/* pipeline.c - activations and gradients on their way between stages. */
#include "planner/budget/parts.h"

#include "base/checked.h"

/* For each neighbour one [T / tp, H] activation and one gradient, twice: the next one moves while
 * this one is used. */
uint64_t pipeline_bytes(const struct budget_input *in, int stage)
{
    const struct layout *l = &in->choices->layout;
    int neighbours = (stage > 0) + (stage < l->pp - 1);
    if (l->vpp > 1 && l->pp > 1)
        neighbours = 2; /* interleaving closes the ring of stages */
    uint64_t tensor = arena_bytes(mul_sat(norm_tokens(in), (uint64_t)in->model->hidden), 2);
    return mul_sat(2 * (uint64_t)neighbours, tensor);
}
