#include "tests/e2e/cases.h"

#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LINE_BYTES = 2048 };

static char *command_line(const char *command, const char *arguments)
{
    static char line[LINE_BYTES];
    (void)snprintf(line, sizeof line, "\"$RANKFIT\" %s %s", command, arguments);
    return line;
}

static json_t *document_of(const char *command, const char *arguments)
{
    struct program_result result;
    program_run(command_line(command, arguments), &result);
    if (result.status > 1)
        fail_msg("%s %s: exit status %d\n%s", command, arguments, result.status, result.err);
    json_t *ret = json_loads(result.out, 0, NULL);
    assert_non_null(ret);
    program_done(&result);
    return ret;
}

json_t *case_plan(const char *arguments, const char *verdict)
{
    json_t *ret = document_of("plan --json", arguments);
    const char *said = json_string_value(json_at(ret, "verdict"));
    if (strcmp(said, verdict) != 0)
        fail_msg("%s: %s, not %s", arguments, said, verdict);
    return ret;
}

json_t *case_budget(const char *arguments)
{
    return document_of("budget --json", arguments);
}

json_t *case_ranks(json_t *document)
{
    json_t *ranks = json_at(document, "recommended.ranks");
    return ranks ? ranks : json_at(document, "ranks");
}

double case_rank_number(json_t *document, int group, const char *key)
{
    json_t *rank = json_array_get(case_ranks(document), (size_t)group);
    return number_at(rank, key);
}

static double item_number(json_t *document, const char *item, const char *key)
{
    json_t *rank = json_array_get(case_ranks(document), 0), *entry;
    size_t index;
    json_array_foreach(json_object_get(rank, "zero_items"), index, entry)
    {
        if (strcmp(json_string_value(entry), item) == 0)
            return 0;
    }
    return number_at(json_named(json_object_get(rank, "items"), item), key);
}

double case_item(json_t *document, const char *item)
{
    return item_number(document, item, "bytes");
}

double case_item_most(json_t *document, const char *item)
{
    return item_number(document, item, "max_bytes");
}

void case_refused(const char *arguments)
{
    assert_told(arguments, 2, command_line("plan", arguments));
}

void case_warned(const char *arguments)
{
    struct program_result result;
    program_run(command_line("plan", arguments), &result);
    assert_in_range(result.status, 0, 1);
    assert_golden(arguments, result.err);
    program_done(&result);
}

void case_explained(const char *name)
{
    assert_told(name, 0, command_line("explain", name));
}

bool case_offers(json_t *plan, const char *what)
{
    json_t *nearest;
    size_t index;
    json_array_foreach(json_at(plan, "nearest"), index, nearest)
    {
        const char *set = json_string_value(json_object_get(nearest, "set"));
        if (json_object_get(nearest, what) || (set && strcmp(set, what) == 0))
            return true;
    }
    return false;
}

size_t case_warnings(const char *title, json_t *plan)
{
    json_t *warnings = json_at(plan, "warnings"), *warning;
    size_t index;
    FILE *out = golden_begin();
    json_array_foreach(warnings, index, warning)
    {
        (void)fprintf(out, "%s\n", json_string_value(warning));
    }
    assert_golden_end(title);
    return json_array_size(warnings);
}

void case_reason(const char *title, json_t *plan, const char *choice)
{
    json_t *reason;
    size_t index;
    json_array_foreach(json_at(plan, "recommended.reasons"), index, reason)
    {
        if (strcmp(json_string_value(json_object_get(reason, "choice")), choice) == 0) {
            assert_golden(title, json_string_value(json_object_get(reason, "because")));
            return;
        }
    }
    fail_msg("no reason of %s", choice);
}
