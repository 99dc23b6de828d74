/* rankfit: the command line. Picks the subcommand, prints what it diagnosed, and exits by the
 * contract. */
#include "base/text.h"
#include "planner/cli/command.h"
#include "planner/cli/options.h"

#include <errno.h>
#include <gsl/gsl_errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void print_usage(FILE *out)
{
    (void)fputs("Usage: rankfit COMMAND [OPTION...]\n"
                "Which layout of a large model fits these GPUs, what is in each rank's memory, and "
                "was that true.\n\n",
                out);
    for (size_t i = 0; i < command_count; i++)
        (void)fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    (void)fputs("\n"
                "rankfit help COMMAND says more; rankfit --version prints the version.\n"
                "Exit status: 0 answered; 1 the answer is no; 2 the question is wrong; 3 the run "
                "or the system failed.\n",
                out);
}

static int unknown_command(const char *word)
{
    const char *names[32];
    size_t count = 0;
    for (size_t i = 0; i < command_count && count < sizeof names / sizeof *names; i++)
        names[count++] = commands[i].name;
    const char *nearest = text_nearest(word, names, count);
    struct diag_list list = { 0 };
    diag_error(&list, (struct pos){ 0 }, "unknown command '%s'", word);
    if (nearest)
        diag_hint(&list, "did you mean rankfit %s?", nearest);
    else
        diag_hint(&list, "rankfit --help lists the commands");
    diag_list_print(stderr, &list);
    return EXIT_QUESTION;
}

/* A result that did not reach its reader is no result. Why the first write failed is long
 * forgotten: another one says. */
static int finish_output(int status)
{
    bool failed = ferror(stdout) != 0;
    clearerr(stdout);
    if (failed)
        (void)fputc('\n', stdout);
    errno = 0;
    if (fclose(stdout) == 0 && !failed)
        return status;
    (void)fprintf(stderr, "error: cannot write to standard output%s%s\n", errno ? ": " : "",
                  errno ? strerror(errno) : "");
    return EXIT_SYSTEM;
}

static int run_command(const struct command *command, int argc, char **argv)
{
    struct diag_list list = { 0 };
    struct options *options = malloc(sizeof *options);
    if (!options) {
        (void)fputs("error: out of memory\n", stderr);
        return EXIT_SYSTEM;
    }
    int status = EXIT_QUESTION;
    if (options_parse(command, argc, argv, options, &list) == 0) {
        status = EXIT_ANSWERED;
        if (options_has(options, OPTION_HELP))
            options_help(command, stdout);
        else
            status = command->run(options, &list);
    }
    (void)fflush(stdout);
    diag_list_print(stderr, &list);
    options_done(options);
    free(options);
    return list.no_memory ? EXIT_SYSTEM : status;
}

/* rankfit help COMMAND is rankfit COMMAND --help. */
static int help_of(const char *word)
{
    const struct command *command = command_find(word);
    if (!command)
        return unknown_command(word);
    options_help(command, stdout);
    return finish_output(EXIT_ANSWERED);
}

static int too_many(const char *word, const char *next)
{
    struct diag_list list = { 0 };
    diag_error(&list, (struct pos){ 0 }, "'%s' is one argument too many for rankfit %s", next,
               word);
    diag_list_print(stderr, &list);
    return EXIT_QUESTION;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    gsl_set_error_handler_off();
    (void)signal(SIGCHLD, SIG_DFL);    /* where it is ignored, a child leaves no status */
    (void)unsetenv("ARGP_HELP_FMT");   /* glibc prints without end for some values */
    (void)unsetenv("POSIXLY_CORRECT"); /* options may follow arguments */
    (void)signal(SIGXFSZ, SIG_IGN);    /* a file beyond its limit is then an error of the write */
    if (!word) {
        print_usage(stderr);
        return EXIT_QUESTION;
    }
    if (strcmp(word, "help") == 0 && argc == 3)
        return help_of(argv[2]);
    bool alone = word[0] == '-' || strcmp(word, "help") == 0;
    if (alone && argc > 2)
        return too_many(word, argv[2]);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_usage(stdout);
        return finish_output(EXIT_ANSWERED);
    }
    if (strcmp(word, "--version") == 0) {
        (void)puts("rankfit " RANKFIT_VERSION);
        return finish_output(EXIT_ANSWERED);
    }
    const struct command *command = command_find(word);
    if (!command)
        return unknown_command(word);
    return finish_output(run_command(command, argc - 1, argv + 1));
}
