/* fixture.h - a model, a machine and a legal layout that tests of legality and capability bend. */
#ifndef RANKFIT_TESTS_UNIT_LAYOUT_FIXTURE_H
#define RANKFIT_TESTS_UNIT_LAYOUT_FIXTURE_H

#include "base/layout/legality.h"

/* Holds what a legality_input points to. */
struct fixture {
    struct model model; /* 48 layers, 32/4 heads of 128, 128 experts top 8 of width 768 */
    struct hardware hardware;
    struct choices choices;
    struct legality_input input;
};

/* 8 GPUs, pp 1, tp 1, cp 1, ep 8, dp 8 sharded; 8,192 tokens, batch 8: legal, without warnings. */
void fixture_init(struct fixture *fixture);

/* Sets dp, e_dp (sharded over all of it), stage_layers, micro_batches from the degrees, for tests
 * that break one thing only. Degrees that do not fit leave 0. */
void fixture_derive(struct fixture *fixture);

#endif
