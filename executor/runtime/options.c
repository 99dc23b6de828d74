#include "executor/runtime/options.h"
#include "base/text.h"
#include "base/units.h"

#include <stddef.h>
#include <string.h>

const char run_options_synopsis[] =
    "PLAN --measurement FILE [--data FILE] [--data-format bytes|u32]\n"
    "                    [--steps N] [--seed N] [--weights FILE|DIR] [--save FILE]\n"
    "                    [--replay FILE] [--stall-timeout N] [--memory-limit BYTES] [--dump FILE]\n"
    "                    [--trace FILE]";

const char run_options_usage[] =
    "  --measurement FILE   what was measured (YAML for .yaml and .yml, JSON otherwise)\n"
    "  --data FILE          tokens to train on; drawn from the seed without it\n"
    "  --data-format FORM   bytes (default): each byte a token; u32: 32-bit tokens\n"
    "  --steps N            training steps (3)\n"
    "  --seed N             of first weights, drawn tokens and routing profiles (0)\n"
    "  --weights FILE|DIR   first weights (safetensors, Hugging Face names); drawn without it\n"
    "  --save FILE          trained weights in bf16 (safetensors)\n"
    "  --replay FILE        experts of each token: choices.LAYER (safetensors, I32), at every "
    "step\n"
    "  --rank N             one process rehearses this rank: the others are not there, their part "
    "is\n"
    "                       modelled\n"
    "  --replay-rows FILE   of a rehearsal: a measurement whose routed rows arrive again\n"
    "  --stall-timeout N    seconds without progress of a rank after which the run is ended (600)\n"
    "  --memory-limit N     bytes that a device has; of a `host`, for all ranks of the machine\n"
    "  --calibrate FILE     no plan is run: the machine is measured, and its points written\n"
    "  --quick              with --calibrate: the small ones once, to see that all works\n"
    "  --trace FILE         what each rank did when (JSON of chrome://tracing)\n"
    "  --dump FILE          gradients and final hidden states of the first step (safetensors)\n";

enum option_type { OPTION_TEXT, OPTION_INT, OPTION_FLAG, OPTION_FORMAT };

struct option_row {
    const char *name;
    enum option_type type;
    size_t offset;
    int64_t min, max;
};

static const struct option_row option_rows[] = {
    { "measurement", OPTION_TEXT, offsetof(struct run_options, measurement), 0, 0 },
    { "data", OPTION_TEXT, offsetof(struct run_options, data), 0, 0 },
    { "data-format", OPTION_FORMAT, offsetof(struct run_options, data_format), 0, 0 },
    { "steps", OPTION_INT, offsetof(struct run_options, steps), 1, 1000000 },
    { "seed", OPTION_INT, offsetof(struct run_options, seed), 0, INT64_MAX },
    { "weights", OPTION_TEXT, offsetof(struct run_options, weights), 0, 0 },
    { "save", OPTION_TEXT, offsetof(struct run_options, save), 0, 0 },
    { "replay", OPTION_TEXT, offsetof(struct run_options, replay), 0, 0 },
    { "rank", OPTION_INT, offsetof(struct run_options, rank), 0, INT32_MAX },
    { "replay-rows", OPTION_TEXT, offsetof(struct run_options, replay_rows), 0, 0 },
    { "stall-timeout", OPTION_INT, offsetof(struct run_options, stall_seconds), 1, 1000000 },
    { "memory-limit", OPTION_INT, offsetof(struct run_options, memory_limit), 1, INT64_MAX },
    { "calibrate", OPTION_TEXT, offsetof(struct run_options, calibrate), 0, 0 },
    { "quick", OPTION_FLAG, offsetof(struct run_options, quick), 0, 0 },
    { "trace", OPTION_TEXT, offsetof(struct run_options, trace), 0, 0 },
    { "dump", OPTION_TEXT, offsetof(struct run_options, dump), 0, 0 },
};
enum { OPTION_COUNT = sizeof option_rows / sizeof *option_rows };

