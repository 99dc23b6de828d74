/* Options and recipes: which words are taken, who wins, what is relative to what. */
#include "planner/cli/command.h"
#include "planner/cli/options.h"

#include "base/layout/capability.h"
#include "base/text.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_WORDS = 16 };

struct parsed {
    struct options options;
    struct diag_list list;
    int status;
    char text[512];
};

/* Parses `line` (words between blanks) as the arguments of a command. */
static void parse(const char *command, const char *line, struct parsed *ret)
{
    char *words[MAX_WORDS + 1] = { 0 };
    int count = 0;
    memset(ret, 0, sizeof *ret);
    (void)snprintf(ret->text, sizeof ret->text, "%s %s", command, line);
    for (char *at = ret->text; *at && count < MAX_WORDS;) {
        words[count++] = at;
        at += strcspn(at, " ");
        if (*at)
            *at++ = '\0';
    }
    ret->status = options_parse(command_find(command), count, words, &ret->options, &ret->list);
}

static void done(struct parsed *parsed)
{
    options_done(&parsed->options);
}

static void values_in_both_forms(void **state)
{
    (void)state;
    struct parsed p;
    parse("plan", "--model a --gpus=8 --json -o out.yaml --set tp=2 --set cp=4", &p);
    assert_int_equal(p.status, 0);
    assert_int_equal(p.list.errors, 0);
    assert_string_equal(p.options.value[OPTION_MODEL], "a");
    assert_string_equal(p.options.value[OPTION_GPUS], "8");
    assert_string_equal(p.options.value[OPTION_OUTPUT], "out.yaml");
    assert_true(options_has(&p.options, OPTION_JSON));
    assert_int_equal(p.options.set_count, 2);
    assert_string_equal(p.options.set[1].key, "cp");
    assert_string_equal(p.options.set[1].value, "4");
    done(&p);
}

/* A value may look like an option; only `--` ends options. */
static void values_that_look_like_options(void **state)
{
    (void)state;
    struct parsed p;
    parse("run", "--data --json --steps 2", &p);
    assert_int_equal(p.status, 0);
    assert_string_equal(p.options.value[OPTION_DATA], "--json");
    assert_false(options_has(&p.options, OPTION_JSON));
    done(&p);
    parse("budget", "-- --rank", &p);
    assert_int_equal(p.options.argument_count, 1);
    assert_string_equal(p.options.argument[0], "--rank");
    done(&p);
}

static void no_abbreviations(void **state)
{
    (void)state;
    static const char *const lines[] = { "--mod x", "--gpu 8", "--js", "--he", "--set-key a=b" };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct parsed p;
        parse("plan", lines[i], &p);
        assert_int_equal(p.status, -1);
        assert_int_equal(p.list.errors, 1);
        done(&p);
    }
}

/* Each command takes the options of its bit and no other. */
static void commands_take_their_own(void **state)
{
    (void)state;
    for (size_t c = 0; c < command_count; c++)
        for (int i = 0; i < OPTION_COUNT; i++) {
            const struct option_info *info = &option_infos[i];
            if (i == OPTION_HELP)
                continue;
            char line[64];
            struct parsed p;
            (void)snprintf(line, sizeof line, "--%s%s", info->name, info->value ? "=x=1" : "");
            parse(commands[c].name, line, &p);
            bool takes = info->commands & command_bit(&commands[c]);
            bool taken = options_has(&p.options, i) || p.options.set_count > 0;
            assert_int_equal(taken, takes);
            assert_true(takes || p.list.errors > 0);
            done(&p);
        }
}

static void ranges_come_from_the_table(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int errors;
    } cases[] = {
        { "--gpus 1", 0 },
        { "--gpus 65536", 0 },
        { "--gpus 65537", 1 },
        { "--gpus 0", 1 },
        { "--gpus 8x", 1 },
        { "--seq 4G", 1 },
        { "--seq 128K", 0 },
        { "--seq 0", 1 },
        { "--headroom 2%", 0 },
        { "--headroom 1.5GB", 0 },
        { "--headroom 101%", 1 },
        { "--reserve -1", 1 },
        { "--engine rankfit", 0 },
        { "--engine megatron", 0 },
        { "--engine deepspeed", 1 },
        { "--routing 80:4", 0 },
        { "--routing x", 1 },
        { "--steps 0 --seed -1", 2 },
        { "--backend gpu", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p;
        parse("run", cases[i].line, &p);
        if (p.list.errors != cases[i].errors)
            print_error("%s: %d errors\n", cases[i].line, p.list.errors);
        assert_int_equal(p.list.errors, cases[i].errors);
        done(&p);
    }
}

