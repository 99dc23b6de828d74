/* compute.c - the passes of one layer kind, operation by operation. */
#include "planner/time/cost.h"

/* Under a cap a layer keeps the rows of one chunk: those of the others come to their experts again,
 * m3 to m6, whether or not the layer is recomputed. */
static void chunks_again(const struct layer_shape *s, struct pass *ret)
{
    double routed = width_of(s, WIDTH_ROUTED);
    struct walk w;
    walk_begin(&w, s->machine, ret);
    walk_moves(&w, TIME_ELEMENTWISE, s->chunks, 2 * routed * (s->normed + s->sent));
    if (s->when & WHEN_EXCHANGE)
        walk_moves(&w, TIME_ELEMENTWISE, s->chunks, 4 * routed * s->received);
    walk_experts(&w, s->experts * s->chunks, s->received, width_of(s, WIDTH_GATE_UP), routed, 2);
    walk_end(&w);
}

void compute_cost(const struct layer_shape *s, enum mixer mixer, enum ffn ffn,
                  struct layer_cost *ret)
{
    struct walk w, again;
    struct layer_shape replay = *s;
    replay.attended = s->in->choices->primitives.keep_attention != 0;
    walk_begin(&w, s->machine, &ret->forward);
    mixer_forward(&w, s, mixer);
    if (mixer == MIXER_DSA || replay.attended) {
        walk_begin(&again, s->machine, &ret->replay);
        (mixer == MIXER_DSA ? chosen_replay : mixer_forward)(&again, &replay, mixer);
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
    if (ffn == FFN_MOE && s->in->choices->primitives.moe == MOE_CAPPED && s->chunks > 1)
        chunks_again(s, &ret->nested);
}
