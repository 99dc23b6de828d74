#include "planner/report/prediction.h"

#include "base/checked.h"

void prediction_question(const struct prediction *prediction, struct question *ret)
{
    const struct plan *plan = &prediction->plan;
    *ret = (struct question){
        .model = &plan->model,
        .sizes = &prediction->sizes,
        .hardware = &plan->hardware,
        .gpus = plan->gpus,
        .seq_tokens = plan->seq_tokens,
        .micro_batch = plan->choices.layout.micro_batch,
        .global_batch = plan->global_batch,
        .routing = plan->routing,
        .routing_quantile = plan->routing_quantile,
        .headroom_bytes = plan->headroom_bytes,
        .reserve_bytes = plan->reserve_bytes,
    };
}

static void judge(struct prediction *prediction)
{
    struct question question;
    prediction_question(prediction, &question);
    prediction->memory_bytes = question_memory_bytes(&question);
    prediction->limit_bytes = question_limit_bytes(&question);
    prediction->verdict = VERDICT_FITS;
    for (int i = 0; i < prediction->budget.count; i++) {
        const struct rank_budget *rank = &prediction->budget.groups[i];
        if (rank->peak_bytes > prediction->limit_bytes)
            prediction->verdict = VERDICT_DOES_NOT_FIT;
        else if (rank->peak_upper_bytes > prediction->limit_bytes &&
                 prediction->verdict == VERDICT_FITS)
            prediction->verdict = VERDICT_TIGHT;
    }
}

void prediction_compute(struct prediction *prediction)
{
    const struct plan *plan = &prediction->plan;
    model_sizes_init(&prediction->sizes, &plan->model);
    prediction->input = (struct budget_input){
        .model = &plan->model,
        .sizes = &prediction->sizes,
        .hardware = &plan->hardware,
        .choices = &plan->choices,
        .gpus = plan->gpus,
        .seq_tokens = plan->seq_tokens,
        .routing = plan->routing,
        .routing_quantile = plan->routing_quantile,
    };
    budget_compute(&prediction->input, &prediction->budget);
    step_time_compute(&prediction->input, &prediction->time);
    judge(prediction);
}

const struct rank_budget *prediction_worst(const struct prediction *prediction)
{
    return &prediction->budget.groups[prediction->budget.worst];
}

const struct rank_budget *prediction_rank(const struct prediction *prediction, int rank)
{
    int group = budget_group_of(&prediction->input, &prediction->budget, rank);
    return &prediction->budget.groups[group];
}

bool prediction_overflowed(const struct prediction *prediction)
{
    for (int i = 0; i < prediction->budget.count; i++)
        if (bytes_overflowed(prediction->budget.groups[i].peak_bytes) ||
            bytes_overflowed(prediction->budget.groups[i].peak_upper_bytes))
            return true;
    return false;
}
