#include "planner/cli/options.h"

#include "base/layout/layout.h"
#include "base/text.h"
#include "planner/cli/command.h"
#include "planner/search/search.h"

#include <argp.h>
#include <errno.h>
#include <string.h>

/* In the order of planner/engine/engine.c, which a test compares. */
static const char *const engine_names[] = { "rankfit", "megatron", "torch", NULL };
static const char *const backend_words[] = { "host", "cuda", NULL };
/* Rows of launch_targets, whose test compares them. */
static const char *const target_words[] = { "megatron", "torchtitan", "megatron-bridge",
                                            "verl",     "slime",      "ms-swift",
                                            "slurm",    "mpirun",     NULL };
#define TARGET_WORDS "megatron, torchtitan, megatron-bridge, verl, slime, ms-swift, slurm or mpirun"
static const char *const data_formats[] = { "bytes", "u32", NULL };

/* Far beyond any sequence or batch in use, far below what could overflow. */
#define MAX_SEQ_TOKENS (INT64_C(1) << 32)
#define MAX_SEQUENCES (INT64_C(1) << 32)

const struct option_info option_infos[OPTION_COUNT] = {
    [OPTION_MODEL] = { .name = "model",
                       .value = "NAME|FILE|DIR",
                       .commands = FOR_QUESTION,
                       .type = OPTION_DATA_PATH,
                       .in_recipe = true,
                       .help = "the model: a name of `rankfit list models`, a YAML file, a "
                               "config.json, or a directory that holds one" },
    [OPTION_HARDWARE] = { .name = "hardware",
                          .value = "NAME|FILE",
                          .commands = FOR_QUESTION | FOR_CALIBRATE,
                          .type = OPTION_DATA_PATH,
                          .in_recipe = true,
                          .help =
                              "the machines: a name of `rankfit list hardware` or a YAML file" },
    [OPTION_GPUS] = { .name = "gpus",
                      .value = "N",
                      .lists = FOR_SWEEP,
                      .commands = FOR_QUESTION | FOR_CALIBRATE,
                      .type = OPTION_NUMBER,
                      .in_recipe = true,
                      .min = 1,
                      .max = LAYOUT_MAX_RANKS,
                      .help = "how many GPUs, one rank each (on host: processes)" },
    [OPTION_SEQ] = { .name = "seq",
                     .value = "TOKENS",
                     .lists = FOR_SWEEP,
                     .commands = FOR_QUESTION,
                     .type = OPTION_TOKENS,
                     .in_recipe = true,
                     .min = 1,
                     .max = MAX_SEQ_TOKENS,
                     .help = "sequence length, such as 4096 or 128K (K is 1,024)" },
    [OPTION_LENGTHS] = { .name = "lengths",
                         .value = "LIST|FILE",
                         .commands = FOR_QUESTION,
                         .type = OPTION_DATA_PATH,
                         .in_recipe = true,
                         .help = "lengths of pieces that are packed, as given, into rows of --seq "
                                 "tokens "
                                 "(of tokens_per_gpu x cp): 1000,513, or 4096*2,512*30, or a file "
                                 "of them" },
    [OPTION_MICRO_BATCH] = { .name = "micro-batch",
                             .value = "N",
                             .commands = FOR_QUESTION,
                             .type = OPTION_NUMBER,
                             .in_recipe = true,
                             .min = 1,
                             .max = 1 << 16,
                             .help = "sequences of one micro-batch (1)" },
    [OPTION_GLOBAL_BATCH] = { .name = "global-batch",
                              .value = "N",
                              .commands = FOR_QUESTION,
                              .type = OPTION_NUMBER,
                              .in_recipe = true,
                              .min = 1,
                              .max = MAX_SEQUENCES,
                              .help = "sequences of one step (gpus x micro-batch)" },
    [OPTION_ENGINE] = { .name = "engine",
                        .value = "NAME",
                        .commands = FOR_QUESTION,
                        .type = OPTION_NAME,
                        .in_recipe = true,
                        .names = engine_names,
                        .help = "the software that will run the plan (rankfit)" },
    [OPTION_ROUTING] = { .name = "routing",
                         .value = "PROFILE",
                         .commands = FOR_QUESTION,
                         .type = OPTION_PROFILE,
                         .in_recipe = true,
                         .help =
                             "rows that experts receive: balanced (the default), natural, P:h such "
                             "as 80:4, zipf:A" },
    [OPTION_HEADROOM] = { .name = "headroom",
                          .value = "SIZE|%",
                          .commands = FOR_QUESTION,
                          .type = OPTION_BYTES_OR_PERCENT,
                          .in_recipe = true,
                          .help = "memory to leave free on every device (2%)" },
    [OPTION_RESERVE] = { .name = "reserve",
                         .value = "SIZE",
                         .commands = FOR_QUESTION,
                         .type = OPTION_BYTES,
                         .in_recipe = true,
                         .help = "memory promised to something else (0)" },
    [OPTION_RECIPE] = { .name = "recipe",
                        .value = "NAME|FILE",
                        .commands = FOR_QUESTION,
                        .type = OPTION_TEXT,
                        .help = "read options from a recipe; the command line wins over it" },
    [OPTION_SET] = { .name = "set",
                     .value = "KEY=VALUE",
                     .commands = FOR_QUESTION,
                     .type = OPTION_TEXT,
                     .in_recipe = true,
                     .help = "fix one choice, model.FIELD or hardware.FIELD; see `rankfit list "
                             "keys`; tp, pp, "
                             "vpp, cp, ep and etp are options too" },
    [OPTION_RANK] = { .name = "rank",
                      .value = "N",
                      .commands = FOR_BUDGET | FOR_REHEARSE,
                      .type = OPTION_NUMBER,
                      .in_recipe = true,
                      .min = 0,
                      .max = LAYOUT_MAX_RANKS - 1,
                      .help = "budget: show this rank only, with every phase of its step; "
                              "rehearse: play this one (that with the highest peak)" },
    [OPTION_BACKEND] = { .name = "backend",
                         .value = "host|cuda",
                         .commands = FOR_START | FOR_CALIBRATE,
                         .type = OPTION_NAME,
                         .in_recipe = true,
                         .names = backend_words,
                         .help = "which executor runs it (host when the plan's hardware is host)" },
    [OPTION_DATA] = { .name = "data",
                      .value = "FILE",
                      .commands = FOR_START,
                      .type = OPTION_PATH,
                      .in_recipe = true,
                      .help = "what to train on (without it: tokens drawn from the seed)" },
    [OPTION_DATA_FORMAT] = { .name = "data-format",
                             .value = "bytes|u32",
                             .commands = FOR_START,
                             .type = OPTION_NAME,
                             .in_recipe = true,
                             .names = data_formats,
                             .help = "each byte a token, or a file of 32-bit tokens (bytes)" },
    [OPTION_STEPS] = { .name = "steps",
                       .value = "N",
                       .commands = FOR_START,
                       .type = OPTION_NUMBER,
                       .in_recipe = true,
                       .min = 1,
                       .max = 1000000,
                       .help = "steps to run (3)" },
    [OPTION_SEED] = { .name = "seed",
                      .value = "N",
                      .commands = FOR_START,
                      .type = OPTION_NUMBER,
                      .in_recipe = true,
                      .min = 0,
                      .max = INT64_MAX,
                      .help = "seed of the weights and of drawn tokens (0)" },
    [OPTION_WEIGHTS] = { .name = "weights",
                         .value = "FILE|DIR",
                         .commands = FOR_START,
                         .type = OPTION_PATH,
                         .in_recipe = true,
                         .help = "first weights: safetensors with Hugging Face names, or their "
                                 "directory (without it: drawn from the seed)" },
    [OPTION_SAVE] = { .name = "save",
                      .value = "FILE",
                      .commands = FOR_RUN,
                      .type = OPTION_PATH,
                      .help = "write the trained weights, bf16 safetensors, whole or not at all" },
    [OPTION_REPLAY] = { .name = "replay",
                        .value = "FILE",
                        .commands = FOR_START,
                        .type = OPTION_PATH,
                        .in_recipe = true,
                        .help = "give every token its experts: safetensors with choices.LAYER, "
                                "I32, for each token of a step" },
    [OPTION_REPLAY_ROWS] = { .name = "replay-rows",
                             .value = "FILE",
                             .commands = FOR_REHEARSE,
                             .type = OPTION_PATH,
                             .in_recipe = true,
                             .help = "the measurement of a run of the plan: as many routed rows "
                                     "arrive as there" },
    [OPTION_TOLERANCE] = { .name = "tolerance",
                           .value = "FRACTION",
                           .commands = FOR_COMPARE,
                           .type = OPTION_FRACTION,
                           .in_recipe = true,
                           .help = "largest error of an arena or device figure, such as 2% (host "
                                   "2%, cuda 3%); items have 5% or this, whichever is larger" },
    [OPTION_TIME_TOLERANCE] = { .name = "time-tolerance",
                                .value = "FRACTION",
                                .commands = FOR_COMPARE,
                                .type = OPTION_FRACTION,
                                .in_recipe = true,
                                .help = "also judge the step time, with this largest error" },
    [OPTION_STALL_TIMEOUT] = { .name = "stall-timeout",
                               .value = "SECONDS",
                               .commands = FOR_START | FOR_CALIBRATE,
                               .type = OPTION_NUMBER,
                               .in_recipe = true,
                               .min = 1,
                               .max = 1000000,
                               .help = "end a run of which a rank stands still for so long (600)" },
    [OPTION_MEMORY_LIMIT] = { .name = "memory-limit",
                              .value = "SIZE|HARDWARE",
                              .commands = FOR_RUN | FOR_REHEARSE,
                              .type = OPTION_BYTES_OR_DATA,
                              .in_recipe = true,
                              .help =
                                  "a device has no more memory than this, or than the memory of "
                                  "this hardware (on host: all ranks together)" },
    [OPTION_CHECK] = { .name = "check",
                       .value = "FILE",
                       .commands = FOR_LIST,
                       .type = OPTION_PATH,
                       .help = "read a file of one's own and tell what is doubtful in it "
                               "(list hardware)" },
    [OPTION_TO] = { .name = "to",
                    .value = "NAME",
                    .commands = FOR_EXPORT,
                    .type = OPTION_NAME,
                    .in_recipe = true,
                    .names = target_words,
                    .help = "the engine or scheduler whose launch file is written: " TARGET_WORDS },
    [OPTION_TITLE] = { .name = "name",
                       .value = "NAME",
                       .commands = FOR_CALIBRATE,
                       .type = OPTION_TEXT,
                       .in_recipe = true,
                       .help = "what the hardware file calls the machine (that of -o FILE)" },
    [OPTION_POINTS] = { .name = "points",
                        .value = "FILE",
                        .commands = FOR_CALIBRATE,
                        .type = OPTION_PATH,
                        .help =
                            "also keep what was measured; rankfit calibrate FILE fits it again" },
    [OPTION_QUICK] = { .name = "quick",
                       .commands = FOR_CALIBRATE,
                       .type = OPTION_FLAG,
                       .in_recipe = true,
                       .help = "the small ones once: shows that all works, and measures nothing" },
    [OPTION_TRACE] = { .name = "trace",
                       .value = "FILE",
                       .commands = FOR_RUN | FOR_REHEARSE,
                       .type = OPTION_PATH,
                       .help = "write what each rank did when, for chrome://tracing and Perfetto: "
                               "phases, layers, operations, on GPUs every kernel" },
    [OPTION_ALLOW_ROOT] = { .name = "allow-root",
                            .commands = FOR_RUN | FOR_PAIR | FOR_CALIBRATE,
                            .type = OPTION_FLAG,
                            .help = "let mpirun run as root (or set Open MPI's "
                                    "OMPI_ALLOW_RUN_AS_ROOT and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM)" },
    [OPTION_OBJECTIVE] = { .name = "objective",
                           .value = "NAME",
                           .commands = FOR_SEARCH | FOR_PLAN,
                           .type = OPTION_NAME,
                           .in_recipe = true,
                           .names = objective_names,
                           .help = "what is best: throughput, the shortest step (the default); "
                                   "headroom, the most memory to spare of steps up to a quarter "
                                   "longer; gpus, the fewest up to --gpus; gpu-hours, the fewest "
                                   "for --tokens on up to --gpus" },
    [OPTION_TOKENS_OF_TRAINING] = { .name = "tokens",
                                    .value = "N",
                                    .commands = FOR_SEARCH,
                                    .type = OPTION_AMOUNT,
                                    .in_recipe = true,
                                    .help = "tokens of the whole training, such as 1e12; the "
                                            "answer then says how many hours and GPU-hours" },
    [OPTION_PARETO] = { .name = "pareto",
                        .commands = FOR_SEARCH,
                        .type = OPTION_FLAG,
                        .in_recipe = true,
                        .help = "also the layouts that no other beats in both time and memory" },
    [OPTION_POLICY] = { .name = "policy",
                        .value = "NAME",
                        .commands = FOR_QUESTION,
                        .type = OPTION_NAME,
                        .in_recipe = true,
                        .names = policy_names,
                        .help =
                            "how the layout is chosen: best, by search (the default); articles, "
                            "by the ordered thresholds of the articles" },
    [OPTION_EXACT] = { .name = "exact",
                       .commands = FOR_QUESTION,
                       .type = OPTION_FLAG,
                       .in_recipe = true,
                       .help =
                           "judge the layout as it is set: every degree that is not named is 1, "
                           "every primitive off" },
    [OPTION_WHY] = { .name = "why",
                     .commands = FOR_PLAN,
                     .type = OPTION_FLAG,
                     .in_recipe = true,
                     .help = "every reason with its prices, every kind of rank, the causes of the "
                             "step's range" },
    [OPTION_THREADS] = { .name = "threads",
                         .value = "N",
                         .commands = FOR_SEARCH,
                         .type = OPTION_NUMBER,
                         .in_recipe = true,
                         .min = 1,
                         .max = 16,
                         .help = "processor threads to search with (one a core)" },
    [OPTION_JSON] = { .name = "json",
                      .commands = FOR_ALL,
                      .type = OPTION_FLAG,
                      .in_recipe = true,
                      .help = "print JSON instead of text" },
    [OPTION_OUTPUT] = { .name = "output",
                        .value = "FILE",
                        .commands = FOR_PLAN | FOR_BUDGET | FOR_START | FOR_COMPARE | FOR_SEARCH |
                                    FOR_CALIBRATE | FOR_VALIDATE | FOR_EXPORT | FOR_CHECK,
                        .type = OPTION_PATH,
                        .letter = 'o',
                        .help = "also write the result to FILE (YAML for .yaml and .yml, else "
                                "JSON), whole or not at all" },
    [OPTION_HELP] = { .name = "help",
                      .commands = FOR_ALL,
                      .type = OPTION_FLAG,
                      .letter = 'h',
                      .help = "show this help" },
};

