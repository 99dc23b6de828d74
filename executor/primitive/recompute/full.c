#include "executor/primitive/recompute/recompute.h"

bool recompute_covers(const struct primitives *primitives, int layer)
{
    if (primitives->recompute != RECOMPUTE_FULL)
        return false;
    return primitives->recompute_layers == RECOMPUTE_ALL_LAYERS ||
           layer < primitives->recompute_layers;
}
