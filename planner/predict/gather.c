/* gather.c - what gathers of weights and reduce-scatters of gradients leave exposed in one
 * micro-batch of a stage. A gather is issued one use ahead, where units are gathered ahead, and
 * never before the pass that uses it; a reduce-scatter on a stream of its own goes beside the next
 * unit's backward, within its pass. */
#include "planner/predict/stage_time.h"

#include "planner/predict/shared.h"

static double positive(double value)
{
    return value > 0 ? value : 0;
}

static bool is_ahead(const struct budget_input *in)
{
    return in->choices->primitives.prefetch_units > 0 && !in->slowest;
}

static bool is_behind(const struct budget_input *in)
{
    return in->choices->primitives.comm_streams > 1 && !in->slowest;
}

/* What hides takes processors from the computation beside it. */
static double contended(const struct budget_input *in, double all, double exposed)
{
    return exposed + in->hardware->gather_contention * (all - exposed);
}

/* A layer, gathered forward and again backward. */
static double exposed_layer(const struct budget_input *in, const struct unit_seconds *unit,
                            double forward, double backward)
{
    double gather = unit->gather, scatter = unit->scatter, exposed;
    bool ahead = is_ahead(in);
    if (is_behind(in))
        exposed = (ahead ? positive(gather - forward) : 2 * gather) +
                  positive((ahead ? gather : 0) + scatter - backward);
    else
        exposed = ahead ? positive(gather - forward) + positive(gather - backward) + scatter
                        : 2 * gather + scatter;
    return contended(in, 2 * gather + scatter, exposed);
}

/* A unit used once, gathered while a pass of `forward` seconds lasts and reduced beside one of
 * `backward`. */
static double exposed_use(const struct budget_input *in, const struct unit_seconds *unit,
                          double forward, double backward)
{
    double exposed = is_ahead(in) ? positive(unit->gather - forward) : unit->gather;
    exposed += is_behind(in) ? positive(unit->scatter - backward) : unit->scatter;
    return contended(in, unit->gather + unit->scatter, exposed);
}

/* One layer of a stage, counted from the stage's first. */
struct place {
    const struct kind_seconds *kind;
    const struct unit_seconds *unit;
    double backward; /* what hides behind it */
};

static struct place place_of(const struct step_terms *t, const struct stage *stage, int layer)
{
    int class = t->classes->of[stage->first + layer];
    const struct kind_seconds *kind = &t->kinds[class];
    return (struct place){ kind, &t->units->layer[class].seconds,
                           kind->hiding[layer < stage->recomputed] };
}

/* Nothing comes before the weights of a pass's first layer but at most the embedding. */
static double hidden_first(const struct budget_input *in, const struct place *at)
{
    double gather = at->unit->gather;
    return is_ahead(in) ? gather - positive(gather - at->kind->forward) : 0;
}

/* Nor before those of the layer that a pass backward begins with. */
static double hidden_turn(const struct budget_input *in, const struct place *at)
{
    double gather = at->unit->gather, scatter = at->unit->scatter, backward = at->backward;
    if (!is_ahead(in))
        return 0;
    if (!is_behind(in))
        return gather - positive(gather - backward);
    return gather + positive(scatter - backward) - positive(gather + scatter - backward);
}

/* And nothing comes after the gradients of the layer that it ends with. */
static double hidden_last(const struct budget_input *in, const struct place *at)
{
    double scatter = at->unit->scatter;
    return is_behind(in) ? scatter - positive(scatter - at->backward) : 0;
}

/* What exposed_layer lets hide at the ends of passes, where it does not. A pass takes a run of
 * layers forward or backward; the last run of a stage with the head goes forth and back in one. */
static double exposed_ends(const struct step_terms *t, const struct stage *stage)
{
    const struct budget_input *in = t->in;
    int run = stage->run;
    double hidden = 0;
    for (int first = 0; first < stage->layers; first += run) {
        int end = first + run < stage->layers ? first + run : stage->layers;
        struct place from = place_of(t, stage, first), to = place_of(t, stage, end - 1);
        hidden += hidden_first(in, &from) + hidden_last(in, &from);
        if (!stage->has_head || end < stage->layers)
            hidden += hidden_turn(in, &to);
    }
    return (1 - in->hardware->gather_contention) * hidden;
}

/* Shards of the vocabulary that go round g ranks: each rank gathers its own from the ranks that
 * share it, once a micro-batch, and sums its gradient among them. */