static void backends_have_one_order(void **state)
{
    (void)state;
    for (int i = 0; i < BACKEND_COUNT; i++)
        assert_string_equal(option_infos[OPTION_BACKEND].names[i], backend_names[i]);
    assert_null(option_infos[OPTION_BACKEND].names[BACKEND_COUNT]);
}

/* Writes a recipe in a directory of its own and parses `rankfit COMMAND --recipe IT LINE`. */
static void parse_recipe(const char *command, const char *recipe, const char *line,
                         char directory[static 64], struct parsed *ret)
{
    char path[96], words[256];
    (void)snprintf(directory, 64, "/tmp/rankfit-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/r.yaml", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(recipe, file) >= 0);
    assert_int_equal(fclose(file), 0);
    (void)snprintf(words, sizeof words, "--recipe %s %s", path, line);
    parse(command, words, ret);
    (void)unlink(path);
    (void)rmdir(directory);
}

static void command_line_wins(void **state)
{
    (void)state;
    struct parsed p;
    char directory[64];
    parse_recipe("plan", "model: a\ngpus: 8\nset: {tp: 2, cp: 4}\n", "--gpus 16 --set tp=1",
                 directory, &p);
    assert_int_equal(p.list.errors, 0);
    assert_string_equal(p.options.value[OPTION_MODEL], "a");
    assert_string_equal(p.options.value[OPTION_GPUS], "16");
    assert_int_equal(p.options.set_count, 2);
    assert_string_equal(p.options.set[0].value, "1");
    assert_string_equal(p.options.set[1].key, "cp");
    assert_int_equal(p.options.set[1].at.line, 3);
    done(&p);
}

/* The author of a recipe must not decide which files are written. */
static void recipes_write_nothing(void **state)
{
    (void)state;
    static const enum option_id ids[] = { OPTION_OUTPUT, OPTION_SAVE, OPTION_TRACE, OPTION_POINTS };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct parsed p;
        char directory[64], recipe[64], want[96];
        (void)snprintf(recipe, sizeof recipe, "%s: x\n", option_infos[ids[i]].name);
        parse_recipe("run", recipe, "", directory, &p);
        assert_int_equal(p.list.errors, 1);
        (void)snprintf(want, sizeof want, "a recipe cannot name a file to write: '%s'",
                       option_infos[ids[i]].name);
        assert_string_equal(p.list.items[0].what, want);
        assert_null(p.options.value[ids[i]]);
        done(&p);
    }
}

/* Names stay names; paths are relative to the recipe; other commands' options are let be. */
static void paths_are_relative_to_the_recipe(void **state)
{
    (void)state;
    struct parsed p;
    char directory[64], want[128];
    parse_recipe("run",
                 "model: sub/config.json\nhardware: host\ndata: text.txt\n"
                 "rank: 3\nset: {stage_layers: [2, 3]}\n",
                 "", directory, &p);
    assert_int_equal(p.list.errors, 0);
    (void)snprintf(want, sizeof want, "%s/sub/config.json", directory);
    assert_string_equal(p.options.value[OPTION_MODEL], want);
    assert_string_equal(p.options.value[OPTION_HARDWARE], "host");
    (void)snprintf(want, sizeof want, "%s/text.txt", directory);
    assert_string_equal(p.options.value[OPTION_DATA], want);
    assert_string_equal(p.options.set[0].value, "2,3");
    done(&p);
}

/* 2,047 characters are what a value has room for: 1,024 digits and 1,023 commas. One more entry is
 * an error, never a shorter list. */
static void long_lists_are_refused(void **state)
{
    (void)state;
    for (int entries = 1024; entries <= 1025; entries++) {
        char recipe[2200] = "set: {stage_layers: [1", directory[64];
        struct parsed p;
        size_t used = strlen(recipe);
        for (int i = 1; i < entries; i++)
            text_append(recipe, sizeof recipe, &used, ",1");
        text_append(recipe, sizeof recipe, &used, "]}\n");
        parse_recipe("plan", recipe, "", directory, &p);
        assert_int_equal(p.list.errors, entries > 1024);
        if (entries > 1024)
            assert_golden_diags("a long list", &p.list);
        else
            assert_int_equal(strlen(p.options.set[0].value), 2047);
        done(&p);
    }
}