static const struct pos nowhere = { NULL, 0, 0 };

/* The row of "--NAME" or "--NAME=VALUE"; *ret_value is set for the second form. */
static const struct option_row *find_row(const char *word, const char **ret_value)
{
    const char *name = word + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);

    *ret_value = equals ? equals + 1 : NULL;
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strlen(option_rows[i].name) == length &&
            strncmp(option_rows[i].name, name, length) == 0)
            return &option_rows[i];
    return NULL;
}

static int unknown(const char *word, struct diag_list *reterr)
{
    const char *names[OPTION_COUNT];
    char name[64];

    for (int i = 0; i < OPTION_COUNT; i++)
        names[i] = option_rows[i].name;
    diag_error(reterr, nowhere, "unknown option \"%s\"", word);
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *nearest = text_nearest(name, names, OPTION_COUNT);
    return nearest ? diag_hint(reterr, "--%s is near", nearest)
                   : diag_hint(reterr, "--help lists the options");
}

static int set_option(const struct option_row *row, const char *value, struct run_options *ret,
                      struct diag_list *reterr)
{
    void *field = (char *)ret + row->offset;

    if (row->type == OPTION_TEXT) {
        *(const char **)field = value;
        return 0;
    }
    if (row->type == OPTION_INT) {
        if (units_parse_int(value, row->min, row->max, field) == 0)
            return 0;
        return diag_error(reterr, nowhere, "--%s takes a whole number of %lld or more, not \"%s\"",
                          row->name, (long long)row->min, value);
    }
    for (int i = 0; i < DATA_FORMAT_COUNT; i++)
        if (strcmp(value, data_format_names[i]) == 0) {
            ret->data_format = (enum data_format)i;
            return 0;
        }
    return diag_error(reterr, nowhere, "--%s is bytes or u32, not \"%s\"", row->name, value);
}

static void set_flag(const struct option_row *row, const char *value, struct run_options *ret,
                     struct diag_list *reterr)
{
    if (value)
        diag_error(reterr, nowhere, "--%s takes no value", row->name);
    *(bool *)((char *)ret + row->offset) = true;
}

static void set_plan(const char *word, struct run_options *ret, struct diag_list *reterr)
{
    if (ret->plan)
        diag_error(reterr, nowhere, "one plan at a time: \"%s\" and \"%s\"", ret->plan, word);
    ret->plan = word;
}

int run_options_parse(int argc, char *const *argv, struct run_options *ret,
                      struct diag_list *reterr)
{
    int errors_before = reterr->errors;

    *ret = (struct run_options){
        .data_format = DATA_BYTES, .steps = 3, .stall_seconds = 600, .rank = -1
    };
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (strcmp(argv[i], "--help") == 0) {
            ret->help = true;
            return 0;
        }
        if (argv[i][0] != '-' || argv[i][1] != '-') {
            set_plan(argv[i], ret, reterr);
            continue;
        }
        const struct option_row *row = find_row(argv[i], &value);
        if (!row)
            unknown(argv[i], reterr);
        else if (row->type == OPTION_FLAG)
            set_flag(row, value, ret, reterr);
        else if (!value && i + 1 == argc)
            diag_error(reterr, nowhere, "--%s needs a value", row->name);
        else
            (void)set_option(row, value ? value : argv[++i], ret, reterr);
    }
    if (ret->calibrate && (ret->plan || ret->measurement))
        diag_error(reterr, nowhere, "--calibrate measures the machine, and runs no plan");
    if (ret->calibrate)
        return reterr->errors == errors_before ? 0 : -1;
    if (!ret->plan && reterr->errors == errors_before)
        diag_error(reterr, nowhere, "which plan?");
    if (!ret->measurement && reterr->errors == errors_before)
        diag_error(reterr, nowhere, "--measurement FILE is missing");
    return reterr->errors == errors_before ? 0 : -1;
}
