#include "tests/e2e/cases.h"

#include "tests/e2e/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LINE_BYTES = 2048 };

static void run(const char *command, const char *arguments, struct program_result *ret)
{
    char line[LINE_BYTES];
    (void)snprintf(line, sizeof line, "\"$RANKFIT\" %s %s", command, arguments);
    program_run(line, ret);
}

static json_t *document_of(const char *command, const char *arguments)
{
    struct program_result result;
    run(command, arguments, &result);
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

/* Lines are wrapped for people: runs of white space count as one space. */
static void join_lines(char *text)
{
    char *write = text;
    for (const char *read = text; *read; read++)
        if (!strchr(" \n", *read))
            *write++ = *read;
        else if (write > text && write[-1] != ' ')
            *write++ = ' ';
    *write = '\0';
}

static void assert_says(const char *arguments, char *text, const char *const *says)
{
    join_lines(text);
    for (; *says; says++)
        if (!strstr(text, *says))
            fail_msg("%s: does not say \"%s\" but\n%s", arguments, *says, text);
}

static void plan_says(const char *arguments, int most, const char *const *says)
{
    struct program_result result;
    run("plan", arguments, &result);
    bool refused = result.status == 2;
    if (result.status > 2 || refused != (most == 2))
        fail_msg("%s: exit status %d\n%s", arguments, result.status, result.err);
    assert_says(arguments, result.err, says);
    program_done(&result);
}

void case_refused(const char *arguments, const char *const *says)
{
    plan_says(arguments, 2, says);
}

void case_warned(const char *arguments, const char *const *says)
{
    plan_says(arguments, 1, says);
}

void case_explained(const char *name, const char *const *says)
{
    struct program_result result;
    run("explain", name, &result);
    assert_int_equal(result.status, 0);
    assert_says(name, result.out, says);
    program_done(&result);
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

bool case_warns(json_t *plan, const char *text)
{
    json_t *warning;
    size_t index;
    json_array_foreach(json_at(plan, "warnings"), index, warning)
    {
        if (strstr(json_string_value(warning), text))
            return true;
    }
    return false;
}
