#include "base/layout/trained.h"

#include "base/checked.h"

enum {
    ATTENTION = 1 << COMPONENT_ATTENTION | 1 << COMPONENT_LINEAR_ATTENTION,
    MLP = 1 << COMPONENT_DENSE_MLP | 1 << COMPONENT_SHARED_EXPERT,
    EXPERTS = 1 << COMPONENT_EXPERTS
};

unsigned adapted_components(const struct primitives *p)
{
    unsigned ret = 0;
    if (p->lora_rank == 0)
        return 0;
    ret |= p->lora_targets & LORA_ATTENTION ? ATTENTION : 0;
    ret |= p->lora_targets & LORA_MLP ? MLP : 0;
    return ret | (p->lora_targets & LORA_EXPERTS ? EXPERTS : 0);
}

bool component_has_matrices(enum component component)
{
    return has_component(ATTENTION | MLP | EXPERTS | 1 << COMPONENT_INDEXER, component);
}

struct sum {
    const struct primitives *primitives;
    const struct model *model;
    uint64_t params;
};

static bool takes_part(const struct model *model, int unit)
{
    return (unit != UNIT_MTP || model->mtp_trained) &&
           (unit != UNIT_VISION || model->vision_trained);
}

static int add_tensor(const struct tensor *tensor, void *context)
{
    struct sum *sum = context;
    const struct primitives *p = sum->primitives;
    bool adapted = tensor_is_matrix(tensor) && tensor->unit >= 0 &&
                   has_component(adapted_components(p), tensor->component);
    if (has_component(trained_components(p), tensor->component) &&
        takes_part(sum->model, tensor->unit))
        sum->params = add_sat(sum->params, tensor->params);
    if (adapted)
        sum->params = add_sat(sum->params, mul3_sat((uint64_t)p->lora_rank, tensor->copies,
                                                    add_sat(tensor->shape[0], tensor->shape[1])));
    return 0;
}

uint64_t params_trained(const struct model *model, const struct primitives *p)
{
    struct sum sum = { p, model, 0 };
    model_tensors(model, add_tensor, &sum);
    return sum.params;
}
