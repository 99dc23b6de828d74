/* draw.h - random legal steps: a model, small or published, a layout of up to some hundreds of
 * ranks and all primitives. Knows base/ only; what is drawn obeys its legality rules. */
#ifndef RANKFIT_TESTS_SIMULATOR_DRAW_H
#define RANKFIT_TESTS_SIMULATOR_DRAW_H

#include "base/hardware/hardware.h"
#include "base/layout/key.h"
#include "base/layout/lengths.h"
#include "base/model/model.h"
#include "base/routing/routing.h"

#include <stdbool.h>
#include <stdint.h>

/* What may be drawn beside dense models over shards, recompute and losses. */
enum {
    DRAW_EXPERTS = 1 << 0,   /* plain, chunked; ep */
    DRAW_CAPPED = 1 << 1,    /* capped dispatch, etp, experts at a latent width */
    DRAW_STAGES = 1 << 2,    /* pp with stages of any length, zero2 */
    DRAW_SPLIT = 1 << 3,     /* tp */
    DRAW_CONTEXT = 1 << 4,   /* cp of every kind */
    DRAW_LATENTS = 1 << 5,   /* MLA, with and without indexers */
    DRAW_STATES = 1 << 6,    /* delta nets, lightning attention, Mamba-2, halves alone */
    DRAW_ELSEWHERE = 1 << 7, /* offload, the ring over vocabulary shards */
    DRAW_INTERLEAVED = 1 << 8,
    DRAW_PUBLISHED = 1 << 9,  /* models/ */
    DRAW_BESIDE = 1 << 10,    /* vision towers; prediction layers, which are not trained */
    DRAW_ALIKE = 1 << 11,     /* layers do not differ, nor in what is recomputed */
    DRAW_TRAINED = 1 << 12,   /* optimizers, adapters, frozen parts */
    DRAW_PREDICTED = 1 << 13, /* prediction layers, trained */
    DRAW_RL = 1 << 14,        /* log-probabilities, reference models, budgets of tokens */
    DRAW_PACKED = 1 << 15,    /* pieces of several lengths in a row */
    DRAW_ALL = (1 << 16) - 1
};

struct drawn {
    struct model model;
    struct hardware hardware;
    struct choices choices;
    struct routing routing;
    struct lengths lengths; /* of packed pieces; none: of no piece */
    uint64_t seq_tokens;
    int gpus;
};

void draw_step(uint64_t *seed, unsigned features, struct drawn *ret);

/* Every choice as --set takes it, with model and sequence: for messages. */
void drawn_format(const struct drawn *drawn, char *ret, size_t size);

#endif