enum { KEY_OF_FIRST_OPTION = 256, KEY_OF_FIRST_DEGREE = KEY_OF_FIRST_OPTION + OPTION_COUNT };

enum option_id option_find(const char *name)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strcmp(option_infos[i].name, name) == 0)
            return (enum option_id)i;
    return OPTION_COUNT;
}

/* A word that begins just one name means that name; else the nearest spelling. */
const char *option_nearest(const char *name, unsigned command_bits, bool recipe_only)
{
    const char *names[OPTION_COUNT];
    const char *begun = NULL;
    size_t count = 0, begun_count = 0;
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option_info *info = &option_infos[i];
        if (!(info->commands & command_bits) || (recipe_only && !info->in_recipe))
            continue;
        names[count++] = info->name;
        if (name[0] && strncmp(info->name, name, strlen(name)) == 0) {
            begun = info->name;
            begun_count++;
        }
    }
    return begun_count == 1 ? begun : text_nearest(name, names, count);
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
        diag_error(reterr, at, "'%s' is set twice: to '%s' and to '%s'", key, old->value, value);
        return diag_hint(reterr, "keep one of the two");
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
        diag_no_memory(reterr);
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
        diag_hint(reterr, option_infos[id].lists & FOR_SWEEP
                              ? "keep one of the two; rankfit sweep takes several with commas"
                              : "keep one of the two");
        return;
    }
    options->value[id] = value;
    options->at[id] = at;
}

