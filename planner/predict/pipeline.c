/* pipeline.c - activations and gradients on their way between stages. */
#include "planner/predict/parts.h"

#include "base/checked.h"

/* A pass takes one run of the stage's layers, all of them unless stages interleave: forward, and
 * backward; the last run of a stage with the head forth and back. Nothing is gathered for the pass
 * after it. */
int pass_end(const struct layout *l, int layers, bool embeds, int head_uses, int use)
{
    int run = run_layers(l->vpp, layers), first = embeds ? 1 : 0;
    int turn = first + layers, back = turn + head_uses;
    int begins = use < turn ? first : back, layer = use < begins ? 0 : use - begins;
    int last = run == layers ? 0 : turn - run; /* with the embedding, where it is the only run */
    if (head_uses > 0 && use >= last && use < back + run)
        return back + run;
    int end = begins + (layer / run + 1) * run;
    return end < begins + layers ? end : begins + layers;
}

/* For each neighbour one [T / tp, H] activation and one gradient on their way: what comes is copied
 * to where it is used, what goes is written here. */
uint64_t pipeline_bytes(const struct budget_input *in, int stage)
{
    const struct layout *l = &in->choices->layout;
    int neighbours = (stage > 0) + (stage < l->pp - 1);
    if (l->vpp > 1 && l->pp > 1)
        neighbours = 2; /* interleaving closes the ring of stages */
    uint64_t tensor = arena_bytes(mul_sat(norm_tokens(in), (uint64_t)in->model->hidden), 2);
    return mul_sat(2 * (uint64_t)neighbours, tensor);
}
