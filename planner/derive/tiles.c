/* tiles.c - larger tiles of the loss than leave the peak as it is, where there is room. */
#include "planner/derive/decide.h"

/* Larger tiles must save this share of the step before they may raise the peak. */
#define WORTH_A_TILE 0.01

void decide_tiles(struct space *space, struct decision *decision)
{
    const struct candidate before = decision->chosen;
    const struct primitives *p = &before.choices.primitives;
    const struct knob wider =
        space_wider_tiles(space, &before.choices.layout, p->loss, p->loss_tile_tokens);

    for (int i = 0; i < wider.count && before.verdict == VERDICT_FITS; i++) {
        struct candidate other = before;
        other.choices.primitives.loss_tile_tokens = wider.values[i];
        space_weigh(space, &other);
        if (other.verdict != VERDICT_FITS ||
            other.time.seconds >= decision->chosen.time.seconds * (1 - WORTH_A_TILE))
            continue;
        decision->chosen = other;
        decision->tile_gain = before.time.seconds / other.time.seconds - 1;
    }
}
