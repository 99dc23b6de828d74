/* tiles.c - larger tiles of the loss than leave the peak as it is, where there is room. */
#include "planner/derive/decide.h"

/* Larger tiles must save this share of the step before they may raise the peak. */
#define WORTH_A_TILE 0.01

void decide_tiles(struct space *space, struct decision *decision)
{
    static const int sizes[] = { 4096, 2048, 1024 };
    const struct candidate before = decision->chosen;
    const struct primitives *p = &before.choices.primitives;
    uint64_t tokens = space_local_tokens(space, &before.choices.layout);

    if (!space->open_tile || p->loss == LOSS_RING_DTP || before.verdict != VERDICT_FITS)
        return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct candidate other = before;
        other.choices.primitives.loss_tile_tokens = sizes[i];
        if (sizes[i] <= p->loss_tile_tokens || (uint64_t)sizes[i] > tokens)
            continue;
        space_weigh(space, &other);
        if (other.verdict != VERDICT_FITS ||
            other.time.seconds >= decision->chosen.time.seconds * (1 - WORTH_A_TILE))
            continue;
        decision->chosen = other;
        decision->tile_gain = before.time.seconds / other.time.seconds - 1;
    }
}
