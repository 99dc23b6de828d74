/* Launches whose outcome is public, tests/data/launch: each file names its source. The verdict must
 * be the outcome; where the memory was published, the peak must be near to it. Engine rankfit has
 * no caching allocator, so its peaks are the lower ones: at least `LEAST` of the published figure.
 */
#include "tests/e2e/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const double LEAST = 0.72, MOST = 1.0, GIB = 1073741824.0;

static const struct {
    const char *file, *options, *verdict;
    int status;
    double published_gib; /* 0: not published */
} launches[] = {
    { "swift-qwen3-32b.sh", "--hardware a100-80gb", "fits", 0, 80 },
    { "swift-qwen2.5-72b-offload.sh", "--hardware a100-80gb", "fits", 0, 65 },
    { "swift-qwen2.5-7b-32k.sh", "--hardware a100-80gb", "fits", 0, 50 / 1.073741824 },
    { "swift-qwen3-30b-lora.sh", "--hardware a100-80gb", "fits", 0, 62 },
    { "swift-qwen3-30b-pp2.sh", "--hardware a100-80gb", "fits", 0, 60 },
    { "swift-qwen3-30b-offload.sh", "--hardware a100-80gb", "fits", 0, 75 },
    { "swift-qwen3-30b-tp4.sh", "--hardware a100-80gb", "fits", 0, 76 },
    { "swift-qwen3-235b-lora.sh", "--hardware a100-80gb", "fits", 0, 80 },
    { "verl-qwen3-30b.sh", "--hardware h20", "fits", 0, 0 },
    { "slime-qwen3-30b.sh", "--hardware h100-sxm", "fits", 0, 0 },
    { "swift-qwen3-30b-4090.sh", "--hardware rtx4090", "does_not_fit", 1, 0 },
    { "megatron-llama2-7b-40gb.sh", "--hardware a100-80gb --set hardware.memory_bytes=39.4GiB",
      "does_not_fit", 1, 0 },
    { "swift-qwen3-235b-full.sh", "--hardware a100-80gb", "does_not_fit", 1, 0 },
    { "megatron-tp-ep.sh", "--hardware h100-sxm", "illegal", 1, 0 },
};

static void verdicts_are_the_outcomes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof launches / sizeof *launches; i++) {
        char arguments[512];
        (void)snprintf(arguments, sizeof arguments,
                       "check \"$RANKFIT_SOURCE_ROOT/tests/data/launch/%s\" %s --json",
                       launches[i].file, launches[i].options);
        json_t *document = program_json(arguments, launches[i].status);
        const char *verdict = json_string_value(json_at(document, "verdict"));
        if (strcmp(verdict, launches[i].verdict) != 0)
            fail_msg("%s: %s", launches[i].file, verdict);
        if (json_array_size(json_at(document, "unknown")) > 0)
            fail_msg("%s has options that are not known", launches[i].file);
        if (launches[i].published_gib > 0) {
            double ratio = number_at(document, "peak_bytes") / GIB / launches[i].published_gib;
            print_message("%s: %.2f of the published memory\n", launches[i].file, ratio);
            if (ratio < LEAST || ratio > MOST)
                fail_msg("%s: %.2f of the published memory", launches[i].file, ratio);
        }
        json_decref(document);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(verdicts_are_the_outcomes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
