#include "tests/unit/cuda/cases.h"

#include <stdlib.h>
#include <string.h>

static void router(struct pair *p, int64_t rows, int experts, int top_k, bool normalize, bool given)
{
    pair_case(p, "router", "%lld rows, top %d of %d%s%s", (long long)rows, top_k, experts,
              normalize ? ", normalized" : "", given ? ", given" : "");
    struct array probs = pair_random(p, KIND_FP32, rows * experts, 2);
    struct array choices = given ? pair_indices(p, rows * top_k, (uint64_t)experts)
                                 : pair_poison(p, KIND_INT32, rows * top_k);
    struct array weights = pair_poison(p, KIND_FP32, rows * top_k);
    struct array d_weights = pair_random(p, KIND_FP32, rows * top_k, 1);
    struct array d_logits = pair_poison(p, KIND_FP32, rows * experts);
    struct router sides[SIDES];
    for (int i = 0; i < SIDES; i++)
        sides[i] = (struct router){ rows,        experts,       top_k,         normalize,
                                    probs.at[i], choices.at[i], weights.at[i], given };
    PAIR_RUN(p, router, &sides[side]);
    pair_compare(p, "probs", &probs, 1e-6);
    pair_compare(p, "choices", &choices, 0);
    pair_compare(p, "weights", &weights, 2e-6);
    PAIR_RUN(p, router_backward, &sides[side], d_weights.at[side], d_logits.at[side]);
    pair_compare(p, "d_logits", &d_logits, 5e-6);
}

/* Scores by sigmoids, corrected where they choose, limited to groups, weights scaled. */
static void grouped(struct pair *p, int64_t rows, int experts, int top_k, int groups, int limit)
{
    pair_case(p, "router", "%lld rows, top %d of %d, sigmoids, %d of %d groups", (long long)rows,
              top_k, experts, limit, groups);
    struct array probs = pair_random(p, KIND_FP32, rows * experts, 2);
    struct array correction = pair_random(p, KIND_BF16, experts, 0.2);
    struct array choices = pair_poison(p, KIND_INT32, rows * top_k);
    struct array weights = pair_poison(p, KIND_FP32, rows * top_k);
    struct array d_weights = pair_random(p, KIND_FP32, rows * top_k, 1);
    struct array d_logits = pair_poison(p, KIND_FP32, rows * experts);
    struct router sides[SIDES];
    for (int i = 0; i < SIDES; i++)
        sides[i] = (struct router){ .rows = rows,
                                    .experts = experts,
                                    .top_k = top_k,
                                    .normalize_top_k = true,
                                    .probs = probs.at[i],
                                    .choices = choices.at[i],
                                    .weights = weights.at[i],
                                    .sigmoid = true,
                                    .correction = correction.at[i],
                                    .groups = groups,
                                    .group_limit = limit,
                                    .scaling = 2.5F };
    PAIR_RUN(p, router, &sides[side]);
    pair_compare(p, "probs", &probs, 1e-6);
    pair_compare(p, "choices", &choices, 0);
    pair_compare(p, "weights", &weights, 2e-6);
    PAIR_RUN(p, router_backward, &sides[side], d_weights.at[side], d_logits.at[side]);
    pair_compare(p, "d_logits", &d_logits, 5e-6);
}

static void sort(struct pair *p, int64_t rows, int top_k, int experts)
{
    pair_case(p, "sort_choices", "%lld rows, top %d of %d", (long long)rows, top_k, experts);
    struct array choices = pair_indices(p, rows * top_k, (uint64_t)experts);
    struct array slots = pair_poison(p, KIND_INT32, rows * top_k);
    int64_t *counts[SIDES];
    for (int i = 0; i < SIDES; i++) {
        counts[i] = malloc((size_t)experts * sizeof **counts);
        memset(counts[i], 0xff, (size_t)experts * sizeof **counts);
    }
    PAIR_RUN(p, sort_choices, rows, top_k, experts, choices.at[side], slots.at[side], counts[side]);
    pair_compare(p, "slots", &slots, 0);
    bool same = memcmp(counts[HOST], counts[DEVICE], (size_t)experts * sizeof **counts) == 0;
    pair_figure(p, "counts", same, 1, 0);
    free(counts[HOST]);
    free(counts[DEVICE]);
}

void cases_route(struct pair *p)
{
    router(p, 300, 128, 8, true, false);
    router(p, 77, 60, 4, false, false);
    router(p, 50, 512, 10, true, false);
    router(p, 9, 8, 8, true, false);
    router(p, 64, 128, 8, true, true);
    grouped(p, 300, 256, 8, 8, 4);
    grouped(p, 70, 128, 8, 1, 1);
    grouped(p, 33, 64, 3, 64, 5);
    sort(p, 1, 1, 1);
    sort(p, 300, 8, 128);
    sort(p, 5001, 8, 256);
    sort(p, 40000, 2, 8);
}
