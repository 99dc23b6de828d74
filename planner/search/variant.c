#include "planner/search/variant.h"

void variants_init(const struct space *space, const struct layout *l,
                   const struct settings *settings, struct variants *ret)
{
    bool full = false, open = space->open_attention;
    int fixed = space->base.keep_attention;
    *ret = (struct variants){
        .fixed_layers = space->base.recompute_layers,
        .keep_attention = { open ? 0 : fixed, open ? settings->keep_attention : fixed },
    };
    for (int i = 0; i < space->recompute.count; i++) {
        enum recompute kind = (enum recompute)space->recompute.values[i];
        full |= kind == RECOMPUTE_FULL;
        if (kind == RECOMPUTE_FULL)
            continue;
        ret->keeps = true;
        ret->kept = kind;
    }
    for (int s = 0; s < l->pp && s < LAYOUT_MAX_STAGES; s++)
        ret->layers = l->stage_layers[s] > ret->layers ? l->stage_layers[s] : ret->layers;
    if (full && (settings->offload & OFFLOAD_CHECKPOINTS))
        ret->keeps = false; /* none keeps no checkpoints */
    if (open && settings->keep_attention)
        ret->keeps = false;
    ret->all_first = full && !space->open_recompute_layers;
    ret->count = ret->keeps + (!full ? 0 : ret->all_first ? 1 : ret->layers);
}

void variant_set(const struct variants *v, int index, struct primitives *ret)
{
    int recomputed = index + (v->keeps ? 0 : 1);
    bool counted = recomputed > 0 && !v->all_first && recomputed < v->layers;
    ret->recompute = recomputed == 0 ? v->kept : RECOMPUTE_FULL;
    ret->recompute_layers = counted ? recomputed : v->fixed_layers;
    ret->keep_attention = v->keep_attention[recomputed > 0];
}
