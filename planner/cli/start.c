#include "planner/cli/start.h"

#include "base/file.h"
#include "base/leftover.h"
#include "base/text.h"
#include "planner/cli/command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct pos nowhere = { NULL, 0, 0 };

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

/* So that a path cannot be taken for an option of mpirun or the executor, or for mpirun's lone
 * colon. */
static const char *plain_path(const char *path, char room[START_PATH])
{
    if (!path || (path[0] != '-' && strcmp(path, ":") != 0))
        return path;
    return snprintf(room, START_PATH, "./%s", path) < START_PATH ? room : NULL;
}

/* A machine of few processors is brought to a stop by very many ranks. */
static int check_count(const struct start *start, struct diag_list *reterr)
{
    enum { ALWAYS = 64, PER_PROCESSOR = 8 };
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    long most = processors * PER_PROCESSOR > ALWAYS ? processors * PER_PROCESSOR : ALWAYS;
    if (start->ranks <= most)
        return 0;
    diag_error(reterr, nowhere,
               "%d ranks are too many to start here: at most %ld on %ld processors", start->ranks,
               most, processors);
    return diag_hint(reterr, "a launcher of your own starts any number on several machines: "
                             "srun or mpirun rankfit run PLAN");
}

/* Open MPI asks for both of its variables before it runs as root. */
static int check_root(const struct start *start, struct diag_list *reterr)
{
    if (geteuid() != 0)
        return 0;
    if (options_has(start->options, OPTION_ALLOW_ROOT)) {
        diag_warning(reterr, nowhere, "mpirun runs as root");
        return 0;
    }
    if (getenv("OMPI_ALLOW_RUN_AS_ROOT") && getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"))
        return 0;
    diag_error(reterr, nowhere, "mpirun would run as root");
    return diag_hint(reterr, "as another user, or with --allow-root, or with "
                             "OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
}

int start_check(const struct start *start, struct diag_list *reterr)
{
    int before = reterr->errors;
    if (start->outer.present || start->rehearses)
        return 0;
    (void)check_count(start, reterr);
    (void)check_root(start, reterr);
    return reterr->errors == before ? 0 : -1;
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
        diag_error(reterr, (struct pos){ 0 }, "the run was stopped by a signal (%s)",
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
    enum { PASSED = sizeof passed / sizeof *passed };
    char *words[MAX_WORDS + 1] = { 0 };
    char plan[START_PATH], paths[PASSED][START_PATH];
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
        add_word(words, &count, plain_path(start->plan, plan));
    add_option(words, &count, "--calibrate", start->calibrate);
    if (start->calibrate && options_has(start->options, OPTION_QUICK))
        add_word(words, &count, "--quick");
    add_option(words, &count, "--measurement", start->measurement);
    add_option(words, &count, "--dump", start->dump);
    add_option(words, &count, "--rank", start->rehearses ? rank : NULL);
    add_option(words, &count, "--memory-limit", start->memory_limit > 0 ? limit : NULL);
    for (int i = 0; i < PASSED; i++)
        add_option(words, &count, passed[i].word,
                   plain_path(start->options->value[passed[i].id], paths[i]));
    const struct launch_place place = {
        start->directory[0] ? start->directory : NULL,
        start->shared_memory[0] ? start->shared_memory : NULL,
        options_has(start->options, OPTION_ALLOW_ROOT),
    };
    if (launch_and_wait(words, &place, &end, reterr) != 0)
        return EXIT_SYSTEM;
    return status_of(start, &end, reterr);
}

int start_check_engine(const struct plan *plan, const struct options *options,
                       struct diag_list *reterr)
{
    if (strcmp(plan->engine, "rankfit") == 0)
        return 0;
    diag_error(reterr, options->at[OPTION_ENGINE],
               "the plan is for engine %s, and rankfit's executors run engine rankfit alone",
               plan->engine);
    return diag_hint(reterr, "--engine rankfit plans the same model for them");
}

int start_check_files(const struct options *options, struct diag_list *reterr)
{
    static const enum option_id read[] = { OPTION_DATA, OPTION_WEIGHTS, OPTION_REPLAY,
                                           OPTION_REPLAY_ROWS };
    int errors_before = reterr->errors;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        const char *path = options->value[read[i]];
        struct stat info;
        if (!path)
            continue;
        if (access(path, R_OK) != 0 || stat(path, &info) != 0)
            diag_error(reterr, options->at[read[i]], "cannot read '%s': %s", path, strerror(errno));
        else if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
            diag_error(reterr, options->at[read[i]],
                       "'%s' is not a regular file, and every rank must read it", path);
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

static const char prefix[] = "rankfit-";

/* Where POSIX shared memory lies on Linux. Without it Open MPI chooses a place. */
static void make_shared_memory(struct start *start)
{
    static const char place[] = "/dev/shm";
    leftover_sweep(place, prefix);
    if (leftover_name(start->shared_memory, START_PATH, place, prefix) != 0 ||
        !mkdtemp(start->shared_memory))
        start->shared_memory[0] = '\0';
}

int start_directory(struct start *start, struct diag_list *reterr)
{
    const char *temporary = getenv("TMPDIR");
    char path[START_PATH];
    if (!temporary || !temporary[0])
        temporary = "/tmp";
    leftover_sweep(temporary, prefix);
    if (leftover_name(path, sizeof path, temporary, prefix) != 0)
        return diag_error(reterr, nowhere, "the path of temporary files is too long");
    if (!mkdtemp(path))
        return diag_error(reterr, (struct pos){ .file = temporary },
                          "cannot make a temporary directory: %s", strerror(errno));
    (void)text_copy(start->directory, sizeof start->directory, path);
    make_shared_memory(start);
    return 0;
}

/* The directory of an output of the executor's, swept of what it did not finish. */
static void sweep_beside(const char *path)
{
    char directory[START_PATH];
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!path || text_copy(directory, sizeof directory, path) != 0)
        return;
    directory[slash ? slash + 1 - path : 0] = '\0';
    leftover_sweep(directory, FILE_TEMPORARY_PREFIX);
}

void start_remove_directory(const struct start *start)
{
    leftover_remove(start->directory);
    leftover_remove(start->shared_memory);
    sweep_beside(start->options->value[OPTION_SAVE]);
    sweep_beside(start->options->value[OPTION_TRACE]);
}
