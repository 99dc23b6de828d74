/* The rehearsal's kernels against their definitions, at sizes that fill pieces and that do not, at
 * addresses of every alignment; and a collective through the fabric. Skipped without a GPU. */
#include "executor/fabric/rehearsal/fabric_rehearsal.h"
#include "executor/fabric/rehearsal/paced.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { SKIPPED = 77, ROOM = 3 << 20 };

static struct backend *cuda;
static unsigned char *device, *host, *back;

static void ok(cudaError_t status)
{
    if (status != cudaSuccess)
        fail_msg("%s", cudaGetErrorString(status));
}

/* The first half of the memory is bytes to read, the second poison to be written over. */
static void prepare(void)
{
    for (size_t i = 0; i < ROOM; i++)
        host[i] = i < ROOM / 2 ? (unsigned char)(i * 7 + i / 251) : 0xee;
    ok(cudaMemcpy(device, host, ROOM, cudaMemcpyHostToDevice));
}

static void fetch(void)
{
    ok(cudaDeviceSynchronize());
    ok(cudaMemcpy(back, device, ROOM, cudaMemcpyDeviceToHost));
}

static void check_fill(size_t bytes, size_t from_bytes, size_t shift)
{
    const struct pace pace = { .blocks = 5, .seconds = 1e-5 };
    size_t to = ROOM / 2 + shift;

    prepare();
    ok(paced_fill(&pace, device + to, bytes, device + shift, from_bytes));
    fetch();
    for (size_t i = 0; i < bytes; i++)
        if (back[to + i] != host[shift + i % from_bytes])
            fail_msg("fill %zu from %zu at %zu: byte %zu", bytes, from_bytes, shift, i);
    assert_int_equal(back[to - 1], shift > 0 ? 0xee : host[to - 1]);
    assert_int_equal(back[to + bytes], 0xee);
}

static void fills_repeat(void **state)
{
    static const size_t sizes[][3] = {
        { 16, 16, 0 },        { 1 << 20, 1 << 18, 0 }, { 1000000, 48, 16 },
        { 999984, 32784, 0 }, { 123456, 4100, 4 },     { 777, 5, 1 },
        { 40000, 39999, 3 },  { 4, 1 << 16, 0 },       { 1 << 20, 1 << 20, 32 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_fill(sizes[i][0], sizes[i][1], sizes[i][2]);
}

static float bf16_value(const void *values, size_t i)
{
    uint32_t bits = (uint32_t)((const uint16_t *)values)[i] << 16;
    float ret;
    memcpy(&ret, &bits, sizeof ret);
    return ret;
}

static float value_at(const void *values, size_t i, bool is_float)
{
    return is_float ? ((const float *)values)[i] : bf16_value(values, i);
}

/* Small whole numbers, exact in both types, and so are their sums and multiples. */
static void prepare_numbers(bool is_float)
{
    for (size_t i = 0; i < ROOM / 4; i++) {
        float value = (float)(i % 5);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (is_float)
            memcpy(host + 4 * i, &value, 4);
        else
            ((uint16_t *)(void *)host)[i] = (uint16_t)(bits >> 16);
    }
    ok(cudaMemcpy(device, host, ROOM, cudaMemcpyHostToDevice));
}

static void check_sum(size_t elements, int slices, bool is_float)
{
    const struct pace pace = { .blocks = 7, .seconds = 1e-5 };
    size_t to = ROOM / 2;

    prepare_numbers(is_float);
    ok(paced_sum(&pace, device + to, device, elements, slices, is_float));
    fetch();
    for (size_t i = 0; i < elements; i++) {
        float wanted = 0;
        for (int s = 0; s < slices; s++)
            wanted += value_at(host, (size_t)s * elements + i, is_float);
        if (value_at(back + to, i, is_float) != wanted)
            fail_msg("sum of %d x %zu: element %zu", slices, elements, i);
    }
}

static void sums_add_slices(void **state)
{
    (void)state;
    for (int is_float = 0; is_float < 2; is_float++) {
        check_sum(8, 3, is_float);
        check_sum(65536, 4, is_float);
        check_sum(12345, 9, is_float);
        check_sum(4104, 31, is_float);
    }
}

static void scales_multiply(void **state)
{
    const struct pace pace = { .blocks = 3, .seconds = 1e-5 };
    static const size_t sizes[] = { 8, 100000, 12347 };

    (void)state;
    for (int is_float = 0; is_float < 2; is_float++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            prepare_numbers(is_float);
            ok(paced_scale(&pace, device, sizes[k], 4, is_float));
            fetch();
            for (size_t i = 0; i < sizes[k] + 1; i++)
                assert_true(value_at(back, i, is_float) ==
                            value_at(host, i, is_float) * (i < sizes[k] ? 4 : 1));
        }
}

static double now(void)
{
    struct timespec time = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void time_passes(void **state)
{
    const struct pace pace = { .blocks = 4, .seconds = 20e-3 };
    double begun = now();

    (void)state;
    ok(paced_fill(&pace, device, 1 << 16, device + ROOM / 2, 1 << 16));
    ok(cudaDeviceSynchronize());
    assert_true(now() - begun >= 19.9e-3);
}

static void close_nothing(struct fabric *f)
{
    (void)f;
}

/* Rows of 16 bytes through the fabric, by kernels and by copies: this rank's own are in their
 * place, and whoever waits sees all of them. */
static void check_exchange(struct fabric *f, bool copies)
{
    const int ranks[] = { 0, 1, 2 };
    const int64_t rows[] = { 40, 40, 40 };
    struct diag_list errors = { 0 };
    struct transfer *t = NULL;
    struct group *g = NULL;

    assert_int_equal(
        (copies ? f->ops->group_open_copies : f->ops->group_open)(f, ranks, 3, &g, &errors), 0);
    prepare();
    assert_int_equal(
        f->ops->all_to_all_rows_start(g, device, rows, device + ROOM / 2, rows, 16, &t, &errors),
        0);
    assert_int_equal(f->ops->transfer_wait(g, t, &errors), 0);
    fetch();
    assert_memory_equal(back + ROOM / 2 + 640, host + 640, 640);
    for (size_t i = 0; i < 1920; i++)
        assert_int_equal(back[ROOM / 2 + i], host[i]);
    f->ops->group_close(f, g);
}

static void exchanges_through_the_fabric(void **state)
{
    static const struct fabric_ops ops = { .name = "started", .close = close_nothing };
    static struct fabric started = { .ops = &ops, .world = 1 };
    const struct hardware machine = { .link_bytes_per_second = 1e9,
                                      .exchange_efficiency = 1,
                                      .communicator_first_bytes = 1 << 20 };
    const struct rehearsal_world world = { .hardware = &machine, .rank = 1, .world = 3 };
    struct diag_list errors = { 0 };
    struct fabric *f = fabric_rehearsal_open_cuda(&started, cuda, &world, &errors);

    (void)state;
    assert_non_null(f);
    check_exchange(f, false);
    check_exchange(f, true);
    f->ops->close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_repeat),
        cmocka_unit_test(sums_add_slices),
        cmocka_unit_test(scales_multiply),
        cmocka_unit_test(time_passes),
        cmocka_unit_test(exchanges_through_the_fabric),
    };
    struct diag_list errors = { 0 };
    cuda = backend_cuda_open(0, &errors);
    if (!cuda || cudaMalloc((void **)&device, ROOM) != cudaSuccess)
        return SKIPPED;
    host = malloc(ROOM);
    back = malloc(ROOM);
    int failed = host && back ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    free(host);
    free(back);
    (void)cudaFree(device);
    cuda->ops->close(cuda);
    return failed;
}
