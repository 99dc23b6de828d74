/* tensor.h - every parameter tensor of a model: name, shape, component, and which mesh shards it.
 * The one table from which all counts come, which the executor's state follows and which
 * checkpoints name. In a layer what is multiplied as one matrix is adjacent: q, k, v; gate and up
 * of an MLP, of the shared expert, of each expert. */
#ifndef RANKFIT_BASE_MODEL_TENSOR_H
#define RANKFIT_BASE_MODEL_TENSOR_H

#include "base/model/model.h"

enum component {
    COMPONENT_EMBEDDING,
    COMPONENT_HEAD,
    COMPONENT_NORMS,
    COMPONENT_ATTENTION,
    COMPONENT_LINEAR_ATTENTION,
    COMPONENT_INDEXER,
    COMPONENT_ROUTER,
    COMPONENT_EXPERTS,
    COMPONENT_SHARED_EXPERT,
    COMPONENT_DENSE_MLP,
    COMPONENT_MTP,
    COMPONENT_VISION,
    COMPONENT_COUNT
};
extern const char *const component_names[COMPONENT_COUNT];

enum mesh { MESH_DENSE, MESH_EXPERT };

/* Which unit of state a tensor belongs to: a layer (>= 0), or one of these. */
enum { UNIT_EMBEDDING = -1, UNIT_HEAD = -2, UNIT_MTP = -3, UNIT_VISION = -4 };

enum { TENSOR_MAX_AXES = 5 };

struct tensor {
    /* Hugging Face name; "{e}" stands for the expert index. A tensor with copies > 1 and no "{e}"
     * is stored stacked: the checkpoint's first axis, not in shape, runs over the experts. */
    char name[96];
    enum component component;
    enum mesh mesh;
    int unit;    /* layer index or UNIT_... ; the final norm belongs to UNIT_HEAD */
    int tp_axis; /* axis split by tensor parallelism, -1: replicated over tp */
    bool matmul; /* multiplies activations (counts for FLOPs) */
    int axes;
    uint64_t shape[TENSOR_MAX_AXES]; /* as stored: [out, in] for matrices */
    uint64_t copies;                 /* experts: E; else 1 */
    uint64_t params;                 /* product of shape, times copies */
};

/* Calls visit for every tensor in checkpoint order (embedding, layers, final norm, head, MTP,
 * vision, model.parts as one tensor each, with the layers' in unit 0). A tied head is not visited.
 * visit returns non-zero to stop; that value is returned. */
int model_tensors(const struct model *model,
                  int (*visit)(const struct tensor *tensor, void *context), void *context);

/* Counts as ARCHITECTURE.md defines them. total counts each tensor of the checkpoint once (tied
 * once). active: top_k of the experts, head counted, lookup not (a tied head counts as head);
 * active_all: with the lookup; active_core: with neither. trained: text trunk, plus MTP and vision
 * when they are trained. matmul_active: active weights that multiply activations (FLOPs): matrices
 * of the trunk with routers and the head, and a trained MTP layer's, which uses the head once more.
 * Saturates at UINT64_MAX; model_check refuses such sizes. */
struct model_counts {
    uint64_t total, active, active_all, active_core, trained, matmul_active;
    uint64_t by_component[COMPONENT_COUNT];
};
void model_count(const struct model *model, struct model_counts *ret);

/* Floating-point operations of one trained token at sequence length seq_tokens, by the project's
 * two conventions (design vocabulary): model FLOPs never count recompute; hardware FLOPs add layer
 * replay of the first recompute_layers layers and flash backward at 2.5x (causal attention halved
 * in both).
 */
struct model_flops {
    double matmul;    /* 6 x active matmul parameters */
    double attention; /* forward 2 x 2 x heads x head_dim x seq / 2 a full layer; backward 2x */
    double
        linear_attention;   /* delta-net state: 6 x 4 x value_heads x key_dim x value_dim a layer */
    double model;           /* sum of the above */
    double attention_again; /* softmax attention's part of the replays in hardware */
    double hardware;
};
void model_flops_per_token(const struct model *model, uint64_t seq_tokens, int recompute_layers,
                           struct model_flops *ret);

#endif
