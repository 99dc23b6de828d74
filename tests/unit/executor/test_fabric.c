/* The fabric over MPI against the same sums and moves done by hand, in every world from 1 to 4. */
#include "tests/unit/executor/step_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_WORLD = 8, ELEMENTS = 70001 }; /* more than one piece of a reduction */

/* A value that tells rank and place apart and is exact in bf16 (8 significant bits). */
static float value_of(int rank, int i)
{
    return (float)(1 + rank + i % 29);
}

static uint16_t bf16_exact(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    assert_int_equal(bits & 0xffff, 0);
    return (uint16_t)(bits >> 16);
}

static void *get(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    assert_non_null(memory);
    return memory;
}

static void test_all_gather(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    int *all = get((size_t)f->world * 5, sizeof *all), mine[5];

    for (int i = 0; i < 5; i++)
        mine[i] = 100 * f->rank + i;
    assert_int_equal(f->ops->all_gather(f->all, mine, all, sizeof mine, &errors), 0);
    for (int r = 0; r < f->world; r++)
        for (int i = 0; i < 5; i++)
            assert_int_equal(all[r * 5 + i], 100 * r + i);
    memset(all, 0, (size_t)f->world * sizeof mine);
    memcpy(all + (size_t)f->rank * 5, mine, sizeof mine);
    struct transfer *transfer = NULL;
    assert_int_equal(f->ops->all_gather_start(f->all, all + (size_t)f->rank * 5, all, sizeof mine,
                                              &transfer, &errors),
                     0);
    assert_int_equal(f->ops->transfer_wait(f->all, transfer, &errors), 0);
    for (int r = 0; r < f->world; r++)
        for (int i = 0; i < 5; i++)
            assert_int_equal(all[r * 5 + i], 100 * r + i);
    free(all);
}

static void test_reduce_scatter(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    size_t total = (size_t)f->world * ELEMENTS;
    float *send = get(total, sizeof *send), *recv = get(ELEMENTS, sizeof *recv);

    for (size_t i = 0; i < total; i++)
        send[i] = value_of(f->rank, (int)i);
    assert_int_equal(f->ops->reduce_scatter(f->all, send, recv, ELEMENTS, DTYPE_FP32, &errors), 0);
    for (int i = 0; i < ELEMENTS; i++) {
        float want = 0;
        for (int r = 0; r < f->world; r++)
            want += value_of(r, f->rank * ELEMENTS + i);
        assert_true(recv[i] == want);
    }
    free(send);
    free(recv);
}

/* 256 from rank 0 and 0.5 from each other: rounding to 8 bits after every addition would stay at
 * 256 for any number of ranks; the sum in fp32, rounded once, is 256 + 0.5 (world - 1). */
static void test_bf16_is_summed_in_fp32(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    uint16_t send[2 * MAX_WORLD], recv[2], all[2];
    float want = 256 + 0.5F * (float)(f->world - 1);
    uint16_t rounded = bf16_exact(f->world < 4 ? 256.0F : 258.0F); /* step 2, ties to even */

    if (f->world == 4)
        assert_true(want == 257.5F);
    for (int i = 0; i < 2 * f->world; i++)
        send[i] = bf16_exact(f->rank == 0 ? 256.0F : 0.5F);
    assert_int_equal(f->ops->reduce_scatter(f->all, send, recv, 2, DTYPE_BF16, &errors), 0);
    assert_int_equal(recv[1], rounded);
    memcpy(all, send, sizeof all);
    assert_int_equal(f->ops->all_reduce(f->all, all, 2, DTYPE_BF16, &errors), 0);
    assert_int_equal(all[0], rounded);
}

static void test_all_reduce(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    float *values = get(ELEMENTS, sizeof *values);
    double sums[2] = { f->rank, 1 };

    for (int i = 0; i < ELEMENTS; i++)
        values[i] = value_of(f->rank, i);
    assert_int_equal(f->ops->all_reduce(f->all, values, ELEMENTS, DTYPE_FP32, &errors), 0);
    for (int i = 0; i < ELEMENTS; i++) {
        float want = 0;
        for (int r = 0; r < f->world; r++)
            want += value_of(r, i);
        assert_true(values[i] == want);
    }
    assert_int_equal(f->ops->sum_doubles(f->all, sums, 2, &errors), 0);
    assert_true(sums[0] == f->world * (f->world - 1) / 2.0);
    assert_true(sums[1] == f->world);
    free(values);
}

