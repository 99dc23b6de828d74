/* rankfit calibrate through the command line, on processors: measured, fitted, written, loaded and
 * planned with; and every way in which it cannot be. --quick: what is measured is not judged. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

/* Two ranks, so that there are collectives; the file loads, a plan is made with it, and the same
 * points make the same file again. */
static void host_end_to_end(void **state)
{
    static const char *const kinds[] = { "gemm", "all_gather", "reduce_scatter", "exchange",
                                         "overlap" };
    struct program_result result;
    (void)state;
    program_expect(
        "set -e; $RANKFIT calibrate --backend host --gpus 2 --quick --points $TMP/points.json "
        "-o $TMP/lab.yaml >/dev/null 2>&1\n"
        "$RANKFIT list hardware --check $TMP/lab.yaml >/dev/null 2>&1\n"
        "$RANKFIT plan --model tiny-moe --hardware $TMP/lab.yaml --gpus 2 --seq 128 >/dev/null\n"
        "$RANKFIT calibrate $TMP/points.json -o $TMP/again.yaml --name lab >/dev/null 2>&1\n"
        "cmp $TMP/lab.yaml $TMP/again.yaml; cat $TMP/points.json; rm $TMP/again.yaml; ls $TMP >&2",
        0, &result);
    assert_string_equal(result.err, "lab.yaml\npoints.json\n");
    json_t *points = json_loads(result.out, 0, NULL), *point;
    assert_true(json_is_true(json_at(points, "quick")));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t index, found = 0;
        json_array_foreach(json_at(points, "points"), index, point)
        {
            found += strcmp(json_string_value(json_object_get(point, "kind")), kinds[i]) == 0;
        }
        if (found == 0)
            fail_msg("no point of %s", kinds[i]);
    }
    json_decref(points);
    program_done(&result);
}

/* What the JSON says was measured is in the file; what was not is as the base file has it. */
static void json_and_file_agree(void **state)
{
    (void)state;
    struct program_result result;
    program_expect(
        "$RANKFIT calibrate --backend host --quick --json -o $TMP/lab.json 2>/dev/null && "
        "echo && cat $TMP/lab.json",
        0, &result);
    char *second = strstr(result.out, "\n}\n");
    assert_non_null(second);
    second[2] = '\0';
    json_t *report = json_loads(result.out, 0, NULL), *file = json_loads(second + 3, 0, NULL);
    assert_non_null(report);
    assert_non_null(file);
    assert_string_equal(json_string_value(json_at(report, "schema")), "rankfit.calibration/1");
    assert_string_equal(json_string_value(json_at(report, "name")), "lab");
    assert_string_equal(json_string_value(json_at(report, "base")), "host");
    assert_true(number_at(report, "ranks") == 1);
    assert_true(number_at(report, "points") > 50);
    const char *key;
    json_t *value;
    size_t count = 0;
    json_object_foreach(json_at(report, "values"), key, value)
    {
        json_t *entry = json_object_get(file, key);
        assert_true(json_number_value(json_object_get(entry, "value")) == json_number_value(value));
        count++;
    }
    assert_true(count > 5);
    /* one rank alone measures no collectives */
    assert_null(json_at(report, "values.gather_efficiency"));
    assert_string_equal(json_string_value(json_at(file, "memory_bytes.value")), "detect");
    json_decref(report);
    json_decref(file);
    program_done(&result);
}

/* Faults that are found before anything is measured; and nothing partial stays. */
static const struct told tolds[] = {
    { "no output", 2, "$RANKFIT calibrate --backend host --quick" },
    { "a name that is taken", 2,
      "$RANKFIT calibrate --backend host --quick -o $TMP/h200.yaml; s=$?; ls $TMP; exit $s" },
    { "a name with a blank", 2,
      "$RANKFIT calibrate --backend host --quick -o $TMP/a.yaml --name 'a b'" },
    { "GPUs by a file of processors", 2,
      "$RANKFIT calibrate --backend cuda --hardware host -o $TMP/a.yaml" },
    { "processors by a file of GPUs", 2,
      "$RANKFIT calibrate --backend host --hardware h200 -o $TMP/a.yaml" },
    { "an unknown file", 2, "$RANKFIT calibrate --backend host --hardware nowhere -o $TMP/a.yaml" },
    { "no points file", 2, "$RANKFIT calibrate $TMP/none.json -o $TMP/a.yaml" },
    { "not a points file", 2,
      "echo 'schema: rankfit.plan/1' >$TMP/p.yaml; $RANKFIT calibrate $TMP/p.yaml -o $TMP/a.yaml" },
    { "points and options of measuring", 2,
      "$RANKFIT calibrate $TMP/p.json --gpus 2 --quick -o $TMP/a.yaml" },
    { "under a launcher", 2,
      "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 $RANKFIT calibrate --backend host --quick -o "
      "$TMP/a.yaml" },
    { "output in no directory", 3,
      "$RANKFIT calibrate --backend host --quick -o $TMP/no/lab.yaml" },
    { "points to a directory", 3,
      "$RANKFIT calibrate --backend host --quick -o $TMP/lab.yaml --points $TMP" },
    { "no mpirun", 3,
      "RANKFIT_LIBEXEC=/nowhere PATH=/nowhere $RANKFIT calibrate --backend host --quick -o "
      "$TMP/lab.yaml; s=$?; ls $TMP; exit $s" },
/* A device's points need the file of a part of that name. */
#define POINTS(device)                                                                             \
    "printf '{\"schema\":\"rankfit.points/1\",\"backend\":\"cuda\",\"device\":\"" device           \
    "\",\"versions\":\"v\",\"date\":\"2026-11-29\",\"ranks\":1,\"memory_bytes\":150109880320,"     \
    "\"points\":[{\"kind\":\"held\",\"name\":\"context\",\"bytes\":5e8}]}' > $TMP/p.json; "
    { "points of a known device", 0,
      POINTS("NVIDIA H200") "$RANKFIT calibrate $TMP/p.json -o $TMP/a.yaml" },
    { "points of an unknown device", 2,
      POINTS("NVIDIA H2000") "$RANKFIT calibrate $TMP/p.json -o $TMP/a.yaml" },
    { "points of an unknown device with a file", 0,
      POINTS("NVIDIA H2000") "$RANKFIT calibrate $TMP/p.json --hardware h200 -o $TMP/a.yaml" },
    { "points of an H200", 0,
      "$RANKFIT calibrate \"$RANKFIT_SOURCE_ROOT/tests/data/measured/calibrate/h200.json\" -o "
      "$TMP/lab.yaml" },
};

static void interrupted_leaves_nothing(void **state)
{
    (void)state;
    assert_told_diagnostics(
        "interrupted", 0,
        "TMPDIR=$TMP timeout -s INT 2 $RANKFIT calibrate --backend host --points $TMP/p.json "
        "-o $TMP/lab.yaml 2>$TMP/talk; grep -v 'error: rank' $TMP/talk >&2; ls $TMP | grep -e lab "
        "-e p.json -e rankfit- && exit 1; exit 0");
}

int main(void)
{
    enum { TOLD = sizeof tolds / sizeof *tolds, OTHERS = 3 };
    struct CMUnitTest tests[OTHERS + TOLD] = {
        cmocka_unit_test(host_end_to_end),
        cmocka_unit_test(json_and_file_agree),
        cmocka_unit_test(interrupted_leaves_nothing),
    };
    told_tests(tolds, TOLD, tests + OTHERS);
    if (!getenv("RANKFIT_HOST"))
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
