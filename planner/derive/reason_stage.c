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

/* The price against an even split of the layers alone, where that is another. */
static void price_even(struct story *s)
{
    struct layout even = s->chosen->choices.layout;
    struct candidate other;
    char name[LIST + 16], list[LIST];

    layout_split_layers(&even, s->space->q->model->layers);
    if (!with_stages(s, &even, &other))
        return;
    (void)snprintf(name, sizeof name, "stage_layers=%s", list_layers(&even, list));
    price_append(s->chosen, &other, name, s->text, BECAUSE, &s->used);
}

/* Of the splits that leave the last stage fewer layers, and the others equally many, the fastest
 * that fits: the head and its loss, with prediction layers, are work of the last stage alone. */
static bool lighter_end(struct story *s, struct candidate *ret)
{
    const struct layout *l = &s->chosen->choices.layout;
    struct candidate other;
    bool found = false;

    for (int last = l->stage_layers[l->pp - 1] - 1; last >= 1; last--) {
        struct layout split = { .pp = l->pp - 1 };
        layout_split_layers(&split, s->space->q->model->layers - last);
        split.stage_layers[l->pp - 1] = last;
        if (!with_stages(s, &split, &other) || other.verdict != VERDICT_FITS)
            continue;
        if (found && other.time.seconds >= ret->time.seconds)
            break;
        *ret = other;
        found = true;
    }
    return found;
}

/* Whether a split with a lighter end is worth telling: it alone fits, or it is faster. */
static bool is_worth_telling(struct story *s, struct candidate *ret)
{
    const struct layout *l = &s->chosen->choices.layout;
    if (choice_is_fixed(&s->space->q->fixed, "stage_layers") || l->vpp > 1 || !lighter_end(s, ret))
        return false;
    return s->chosen->verdict != VERDICT_FITS ||
           s->chosen->time.seconds > ret->time.seconds * (1 + WORTH_TELLING);
}

static void tell_lighter_end(struct story *s, const struct candidate *other)
{
    double gain = s->chosen->time.seconds / other->time.seconds - 1;
    char list[LIST];

    SAY(s, "; stage_layers=%s fits%s", list_layers(&other->choices.layout, list),
        s->chosen->verdict == VERDICT_FITS ? " too" : "");
    if (gain > 0)
        SAY(s, " and is %.0f %% faster", 100 * gain);
    SAY(s, ", since the last stage also has the head and the loss");
}

void reasons_of_stages(struct story *s)
{
    const struct layout *l = &s->chosen->choices.layout;
    const struct model *m = s->space->q->model;
    struct candidate lighter;
    char value[LIST];

    if (l->pp == 1)
        return;
    bool told = is_worth_telling(s, &lighter);
    if ((are_equal(l) && !told) || !story_begin(s, "stage_layers", list_layers(l, value)))
        return;
    if (m->mtp_trained && l->stage_layers[l->pp - 1] < l->stage_layers[0])
        TELL(s,
             "the last stage has the head and %d prediction layer%s, which count%s as its layers",
             m->mtp_layers, m->mtp_layers > 1 ? "s" : "", m->mtp_layers > 1 ? "" : "s");
    else if (are_equal(l))
        TELL(s, "%d layers on %d stages", m->layers, l->pp);
    else
        TELL(s,
             "%d layers on %d stages: those before the last take one more, since the last has the "
             "head and the first hold the most micro-batches",
             m->layers, l->pp);
    if (told)
        tell_lighter_end(s, &lighter);
    price_even(s);
}
