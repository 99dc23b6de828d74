/* The fabric over NCCL, one GPU a rank: every call on device memory against what it moves and adds,
 * done by hand. Started by mpirun; skipped where there are fewer GPUs than ranks. */
#include "executor/fabric/nccl/fabric_nccl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SKIPPED = 77, ELEMENTS = 70001, BLOCKS = 2, BLOCK = 1000, ROW = 96 };

static struct backend *cuda;
static struct fabric *fabric;
static struct diag_list errors;

/* Tells rank and place apart; exact in bf16, and so are sums over a few ranks. */
static float value_of(int rank, int i)
{
    return (float)(1 + rank + i % 29);
}

static void *device(const void *host, size_t bytes)
{
    struct arena_source source = cuda->ops->arena_source(cuda);
    void *ret = source.reserve(source.context, bytes);
    assert_non_null(ret);
    if (host)
        assert_int_equal(cuda->ops->upload(cuda, STREAM_COMPUTE, ret, host, bytes, &errors), 0);
    else
        assert_int_equal(cuda->ops->zero(cuda, STREAM_COMPUTE, ret, bytes, &errors), 0);
    return ret;
}

static void free_device(void *memory)
{
    struct arena_source source = cuda->ops->arena_source(cuda);
    source.release(source.context, memory, 0);
}

static float *values(int count, int first)
{
    float *ret = calloc(count > 0 ? (size_t)count : 1, sizeof *ret);
    assert_non_null(ret);
    for (int i = 0; i < count; i++)
        ret[i] = value_of(fabric->rank, first + i);
    return ret;
}

static float *download(const void *from, int count)
{
    float *ret = calloc(count > 0 ? (size_t)count : 1, sizeof *ret);
    assert_non_null(ret);
    assert_int_equal(cuda->ops->download(cuda, STREAM_COMPUTE, ret, from,
                                         (uint64_t)count * sizeof *ret, &errors),
                     0);
    return ret;
}

static float sum_of(int i)
{
    float ret = 0;
    for (int rank = 0; rank < fabric->world; rank++)
        ret += value_of(rank, i);
    return ret;
}

static struct group *open_all(void)
{
    int ranks[8];
    struct group *ret = NULL;
    for (int i = 0; i < fabric->world; i++)
        ranks[i] = i;
    assert_int_equal(fabric->ops->group_open(fabric, ranks, fabric->world, &ret, &errors), 0);
    return ret;
}

static void gathers(void **state)
{
    (void)state;
    struct group *g = open_all();
    float *mine = values(ELEMENTS, 0);
    void *send = device(mine, ELEMENTS * sizeof *mine);
    void *recv = device(NULL, (size_t)fabric->world * ELEMENTS * sizeof *mine);
    struct transfer *transfer = NULL;

    assert_int_equal(
        fabric->ops->all_gather_start(g, send, recv, ELEMENTS * sizeof *mine, &transfer, &errors),
        0);
    assert_int_equal(fabric->ops->transfer_wait(g, transfer, &errors), 0);
    float *got = download(recv, fabric->world * ELEMENTS);
    for (int i = 0; i < fabric->world * ELEMENTS; i++)
        assert_true(got[i] == value_of(i / ELEMENTS, i % ELEMENTS));
    free(mine);
    free(got);
    free_device(send);
    free_device(recv);
    fabric->ops->group_close(fabric, g);
}

static void sums(void **state)
{
    (void)state;
    struct group *g = open_all();
    int count = fabric->world * ELEMENTS;
    float *mine = values(count, 0);
    void *send = device(mine, (size_t)count * sizeof *mine);
    void *recv = device(NULL, ELEMENTS * sizeof *mine);
    struct transfer *transfer = NULL;

    assert_int_equal(
        fabric->ops->reduce_scatter_start(g, send, recv, ELEMENTS, DTYPE_FP32, &transfer, &errors),
        0);
    assert_int_equal(fabric->ops->transfer_wait(g, transfer, &errors), 0);
    float *got = download(recv, ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++)
        assert_true(got[i] == sum_of(fabric->rank * ELEMENTS + i));
    free(got);
    assert_int_equal(fabric->ops->all_reduce(g, send, (uint64_t)count, DTYPE_FP32, &errors), 0);
    got = download(send, count);
    for (int i = 0; i < count; i++)
        assert_true(got[i] == sum_of(i));
    free(got);
    free(mine);
    free_device(send);
    free_device(recv);
    fabric->ops->group_close(fabric, g);
}

