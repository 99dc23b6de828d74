#include "planner/cli/options.h"

#include "base/text.h"
#include "planner/cli/command.h"

#include <argp.h>
#include <assert.h>
#include <string.h>

const struct option_info option_infos[OPTION_COUNT] = {
    [OPTION_MODEL] = { "model", "NAME|FILE|DIR", FOR_QUESTION, 0, true, true,
                       "the model: a name of `rankfit list models`, a YAML file, a config.json, or "
                       "a directory that holds one" },
    [OPTION_HARDWARE] = { "hardware", "NAME|FILE", FOR_QUESTION, 0, true, true,
                          "the machines: a name of `rankfit list hardware` or a YAML file" },
    [OPTION_GPUS] = { "gpus", "N", FOR_QUESTION, 0, true, false,
                      "how many GPUs, one rank each (on host: processes)" },
    [OPTION_SEQ] = { "seq", "TOKENS", FOR_QUESTION, 0, true, false,
                     "sequence length, such as 4096 or 128K (K is 1,024)" },
    [OPTION_MICRO_BATCH] = { "micro-batch", "N", FOR_QUESTION, 0, true, false,
                             "sequences of one micro-batch (1)" },
    [OPTION_GLOBAL_BATCH] = { "global-batch", "N", FOR_QUESTION, 0, true, false,
                              "sequences of one step (gpus x micro-batch)" },
    [OPTION_ENGINE] = { "engine", "NAME", FOR_QUESTION, 0, true, false,
                        "the software that will run the plan (rankfit)" },
    [OPTION_ROUTING] = { "routing", "PROFILE", FOR_QUESTION, 0, true, false,
                         "what experts receive: balanced (the default), natural, P:h such as 80:4, "
                         "zipf:A" },
    [OPTION_HEADROOM] = { "headroom", "SIZE|%", FOR_QUESTION, 0, true, false,
                          "memory to leave free on every device (2%)" },
    [OPTION_RESERVE] = { "reserve", "SIZE", FOR_QUESTION, 0, true, false,
                         "memory promised to something else (0)" },
    [OPTION_RECIPE] = { "recipe", "NAME|FILE", FOR_QUESTION, 0, false, false,
                        "read options from a recipe; the command line wins over it" },
    [OPTION_SET] = { "set", "KEY=VALUE", FOR_QUESTION, 0, true, false,
                     "fix one choice, model.FIELD or hardware.FIELD; see `rankfit list keys`" },
    [OPTION_RANK] = { "rank", "N", FOR_BUDGET, 0, true, false,
                      "show this rank only, with every phase of its step" },
    [OPTION_BACKEND] = { "backend", "host|cuda", FOR_RUN, 0, true, false,
                         "which executor runs it (host when the plan's hardware is host)" },
    [OPTION_DATA] = { "data", "FILE", FOR_RUN, 0, true, true,
                      "what to train on (without it: tokens drawn from the seed)" },
    [OPTION_DATA_FORMAT] = { "data-format", "bytes|u32", FOR_RUN, 0, true, false,
                             "each byte a token, or a file of 32-bit tokens (bytes)" },
    [OPTION_STEPS] = { "steps", "N", FOR_RUN, 0, true, false, "steps to run (3)" },
    [OPTION_SEED] = { "seed", "N", FOR_RUN, 0, true, false,
                      "seed of the weights and of drawn tokens (0)" },
    [OPTION_TOLERANCE] = { "tolerance", "FRACTION", FOR_COMPARE, 0, false, false,
                           "largest error of an arena or device figure, such as 2% (host 2%, cuda "
                           "3%); items have 5% or this, whichever is larger" },
    [OPTION_TIME_TOLERANCE] = { "time-tolerance", "FRACTION", FOR_COMPARE, 0, false, false,
                                "also judge the step time, with this largest error" },
    [OPTION_JSON] = { "json", NULL, FOR_ALL, 0, true, false, "print JSON instead of text" },
    [OPTION_OUTPUT] = { "output", "FILE", FOR_PLAN | FOR_RUN | FOR_BUDGET | FOR_COMPARE, 'o', true,
                        true,
                        "also write the result to FILE (YAML for .yaml and .yml, else JSON), whole "
                        "or not at all" },
    [OPTION_HELP] = { "help", NULL, FOR_ALL, 'h', false, false, "show this help" },
};

enum { KEY_OF_FIRST_OPTION = 256 };

