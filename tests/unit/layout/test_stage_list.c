/* Layers of stages as text. */
#include "base/layout/stage_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Each with the part that is wrong. */
static void what_is_none_is_refused(void **state)
{
    static const struct {
        const char *text, *fault;
    } rows[] = {

        { "", "it is empty" },
        { ",", "part 1 is empty" },
        { "12,", "part 2 is empty" },
        { "12,,12", "part 2 is empty" },
        { "12,0", "part 2, '0', is neither a number from 1 to 4096 nor" },
        { "12*", "part 1, '12*', is neither" },
        { "*3", "part 1, '*3', is neither" },
        { "12*0", "part 1, '12*0', is neither" },
        { "-1", "part 1, '-1', is neither" },
        { "24,24.5", "part 2, '24.5', is neither" },
        { "12*129", "there are more than 128 stages" },
        { "12*1000000000", "there are more than 128 stages" },
        { "1*128,1", "there are more than 128 stages" },
        { "5000", "part 1, '5000', is neither" },
        { "q", "part 1, 'q', is neither" },
        { "E|t", "stage 0 has no layer t" },
        { "t|", "stage 1 has no layer t" },
        { "|t", "stage 0 has no layer t" },
        { "t||t", "stage 1 has no layer t" },
        { "t|mL", "stage 1 has no layer t" },
        { "()*3L", "stage 0 has no layer t" },
        { "(t", "a bracket is not closed" },
        { "t)", "')', character 2, closes no bracket" },
        { "t*", "'*', character 2, stands before no number" },
        { "t*x", "'*', character 2, stands before no number" },
        { "t*0|t", "'*', character 2, stands before no number" },
        { "Et|q*3", "'q', character 4, is none of" },
        { "t 12", "' ', character 2, is none of" },
        { "t*5000", "stage 0 has too many layers" },
        { "t*99999", "it has more than 8192 letters" },
        { "t*99999999999999999999", "it has more than 8192 letters" },
        { "t*8000*9", "'*', character 7, is none of" },
        { "((t*90)*90)*90", "it has more than 8192 letters" },
        { "(t|)*200t", "there are more than 128 stages" },
        { "((((((((((t))))))))))", "'(', character 9, opens one bracket too many" },
        { "tE|tL", "E is not at the beginning" },
        { "EEt", "E is not at the beginning" },
        { "Et|Et", "E is not at the beginning" },
        { "EtL|t", "L is not at the end" },
        { "EtLL", "L is not at the end" },
        { "EtLm", "L is not at the end" },
        { "Etm|tL", "m is not behind the layers of the last stage" },
        { "Et|mtL", "m is not behind the layers of the last stage" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int stages[LAYOUT_MAX_STAGES];
        char fault[STAGE_FAULT_BYTES] = "";
        assert_int_equal(stage_list_parse(rows[i].text, 4096, stages, NULL), -1);
        if (stage_list_parse(rows[i].text, 4096, stages, fault) != -1)
            fail_msg("\"%s\": taken", rows[i].text);
        if (strncmp(fault, rows[i].fault, strlen(rows[i].fault)) != 0)
            fail_msg("\"%s\": %s, not %s", rows[i].text, fault, rows[i].fault);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_what_they_mean),
        cmocka_unit_test(what_is_none_is_refused),
    };
    return cmocka_run_group_tests_name("stage_list", tests, NULL, NULL);
}
