/* compute.c - the passes of one layer kind, operation by operation. */
#include "planner/time/cost.h"

void compute_cost(const struct layer_shape *s, enum mixer mixer, enum ffn ffn,
                  struct layer_cost *ret)
{
    struct walk w;
    walk_begin(&w, s->machine, &ret->forward);
    mixer_forward(&w, s, mixer);
    ffn_forward(&w, s, ffn, false);
    walk_end(&w);
    walk_begin(&w, s->machine, &ret->replay); /* what an indexer chose is saved */
    mixer_forward(&w, s, mixer == MIXER_DSA ? MIXER_DSA_SHARED : mixer);
    ffn_forward(&w, s, ffn, true);
    walk_end(&w);
    walk_begin(&w, s->machine, &ret->backward);
    ffn_backward(&w, s, ffn);
    mixer_backward(&w, s, mixer);
    walk_end(&w);
}