/* Rank r sends r + 1 + m rows to member m: every count differs. */
static void exchanges(void **state)
{
    (void)state;
    struct group *g = open_all();
    int64_t send_rows[8], recv_rows[8];
    int sent = 0, received = 0, at = 0;
    struct transfer *transfer = NULL;

    for (int m = 0; m < fabric->world; m++) {
        sent += (int)(send_rows[m] = fabric->rank + 1 + m);
        received += (int)(recv_rows[m] = m + 1 + fabric->rank);
    }
    float *mine = values(sent * ROW, 0);
    void *send = device(mine, (size_t)(sent * ROW) * sizeof *mine);
    void *recv = device(NULL, (size_t)(received * ROW) * sizeof *mine);
    assert_int_equal(fabric->ops->all_to_all_rows_start(g, send, send_rows, recv, recv_rows,
                                                        ROW * sizeof *mine, &transfer, &errors),
                     0);
    assert_int_equal(fabric->ops->transfer_wait(g, transfer, &errors), 0);
    float *got = download(recv, received * ROW);
    for (int m = 0; m < fabric->world; m++) {
        int first = 0; /* of what member m sends here, among its rows */
        for (int before = 0; before < fabric->rank; before++)
            first += m + 1 + before;
        for (int i = 0; i < (int)recv_rows[m] * ROW; i++)
            assert_true(got[at + i] == value_of(m, first * ROW + i));
        at += (int)recv_rows[m] * ROW;
    }
    free(mine);
    free(got);
    free_device(send);
    free_device(recv);
    fabric->ops->group_close(fabric, g);
}

/* Equal shares through windows: SHARE rows to and from every member; uneven ones are refused. */
static void copies(void **state)
{
    (void)state;
    enum { SHARE = 640 };
    struct group *g = NULL;
    int ranks[8], count = SHARE * ROW * fabric->world;
    int64_t rows[8];
    for (int i = 0; i < fabric->world; i++) {
        ranks[i] = i;
        rows[i] = SHARE;
    }
    assert_int_equal(fabric->ops->group_open_copies(fabric, ranks, fabric->world, &g, &errors), 0);
    struct arena_source window = fabric->ops->window_source(fabric);
    size_t bytes = (size_t)count * sizeof(float);
    char *block = window.reserve(window.context, 2 * bytes);
    assert_non_null(block);
    float *mine = values(count, 0);
    assert_int_equal(cuda->ops->upload(cuda, STREAM_COMPUTE, block, mine, bytes, &errors), 0);
    assert_int_equal(cuda->ops->zero(cuda, STREAM_COMPUTE, block + bytes, bytes, &errors), 0);
    assert_int_equal(fabric->ops->all_to_all_rows(g, block, rows, block + bytes, rows,
                                                  ROW * sizeof *mine, &errors),
                     0);
    float *got = download(block + bytes, count);
    for (int i = 0; i < count; i++)
        assert_true(got[i] ==
                    value_of(i / (SHARE * ROW), fabric->rank * SHARE * ROW + i % (SHARE * ROW)));
    if (fabric->world > 1) {
        rows[1]--;
        assert_int_equal(fabric->ops->all_to_all_rows(g, block, rows, block + bytes, rows,
                                                      ROW * sizeof *mine, &errors),
                         -1);
        errors = (struct diag_list){ 0 };
    }
    free(mine);
    free(got);
    window.release(window.context, block, 2 * bytes);
    fabric->ops->group_close(fabric, g);
}

