/* item.h - the names under which memory is predicted and measured, and the category of each. Both
 * halves map to these names on their own; nothing here knows a size. */
#ifndef RANKFIT_BASE_ITEM_H
#define RANKFIT_BASE_ITEM_H

enum category {
    CATEGORY_STATIC,
    CATEGORY_DYNAMIC,
    CATEGORY_LOGITS,
    CATEGORY_COMMUNICATION,
    CATEGORY_RUNTIME,
    CATEGORY_COUNT
};

enum item {
    ITEM_WEIGHTS,
    ITEM_MASTER,
    ITEM_MOMENTS,
    ITEM_GRADIENTS,
    ITEM_REFERENCE_WEIGHTS,
    ITEM_CHECKPOINTS,
    ITEM_LAYER_SAVED,
    ITEM_LAYER_WORKING,
    ITEM_GATHERED_WEIGHTS,
    ITEM_GATHERED_GRADIENTS,
    ITEM_KV_GATHER,
    ITEM_DISPATCH_SEND,
    ITEM_DISPATCH_RECV,
    ITEM_EXPERT_WORKING,
    ITEM_PIPELINE_BUFFERS,
    ITEM_INPUTS,
    ITEM_LOGITS,
    ITEM_LOSS_WORKING,
    ITEM_COMMUNICATORS,
    ITEM_CONTEXT,
    ITEM_MODULES,
    ITEM_WORKSPACE,
    ITEM_SLACK,
    ITEM_COUNT
};

struct item_info {
    const char *name;
    enum category category;
    const char *meaning; /* one sentence, for `rankfit explain` */
};

extern const struct item_info item_infos[ITEM_COUNT];
extern const char *const category_names[CATEGORY_COUNT];

/* ITEM_COUNT when there is no such name. */
enum item item_find(const char *name);

/* True for what the executor's arena holds: everything but communicators, context, modules, slack.
 */
int item_in_arena(enum item item);

#endif
