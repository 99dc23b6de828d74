#include "planner/report/prediction.h"

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/engine/engine.h"

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
        .lengths = &plan->lengths,
        .headroom_bytes = plan->headroom_bytes,
        .reserve_bytes = plan->reserve_bytes,
        .engine = engine_methods_of(plan->engine),
    };
}

/* The bytes of a rank's fullest moment; notes the fullest of all ranks. */
static uint64_t fullest_moment(struct prediction *prediction, const struct rank_budget *rank)
{
    struct rank_peaks peaks = { .binding = MOMENT_STEADY };
    peaks.bytes[MOMENT_STEADY] = rank->peak_bytes;
    if (!prediction->input.engine)
        budget_peaks(prediction->predictor, rank, rank->rank, &peaks);
    uint64_t own = peaks.bytes[peaks.binding];
    if (own > prediction->binding_bytes) {
        prediction->binding_bytes = own;
        prediction->binding = peaks.binding;
    }
    return own;
}

static void judge(struct prediction *prediction)
{
    struct question question;
    prediction_question(prediction, &question);
    prediction->memory_bytes = question_memory_bytes(&question);
    prediction->limit_bytes = question_limit_bytes(&question);
    prediction->verdict = VERDICT_FITS;
    prediction->binding = MOMENT_STEADY;
    prediction->binding_bytes = 0;
    for (int i = 0; i < prediction->budget.count; i++) {
        const struct rank_budget *rank = &prediction->budget.groups[i];
        if (fullest_moment(prediction, rank) > prediction->limit_bytes ||
            rank->host_bytes > question_host_room(&question))
            prediction->verdict = VERDICT_DOES_NOT_FIT;
        else if (rank->peak_upper_bytes > prediction->limit_bytes &&
                 prediction->verdict == VERDICT_FITS)
            prediction->verdict = VERDICT_TIGHT;
    }
}

int prediction_compute(struct prediction *prediction)
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
        .lengths = &plan->lengths,
        .engine = engine_methods_of(plan->engine),
    };
    predictor_close(prediction->predictor);
    prediction->predictor = predictor_open(&prediction->input, PREDICTOR_ONE_LAYOUT);
    if (!prediction->predictor)
        return -1;
    predictor_choose(prediction->predictor, &plan->choices, NULL);
    budget_compute(prediction->predictor, &prediction->budget);
    step_time_compute(prediction->predictor, &prediction->time);
    judge(prediction);
    return step_time_range(prediction->predictor, &prediction->time, &prediction->range);
}

void prediction_done(struct prediction *prediction)
{
    predictor_close(prediction->predictor);
    prediction->predictor = NULL;
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

void prediction_binding(const struct prediction *prediction, const char *derived, char *ret,
                        size_t size)
{
    char bytes[32];
    size_t used = 0;
    ret[0] = '\0';
    if (prediction->binding != MOMENT_STEADY)
        text_append(ret, size, &used,
                    "%s takes %s, more than a step; of a step: ", moment_names[prediction->binding],
                    units_format_gb(bytes, sizeof bytes, prediction->binding_bytes, 2));
    text_append(ret, size, &used, "%s", derived);
}

bool prediction_overflowed(const struct prediction *prediction)
{
    for (int i = 0; i < prediction->budget.count; i++)
        if (bytes_overflowed(prediction->budget.groups[i].peak_bytes) ||
            bytes_overflowed(prediction->budget.groups[i].peak_upper_bytes))
            return true;
    return false;
}
