/* words.c - the words of a command line, judged by the table of options before argp sees them. */
#include "base/layout/key.h"
#include "base/text.h"
#include "planner/cli/command.h"
#include "planner/cli/options.h"

#include <string.h>

const char *const option_degrees[OPTION_DEGREES] = { "tp", "pp", "vpp", "cp", "ep", "etp" };

/* Whether the command takes --NAME as a short form of --set NAME=. */
static bool is_degree(const char *name, const struct command *command)
{
    if (!(option_infos[OPTION_SET].commands & command_bit(command)))
        return false;
    for (int i = 0; i < OPTION_DEGREES; i++)
        if (strcmp(option_degrees[i], name) == 0)
            return true;
    return false;
}

static enum option_id find_letter(char letter)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        if (letter && option_infos[i].letter == letter)
            return (enum option_id)i;
    return OPTION_COUNT;
}

/* "plan, search or grid": the commands that take an option; empty for none. */
static void commands_that_take(enum option_id id, char *ret, size_t size)
{
    const char *names[32];
    size_t count = 0, used = 0;
    ret[0] = '\0';
    for (size_t i = 0; id != OPTION_COUNT && i < command_count; i++)
        if (option_infos[id].commands & command_bit(&commands[i]))
            names[count++] = commands[i].name;
    text_append_names(ret, size, &used, names, count);
}

static int unknown_option(const char *shown, const char *name, const struct command *command,
                          struct diag_list *reterr)
{
    diag_error(reterr, (struct pos){ 0 }, "unknown option '%s'", shown);
    char others[200];
    bool whole = shown[1] == '-';
    commands_that_take(whole ? option_find(name) : find_letter(name[0]), others, sizeof others);
    if (others[0])
        return diag_hint(reterr, "%s%.*s is an option of rankfit %s", whole ? "--" : "-",
                         whole ? (int)strlen(name) : 1, name, others);
    if (choice_key_find(name) >= 0 && option_infos[OPTION_SET].commands & command_bit(command))
        return diag_hint(reterr, "it is a key: --set %s=VALUE", name);
    const char *nearest = option_nearest(name, command_bit(command), false);
    if (nearest)
        return diag_hint(reterr, "did you mean --%s? options are never abbreviated", nearest);
    return diag_hint(reterr, "rankfit %s --help lists the options", command->name);
}

static int missing_value(const char *word, const struct option_info *info, struct diag_list *reterr)
{
    char names[128] = "";
    size_t used = 0, count = 0;
    while (info->names && info->names[count])
        count++;
    text_append_names(names, sizeof names, &used, info->names, count);
    diag_error(reterr, (struct pos){ .file = word }, "needs a value");
    return diag_hint(reterr, "%s %s", word, count > 0 ? names : info->value);
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
    if (is_degree(name, command) && !equals && is_last) {
        diag_error(reterr, (struct pos){ .file = word }, "needs a value");
        return diag_hint(reterr, "%s N, as --set %s=N", word, name);
    }
    if (is_degree(name, command))
        return equals ? 0 : 1;
    enum option_id id = option_find(name);
    if (id == OPTION_COUNT || !(option_infos[id].commands & command_bit(command)))
        return unknown_option(word, name, command, reterr);
    bool takes_value = option_infos[id].value != NULL;
    if (equals && !takes_value)
        return diag_error(reterr, (struct pos){ .file = word }, "--%s takes no value", name);
    if (!equals && takes_value && is_last)
        return missing_value(word, &option_infos[id], reterr);
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
            return missing_value(word, info, reterr);
        return word[2] ? 0 : 1;
    }
    return unknown_option(word, word + 1, command, reterr);
}

/* getopt_long under argp would take abbreviations, and report in its own words. So the words are
 * judged here, by the same table, and argp sees only correct words. */
int options_check_words(const struct command *command, int argc, char **argv,
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
