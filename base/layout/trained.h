/* trained.h - which weights a step trains, and by what: the primitives optimizer, lora_rank,
 * lora_targets and frozen against the components and tensors of a model. Sizes and prices are their
 * users' matter. */
#ifndef RANKFIT_BASE_LAYOUT_TRAINED_H
#define RANKFIT_BASE_LAYOUT_TRAINED_H

#include "base/layout/primitives.h"
#include "base/model/tensor.h"

/* Components that `frozen` names; prediction layers and the vision tower are trained or not by
 * model.mtp and model.vision. */
enum { FREEZABLE_COMPONENTS = COMPONENT_MTP };

/* Bit i: the weights of component i are trained. Adapters are trained in their place. */
static inline unsigned trained_components(const struct primitives *p)
{
    return p->lora_rank > 0 ? 0 : ((1U << COMPONENT_COUNT) - 1) & ~p->frozen;
}
/* Bit i: the matrices of component i have adapters. */
unsigned adapted_components(const struct primitives *p);
static inline bool has_component(unsigned components, enum component component)
{
    return (components >> component & 1U) != 0;
}

/* A tensor that multiplies activations and has two axes of more than one: what adapters go with. */
static inline bool tensor_is_matrix(const struct tensor *tensor)
{
    return tensor->matmul && tensor->axes == 2 && tensor->shape[0] > 1 && tensor->shape[1] > 1;
}

/* Whether the matrices of a component's layers are Muon's when it is the optimizer: projections of
 * mixers, indexers, MLPs and experts. Embedding, head, norms, vectors and the router stay with
 * AdamW: K. Jordan (2024) gives Muon the matrices between embedding and head; the public trainer
 * nmoe leaves the router out as well. So do prediction layers and the vision tower here. */
bool component_has_matrices(enum component component);

/* Parameters that a step trains: those of model_count but for frozen ones; with adapters theirs
 * alone, rank x (in + out) a matrix. Saturates. */
uint64_t params_trained(const struct model *model, const struct primitives *p);

#endif