/* Rank r sends r + p rows to p: row i says from, to and i. Some counts are zero. */
static void test_all_to_all_rows(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    int64_t sent[MAX_WORLD], received[MAX_WORLD], told[MAX_WORLD];
    int rows_out = 0, rows_in = 0, at = 0;

    for (int p = 0; p < f->world; p++) {
        rows_out += (int)(sent[p] = f->rank + p);
        rows_in += (int)(received[p] = f->rank + p);
    }
    int(*send)[3] = get((size_t)rows_out + 1, sizeof *send);
    int(*recv)[3] = get((size_t)rows_in + 1, sizeof *recv);
    for (int p = 0; p < f->world; p++)
        for (int i = 0; i < sent[p]; i++, at++) {
            send[at][0] = f->rank;
            send[at][1] = p;
            send[at][2] = i;
        }
    assert_int_equal(f->ops->exchange_counts(f->all, sent, told, 1, &errors), 0);
    assert_memory_equal(told, received, (size_t)f->world * sizeof *told);
    assert_int_equal(
        f->ops->all_to_all_rows(f->all, send, sent, recv, received, sizeof *send, &errors), 0);
    at = 0;
    for (int p = 0; p < f->world; p++)
        for (int i = 0; i < received[p]; i++, at++) {
            assert_int_equal(recv[at][0], p);
            assert_int_equal(recv[at][1], f->rank);
            assert_int_equal(recv[at][2], i);
        }
    free(send);
    free(recv);
}

/* Two exchanges under way at once, the later one waited for first: rank r sends r + p rows to p
 * and, in the second, 2 rows to its right neighbour alone. The lists of counts are wiped at once.
 */
static void test_exchanges_under_way(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    int64_t sent[MAX_WORLD], received[MAX_WORLD], right[MAX_WORLD] = { 0 }, left[MAX_WORLD] = { 0 };
    int send[2 * MAX_WORLD * MAX_WORLD], recv[2 * MAX_WORLD * MAX_WORLD], pair[2], got[2];
    int at = 0, from = (f->rank + f->world - 1) % f->world;
    struct transfer *first = NULL, *second = NULL;

    for (int p = 0; p < f->world; p++) {
        sent[p] = received[p] = f->rank + p;
        for (int i = 0; i < sent[p]; i++)
            send[at++] = 10000 * f->rank + 100 * p + i;
    }
    right[(f->rank + 1) % f->world] = left[from] = 2;
    pair[0] = f->rank;
    pair[1] = -f->rank;
    assert_int_equal(f->ops->all_to_all_rows_start(f->all, send, sent, recv, received, sizeof *send,
                                                   &first, &errors),
                     0);
    assert_int_equal(f->ops->all_to_all_rows_start(f->all, pair, right, got, left, sizeof *pair,
                                                   &second, &errors),
                     0);
    memset(sent, 0, sizeof sent);
    memset(right, 0, sizeof right);
    memset(received, 0, sizeof received);
    memset(left, 0, sizeof left);
    assert_int_equal(f->ops->transfer_wait(f->all, second, &errors), 0);
    assert_int_equal(f->ops->transfer_wait(f->all, first, &errors), 0);
    assert_int_equal(got[0], from);
    assert_int_equal(got[1], -from);
    at = 0;
    for (int p = 0; p < f->world; p++)
        for (int i = 0; i < f->rank + p; i++)
            assert_int_equal(recv[at++], 10000 * p + 100 * f->rank + i);
}

