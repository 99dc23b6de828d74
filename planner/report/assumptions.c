#include "planner/report/assumptions.h"

#include "base/item.h"
#include "base/text.h"

static void add_assumed_items(const struct prediction *prediction, struct json *array)
{
    const struct rank_budget *worst = prediction_worst(prediction);
    char text[512];
    size_t used = 0;
    text_append(text, sizeof text, &used, "not yet measured by an executor:");
    size_t empty = used;
    for (int i = 0; i < ITEM_COUNT; i++)
        if (worst->item_max_bytes[i] > 0 &&
            budget_basis(&prediction->input, (enum item)i) == BASIS_ASSUMED)
            text_append(text, sizeof text, &used, "%s %s", used > empty ? "," : "",
                        item_infos[i].name);
    if (used > empty)
        json_append_text(array, text);
    if (prediction->plan.hardware.held_assumed)
        json_append_text(
            array, "context, libraries and communicators hold what they do on the part that was "
                   "measured (`rankfit calibrate` measures this one)");
}

static void add_assumed_times(const struct prediction *prediction, struct json *array)
{
    int assumed = 0;
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        assumed += prediction->time.item_seconds[i] > 0 &&
                   step_time_basis(&prediction->input, (enum time_item)i) == BASIS_ASSUMED;
    if (assumed > 0)
        json_append_text(array,
                         "the step time is a roofline with the efficiencies of the hardware file");
}

static void add_vision(const struct model *model, struct json *array)
{
    if (model->vision.depth == 0)
        return;
    if (model->vision_trained)
        json_append_text(
            array, "of the vision tower only the state is counted, not what images would take");
    else if (model->vision_frozen)
        json_append_text(
            array, "the vision tower is held and not trained; what images would take is left out");
    else
        json_append_text(
            array, "the vision tower takes no part (model.vision=frozen holds it, trained trains "
                   "it)");
}

/* What stands behind state that no executor holds. */
static void add_trained(const struct primitives *p, struct json *array)
{
    if (p->optimizer == OPTIMIZER_MUON)
        json_append_text(
            array, "Muon updates the layers' projections; embedding, head, norms, vectors, router, "
                   "prediction layers and vision tower stay with AdamW");
    if (p->master == MASTER_NONE)
        json_append_text(
            array, "without master weights updates must be rounded stochastically, or small ones "
                   "are lost");
    if (p->lora_rank > 0 || p->frozen != 0)
        json_append_text(array,
                         "gradients pass through every layer, frozen ones below the lowest trained "
                         "weight too");
}

/* What stands behind rows and passes. */
static void add_workload(const struct plan *plan, struct json *array)
{
    const struct primitives *p = &plan->choices.primitives;
    if (p->tokens_per_gpu > 0 || p->packing != PACKING_NONE)
        json_append_text(
            array, "rows are computed whole, what their pieces leave empty too; rows are dealt in "
                   "turn to data-parallel ranks, and what is uneven is not in the step time");
    if (p->rl & RL_REFERENCE)
        json_append_text(array,
                         p->lora_rank > 0
                             ? "the reference model is the policy without its adapters"
                             : "the reference model has the policy's shape, and bf16 weights "
                               "sharded as the policy's");
    if (p->rl != 0)
        json_append_text(
            array, "rollout takes no part in the step; what it keeps on the device is --reserve");
}

struct json *report_assumptions_json(const struct prediction *prediction)
{
    struct json *ret = json_list();
    const struct plan *plan = &prediction->plan;
    char text[256], routing[64];
    if (plan->model.moe.experts > 0) {
        routing_format(&plan->routing, routing, sizeof routing);
        (void)snprintf(text, sizeof text, "%s routing; the upper bound holds with probability %g",
                       routing, plan->routing_quantile);
        json_append_text(ret, text);
    }
    if (plan->model.mtp_layers > 0 && !plan->model.mtp_trained)
        json_append_text(
            ret, "the multi-token-prediction layers are not trained (model.mtp=1 trains them)");
    add_vision(&plan->model, ret);
    add_trained(&plan->choices.primitives, ret);
    add_workload(plan, ret);
    if (prediction->input.engine)
        json_append_text(ret, "the step time is that of engine rankfit for this layout");
    add_assumed_items(prediction, ret);
    add_assumed_times(prediction, ret);
    return ret;
}