/* What a sweep takes several of may be a list of YAML; for others it is several all the same. */
static void lists_of_a_recipe_are_lists(void **state)
{
    (void)state;
    static const char recipe[] = "gpus: [8, 16]\nseq: [4K, 8192]\n";
    struct parsed p;
    char directory[64];
    parse_recipe("sweep", recipe, "", directory, &p);
    assert_int_equal(p.list.errors, 0);
    assert_string_equal(p.options.value[OPTION_GPUS], "8,16");
    assert_string_equal(p.options.value[OPTION_SEQ], "4K,8192");
    assert_int_equal(option_count(&p.options, OPTION_SEQ), 2);
    done(&p);
    parse_recipe("plan", recipe, "", directory, &p);
    assert_int_equal(p.list.errors, 2);
    assert_golden_diags("lists for a command that takes one value", &p.list);
    done(&p);
    parse_recipe("sweep", "gpus: [8, [16]]\nseq: {a: 4K}\n", "", directory, &p);
    assert_int_equal(p.list.errors, 2);
    done(&p);
}

static void recipes_are_judged_whole(void **state)
{
    (void)state;
    struct parsed p;
    char directory[64];
    parse_recipe("plan", "modle: a\nmicro-batch: [1]\nset: 3\njson: 4\nrecipe: other\n", "",
                 directory, &p);
    assert_int_equal(p.status, 0);
    assert_int_equal(p.list.errors, 5);
    assert_true(p.options.recipe_failed);
    assert_golden_diags("a recipe with five faults", &p.list);
    assert_int_equal(p.list.items[1].line, 2);
    assert_int_equal(p.list.items[1].column, 14);
    done(&p);
}

static void set_twice(void **state)
{
    (void)state;
    struct parsed p;
    parse("plan", "--set tp=1 --set tp=1", &p);
    assert_int_equal(p.list.errors, 0);
    assert_int_equal(p.options.set_count, 1);
    done(&p);
    parse("plan", "--set tp=1 --set tp=2 --set =3 --set x", &p);
    assert_int_equal(p.list.errors, 3);
    done(&p);
}

/* --tp 2 is --set tp=2, in both forms, and not for commands without --set. */
static void degrees_are_short_forms(void **state)
{
    (void)state;
    struct parsed p;
    parse("plan", "--tp 2 --ep=8 --set tp=2", &p);
    assert_int_equal(p.list.errors, 0);
    assert_int_equal(p.options.set_count, 2);
    assert_string_equal(p.options.set[0].key, "tp");
    assert_string_equal(p.options.set[0].value, "2");
    assert_string_equal(p.options.set[1].key, "ep");
    assert_string_equal(p.options.set[1].value, "8");
    done(&p);
    static const char *const refused[][2] = {
        { "plan", "--tp 2 --set tp=4" }, { "plan", "--tp" },  { "plan", "--recompute full" },
        { "compare", "--tp 2 a b" },     { "plan", "--etp" },
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        parse(refused[i][0], refused[i][1], &p);
        assert_int_equal(p.list.errors, 1);
        done(&p);
    }
}

/* The library that lays the help out puts values apart from options whose line is too long. */
static void help_lines_are_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < command_count; i++) {
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        options_help(&commands[i], out);
        assert_int_equal(fclose(out), 0);
        if (strstr(text, "  ="))
            fail_msg("rankfit %s --help: %s", commands[i].name, text);
        for (int id = 0; id < OPTION_COUNT; id++) {
            char shown[96];
            const struct option_info *info = &option_infos[id];
            (void)snprintf(shown, sizeof shown, "      --%s%s%s", info->name,
                           info->value ? "=" : "", info->value ? info->value : "");
            if (!info->letter && info->commands & command_bit(&commands[i]) && !strstr(text, shown))
                fail_msg("rankfit %s --help lacks%s", commands[i].name, shown);
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_in_both_forms),
        cmocka_unit_test(values_that_look_like_options),
        cmocka_unit_test(no_abbreviations),
        cmocka_unit_test(commands_take_their_own),
        cmocka_unit_test(ranges_come_from_the_table),
        cmocka_unit_test(backends_have_one_order),
        cmocka_unit_test(command_line_wins),
        cmocka_unit_test(paths_are_relative_to_the_recipe),
        cmocka_unit_test(recipes_write_nothing),
        cmocka_unit_test(long_lists_are_refused),
        cmocka_unit_test(recipes_are_judged_whole),
        cmocka_unit_test(set_twice),
        cmocka_unit_test(degrees_are_short_forms),
        cmocka_unit_test(help_lines_are_whole),
        cmocka_unit_test(lists_of_a_recipe_are_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