static void test_gather_text(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    char *texts[MAX_WORLD] = { NULL }, mine[16];
    uint64_t bytes[MAX_WORLD];

    memset(mine, 'a' + f->rank, sizeof mine);
    assert_int_equal(
        f->ops->gather_text(f->all, mine, (uint64_t)f->rank + 1, texts, bytes, &errors), 0);
    for (int r = 0; f->rank == 0 && r < f->world; r++) {
        assert_int_equal(bytes[r], r + 1);
        assert_int_equal(texts[r][r], 'a' + r);
        assert_int_equal(texts[r][r + 1], '\0');
        free(texts[r]);
    }
    assert_int_equal(f->ops->barrier(f->all, &errors), 0);
}

/* Even and odd ranks apart, each counted inside its own group. */
static void test_groups(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    int ranks[MAX_WORLD], count = 0;
    struct group *group;
    double sum = f->rank, want = 0;

    for (int r = f->rank % 2; r < f->world; r += 2) {
        ranks[count++] = r;
        want += r;
    }
    assert_int_equal(f->ops->group_open(f, ranks, count, &group, &errors), 0);
    assert_int_equal(group_info(group)->count, count);
    assert_int_equal(group_info(group)->index, f->rank / 2);
    assert_int_equal(f->ops->sum_doubles(group, &sum, 1, &errors), 0);
    assert_true(sum == want);
    f->ops->group_close(f, group);
    ranks[0] = f->rank + 1;
    assert_int_equal(f->ops->group_open(f, ranks, 1, &group, &errors), -1);
    assert_int_equal(errors.errors, 1);
}

/* Three blocks a member, dealt out so that no member's lie together: block i of member m is number
 * world * i + (m + i) % world of the whole. */
enum { BLOCKS = 3, BLOCK_ELEMENTS = ELEMENTS };

static int *block_places(int world)
{
    int *places = get((size_t)world * BLOCKS, sizeof *places);
    for (int m = 0; m < world; m++)
        for (int i = 0; i < BLOCKS; i++)
            places[m * BLOCKS + i] = world * i + (m + i) % world;
    return places;
}

static void test_gather_blocks(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    int mine[BLOCKS][5], *places = block_places(f->world);
    int(*all)[5] = get((size_t)f->world * BLOCKS, sizeof *all);

    for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j < 5; j++)
            mine[i][j] = 100 * f->rank + 10 * i + j;
    assert_int_equal(f->ops->gather_blocks(f->all, mine, all, sizeof *all, BLOCKS, places, &errors),
                     0);
    for (int m = 0; m < f->world; m++)
        for (int i = 0; i < BLOCKS; i++)
            for (int j = 0; j < 5; j++)
                assert_int_equal(all[places[m * BLOCKS + i]][j], 100 * m + 10 * i + j);
    free(all);
    free(places);
}

static void test_reduce_blocks(void **state)
{
    (void)state;
    struct fabric *f = step_fabric;
    struct diag_list errors = { 0 };
    int *places = block_places(f->world);
    size_t total = (size_t)f->world * BLOCKS * BLOCK_ELEMENTS;
    float *send = get(total, sizeof *send);
    float(*recv)[BLOCK_ELEMENTS] = get(BLOCKS, sizeof *recv);

    for (size_t i = 0; i < total; i++)
        send[i] = value_of(f->rank, (int)i);
    assert_int_equal(f->ops->reduce_blocks(f->all, send, recv, BLOCK_ELEMENTS, BLOCKS, places,
                                           DTYPE_FP32, &errors),
                     0);
    for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j < BLOCK_ELEMENTS; j++) {
            float want = 0;
            for (int r = 0; r < f->world; r++)
                want += value_of(r, places[f->rank * BLOCKS + i] * BLOCK_ELEMENTS + j);
            assert_true(recv[i][j] == want);
        }
    free(recv);
    free(send);
    free(places);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_reduce_scatter),
        cmocka_unit_test(test_bf16_is_summed_in_fp32),
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_all_to_all_rows),
        cmocka_unit_test(test_exchanges_under_way),
        cmocka_unit_test(test_gather_text),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_gather_blocks),
        cmocka_unit_test(test_reduce_blocks),
    };
    return step_main(argc, argv, "fabric", tests, sizeof tests / sizeof *tests);
}
