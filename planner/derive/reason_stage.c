/* Why the stages hold the layers that they do. */
#include "planner/derive/story.h"

#include <stdio.h>
#include <string.h>

static bool are_equal(const struct layout *l)
{
    for (int stage = 1; stage < l->pp; stage++)
        if (l->stage_layers[stage] != l->stage_layers[0])
            return false;
    return true;
}

enum { LIST = 64 };

/* "12,12,12,10"; returns ret. */
static const char *list_layers(const struct layout *l, char ret[LIST])
{
    size_t used = 0;
    ret[0] = '\0';
    for (int stage = 0; stage < l->pp; stage++)
        text_append(ret, LIST, &used, "%s%d", stage ? "," : "", l->stage_layers[stage]);
    return ret;
}

/* The chosen layout with the stages of `layout`; false where that is the same or illegal. */
static bool with_stages(struct story *s, const struct layout *layout, struct candidate *ret)
{
    int *layers = ret->choices.layout.stage_layers;
    *ret = *s->chosen;
    memcpy(layers, layout->stage_layers, sizeof layout->stage_layers);
    if (!memcmp(layers, s->chosen->choices.layout.stage_layers, sizeof layout->stage_layers) ||
        !space_is_legal(s->space, &ret->choices))
        return false;
    space_judge(s->space, ret);
    space_time(s->space, ret);
    return true;
}

/* The price against another split, where that is another and legal. */
static void price_split(struct story *s, const struct layout *split)
{
    struct candidate other;
    char name[LIST + 16], list[LIST];

    if (!with_stages(s, split, &other))
        return;
    (void)snprintf(name, sizeof name, "stage_layers=%s", list_layers(split, list));
    price_append(s->chosen, &other, name, s->text, BECAUSE, &s->used);
}

static int prediction_layers(const struct model *m)
{
    return m->mtp_trained ? m->mtp_layers : 0;
}

/* What the last stage has that others have not. */
static void tell_last_stage(struct story *s)
{
    int more = prediction_layers(s->space->q->model);
    if (more > 0)
        TELL(s,
             "the last stage has the head and %d prediction layer%s, which count%s as its layers",
             more, more > 1 ? "s" : "", more > 1 ? "" : "s");
    else
        TELL(s, "the last stage has the head and its loss");
}

/* The end has still fewer layers than an even split with the predictions among them leaves. */
static void tell_lighter_end(struct story *s, const struct layout *even)
{
    const char *still = prediction_layers(s->space->q->model) > 0 ? " still" : "";
    struct candidate other;
    tell_last_stage(s);
    if (!with_stages(s, even, &other))
        return;
    if (other.verdict == VERDICT_FITS)
        TELL(s, "; with fewer layers%s the step is %.0f %% faster", still,
             100 * (other.time.seconds / s->chosen->time.seconds - 1));
    else
        TELL(s, "; with fewer layers%s it fits", still);
}

void reasons_of_stages(struct story *s)
{
    const struct layout *l = &s->chosen->choices.layout;
    const struct model *m = s->space->q->model;
    struct layout even = *l;
    char value[LIST];

    if (l->pp == 1 || are_equal(l) || !story_begin(s, "stage_layers", list_layers(l, value)))
        return;
    layout_split_with_last(&even, m->layers, l->vpp > 1 ? 0 : prediction_layers(m));
    if (s->space->lighter > 0) {
        tell_lighter_end(s, &even);
        price_split(s, &even);
        return;
    }
    if (prediction_layers(m) > 0 && l->stage_layers[l->pp - 1] < l->stage_layers[0])
        tell_last_stage(s);
    else
        TELL(s,
             "%d layers on %d stages: those before the last take one more, since the last has the "
             "head and the first hold the most micro-batches",
             m->layers, l->pp);
    layout_split_layers(&even, m->layers);
    price_split(s, &even);
}
