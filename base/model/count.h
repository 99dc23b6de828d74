/* count.h - sums over tensor rows, for counts and FLOPs. Private to base/model. */
#ifndef RANKFIT_BASE_MODEL_COUNT_H
#define RANKFIT_BASE_MODEL_COUNT_H

#include "base/model/row.h"

/* active: top_k experts instead of all; matmul: the active ones that multiply activations. */
struct row_sum {
    uint64_t total, active, matmul;
    uint64_t by_component[COMPONENT_COUNT];
};

/* One layer of a kind. */
void sum_layer(const struct model *model, const struct dims *dims, enum mixer mixer, enum ffn ffn,
               struct row_sum *ret);

/* Layers first .. first + count - 1 of the trunk. */
void sum_layers(const struct model *model, const struct dims *dims, int first, int count,
                struct row_sum *ret);

#endif