enum option_id option_find(const char *name)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strcmp(option_infos[i].name, name) == 0)
            return (enum option_id)i;
    return OPTION_COUNT;
}

const char *option_nearest(const char *name, unsigned command_bits, bool recipe_only)
{
    const char *names[OPTION_COUNT];
    size_t count = 0;
    for (int i = 0; i < OPTION_COUNT; i++)
        if (option_infos[i].commands & command_bits && (option_infos[i].in_recipe || !recipe_only))
            names[count++] = option_infos[i].name;
    return text_nearest(name, names, count);
}

static int unknown_option(const char *shown, const char *name, const struct command *command,
                          struct diag_list *reterr)
{
    diag_error(reterr, (struct pos){ 0 }, "unknown option '%s'", shown);
    const char *nearest = option_nearest(name, command_bit(command), false);
    if (nearest)
        return diag_hint(reterr, "did you mean --%s? options are never abbreviated", nearest);
    return diag_hint(reterr, "rankfit %s --help lists the options", command->name);
}

/* One word that begins with "--". Returns how many further words it takes, or -1. */
static int check_long_option(const char *word, bool is_last, const struct command *command,
                             struct diag_list *reterr)
{
    char name[64];
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
    size_t kept = length < sizeof name - 1 ? length : sizeof name - 1;
    memcpy(name, word + 2, kept);
    name[kept] = '\0';
    enum option_id id = option_find(name);
    if (id == OPTION_COUNT || !(option_infos[id].commands & command_bit(command)))
        return unknown_option(word, name, command, reterr);
    bool takes_value = option_infos[id].value != NULL;
    if (equals && !takes_value)
        return diag_error(reterr, (struct pos){ .file = word }, "--%s takes no value", name);
    if (!equals && takes_value && is_last) {
        diag_error(reterr, (struct pos){ .file = word }, "needs a value");
        return diag_hint(reterr, "--%s %s", name, option_infos[id].value);
    }
    return takes_value && !equals ? 1 : 0;
}

static int check_short_option(const char *word, bool is_last, const struct command *command,
                              struct diag_list *reterr)
{
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option_info *info = &option_infos[i];
        if (!info->letter || info->letter != word[1] || !(info->commands & command_bit(command)))
            continue;
        if (!info->value)
            return word[2] ? unknown_option(word, word + 1, command, reterr) : 0;
        if (!word[2] && is_last)
            return diag_error(reterr, (struct pos){ .file = word }, "needs a value");
        return word[2] ? 0 : 1;
    }
    return unknown_option(word, word + 1, command, reterr);
}

/* getopt_long under argp would take abbreviations, and report in its own words. So the words are
 * judged here, by the same table, and argp sees only what is right. */
static int check_words(const struct command *command, int argc, char **argv,
                       struct diag_list *reterr)
{
    int before = reterr->errors;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (word[0] != '-' || !word[1])
            continue;
        if (strcmp(word, "--") == 0)
            break;
        int taken = word[1] == '-' ? check_long_option(word, i + 1 == argc, command, reterr)
                                   : check_short_option(word, i + 1 == argc, command, reterr);
        i += taken > 0 ? taken : 0;
    }
    return reterr->errors > before ? -1 : 0;
}

int options_add_set(struct options *options, const char *key, const char *value, struct pos at,
                    bool from_recipe, struct diag_list *reterr)
{
    for (int i = 0; i < options->set_count; i++) {
        const struct set_entry *old = &options->set[i];
        if (strcmp(old->key, key) != 0)
            continue;
        if (from_recipe || strcmp(old->value, value) == 0)
            return 0;
        return diag_error(reterr, at, "'%s' is set twice: to '%s' and to '%s'", key, old->value,
                          value);
    }
    if (options->set_count == OPTIONS_MAX_SET)
        return diag_error(reterr, at, "more than %d keys are set", OPTIONS_MAX_SET);
    options->set[options->set_count++] = (struct set_entry){ key, value, at };
    return 0;
}

static void add_set_word(struct options *options, const char *word, struct diag_list *reterr)
{
    struct pos at = { .file = pool_printf(&options->pool, "--set %s", word) };
    const char *equals = strchr(word, '=');
    if (!equals || equals == word) {
        diag_error(reterr, at, "is not of the form key=value");
        diag_hint(reterr, "for example --set tp=2; rankfit list keys shows the keys");
        return;
    }
    const char *key = pool_copy_text(&options->pool, word, (size_t)(equals - word));
    if (!key || !at.file) {
        diag_error(reterr, at, "out of memory");
        return;
    }
    (void)options_add_set(options, key, equals + 1, at, false, reterr);
}