/* --tp 2 is --set tp=2. */
static void add_degree(struct options *options, const char *key, const char *value,
                       struct diag_list *reterr)
{
    struct pos at = { .file = pool_printf(&options->pool, "--%s %s", key, value) };
    if (at.file == NULL)
        diag_no_memory(reterr);
    else
        (void)options_add_set(options, key, value, at, false, reterr);
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
    if (key < KEY_OF_FIRST_DEGREE || key >= KEY_OF_FIRST_DEGREE + OPTION_DEGREES)
        return ARGP_ERR_UNKNOWN;
    add_degree(options, option_degrees[key - KEY_OF_FIRST_DEGREE], word, parse->reterr);
    return 0;
}

enum { ARGP_ROWS = OPTION_COUNT + OPTION_DEGREES + 1 };

/* The rows of one command as argp wants them; room for ARGP_ROWS. The help of --set names the
 * degrees. */
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
    for (int i = 0; i < OPTION_DEGREES; i++)
        if (option_infos[OPTION_SET].commands & command_bit(command))
            ret[count++] = (struct argp_option){
                option_degrees[i], KEY_OF_FIRST_DEGREE + i, "N", OPTION_HIDDEN, NULL, 1
            };
    ret[count] = (struct argp_option){ 0 };
}

static int check_arguments(const struct command *command, const struct options *options,
                           struct diag_list *reterr)
{
    int count = options->argument_count;
    if (count >= command->min_arguments && count <= command->max_arguments)
        return 0;
    if (count > command->max_arguments && command->max_arguments < OPTIONS_MAX_ARGUMENTS)
        diag_error(reterr, (struct pos){ 0 }, "'%s' is one argument too many for rankfit %s",
                   options->argument[command->max_arguments], command->name);
    else
        diag_error(reterr, (struct pos){ 0 }, "rankfit %s takes %d argument%s, not %d",
                   command->name, command->min_arguments, command->min_arguments == 1 ? "" : "s",
                   count);
    if (command->max_arguments == 0)
        return diag_hint(reterr, "rankfit %s takes options only; rankfit %s --help lists them",
                         command->name, command->name);
    return diag_hint(reterr, "rankfit %s %s", command->name, command->arguments);
}

