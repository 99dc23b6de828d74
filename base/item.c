#include "base/item.h"

#include <string.h>

const char *const category_names[CATEGORY_COUNT] = {
    [CATEGORY_STATIC] = "static",   [CATEGORY_DYNAMIC] = "dynamic",
    [CATEGORY_LOGITS] = "logits",   [CATEGORY_COMMUNICATION] = "communication",
    [CATEGORY_RUNTIME] = "runtime",
};

const struct item_info item_infos[ITEM_COUNT] = {
    [ITEM_WEIGHTS] = { "weights", CATEGORY_STATIC,
                       "The bf16 weights that stay on the rank for the whole step: all of its "
                       "parts, or its shard of them under fsdp." },
    [ITEM_MASTER] = { "master", CATEGORY_STATIC,
                      "The fp32 copy of the weights that the optimizer updates." },
    [ITEM_MOMENTS] = { "moments", CATEGORY_STATIC,
                       "AdamW's two running averages, fp32 each, 8 bytes per parameter held." },
    [ITEM_GRADIENTS] = { "gradients", CATEGORY_STATIC,
                         "The gradients that add up over the micro-batches of a step." },
    [ITEM_REFERENCE_WEIGHTS] = { "reference_weights", CATEGORY_STATIC,
                                 "The bf16 weights of the reference model of reinforcement "
                                 "learning, sharded as the policy's." },
    [ITEM_CHECKPOINTS] = { "checkpoints", CATEGORY_DYNAMIC,
                           "The input of every layer, kept from its forward to its backward for "
                           "each micro-batch in flight." },
    [ITEM_LAYER_SAVED] = { "layer_saved", CATEGORY_DYNAMIC,
                           "What layers without recompute keep from forward to backward." },
    [ITEM_LAYER_WORKING] = { "layer_working", CATEGORY_DYNAMIC,
                             "The tensors of the one layer at work: attention, dense MLP, router, "
                             "shared expert and the gradient stream." },
    [ITEM_GATHERED_WEIGHTS] = { "gathered_weights", CATEGORY_DYNAMIC,
                                "Whole units gathered under fsdp: the current one and those "
                                "fetched ahead." },
    [ITEM_GATHERED_GRADIENTS] = { "gathered_gradients", CATEGORY_DYNAMIC,
                                  "Full gradients of a sharded unit and the receive buffer of "
                                  "their reduce-scatter." },
    [ITEM_KV_GATHER] = { "kv_gather", CATEGORY_DYNAMIC,
                         "Keys and values of other ranks' tokens, and their gradients, under "
                         "context parallelism." },
    [ITEM_DISPATCH_SEND] = { "dispatch_send", CATEGORY_DYNAMIC,
                             "Routed rows laid out for sending to the ranks of their experts." },
    [ITEM_DISPATCH_RECV] = { "dispatch_recv", CATEGORY_DYNAMIC,
                             "Routed rows as they arrive from other ranks." },
    [ITEM_EXPERT_WORKING] = { "expert_working", CATEGORY_DYNAMIC,
                              "Routed rows in expert order and what the expert GEMMs make of "
                              "them." },
    [ITEM_PIPELINE_BUFFERS] = { "pipeline_buffers", CATEGORY_DYNAMIC,
                                "Activations and gradients on their way between pipeline "
                                "stages." },
    [ITEM_INPUTS] = { "inputs", CATEGORY_DYNAMIC,
                      "Token ids and targets of the micro-batches in flight." },
    [ITEM_LOGITS] = { "logits", CATEGORY_LOGITS,
                      "The scores over the whole vocabulary, where the loss materializes them." },
    [ITEM_LOSS_WORKING] = { "loss_working", CATEGORY_LOGITS,
                            "What the loss needs beside whole logits: final hidden states, their "
                            "gradient, and the tiles of a streamed loss." },
    [ITEM_COMMUNICATORS] = { "communicators", CATEGORY_COMMUNICATION,
                             "What the communication library allocates on the device for its "
                             "channels and exchanges." },
    [ITEM_CONTEXT] = { "context", CATEGORY_RUNTIME,
                       "What the driver takes when a process opens the device." },
    [ITEM_MODULES] = { "modules", CATEGORY_RUNTIME,
                       "Kernel code and constants loaded onto the device." },
    [ITEM_WORKSPACE] = { "workspace", CATEGORY_RUNTIME,
                         "Scratch memory of the GEMM and attention libraries." },
    [ITEM_SLACK] = { "slack", CATEGORY_RUNTIME,
                     "Memory reserved but in no tensor: the gap between what was live and how far "
                     "the allocator reached." },
};

enum item item_find(const char *name)
{
    for (int i = 0; i < ITEM_COUNT; i++)
        if (strcmp(item_infos[i].name, name) == 0)
            return (enum item)i;
    return ITEM_COUNT;
}

int item_in_arena(enum item item)
{
    return item != ITEM_COMMUNICATORS && item != ITEM_CONTEXT && item != ITEM_MODULES &&
           item != ITEM_SLACK && item != ITEM_COUNT;
}
