/* compute.c - the passes of one layer kind, operation by operation. */
#include "planner/time/cost.h"

void compute_cost(const struct layer_shape *s, enum mixer mixer, enum ffn ffn,
                  struct layer_cost *ret)
{
    struct walk w, again;
    walk_begin(&w, s->machine, &ret->forward);
    mixer_forward(&w, s, mixer);
    if (mixer == MIXER_DSA) { /* what an indexer chose is saved */
        walk_begin(&again, s->machine, &ret->replay);
        mixer_forward(&again, s, MIXER_DSA_SHARED);
    } else { /* so far a replay is the same */
        ret->replay = ret->forward;
        again = w;
        again.pass = &ret->replay;
    }
    ffn_forward(&w, s, ffn, false);
    walk_end(&w);
    ffn_forward(&again, s, ffn, true);
    walk_end(&again);
    walk_begin(&w, s->machine, &ret->backward);
    ffn_backward(&w, s, ffn);
    mixer_backward(&w, s, mixer);
    walk_end(&w);
}
