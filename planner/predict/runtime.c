/* runtime.c - what the driver and the libraries hold, and the doubt that packing leaves. */
#include "planner/predict/parts.h"

#include "base/checked.h"

/* Offsets planned for tensors that come and go leave gaps; modelled as one hundredth of what comes
 * and goes. In the upper estimate only. */
enum { PACKING_SHARE = 100 };

void runtime_add(const struct budget_input *in, uint64_t *items)
{
    const struct hardware *h = in->hardware;
    items[ITEM_CONTEXT] = h->context_bytes;
    items[ITEM_MODULES] = add_sat(h->modules_bytes, h->library_bytes);
    items[ITEM_WORKSPACE] = h->workspace_bytes;
    items[ITEM_SLACK] = 0;
}

uint64_t runtime_doubt_bytes(uint64_t dynamic_and_logits_bytes)
{
    return dynamic_and_logits_bytes / PACKING_SHARE;
}
