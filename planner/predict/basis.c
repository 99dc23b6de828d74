/* basis.c - how each item is known: arithmetic that an executor confirms, measured constants, or
 * assumed because no backend runs it yet. */
#include "planner/predict/budget.h"

#include "base/hardware/hardware.h"
#include "base/layout/capability.h"

#include <string.h>

static bool some_backend_runs(const struct budget_input *in)
{
    for (int backend = 0; backend < BACKEND_COUNT; backend++) {
        struct diag_list errors;
        memset(&errors, 0, sizeof errors);
        if (capability_check((enum backend)backend, in->model, in->choices, &errors) == 0)
            return true;
    }
    return false;
}

/* Mixers, or halves alone, whose tables no executor confirms. */
static bool has_assumed_layers(const struct model *m)
{
    for (int i = 0; i < m->layers; i++)
        if (m->layer_mixer[i] != MIXER_GQA || m->layer_ffn[i] == FFN_NONE)
            return true;
    return m->mlp_ungated;
}

/* What in a layout no backend runs decides which items rest on it. */
static bool rests_on_assumption(const struct budget_input *in, enum item item)
{
    const struct layout *l = &in->choices->layout;
    const struct primitives *p = &in->choices->primitives;
    bool split = l->tp > 1, staged = l->pp > 1;
    bool partly = p->lora_rank > 0 || p->frozen != 0;
    bool muon = p->optimizer == OPTIMIZER_MUON;
    bool packed = p->tokens_per_gpu > 0 || p->packing != PACKING_NONE;
    if (packed && (item_infos[item].category == CATEGORY_DYNAMIC ||
                   item_infos[item].category == CATEGORY_LOGITS))
        return true;
    if (in->model->mtp_trained && (item_infos[item].category == CATEGORY_DYNAMIC ||
                                   item_infos[item].category == CATEGORY_LOGITS))
        return true;
    switch ((int)item) {
    case ITEM_REFERENCE_WEIGHTS:
        return true;
    case ITEM_WEIGHTS:
    case ITEM_GRADIENTS:
        return partly || in->model->mtp_trained || in->model->vision_trained ||
               in->model->vision_frozen;
    case ITEM_MASTER:
    case ITEM_MOMENTS:
        return partly || muon || p->moments_dtype != DTYPE_FP32 || p->master != MASTER_FP32 ||
               (p->offload & OFFLOAD_OPTIMIZER) || in->model->mtp_trained ||
               in->model->vision_trained;
    case ITEM_CHECKPOINTS:
        return staged || (p->offload & OFFLOAD_CHECKPOINTS) || in->model->indexer.heads > 0;
    case ITEM_INPUTS:
        return staged || p->rl != 0;
    case ITEM_PIPELINE_BUFFERS:
        return staged;
    case ITEM_LAYER_WORKING:
    case ITEM_LAYER_SAVED:
        return split || partly || has_assumed_layers(in->model);
    case ITEM_GATHERED_WEIGHTS:
    case ITEM_GATHERED_GRADIENTS:
        return staged || partly || muon || p->comm_streams > 1 || p->sharding == SHARDING_ZERO2;
    case ITEM_KV_GATHER:
        return l->cp > 1;
    case ITEM_DISPATCH_SEND:
    case ITEM_DISPATCH_RECV:
    case ITEM_EXPERT_WORKING:
        return split || partly || l->etp > 1 || p->moe != MOE_PLAIN || in->model->moe.latent > 0 ||
               in->model->mlp_ungated;
    case ITEM_LOGITS:
    case ITEM_LOSS_WORKING:
        return split || p->loss == LOSS_RING_DTP || (p->rl & RL_ENTROPY);
    default:
        return false;
    }
}

enum basis budget_basis(const struct budget_input *in, enum item item)
{
    if (item == ITEM_SLACK)
        return BASIS_ASSUMED;
    if (item == ITEM_COMMUNICATORS || item == ITEM_CONTEXT || item == ITEM_MODULES)
        return in->hardware->held_assumed ? BASIS_ASSUMED : BASIS_MEASURED;
    if (item == ITEM_WORKSPACE && in->choices->primitives.optimizer == OPTIMIZER_MUON)
        return BASIS_ASSUMED;
    if (item == ITEM_WORKSPACE)
        return in->hardware->host ? BASIS_ARITHMETIC : BASIS_MEASURED;
    if (rests_on_assumption(in, item) && !some_backend_runs(in))
        return BASIS_ASSUMED;
    return BASIS_ARITHMETIC;
}
