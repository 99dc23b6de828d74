#include "planner/cli/start.h"

#include "planner/cli/command.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WORDS = 64, RANK_TEXT = 16, BYTES_TEXT = 24 };

int start_find(struct start *start, struct diag_list *reterr)
{
    int status = launch_find_executor(backend_names[start->backend], start->executor,
                                      sizeof start->executor, reterr);
    if (!start->outer.present && !start->rehearses)
        status |= launch_find_mpirun(start->mpirun, sizeof start->mpirun, reterr);
    return status;
}

/* Words are only read by execv, which takes them as if they could be written. */
static void add_word(char **words, int *count, const char *word)
{
    union {
        const char *read;
        char *write;
    } same = { .read = word };
    if (*count < MAX_WORDS)
        words[(*count)++] = same.write;
}

static void add_option(char **words, int *count, const char *name, const char *value)
{
    if (!value)
        return;
    add_word(words, count, name);
    add_word(words, count, value);
}

static void add_launcher(const struct start *start, const char *ranks, char **words, int *count)
{
    static const char *const rest[] = { "--oversubscribe", "--bind-to", "none", "-q" };
    add_word(words, count, start->mpirun);
    add_option(words, count, "-np", ranks);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        add_word(words, count, rest[i]);
}

/* What the executor says is passed on where it is of the contract; all else is a failed run. An
 * interruption is told here: what is signalled need not come to say it. */
static int status_of(const struct start *start, const struct launch_end *end,
                     struct diag_list *reterr)
{
    int child_status = end->status;
    if (child_status == 0)
        return EXIT_ANSWERED;
    if (end->interruption != 0) {
        diag_error(reterr, (struct pos){ 0 }, "the run was told to end (%s)",
                   strsignal(end->interruption));
        return EXIT_SYSTEM;
    }
    if (child_status == EXIT_QUESTION)
        return EXIT_QUESTION;
    /* The executor has said why; of a launcher's ranks each would repeat it. */
    if (child_status == EXIT_SYSTEM && (start->outer.present || start->rehearses))
        return EXIT_SYSTEM;
    if (child_status > 128)
        diag_error(reterr, (struct pos){ 0 }, "the run was killed by signal %d",
                   child_status - 128);
    else
        diag_error(reterr, (struct pos){ 0 }, "the run failed with status %d", child_status);
    return EXIT_SYSTEM;
}

int start_and_wait(const struct start *start, struct diag_list *reterr)
{
    static const struct {
        enum option_id id;
        const char *word;
    } passed[] = { { OPTION_DATA, "--data" },     { OPTION_DATA_FORMAT, "--data-format" },
                   { OPTION_STEPS, "--steps" },   { OPTION_SEED, "--seed" },
                   { OPTION_SAVE, "--save" },     { OPTION_WEIGHTS, "--weights" },
                   { OPTION_REPLAY, "--replay" }, { OPTION_STALL_TIMEOUT, "--stall-timeout" },
                   { OPTION_TRACE, "--trace" },   { OPTION_REPLAY_ROWS, "--replay-rows" } };
    char *words[MAX_WORDS + 1] = { 0 };
    char ranks[RANK_TEXT], rank[RANK_TEXT], limit[BYTES_TEXT];
    struct launch_end end = { 0 };
    int count = 0;
    (void)snprintf(ranks, sizeof ranks, "%d", start->ranks);
    (void)snprintf(rank, sizeof rank, "%d", start->rank);
    (void)snprintf(limit, sizeof limit, "%" PRIu64, start->memory_limit);
    if (!start->outer.present && !start->rehearses)
        add_launcher(start, ranks, words, &count);
    add_word(words, &count, start->executor);
    if (start->plan)
        add_word(words, &count, start->plan);
    add_option(words, &count, "--calibrate", start->calibrate);
    if (start->calibrate && options_has(start->options, OPTION_QUICK))
        add_word(words, &count, "--quick");
    add_option(words, &count, "--measurement", start->measurement);
    add_option(words, &count, "--dump", start->dump);
    add_option(words, &count, "--rank", start->rehearses ? rank : NULL);
    add_option(words, &count, "--memory-limit", start->memory_limit > 0 ? limit : NULL);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        add_option(words, &count, passed[i].word, start->options->value[passed[i].id]);
    if (launch_and_wait(words, &end, reterr) != 0)
        return EXIT_SYSTEM;
    return status_of(start, &end, reterr);
}

int start_check_files(const struct options *options, struct diag_list *reterr)
{
    static const enum option_id read[] = { OPTION_DATA, OPTION_WEIGHTS, OPTION_REPLAY,
                                           OPTION_REPLAY_ROWS };
    int errors_before = reterr->errors;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        const char *path = options->value[read[i]];
        if (path && access(path, R_OK) != 0)
            diag_error(reterr, options->at[read[i]], "cannot read '%s': %s", path, strerror(errno));
    }
    return reterr->errors == errors_before ? 0 : -1;
}

int start_join(char *ret, const char *directory, const char *name, struct diag_list *reterr)
{
    int length = snprintf(ret, START_PATH, "%s/%s", directory, name);
    if (length > 0 && length < START_PATH)
        return 0;
    return diag_error(reterr, (struct pos){ 0 }, "the path of temporary files is too long");
}

int start_directory(char *ret, struct diag_list *reterr)
{
    const char *temporary = getenv("TMPDIR");
    if (start_join(ret, temporary && temporary[0] ? temporary : "/tmp", "rankfit-XXXXXX", reterr))
        return -1;
    if (mkdtemp(ret))
        return 0;
    return diag_error(reterr, (struct pos){ .file = ret }, "cannot make a temporary directory: %s",
                      strerror(errno));
}

void start_remove_directory(const char *directory)
{
    DIR *entries = directory[0] ? opendir(directory) : NULL;
    if (!entries)
        return;
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries))
        (void)unlinkat(dirfd(entries), entry->d_name, 0);
    (void)closedir(entries);
    (void)rmdir(directory);
}
