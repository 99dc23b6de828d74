/* Layers of stages as text. */
#include "base/layout/stage_list.h"

#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void texts_and_what_they_mean(void **state)
{
    static const struct {
        const char *text;
        int stages, layers[6];
    } rows[] = {
        { "12", 1, { 12 } },
        { "12,12,11", 3, { 12, 12, 11 } },
        { "12*3,10", 4, { 12, 12, 12, 10 } },
        { "1*6", 6, { 1, 1, 1, 1, 1, 1 } },
        { "t", 1, { 1 } },
        { "Ett|t|tL", 3, { 2, 1, 1 } },
        { "Et*12|t*12|t*11L", 3, { 12, 12, 11 } },
        { "Et*3|(tt|)*3t,mL", 5, { 3, 2, 2, 2, 1 } },
        { "(t|)*2(t(t)*3|)*1t", 4, { 1, 1, 4, 1 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int stages[LAYOUT_MAX_STAGES];
        if (stage_list_parse(rows[i].text, 4096, stages, NULL) != 0)
            fail_msg("%s: refused", rows[i].text);
        assert_memory_equal(stages, rows[i].layers, (size_t)rows[i].stages * sizeof *stages);
        for (int s = rows[i].stages; s < LAYOUT_MAX_STAGES; s++)
            assert_int_equal(stages[s], 0);
    }
}

/* Each fault names the part that is wrong. */
static void refuses_other_texts(void **state)
{
    static const char *const texts[] = {
        "",
        ",",
        "12,",
        "12,,12",
        "12,0",
        "12*",
        "*3",
        "12*0",
        "-1",
        "24,24.5",
        "12*129",
        "12*1000000000",
        "1*128,1",
        "5000",
        "q",
        "E|t",
        "t|",
        "|t",
        "t||t",
        "t|mL",
        "()*3L",
        "(t",
        "t)",
        "t*",
        "t*x",
        "t*0|t",
        "Et|q*3",
        "t 12",
        "t*5000",
        "t*99999",
        "t*99999999999999999999",
        "t*8000*9",
        "((t*90)*90)*90",
        "(t|)*200t",
        "((((((((((t))))))))))",
        "tE|tL",
        "EEt",
        "Et|Et",
        "EtL|t",
        "EtLL",
        "EtLm",
        "Etm|tL",
        "Et|mtL",
    };
    FILE *out = golden_begin();
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int stages[LAYOUT_MAX_STAGES];
        char fault[STAGE_FAULT_BYTES] = "";
        assert_int_equal(stage_list_parse(texts[i], 4096, stages, NULL), -1);
        if (stage_list_parse(texts[i], 4096, stages, fault) != -1)
            fail_msg("\"%s\": accepted", texts[i]);
        (void)fprintf(out, "%s: %s\n", texts[i], fault);
    }
    assert_golden_end("refused texts");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_what_they_mean),
        cmocka_unit_test(refuses_other_texts),
    };
    return cmocka_run_group_tests_name("stage_list", tests, NULL, NULL);
}
