/* Why the stages hold the layers that they do. */
#include "planner/derive/story.h"

#include <string.h>

static bool are_equal(const struct layout *l)
{
    for (int stage = 1; stage < l->pp; stage++)
        if (l->stage_layers[stage] != l->stage_layers[0])
            return false;
    return true;
}

/* The price against an even split of the layers alone, where that is another. */
static void price_even(struct story *s)
{
    struct candidate even = *s->chosen;
    struct layout *l = &even.choices.layout;
    char name[64];
    size_t used = 0;

    layout_split_layers(l, s->space->q->model->layers);
    if (!memcmp(l->stage_layers, s->chosen->choices.layout.stage_layers, sizeof l->stage_layers) ||
        !space_is_legal(s->space, &even.choices))
        return;
    space_judge(s->space, &even);
    space_time(s->space, &even);
    text_append(name, sizeof name, &used, "stage_layers=");
    for (int stage = 0; stage < l->pp; stage++)
        text_append(name, sizeof name, &used, "%s%d", stage ? "," : "", l->stage_layers[stage]);
    price_append(s->chosen, &even, name, s->text, BECAUSE, &s->used);
}

void reasons_of_stages(struct story *s)
{
    const struct layout *l = &s->chosen->choices.layout;
    const struct model *m = s->space->q->model;
    char value[64];
    size_t used = 0;

    if (l->pp == 1 || are_equal(l))
        return;
    for (int stage = 0; stage < l->pp; stage++)
        text_append(value, sizeof value, &used, "%s%d", stage ? "," : "", l->stage_layers[stage]);
    if (!story_begin(s, "stage_layers", value))
        return;
    if (m->mtp_trained && l->stage_layers[l->pp - 1] < l->stage_layers[0])
        TELL(s,
             "the last stage has the head and %d prediction layer%s, which count%s as its layers",
             m->mtp_layers, m->mtp_layers > 1 ? "s" : "", m->mtp_layers > 1 ? "" : "s");
    else
        TELL(s,
             "%d layers on %d stages: those before the last take one more, since the last has the "
             "head and the first hold the most micro-batches",
             m->layers, l->pp);
    price_even(s);
}