static void add_option(struct options *options, enum option_id id, const char *word,
                       struct diag_list *reterr)
{
    const char *value = word ? word : "";
    if (id == OPTION_SET) {
        add_set_word(options, value, reterr);
        return;
    }
    struct pos at = { .file = pool_printf(&options->pool, "--%s", option_infos[id].name) };
    if (options_has(options, id) && strcmp(options->value[id], value) != 0) {
        diag_error(reterr, at, "is given twice: '%s' and '%s'", options->value[id], value);
        return;
    }
    options->value[id] = value;
    options->at[id] = at;
}

struct parse {
    struct options *options;
    struct diag_list *reterr;
};

static error_t parse_word(int key, char *word, struct argp_state *state)
{
    struct parse *parse = state->input;
    struct options *options = parse->options;
    if (key == ARGP_KEY_ARG) {
        if (options->argument_count < OPTIONS_MAX_ARGUMENTS)
            options->argument[options->argument_count] = word;
        options->argument_count++;
        return 0;
    }
    for (int i = 0; i < OPTION_COUNT; i++)
        if (key == KEY_OF_FIRST_OPTION + i || (key == option_infos[i].letter && key)) {
            add_option(options, (enum option_id)i, word, parse->reterr);
            return 0;
        }
    return ARGP_ERR_UNKNOWN;
}

/* The rows of one command as argp wants them; room for OPTION_COUNT + 1. */
static void fill_argp_options(const struct command *command, struct argp_option *ret)
{
    int count = 0;
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option_info *info = &option_infos[i];
        if (!(info->commands & command_bit(command)))
            continue;
        int key = info->letter ? info->letter : KEY_OF_FIRST_OPTION + i;
        ret[count++] = (struct argp_option){ info->name, key, info->value, 0, info->help, 1 };
    }
    ret[count] = (struct argp_option){ 0 };
}

static void check_arguments(const struct command *command, const struct options *options,
                            struct diag_list *reterr)
{
    int count = options->argument_count;
    if (count >= command->min_arguments && count <= command->max_arguments)
        return;
    if (count > command->max_arguments && command->max_arguments < OPTIONS_MAX_ARGUMENTS)
        diag_error(reterr, (struct pos){ 0 }, "'%s' is one argument too many for rankfit %s",
                   options->argument[command->max_arguments], command->name);
    else
        diag_error(reterr, (struct pos){ 0 }, "rankfit %s takes %d argument%s, not %d",
                   command->name, command->min_arguments, command->min_arguments == 1 ? "" : "s",
                   count);
    diag_hint(reterr, "rankfit %s %s", command->name, command->arguments);
}

int options_parse(const struct command *command, int argc, char **argv, struct options *ret,
                  struct diag_list *reterr)
{
    int before = reterr->errors;
    *ret = (struct options){ 0 };
    if (check_words(command, argc - 1, argv + 1, reterr) != 0)
        return -1;
    struct argp_option rows[OPTION_COUNT + 1];
    fill_argp_options(command, rows);
    const struct argp argp = { .options = rows, .parser = parse_word };
    struct parse parse = { ret, reterr };
    error_t status =
        argp_parse(&argp, argc, argv, ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_NO_ERRS, NULL, &parse);
    if (status != 0)
        return diag_error(reterr, (struct pos){ 0 }, "the arguments of rankfit %s are malformed",
                          command->name);
    if (options_has(ret, OPTION_HELP))
        return 0;
    check_arguments(command, ret, reterr);
    if (options_has(ret, OPTION_RECIPE))
        (void)options_read_recipe(ret, ret->value[OPTION_RECIPE], reterr);
    return reterr->errors > before ? -1 : 0;
}

void options_done(struct options *options)
{
    tree_done(&options->recipe);
    pool_done(&options->pool);
}

void options_help(const struct command *command, FILE *out)
{
    struct argp_option rows[OPTION_COUNT + 1];
    fill_argp_options(command, rows);
    const struct argp argp = {
        .options = rows, .parser = parse_word, .args_doc = command->arguments, .doc = command->about
    };
    char name[64] = "rankfit ";
    size_t used = strlen(name);
    text_append(name, sizeof name, &used, "%s", command->name);
    argp_help(&argp, out, ARGP_HELP_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, name);
}