/* Blocks in zig-zag places: rank r holds chunks r and 2 * world - 1 - r. */
static void blocks(void **state)
{
    (void)state;
    struct group *g = open_all();
    int world = fabric->world, count = BLOCKS * world * BLOCK, places[BLOCKS * 8];
    float *mine = values(BLOCKS * BLOCK, 0);
    void *part = device(mine, sizeof *mine * BLOCKS * BLOCK);
    void *whole = device(NULL, (size_t)count * sizeof *mine);

    for (int r = 0; r < world; r++) {
        size_t at = (size_t)r * BLOCKS;
        places[at] = r;
        places[at + 1] = 2 * world - 1 - r;
    }
    assert_int_equal(
        fabric->ops->gather_blocks(g, part, whole, BLOCK * sizeof *mine, BLOCKS, places, &errors),
        0);
    float *got = download(whole, count);
    for (int r = 0; r < world; r++)
        for (int i = 0; i < BLOCKS * BLOCK; i++)
            assert_true(got[places[BLOCKS * r + i / BLOCK] * BLOCK + i % BLOCK] == value_of(r, i));
    free(got);
    assert_int_equal(
        fabric->ops->reduce_blocks(g, whole, part, BLOCK, BLOCKS, places, DTYPE_FP32, &errors), 0);
    got = download(part, BLOCKS * BLOCK);
    for (int i = 0; i < BLOCKS * BLOCK; i++)
        assert_true(got[i] == (float)world * value_of(fabric->rank, i));
    free(got);
    free(mine);
    free_device(part);
    free_device(whole);
    fabric->ops->group_close(fabric, g);
}

/* A call was at work for some time, which is told once. */
static void busy(void **state)
{
    (void)state;
    struct group *g = open_all();
    void *whole = device(NULL, (size_t)fabric->world * ELEMENTS);
    assert_int_equal(cuda->ops->sync(cuda, STREAM_COMPUTE, &errors), 0);
    (void)fabric->ops->busy_seconds(fabric);
    assert_int_equal(fabric->ops->all_gather(g, (char *)whole + (size_t)fabric->rank * ELEMENTS,
                                             whole, ELEMENTS, &errors),
                     0);
    assert_int_equal(cuda->ops->sync(cuda, STREAM_COMPUTE, &errors), 0);
    double seconds = fabric->ops->busy_seconds(fabric);
    assert_true(fabric->world == 1 ? seconds == 0 : seconds > 0 && seconds < 60);
    assert_true(fabric->ops->busy_seconds(fabric) == 0);
    free_device(whole);
    fabric->ops->group_close(fabric, g);
}

/* Equal groups share a communicator; nothing under way is overdue. */
static void groups_share(void **state)
{
    (void)state;
    struct group *first = open_all();
    uint64_t held = fabric_nccl_device_bytes(fabric);
    struct group *second = open_all();
    assert_int_equal(fabric_nccl_device_bytes(fabric), held);
    fabric->ops->group_close(fabric, first);
    fabric->ops->group_close(fabric, second);
    assert_int_equal(cuda->ops->sync(cuda, STREAM_COMPUTE, &errors), 0);
    assert_int_equal(fabric->ops->overdue(fabric, 60, &errors), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers),      cmocka_unit_test(sums),   cmocka_unit_test(exchanges),
        cmocka_unit_test(copies),       cmocka_unit_test(blocks), cmocka_unit_test(busy),
        cmocka_unit_test(groups_share),
    };
    struct fabric *host = fabric_mpi_open(&argc, &argv, &errors);
    double without = 0;

    if (!host)
        return 1;
    cuda = backend_cuda_open(host->rank, &errors);
    without = cuda ? 0 : 1;
    if (host->ops->sum_doubles(host->all, &without, 1, &errors) != 0)
        return 1;
    fabric = without > 0 ? NULL : fabric_nccl_open(host, cuda, &errors);
    int status = without > 0 ? SKIPPED : !fabric ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
    if (fabric)
        fabric->ops->close(fabric);
    else
        host->ops->close(host);
    if (cuda)
        cuda->ops->close(cuda);
    return status;
}
