#include "planner/predict/stages.h"

#include "planner/predict/parts.h"

#include <string.h>

static bool alike(const struct model *m, const struct model_sizes *s, int a, int b)
{
    return m->layer_mixer[a] == m->layer_mixer[b] && m->layer_ffn[a] == m->layer_ffn[b] &&
           s->layer_dense_params[a] == s->layer_dense_params[b] &&
           s->layer_dense_replicated[a] == s->layer_dense_replicated[b] &&
           s->layer_expert_params[a] == s->layer_expert_params[b];
}

void layer_classes_init(const struct model *model, const struct model_sizes *sizes,
                        struct layer_classes *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->layers = model->layers;
    for (int i = 0; i < model->layers; i++) {
        int c = 0;
        while (c < ret->count && !alike(model, sizes, i, ret->layer[c]))
            c++;
        if (c == CLASSES_MAX)
            c--; /* model_check refuses such a model */
        if (c == ret->count)
            ret->layer[ret->count++] = i;
        ret->of[i] = (uint8_t)c;
    }
}

void pipeline_key_init(const struct choices *choices, enum detail detail, struct pipeline_key *ret)
{
    const struct primitives *p = &choices->primitives;
    memset(ret, 0, sizeof *ret);
    ret->pp = choices->layout.pp;
    ret->vpp = choices->layout.vpp;
    ret->around = p->prefetch_units > 1 ? p->prefetch_units : 1;
    ret->recompute_layers = p->recompute == RECOMPUTE_FULL ? p->recompute_layers : 0;
    ret->all_stages = detail != DETAIL_WORST;
    ret->all_layers = detail == DETAIL_LAYERS || (p->offload & OFFLOAD_CHECKPOINTS) != 0;
    memcpy(ret->stage_layers, choices->layout.stage_layers,
           (size_t)ret->pp * sizeof *ret->stage_layers);
}

/* Whether layers a and b look alike in a window of `around` on both sides; at the ends of a stage
 * no two do. */
static bool same_window(const uint8_t *classes, const struct stage *s, int around, int a, int b)
{
    if ((a < s->recomputed) != (b < s->recomputed))
        return false;
    for (int i = -around; i <= around; i++)
        if (classes[a + i] != classes[b + i])
            return false;
    return true;
}

/* Of a run of layers that are passed at once. */
static bool near_an_end(const struct stage *s, int around, int layer)
{
    return layer % s->run < around || layer % s->run + around >= s->run;
}

/* True when a later layer of the stage is fuller in every phase. */
static bool is_covered(const uint8_t *classes, const struct stage *s, int around, int layer)
{
    if (near_an_end(s, around, layer))
        return false;
    for (int later = layer + 1; !near_an_end(s, around, later); later++) /* of its run */
        if (same_window(classes, s, around, layer, later))
            return true;
    return false;
}

static void stage_init_spots(const struct layer_classes *classes, const struct pipeline_key *key,
                             struct stage *ret)
{
    const uint8_t *of = classes->of + ret->first;
    struct saving_layers before = { { 0 }, { 0 } };

    ret->run = run_layers(key->vpp, ret->layers);
    ret->recomputed = key->recompute_layers == RECOMPUTE_ALL_LAYERS ? ret->layers
                      : key->recompute_layers < ret->layers         ? key->recompute_layers
                                                                    : ret->layers;
    for (int i = 0; i < ret->layers; i++) {
        bool keeps = i >= ret->recomputed;
        if (i % ret->run == 0)
            memset(&before, 0, sizeof before);
        if (key->all_layers || !is_covered(of, ret, key->around, i)) {
            struct spot *spot = &ret->spots[ret->count++];
            spot->layer = i;
            spot->before = before;
        }
        ret->classes[of[i]]++;
        if (keeps)
            before.kept[of[i]]++;
        else
            before.again[of[i]]++;
        ret->kept[of[i]] = (uint16_t)(ret->kept[of[i]] + keeps);
        ret->in_run[i / ret->run] = before;
    }
}

/* Two stages in the middle that hold the same layers. */
static bool same_stage(const struct layer_classes *classes, const struct stage *a,
                       const struct stage *b)
{
    return !a->has_embedding && !b->has_embedding && !a->has_head && !b->has_head &&
           a->layers == b->layers &&
           memcmp(classes->of + a->first, classes->of + b->first, (size_t)a->layers) == 0;
}

size_t pipeline_size(int layers)
{
    size_t size = (size_t)layers * (sizeof(struct spot) + sizeof(struct saving_layers));
    return (sizeof(struct pipeline) + size + 7) / 8 * 8;
}

/* Where the lists of a stage are: after those of the stages before it. */
static void take_room(const struct layer_classes *classes, struct pipeline *spots,
                      struct stage *ret)
{
    struct saving_layers *runs = (void *)(spots->room + classes->layers);
    ret->spots = spots->room;
    ret->in_run = runs;
    if (spots->count == 0)
        return;
    const struct stage *last = &spots->stages[spots->count - 1];
    ret->spots = last->spots + last->count;
    ret->in_run = last->in_run + run_count(last->run, last->layers);
}

void pipeline_init(const struct layer_classes *classes, struct pipeline *ret)
{
    const struct pipeline_key *key = &ret->key;
    int first = 0;
    ret->count = 0;
    for (int s = 0; s < key->pp; first += key->stage_layers[s], s++) {
        struct stage *stage = &ret->stages[ret->count];
        bool seen = false;
        memset(stage, 0, sizeof *stage);
        stage->index = s;
        stage->first = first;
        stage->layers = key->stage_layers[s];
        stage->has_embedding = s == 0;
        stage->has_head = s == key->pp - 1;
        for (int i = 0; i < ret->count && !key->all_stages; i++)
            seen = seen || same_stage(classes, &ret->stages[i], stage);
        if (seen)
            continue;
        take_room(classes, ret, stage);
        stage_init_spots(classes, key, stage);
        ret->count++;
    }
}
