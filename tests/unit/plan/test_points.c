/* Points files: what is written is read again, and what is wrong is told with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/plan/points.h"
#include "tests/support/golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/rankfit-test-XXXXXX";

static int make_file(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file >= 0 ? close(file) : -1;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static const struct point kinds[] = {
    { .kind = POINT_GEMM,
      .name = "forward",
      .m = 5,
      .n = 6,
      .k = 7,
      .flops = 420,
      .bytes = 1.5,
      .seconds = 1e-6,
      .repeats = 11 },
    { .kind = POINT_EXPERT_GEMM,
      .name = "weight",
      .m = INT64_C(1) << 40,
      .n = 6,
      .k = 7,
      .experts = 8,
      .flops = 4e12,
      .seconds = 0.1234567890123456,
      .repeats = 1 },
    { .kind = POINT_ATTENTION_BACKWARD,
      .name = "backward",
      .heads = 32,
      .kv_heads = 4,
      .head_dim = 128,
      .tokens = 65536,
      .flops = 9e13,
      .seconds = 0.2,
      .repeats = 5 },
    { .kind = POINT_COPY_EXCHANGE,
      .name = "all_to_all",
      .ranks = 2,
      .bytes = 5e8,
      .seconds = 1e-3,
      .spread = 0.25,
      .repeats = 20 },
    { .kind = POINT_HELD, .name = "context", .bytes = 548995072, .repeats = 1 },
};
enum { COUNT = sizeof kinds / sizeof *kinds };

static void assert_same_point(const struct point *p, const struct point *w)
{
    assert_int_equal(p->kind, w->kind);
    assert_string_equal(p->name, w->name);
    assert_true(p->m == w->m && p->n == w->n && p->k == w->k && p->tokens == w->tokens);
    assert_true(p->experts == w->experts && p->heads == w->heads && p->ranks == w->ranks);
    assert_true(p->kv_heads == w->kv_heads && p->head_dim == w->head_dim);
    assert_true(p->bytes == w->bytes && p->flops == w->flops && p->seconds == w->seconds);
    assert_true(p->spread == w->spread);
    assert_int_equal(p->repeats, w->repeats);
}

static void same_again(void **state)
{
    (void)state;
    struct diag_list diags = { 0 };
    struct points written = { .backend = "cuda",
                              .device = "A: \"Device\"",
                              .versions = "driver 1, NCCL 2",
                              .date = "2026-11-29",
                              .ranks = 2,
                              .quick = true,
                              .memory_bytes = UINT64_C(150109880320) };
    struct points read;
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(points_add(&written, &kinds[i], &diags), 0);
    struct json *document = points_to_json(&written);
    assert_int_equal(file_write_document(path, document, &diags), 0);
    assert_int_equal(points_load(path, &read, &diags), 0);
    assert_int_equal(diags.count, 0);
    assert_string_equal(read.backend, "cuda");
    assert_string_equal(read.device, written.device);
    assert_string_equal(read.versions, written.versions);
    assert_string_equal(read.date, "2026-11-29");
    assert_int_equal(read.ranks, 2);
    assert_true(read.quick);
    assert_int_equal(read.memory_bytes, written.memory_bytes);
    assert_int_equal(read.count, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_same_point(&read.points[i], &kinds[i]);
    json_free(document);
    points_done(&written);
    points_done(&read);
}

/* More than the room that is made first. */
static void many_are_kept(void **state)
{
    (void)state;
    struct points points = { 0 };
    struct diag_list diags = { 0 };
    for (int i = 0; i < 1000; i++) {
        const struct point point = { .kind = POINT_LAUNCH, .seconds = i + 1 };
        assert_int_equal(points_add(&points, &point, &diags), 0);
    }
    for (int i = 0; i < 1000; i++)
        assert_true(points.points[i].seconds == i + 1);
    points_done(&points);
}

static void faults_are_told(void **state)
{
    (void)state;
    static const char text[] = "schema: rankfit.points/1\n"
                               "backend: host\n"
                               "device: [1]\n"
                               "date: 2026-11-29 of our era\n"
                               "ranks: 0\n"
                               "points:\n"
                               "  - {kind: gem, name: forward, seconds: 1}\n"
                               "  - {kind: gemm, name: forward, seconds: -1}\n"
                               "  - {kind: gemm, name: forward, m: 1.5, seconds: 1}\n"
                               "  - {kind: copy, name: copy, bytes: 9}\n"
                               "  - {name: forward, seconds: 1}\n"
                               "  - 7\n";
    struct diag_list diags = { 0 };
    struct points points;
    assert_int_equal(file_write_whole(path, text, strlen(text), &diags), 0);
    assert_int_equal(points_load(path, &points, &diags), -1);
    points_done(&points);
    assert_golden_diags("faults", &diags);
}

static void point_is_described(void **state)
{
    (void)state;
    char text[80];
    const struct point gemm = { .name = "input", .m = 512, .n = 64, .k = 32, .bytes = 9 };
    const struct point experts = { .name = "weight", .m = 512, .n = 64, .k = 32, .experts = 8 };
    const struct point attention = {
        .name = "backward", .heads = 32, .kv_heads = 4, .head_dim = 128, .tokens = 4096
    };
    const struct point copy = { .name = "copy", .bytes = 2.5e9 };
    const struct point *const points[] = { &gemm, &experts, &attention, &copy };
    FILE *out = golden_begin();
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        (void)fprintf(out, "%s\n", point_describe(points[i], text, sizeof text));
    assert_golden_end("descriptions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_again),
        cmocka_unit_test(many_are_kept),
        cmocka_unit_test(faults_are_told),
        cmocka_unit_test(point_is_described),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
