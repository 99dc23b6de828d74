#include "base/layout/layout.h"

#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 300, MAX_WORLD = 4096 };

static const unsigned dense_axes =
    1U << AXIS_TP | 1U << AXIS_CP | 1U << AXIS_FSDP | 1U << AXIS_D_REP | 1U << AXIS_PP;
static const unsigned expert_axes =
    1U << AXIS_ETP | 1U << AXIS_EP | 1U << AXIS_E_FSDP | 1U << AXIS_E_REP | 1U << AXIS_E_PP;

/* A random divisor of *rest, which it is taken out of. */
static int take_divisor(uint64_t *seed, int *rest)
{
    int divisor = 1 + (int)random_below(seed, (uint64_t)*rest);
    while (*rest % divisor != 0)
        divisor--;
    *rest /= divisor;
    return divisor;
}

/* Both views of one world with one pp. */
static struct layout random_layout(uint64_t *seed)
{
    struct layout l = { .vpp = 1, .micro_batch = 1, .micro_batches = 1 };
    int per_stage = 1 + (int)random_below(seed, 96);
    int dense = per_stage, expert = per_stage;

    l.pp = 1 + (int)random_below(seed, 8);
    l.tp = take_divisor(seed, &dense);
    l.cp = take_divisor(seed, &dense);
    l.fsdp = take_divisor(seed, &dense);
    l.d_rep = dense;
    l.etp = take_divisor(seed, &expert);
    l.ep = take_divisor(seed, &expert);
    l.e_fsdp = take_divisor(seed, &expert);
    l.e_rep = expert;
    return l;
}

static int group_size(const struct layout *l, unsigned axes)
{
    int size = 1;
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        if (axes & 1U << axis)
            size *= layout_degree(l, (enum axis)axis);
    return size;
}

/* Every rank is in exactly one group; each member sees the same group, in ascending order; members
 * differ along no other axis of the view. */
static void check_partition(const struct layout *l, unsigned axes, unsigned view)
{
    static int first[MAX_WORLD], again[MAX_WORLD];
    static unsigned char seen[MAX_WORLD];
    int world = layout_world(l), size = group_size(l, axes);

    memset(seen, 0, sizeof seen);
    for (int rank = 0; rank < world; rank++) {
        if (seen[rank])
            continue;
        assert_int_equal(layout_group(l, axes, rank, first), size);
        for (int i = 0; i < size; i++) {
            assert_in_range(first[i], 0, world - 1);
            assert_false(seen[first[i]]);
            seen[first[i]] = 1;
            assert_true(i == 0 || first[i] > first[i - 1]);
            assert_int_equal(layout_group(l, axes, first[i], again), size);
            assert_memory_equal(first, again, (size_t)size * sizeof *first);
            for (int axis = 0; axis < AXIS_COUNT; axis++)
                if (view & ~axes & 1U << axis)
                    assert_int_equal(layout_coordinate(l, (enum axis)axis, first[i]),
                                     layout_coordinate(l, (enum axis)axis, rank));
        }
    }
    for (int rank = 0; rank < world; rank++)
        assert_true(seen[rank]);
}

static void groups_partition_the_ranks(void **state)
{
    uint64_t seed = 20261129;
    (void)state;

    for (int round = 0; round < ROUNDS; round++) {
        struct layout l = random_layout(&seed);
        unsigned pick = (unsigned)random_next(&seed);
        check_partition(&l, pick & dense_axes, dense_axes);
        check_partition(&l, pick & expert_axes, expert_axes);
    }
}

/* Coordinates and ranks determine each other in both views. */
static void coordinates_make_the_rank(void **state)
{
    uint64_t seed = 7;
    (void)state;

    for (int round = 0; round < ROUNDS; round++) {
        struct layout l = random_layout(&seed);
        for (int rank = 0; rank < layout_world(&l); rank++) {
            int dense = 0, expert = 0;
            for (int axis = AXIS_PP; axis >= AXIS_TP; axis--)
                dense = dense * layout_degree(&l, (enum axis)axis) +
                        layout_coordinate(&l, (enum axis)axis, rank);
            for (int axis = AXIS_E_PP; axis >= AXIS_ETP; axis--)
                expert = expert * layout_degree(&l, (enum axis)axis) +
                         layout_coordinate(&l, (enum axis)axis, rank);
            assert_int_equal(dense, rank);
            assert_int_equal(expert, rank);
            assert_int_equal(layout_coordinate(&l, AXIS_PP, rank),
                             layout_coordinate(&l, AXIS_E_PP, rank));
        }
    }
}

