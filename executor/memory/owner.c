#include "executor/memory/owner.h"

/* One row an owner: its identifier, the name in messages, the item it is reported under. */
#define OWNER_ROWS(ROW)                                                                            \
    ROW(WEIGHTS, "weights", WEIGHTS)                                                               \
    ROW(MASTER, "master weights", MASTER)                                                          \
    ROW(MOMENTS, "moments", MOMENTS)                                                               \
    ROW(GRADIENTS, "gradients", GRADIENTS)                                                         \
    ROW(UNIT_WEIGHTS, "gathered unit", GATHERED_WEIGHTS)                                           \
    ROW(UNIT_GRADIENTS, "unit gradient", GATHERED_GRADIENTS)                                       \
    ROW(SCATTER_SHARD, "reduced shard", GATHERED_GRADIENTS)                                        \
    ROW(TOKENS, "tokens", INPUTS)                                                                  \
    ROW(CHECKPOINT, "checkpoints", CHECKPOINTS)                                                    \
    ROW(LAYER_SAVED, "saved for backward", LAYER_SAVED)                                            \
    ROW(LAYER, "layer tensors", LAYER_WORKING)                                                     \
    ROW(SEND, "rows to send", DISPATCH_SEND)                                                       \
    ROW(RECV, "rows received", DISPATCH_RECV)                                                      \
    ROW(EXPERT, "expert rows", EXPERT_WORKING)                                                     \
    ROW(KV, "gathered keys and values", KV_GATHER)                                                 \
    ROW(LOGITS, "logits", LOGITS)                                                                  \
    ROW(LOSS, "loss tensors", LOSS_WORKING)                                                        \
    ROW(WORKSPACE, "workspace", WORKSPACE)

#define AS_INFO(id, text, under) [OWNER_##id] = { text, ITEM_##under },
const struct owner_info owner_infos[OWNER_COUNT] = { OWNER_ROWS(AS_INFO) };

#define AS_ROW(id, text, under) ROW_##id,
enum { OWNER_ROWS(AS_ROW) ROW_COUNT };
_Static_assert((int)ROW_COUNT == (int)OWNER_COUNT, "every owner has a row");
