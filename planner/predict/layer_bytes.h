/* layer_bytes.h - what one layer holds while one of its passes runs: the lives of its tensors,
 * folded over the points of the pass. */
#ifndef RANKFIT_PLANNER_PREDICT_LAYER_BYTES_H
#define RANKFIT_PLANNER_PREDICT_LAYER_BYTES_H

#include "planner/predict/sizes.h"
#include "planner/step/layer.h"

/* Items that a layer's tensors can belong to. SLOT_OUTPUT: its output, whose item is decided by
 * whoever runs the layer. */
enum layer_slot {
    SLOT_WORKING,
    SLOT_SEND,
    SLOT_RECV,
    SLOT_EXPERT,
    SLOT_SAVED,
    SLOT_CONTEXT,
    SLOT_WORKSPACE,
    SLOT_OUTPUT,
    SLOT_COUNT
};
extern const enum item layer_slot_items[SLOT_COUNT];

struct layer_bytes {
    uint64_t peak;             /* at the fullest point, of equals the first */
    uint64_t live[SLOT_COUNT]; /* there */
    uint64_t max[SLOT_COUNT];  /* each slot's own maximum */
    uint64_t kept;             /* of tensors that are saved for backward */
    /* The fullest point without the output, where that takes no room of its own. */
    uint64_t bare, bare_live[SLOT_COUNT];
};

void layer_bytes_fold(const struct step_pass *pass, const struct step_sizes *sizes,
                      struct layer_bytes *ret);

#endif
