/* seconds.c - the terms and sums of a step's time from what layouts share. */
#include "planner/estimate/shared.h"

#include <string.h>

static void time_kinds(struct estimator *e, struct body *body, enum dtype dtype)
{
    const struct model *m = e->in.model;
    for (int c = 0; c < e->classes.count; c++) {
        enum mixer mixer = (enum mixer)m->layer_mixer[e->classes.layer[c]];
        enum ffn ffn = (enum ffn)m->layer_ffn[e->classes.layer[c]];
        kind_seconds_init(&e->in, &e->machine, body->rows[ROWS_POINT], mixer, ffn,
                          &body->seconds[dtype][mixer][ffn]);
    }
    if (model_predicts(m))
        predicted_seconds_init(&e->in, &e->machine, body->rows[ROWS_POINT],
                               &body->predicted_seconds[dtype]);
    body->timed[dtype] = 1;
}

void shared_terms(struct estimator *e, struct body *body, const struct units *units,
                  const struct loss_shared *loss, struct step_terms *ret)
{
    enum dtype dtype = e->in.choices->primitives.grad_dtype;
    if (!body->timed[dtype])
        time_kinds(e, body, dtype);
    bool muon = e->in.choices->primitives.optimizer == OPTIMIZER_MUON;
    memset(ret, 0, muon ? sizeof *ret : offsetof(struct step_terms, muon));
    ret->in = &e->in;
    ret->machine = &e->machine;
    ret->loss = &loss->pass;
    ret->logprob = loss->logprob;
    ret->embedding = units->embedding.seconds;
    ret->head = units->head.seconds;
    ret->prediction = units->prediction.seconds;
    ret->embedding_unit = &units->embedding.unit;
    ret->head_unit = &units->head.unit;
    ret->predicted = model_predicts(e->in.model) ? &body->predicted_seconds[dtype] : NULL;
    /* A kind's unit is that of the model's first layer of the kind; classes are in that order. */
    for (int c = 0; c < e->classes.count; c++) {
        int mixer = e->in.model->layer_mixer[e->classes.layer[c]];
        int ffn = e->in.model->layer_ffn[e->classes.layer[c]];
        if (ret->kinds[mixer][ffn])
            continue;
        ret->kinds[mixer][ffn] = &body->seconds[dtype][mixer][ffn];
        ret->units[mixer][ffn] = units->layer[c].seconds;
        if (muon)
            ret->muon[mixer][ffn] = &units->muon_seconds[c];
    }
}

void stage_sums_of(const struct estimator *e, const struct units *units,
                   const struct stage_spots *stage, struct stage_sums *ret)
{
    static const struct unit_shared nothing = { .gathered = 0 };
    const struct model *m = e->in.model;
    memset(ret, 0, sizeof *ret);
    ret->has_embedding = stage->has_embedding;
    ret->has_head = stage->has_head;
    ret->index = stage->index;
    ret->first = stage->first;
    ret->count = stage->layers;
    for (int c = 0; c < e->classes.count; c++) {
        int layer = e->classes.layer[c], kept = stage->kept[c];
        int *layers = ret->layers[m->layer_mixer[layer]][m->layer_ffn[layer]];
        layers[0] += kept;
        layers[1] += stage->classes[c] - kept;
        stage_sums_add_layers(ret, stage->classes[c], &units->layer[c].unit);
    }
    const struct unit_shared *extra = stage->has_head        ? &units->last_extra
                                      : stage->has_embedding ? &units->first_extra
                                                             : &nothing;
    const struct stage_ends ends = { &units->embedding.unit, &units->head.unit,
                                     &units->prediction.unit, &extra->unit };
    stage_sums_add_ends(&e->in, &ends, ret);
}

/* A pass with a share of its exchanges. */
static double seconds_with(const struct pass *pass, double exchange)
{
    return pass_seconds(pass) - (1 - exchange) * pass->item[TIME_EXPOSED_EXCHANGE];
}

/* Without what a gather leaves exposed; of layers that are replayed, what that adds, or not. */
double stage_layer_seconds(struct estimator *e, struct body *body, const struct stage_spots *stage,
                           bool replays, double exchange)
{
    const struct model *m = e->in.model;
    enum dtype dtype = e->in.choices->primitives.grad_dtype;
    double seconds = 0;
    if (!body->timed[dtype])
        time_kinds(e, body, dtype);
    for (int c = 0; c < e->classes.count; c++) {
        int layer = e->classes.layer[c];
        const struct kind_seconds *kind =
            &body->seconds[dtype][m->layer_mixer[layer]][m->layer_ffn[layer]];
        int kept = replays ? stage->kept[c] : stage->classes[c];
        seconds += kept * seconds_with(&kind->layer[0], exchange);
        if (kept < stage->classes[c])
            seconds += (stage->classes[c] - kept) * seconds_with(&kind->layer[1], exchange);
    }
    return seconds;
}