static struct unit_seconds circulating_head(const struct step_terms *t)
{
    const struct budget_input *in = t->in;
    const struct layout *l = &in->choices->layout;
    struct unit_seconds ret = { 0, 0 };
    int group = in->choices->primitives.vocab_group, shards = layout_dense_shards(l);
    struct ranks ranks = { group > 0 ? shards / group : 1, l->tp };
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    const struct unit *unit = in->model->tied ? &t->units->embedding.unit : &t->units->head.unit;
    if (t->units->head.seconds.gather > 0 ||
        (in->model->tied && t->units->embedding.seconds.gather > 0))
        ret.gather = gather_seconds(in->hardware, ranks, 2 * (double)unit->dense / group);
    if (t->units->head.seconds.scatter > 0 ||
        (in->model->tied && t->units->embedding.seconds.scatter > 0))
        ret.scatter =
            scatter_seconds(in->hardware, ranks, grad * (double)unit->dense_trained.all / group);
    return ret;
}

/* A tied head gathers the embedding once more, and has a gradient of its own for it. */
static struct unit_seconds head_use(const struct step_terms *t)
{
    struct unit_seconds ret = t->units->head.seconds;
    if (head_circulates(t->in))
        return circulating_head(t);
    if (t->in->model->tied) {
        ret.gather += t->units->embedding.seconds.gather;
        ret.scatter += t->units->embedding.seconds.scatter;
    }
    return ret;
}

/* The prediction layers with the embedding, between the last layer and the head; their gradients go
 * beside the main loss. */
static double exposed_predictions(const struct step_terms *t, double forward)
{
    struct unit_seconds use = {
        t->units->prediction.seconds.gather + t->units->embedding.seconds.gather,
        t->units->prediction.seconds.scatter + t->units->embedding.seconds.scatter
    };
    return exposed_use(t->in, &use, forward, t->loss->pass.item[TIME_LOSS]);
}

static double exposed_head(const struct step_terms *t, const struct stage *stage)
{
    struct place last = place_of(t, stage, stage->layers - 1);
    struct unit_seconds head = head_use(t);
    double forward = last.kind->forward, exposed = 0;
    if (terms_prediction(t)) {
        exposed = exposed_predictions(t, forward);
        forward = t->in->model->mtp_layers * terms_prediction(t)->forward;
    }
    return exposed + exposed_use(t->in, &head, forward, last.kind->hiding[0]);
}

double exposed_gathers(const struct step_terms *t, const struct stage *stage)
{
    enum sharding sharding = t->in->choices->primitives.sharding;
    if (sharding != SHARDING_FSDP && sharding != SHARDING_ZERO2)
        return 0;
    double ret = exposed_ends(t, stage);
    for (int c = 0; c < t->classes->count; c++) {
        const struct kind_seconds *kind = &t->kinds[c];
        const int counts[2] = { stage->kept[c], stage->classes[c] - stage->kept[c] };
        for (int again = 0; again < 2; again++)
            if (counts[again] > 0)
                ret += counts[again] * exposed_layer(t->in, &t->units->layer[c].seconds,
                                                     kind->forward, kind->hiding[again]);
    }
    if (stage->has_head)
        ret += exposed_head(t, stage);
    if (stage->has_embedding)
        ret += t->units->embedding.seconds.gather + t->units->embedding.seconds.scatter;
    return ret;
}

/* Of a forward that keeps nothing. */
double exposed_forward_gathers(const struct step_terms *t, const struct stage *stage)
{
    const struct budget_input *in = t->in;
    int run = stage->run;
    double ret = stage->has_embedding ? t->units->embedding.seconds.gather : 0;
    for (int c = 0; c < t->classes->count; c++) {
        const struct unit_seconds gather = { t->units->layer[c].seconds.gather, 0 };
        ret += stage->classes[c] * exposed_use(in, &gather, t->kinds[c].forward, 0);
    }
    for (int first = 0; first < stage->layers; first += run) {
        struct place from = place_of(t, stage, first);
        ret += (1 - in->hardware->gather_contention) * hidden_first(in, &from);
    }
    if (stage->has_head) {
        struct place last = place_of(t, stage, stage->layers - 1);
        const struct unit_seconds gather = { head_use(t).gather, 0 };
        ret += exposed_use(in, &gather, last.kind->forward, 0);
    }
    return ret;
}
