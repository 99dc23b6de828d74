/* Fewer layers on the last stage, which has the head and its loss beside them. */
#include "planner/derive/decide.h"

#include <string.h>

/* Stages must save this share of the step to be uneven for it. */
#define WORTH_UNEVEN_STAGES 0.02

/* The chosen layout with `lighter` layers fewer at the end; false when that is illegal. */
static bool with_lighter_end(struct space *space, const struct decision *decision, int lighter,
                             struct candidate *ret)
{
    struct layout *l = &ret->choices.layout;
    *ret = decision->chosen;
    space->lighter = lighter;
    space_split_layers(space, l);
    if (!space_is_legal(space, &ret->choices))
        return false;
    space_judge(space, ret);
    space_time(space, ret);
    return true;
}

static int last_layers(const struct candidate *c)
{
    return c->choices.layout.stage_layers[c->choices.layout.pp - 1];
}

/* The fastest that fits, as layers leave the end one by one, until that makes the step longer;
 * returns how many, 0: none fits. */
static int fastest_end(struct space *space, const struct decision *decision, struct candidate *ret)
{
    int most = last_layers(&decision->chosen), found = 0;
    struct candidate other;

    for (int lighter = 1; lighter < most; lighter++) {
        if (!with_lighter_end(space, decision, lighter, &other) || other.verdict != VERDICT_FITS ||
            last_layers(&other) >= most)
            continue;
        if (found > 0 && other.time.seconds > ret->time.seconds)
            break;
        *ret = other;
        found = lighter;
    }
    return found;
}

void decide_stages(struct space *space, struct decision *decision)
{
    const struct layout *l = &decision->chosen.choices.layout;
    struct candidate lighter;
    int before = space->lighter;

    if (l->pp == 1 || l->vpp > 1 || !space->open_stages)
        return;
    int taken = fastest_end(space, decision, &lighter);
    bool faster = taken > 0 &&
                  lighter.time.seconds < decision->chosen.time.seconds * (1 - WORTH_UNEVEN_STAGES);
    if (taken > 0 && decision->chosen.verdict == VERDICT_FITS && !faster)
        taken = 0;
    space->lighter = taken > 0 ? taken : before;
    if (taken > 0)
        decision->chosen = lighter;
}
