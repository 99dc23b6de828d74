/* owner.h - who holds arena memory, in the executor's own terms, and the item each owner is
 * reported under. Adding a kind of buffer is adding a row; an owner without a row does not compile.
 */
#ifndef RANKFIT_EXECUTOR_MEMORY_OWNER_H
#define RANKFIT_EXECUTOR_MEMORY_OWNER_H

#include "base/item.h"

enum owner {
    OWNER_WEIGHTS,
    OWNER_MASTER,
    OWNER_MOMENTS,
    OWNER_GRADIENTS,
    OWNER_UNIT_WEIGHTS,   /* a unit gathered for use or ahead of it */
    OWNER_UNIT_GRADIENTS, /* a unit's whole gradient */
    OWNER_SCATTER_SHARD,  /* what a reduce-scatter leaves on this rank */
    OWNER_TOKENS,
    OWNER_CHECKPOINT,
    OWNER_LAYER_SAVED,
    OWNER_LAYER, /* working tensors of the layer under way, and the gradient stream */
    OWNER_SEND,
    OWNER_RECV,   /* routed rows on their way */
    OWNER_EXPERT, /* routed rows in expert order */
    OWNER_KV,
    OWNER_LOGITS,
    OWNER_LOSS,
    OWNER_WORKSPACE,
    OWNER_COUNT
};

struct owner_info {
    const char *name;
    enum item item;
};
extern const struct owner_info owner_infos[OWNER_COUNT];

#endif
