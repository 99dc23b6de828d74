/* rankfit calibrate through the command line, on processors: measured, fitted, written, loaded and
 * planned with; and every way in which it cannot be. --quick: what is measured is not judged. */
#include "tests/e2e/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

static void expect(const char *command, int status, struct program_result *ret)
{
    program_run(command, ret);
    if (ret->status != status)
        print_error("%s\nexit status %d, not %d\n%s\n%s", command, ret->status, status, ret->out,
                    ret->err);
    assert_int_equal(ret->status, status);
}

static void expect_words(const char *command, int status, const char *const *words, size_t count)
{
    struct program_result result;
    expect(command, status, &result);
    for (size_t i = 0; i < count; i++)
        if (!strstr(result.err, words[i]) && !strstr(result.out, words[i])) {
            print_error("%s\nlacks \"%s\"\n%s\n%s", command, words[i], result.out, result.err);
            fail();
        }
    program_done(&result);
}
#define EXPECT(command, status, ...)                                                               \
    do {                                                                                           \
        static const char *const words[] = { __VA_ARGS__ };                                        \
        expect_words(command, status, words, sizeof words / sizeof *words);                        \
    } while (0)

/* Two ranks, so that there are collectives; the file loads, a plan is made with it, and the same
 * points make the same file again. */
static void host_end_to_end(void **state)
{
    (void)state;
    EXPECT("$RANKFIT calibrate --backend host --gpus 2 --quick --points $TMP/points.json "
           "-o $TMP/lab.yaml 2>/dev/null && "
           "$RANKFIT list hardware --check $TMP/lab.yaml && "
           "$RANKFIT plan --model tiny-moe --hardware $TMP/lab.yaml --gpus 2 --seq 128 && "
           "$RANKFIT calibrate $TMP/points.json -o $TMP/again.yaml --name lab > /dev/null && "
           "cmp $TMP/lab.yaml $TMP/again.yaml && grep -c 'measured by rankfit calibrate' "
           "$TMP/lab.yaml && ls $TMP",
           0, "dense matmuls", "all-gather, reduce-scatter", "all-to-all",
           "exchange beside experts", "exchange_overlap", "collective_latency",
           "its figures are no measurement", "fits", "lab.yaml\npoints.json\n");
}

/* What the JSON says was measured is in the file; what was not is as the base file has it. */
static void json_and_file_agree(void **state)
{
    (void)state;
    struct program_result result;
    expect("$RANKFIT calibrate --backend host --quick --json -o $TMP/lab.json 2>/dev/null && "
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
        assert_non_null(strstr(json_string_value(json_object_get(entry, "source")), "measured by"));
        count++;
    }
    assert_true(count > 5);
    /* one rank alone tells nothing of collectives */
    assert_non_null(strstr(json_string_value(json_at(file, "gather_efficiency.source")),
                           "between two processes"));
    assert_string_equal(json_string_value(json_at(file, "memory_bytes.value")), "detect");
    json_decref(report);
    json_decref(file);
    program_done(&result);
}

static void wrong_questions(void **state)
{
    (void)state;
    EXPECT("$RANKFIT calibrate --backend host --quick", 2, "where is the hardware file to go?");
    EXPECT("$RANKFIT calibrate --backend host --quick -o $TMP/h200.yaml; s=$?; ls $TMP; exit $s", 2,
           "there is a hardware file called h200 already", "--name h200-measured");
    EXPECT("$RANKFIT calibrate --backend host --quick -o $TMP/a.yaml --name 'a b'", 2,
           "\"a b\" cannot name a machine");
    EXPECT("$RANKFIT calibrate --backend cuda --hardware host -o $TMP/a.yaml", 2,
           "host is a file of processors, and --backend cuda measures GPUs");
    EXPECT("$RANKFIT calibrate --backend host --hardware h200 -o $TMP/a.yaml", 2,
           "h200 is a file of GPUs, and --backend host measures processors");
    EXPECT("$RANKFIT calibrate --backend host --hardware nowhere -o $TMP/a.yaml", 2, "nowhere");
    EXPECT("$RANKFIT calibrate $TMP/none.json -o $TMP/a.yaml", 2, "none.json");
    EXPECT("echo 'schema: rankfit.plan/1' > $TMP/p.yaml; "
           "$RANKFIT calibrate $TMP/p.yaml -o $TMP/a.yaml",
           2, "not a points file");
    EXPECT("$RANKFIT calibrate $TMP/p.json --gpus 2 --quick -o $TMP/a.yaml", 2,
           "--gpus: error: a points file is given, so that nothing is measured", "--quick: error");
    EXPECT("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 $RANKFIT calibrate --backend host "
           "--quick -o $TMP/a.yaml",
           2, "starts its ranks itself");
}

/* Asked before anything is measured; and nothing partial stays. */
static void what_cannot_be_written_is_told_first(void **state)
{
    (void)state;
    EXPECT("$RANKFIT calibrate --backend host --quick -o $TMP/no/lab.yaml", 3,
           "cannot write 'TMP/no/lab.yaml'");
    EXPECT("$RANKFIT calibrate --backend host --quick -o $TMP/lab.yaml --points $TMP", 3,
           "--points: error: cannot write 'TMP': it is a directory");
    EXPECT("RANKFIT_LIBEXEC=/nowhere PATH=/nowhere $RANKFIT calibrate --backend host --quick "
           "-o $TMP/lab.yaml; s=$?; ls $TMP; exit $s",
           3, "mpirun is not on the PATH");
}

static void interrupted_leaves_nothing(void **state)
{
    (void)state;
    EXPECT("TMPDIR=$TMP timeout -s INT 2 $RANKFIT calibrate --backend host --points $TMP/p.json "
           "-o $TMP/lab.yaml; ls $TMP | grep -e lab -e p.json -e rankfit- && exit 1; exit 0",
           0, "error: the run was told to end (Interrupt)");
}

/* A device's points need the file of a part of that name. */
static void base_is_found_by_the_device(void **state)
{
    (void)state;
#define POINTS(device)                                                                             \
    "printf '{\"schema\":\"rankfit.points/1\",\"backend\":\"cuda\",\"device\":\"" device           \
    "\",\"versions\":\"v\",\"date\":\"2026-11-29\",\"ranks\":1,\"memory_bytes\":150109880320,"     \
    "\"points\":[{\"kind\":\"held\",\"name\":\"context\",\"bytes\":5e8}]}' > $TMP/p.json; "
    EXPECT(POINTS("NVIDIA H200") "$RANKFIT calibrate $TMP/p.json -o $TMP/a.yaml", 0, "base h200",
           "context_bytes");
    EXPECT(POINTS("NVIDIA H2000") "$RANKFIT calibrate $TMP/p.json -o $TMP/a.yaml", 2,
           "no hardware file is of a NVIDIA H2000", "--hardware NAME");
    EXPECT(POINTS("NVIDIA H2000") "$RANKFIT calibrate $TMP/p.json --hardware h200 -o $TMP/a.yaml",
           0, "base h200");
#undef POINTS
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_end_to_end),
        cmocka_unit_test(json_and_file_agree),
        cmocka_unit_test(wrong_questions),
        cmocka_unit_test(what_cannot_be_written_is_told_first),
        cmocka_unit_test(interrupted_leaves_nothing),
        cmocka_unit_test(base_is_found_by_the_device),
    };
    if (!getenv("RANKFIT_HOST"))
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
