/* forward.c - a forward alone, for log-probabilities: no layer keeps anything. */
#include "planner/budget/live.h"

#include "base/checked.h"

/* What a pass finds of inputs is one micro-batch's. */
static void forward_init(struct live *w, struct timeline_result *ret)
{
    const struct timeline_request *r = w->r;
    w->uses = gather_windows(w->r->in, w->r->stage, true, w->window);
    w->flight.recomputed = r->stage->layers;
    w->flight.micro_batches = 1;
    w->passes_alone = true;
    live_begin(w, r->received, ret);
    w->now[ITEM_INPUTS] = w->flight.inputs;
    w->now[ITEM_REFERENCE_WEIGHTS] =
        add_sat(w->now[ITEM_REFERENCE_WEIGHTS], reference_slots_bytes(r->in, r->stage));
    live_settle(w);
}

static void forward_head(struct live *w)
{
    struct phase phase = { PHASE_LOSS, w->r->stage->index, 0, -1 };
    struct loss_bytes loss;
    live_next_use(w);
    logprob_bytes(w->r->in, &loss);
    w->now[ITEM_CHECKPOINTS] = 0;
    w->now[ITEM_LOSS_WORKING] = loss.normed;
    live_settle(w);
    live_observe(w, &phase);
    w->now[ITEM_LOGITS] = loss.logits;
    w->now[ITEM_LOSS_WORKING] = loss.tiles;
    live_settle(w);
    live_observe(w, &phase);
}

void timeline_forward(const struct timeline_request *request, struct timeline_result *ret)
{
    const struct stage *s = request->stage;
    struct phase phase = { PHASE_FORWARD, s->index, 0, -1 };
    struct live w;
    live_open(&w, request, NULL);
    forward_init(&w, ret);
    w.now[ITEM_CHECKPOINTS] = w.flight.checkpoint;
    if (s->has_embedding) {
        live_next_use(&w);
        live_observe(&w, &phase);
    }
    for (int i = 0; i < s->layers; i++) {
        int from = i - live_place_in_run(&w, i);
        live_next_use(&w);
        phase.layer = s->first + i;
        w.now[ITEM_CHECKPOINTS] =
            add_sat(w.flight.checkpoint,
                    passing_extras_bytes(request->in, s->first + from, w.flight.run, i - from));
        bool leaves = i < s->layers - 1 && live_place_in_run(&w, i) == w.flight.run - 1;
        live_observe_layer(&w, &phase, live_layer(&w, i, RESIDENCY_FORWARD),
                           leaves ? ITEM_COUNT : live_output_item(s, i));
    }
    if (s->has_head)
        forward_head(&w);
}