/* By hand: 8 ranks, tp 2 innermost, then cp 2, then fsdp 2; experts etp 1, ep 4, e_fsdp 2. */
static void groups_by_hand(void **state)
{
    struct layout l = {
        .tp = 2, .pp = 1, .cp = 2, .ep = 4, .etp = 1, .fsdp = 2, .d_rep = 1, .e_fsdp = 2, .e_rep = 1
    };
    int got[8];
    const int state_shards[4] = { 1, 3, 5, 7 }, expert_group[4] = { 4, 5, 6, 7 },
              expert_shards[2] = { 1, 5 };
    (void)state;

    assert_int_equal(layout_group(&l, 1U << AXIS_CP | 1U << AXIS_FSDP, 3, got), 4);
    assert_memory_equal(got, state_shards, sizeof state_shards);
    assert_int_equal(layout_group(&l, 1U << AXIS_EP, 6, got), 4);
    assert_memory_equal(got, expert_group, sizeof expert_group);
    assert_int_equal(layout_group(&l, 1U << AXIS_E_FSDP, 5, got), 2);
    assert_memory_equal(got, expert_shards, sizeof expert_shards);
    assert_int_equal(layout_group(&l, 0, 5, got), 1);
    assert_int_equal(got[0], 5);
    assert_int_equal(layout_dense_shards(&l), 4);
    assert_int_equal(layout_expert_shards(&l), 2);
}

static void splits_are_even_and_spare_the_last(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 100; layers++) {
        for (int pp = 1; pp <= layers && pp <= LAYOUT_MAX_STAGES; pp++) {
            struct layout l = { .pp = pp };
            int sum = 0;
            layout_split_layers(&l, layers);
            for (int stage = 0; stage < pp; stage++) {
                assert_int_equal(layout_first_layer(&l, stage), sum);
                assert_in_range(l.stage_layers[stage], layers / pp, (layers + pp - 1) / pp);
                sum += l.stage_layers[stage];
            }
            assert_int_equal(sum, layers);
            assert_int_equal(l.stage_layers[pp - 1], layers / pp);
        }
    }
}

/* 46 layers and one prediction layer are 47 of work: 11 each and three more, of which the last
 * stage gets none, so it keeps 10 of the 46. With 2 layers on 2 stages nothing can be given up. */
static void prediction_layers_count_on_the_last_stage(void **state)
{
    static const int split[] = { 12, 12, 12, 10 };
    struct layout l = { .pp = 4 };
    (void)state;

    layout_split_with_last(&l, 46, 1);
    for (int stage = 0; stage < 4; stage++)
        assert_int_equal(l.stage_layers[stage], split[stage]);
    l.pp = 2;
    layout_split_with_last(&l, 2, 1);
    assert_int_equal(l.stage_layers[0], 1);
    assert_int_equal(l.stage_layers[1], 1);
}

static void a_padded_vocabulary_by_hand(void **state)
{
    (void)state;
    assert_true(layout_padded_vocab(151936, 4) == 151936); /* 37,984 a rank */
    assert_true(layout_padded_vocab(151669, 1) == 151669);
    assert_true(layout_padded_vocab(151669, 4) == UINT64_C(297) * 512); /* 296 x 512 = 151,552 */
}

static void local_tokens_by_hand(void **state)
{
    struct layout l = { .tp = 1, .pp = 1, .cp = 4, .micro_batch = 2 };
    (void)state;
    /* 2 sequences of 131,072 tokens over 4 ranks */
    assert_int_equal(layout_local_tokens(&l, 131072), 65536);
}

static void stage_is_outermost(void **state)
{
    struct layout l = {
        .tp = 2, .pp = 3, .cp = 1, .ep = 2, .etp = 1, .fsdp = 2, .d_rep = 1, .e_fsdp = 2, .e_rep = 1
    };
    (void)state;
    for (int rank = 0; rank < 12; rank++)
        assert_int_equal(layout_stage(&l, rank), rank / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_partition_the_ranks),
        cmocka_unit_test(coordinates_make_the_rank),
        cmocka_unit_test(groups_by_hand),
        cmocka_unit_test(splits_are_even_and_spare_the_last),
        cmocka_unit_test(prediction_layers_count_on_the_last_stage),
        cmocka_unit_test(a_padded_vocabulary_by_hand),
        cmocka_unit_test(local_tokens_by_hand),
        cmocka_unit_test(stage_is_outermost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