/* Keeps the words behind `--` as they are, and returns how many there are before it. */
static int take_line(const struct command *command, int argc, char **argv, struct options *ret)
{
    for (int i = 1; command->takes_line && i < argc; i++)
        if (strcmp(argv[i], "--") == 0) {
            ret->line = (const char *const *)(argv + i + 1);
            ret->line_count = argc - i - 1;
            return i;
        }
    return argc;
}

int options_parse(const struct command *command, int argc, char **argv, struct options *ret,
                  struct diag_list *reterr)
{
    *ret = (struct options){ 0 };
    argc = take_line(command, argc, argv, ret);
    if (options_check_words(command, argc - 1, argv + 1, reterr) != 0)
        return -1;
    struct argp_option rows[ARGP_ROWS];
    fill_argp_options(command, rows);
    const struct argp argp = { .options = rows, .parser = parse_word };
    struct parse parse = { ret, reterr };
    error_t status =
        argp_parse(&argp, argc, argv, ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_NO_ERRS, NULL, &parse);
    if (status == ENOMEM)
        return diag_no_memory(reterr);
    if (status != 0)
        return diag_error(reterr, (struct pos){ 0 }, "the arguments of rankfit %s are malformed",
                          command->name);
    if (options_has(ret, OPTION_HELP))
        return 0;
    if (check_arguments(command, ret, reterr) != 0)
        return -1;
    if (options_has(ret, OPTION_RECIPE))
        ret->recipe_failed = options_read_recipe(ret, ret->value[OPTION_RECIPE], reterr) != 0;
    options_check_values(ret, command_bit(command), reterr);
    return 0;
}

void options_done(struct options *options)
{
    tree_done(&options->recipe);
    pool_done(&options->pool);
}

void options_help(const struct command *command, FILE *out)
{
    struct argp_option rows[ARGP_ROWS];
    fill_argp_options(command, rows);
    const struct argp argp = {
        .options = rows, .parser = parse_word, .args_doc = command->arguments, .doc = command->about
    };
    char name[64] = "rankfit ";
    size_t used = strlen(name);
    text_append(name, sizeof name, &used, "%s", command->name);
    argp_help(&argp, out, ARGP_HELP_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, name);
}
