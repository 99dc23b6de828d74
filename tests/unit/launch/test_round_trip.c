/* A plan written as a launch file and read back is the plan, as far as the engine can express it:
 * models, layouts and settings drawn at random, for every target that has a table. */
#include "planner/cli/command.h"
#include "planner/cli/subject.h"
#include "planner/launch/read.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TRIALS = 24, WORDS = 80 };

static const char *const models[] = { "llama-3.1-8b",   "qwen3-30b-a3b",      "deepseek-v3",
                                      "qwen3-0.6b",     "qwen3-next-80b-a3b", "mixtral-8x7b",
                                      "qwen3-235b-a22b" };
static const char *const drawn[][6] = {
    { "tp", "1", "2", "4" },
    { "pp", "1", "2", "4" },
    { "cp", "1", "1", "2" },
    { "ep", "1", "4", "8" },
    { "etp", "1", "1", "2" },
    { "sharding", "zero1", "fsdp", "zero2", "replicated" },
    { "recompute", "none", "full", "full", "selective" },
    { "keep_attention", "0", "1" },
    { "loss", "full", "linear_ce" },
    { "logits_dtype", "fp32", "bf16" },
    { "grad_dtype", "fp32", "bf16" },
    { "optimizer", "adamw", "muon" },
    { "moments_dtype", "fp32", "bf16" },
    { "offload", "none", "none", "optimizer", "checkpoints" },
    { "recompute_layers", "all", "all", "1", "2" },
    { "attention_deterministic", "0", "1" },
    { "micro_batch", "1", "2" },
};

/* A plan of a model with some keys drawn; NULL: the draw is not legal. */
static struct subject *draw(uint64_t *random)
{
    char text[WORDS][64], *argv[WORDS];
    int argc = 0;
    struct options options;
    struct diag_list errors = { 0 };
    const char *const fixed[] = { "plan",  "--hardware", "h100-sxm",       "--gpus", "64",
                                  "--seq", "4096",       "--global-batch", "256",    "--model" };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        (void)snprintf(text[argc++], sizeof *text, "%s", fixed[i]);
    (void)snprintf(text[argc++], sizeof *text, "%s",
                   models[random_below(random, sizeof models / sizeof *models)]);
    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++) {
        int count = 0;
        while (count < 5 && drawn[i][count + 1])
            count++;
        if (random_below(random, 3) == 0)
            continue;
        (void)snprintf(text[argc++], sizeof *text, "--set");
        (void)snprintf(text[argc++], sizeof *text, "%s=%s", drawn[i][0],
                       drawn[i][1 + random_below(random, (uint64_t)count)]);
    }
    for (int i = 0; i < argc; i++)
        argv[i] = text[i];
    struct subject *subject = NULL;
    if (options_parse(command_find("plan"), argc, argv, &options, &errors) == 0)
        subject = subject_open(&options, &errors);
    options_done(&options);
    return subject;
}

/* The choices that a launch of the settings runs, all of them. */
static bool choices_of(const struct subject *subject, const struct launch_settings *settings,
                       struct choices *ret)
{
    static struct answer answer;
    struct diag_list errors = { 0 };
    struct question question = subject->question;
    question.fixed = (struct fixed_choices){ 0 };
    bool read =
        launch_fix(settings, &subject->prediction.plan.model, &question.fixed, &errors) == 0;
    bool found = read && derive(&question, &answer, &errors) == 0;
    if (!read)
        print_error("%s\n", errors.items[0].what);
    assert_true(read);
    *ret = answer.recommended.choices;
    return found;
}

static void compare_choices(const struct launch_target *target, const struct choices *a,
                            const struct choices *b, const char *text)
{
    for (size_t row = 0; row < choice_key_count; row++) {
        char first[2048], second[2048];
        choice_format(a, (int)row, first, sizeof first);
        choice_format(b, (int)row, second, sizeof second);
        if (strcmp(first, second) != 0)
            fail_msg("%s: %s is %s, read back %s\n%s", target->name, choice_keys[row].key, first,
                     second, text);
    }
}

static void compare_number(const struct launch_settings *a, const struct launch_settings *b,
                           const char *key)
{
    const char *first = launch_get(a, key), *second = launch_get(b, key);
    if (!first || !second || strcmp(first, second) != 0)
        fail_msg("%s is %s, read back %s", key, first, second);
}

/* The model of Megatron's options has the same parameters, trained and active. */
static void compare_model(const struct launch_file *file, const struct model *model)
{
    struct model read = { 0 };
    struct diag_list errors = { 0 };
    int status = launch_model(file, &read, &errors);
    if (status != 1)
        fail_msg("%s: %s", model->name, errors.items[0].what);
    static struct model_sizes first, second;
    model_sizes_init(&first, model);
    model_sizes_init(&second, &read);
    assert_int_equal(first.counts.trained, second.counts.trained);
    assert_int_equal(first.counts.active, second.counts.active);
}

static bool round_trip(const struct launch_target *target, const struct subject *subject)
{
    static struct launch_settings settings;
    static struct launch_gaps gaps;
    static struct launch_file file;
    struct diag_list errors = { 0 };
    struct choices written, read;
    const struct model *model = &subject->prediction.plan.model;
    assert_int_equal(launch_settings_of_plan(&subject->prediction.plan, &settings, &errors), 0);
    assert_int_equal(launch_replace(target, &settings, &gaps, &errors), 0);
    char *text = launch_write(target, &settings, "a plan", "plan.yaml");
    assert_non_null(text);
    bool legal = choices_of(subject, &settings, &written);
    const char *name = target->form == LAUNCH_TOML ? "t.toml" : "t.sh";
    int status = launch_read_text(name, text, strlen(text), &file, &errors);
    if (status != 0)
        fail_msg("%s\n%s", errors.items[0].what, text);
    assert_ptr_equal(file.target, target);
    assert_int_equal(file.unknown_count, 0);
    assert_int_equal(launch_complete(&file.settings, model->layers, &errors), 0);
    assert_true(choices_of(subject, &file.settings, &read) == legal);
    if (legal)
        compare_choices(target, &written, &read, text);
    compare_number(&settings, &file.settings, "gpus");
    compare_number(&settings, &file.settings, "seq");
    compare_number(&settings, &file.settings, "global_batch");
    compare_number(&settings, &file.settings, "micro_batch");
    if (launch_get(&file.settings, "model.layers"))
        compare_model(&file, model);
    launch_settings_done(&settings);
    launch_done(&file);
    free(text);
    return legal;
}

static void plans_come_back(void **state)
{
    (void)state;
    uint64_t random = 1;
    int legal = 0, drawn_plans = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        struct subject *subject = draw(&random);
        if (!subject)
            continue;
        drawn_plans++;
        for (size_t t = 0; t < launch_target_count; t++)
            if (launch_targets[t].tables[0])
                legal += round_trip(&launch_targets[t], subject);
        subject_free(subject);
    }
    print_message("%d plans, %d launches\n", drawn_plans, legal);
    assert_true(drawn_plans >= TRIALS / 3);
    assert_true(legal >= TRIALS / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(plans_come_back) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
