#include "planner/cli/launch.h"

#include "base/signals.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_SECONDS = 8 };

static int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    int64_t value = otherwise;
    if (text)
        (void)units_parse_int(text, 0, INT_MAX, &value);
    return (int)value;
}

/* Open MPI says size and rank; PMIx and PMI say the rank. SLURM_PROCID alone proves nothing: a
 * batch script has it too. */
struct outer_launcher launch_outer(void)
{
    struct outer_launcher ret = { 0 };
    bool open_mpi = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
    bool pmix = getenv("PMIX_RANK") != NULL;
    bool pmi = getenv("SLURM_PROCID") && getenv("PMI_RANK");
    ret.present = open_mpi || pmix || pmi;
    if (!ret.present)
        return ret;
    ret.rank = open_mpi ? number_of("OMPI_COMM_WORLD_RANK", 0)
               : pmix   ? number_of("PMIX_RANK", 0)
                        : number_of("PMI_RANK", 0);
    ret.size = open_mpi ? number_of("OMPI_COMM_WORLD_SIZE", 0)
                        : number_of("PMI_SIZE", number_of("SLURM_STEP_NUM_TASKS", 0));
    return ret;
}

/* A regular file that may be executed, at directory/name. */
static bool find_in(const char *directory, size_t length, const char *name, char *ret, size_t size)
{
    struct stat info;
    int written = snprintf(ret, size, "%.*s/%s", (int)length, directory, name);
    return written > 0 && (size_t)written < size && stat(ret, &info) == 0 &&
           S_ISREG(info.st_mode) && access(ret, X_OK) == 0;
}

static bool find_beside(const char *name, char *ret, size_t size)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return false;
    self[length] = '\0';
    const char *slash = strrchr(self, '/');
    return slash && find_in(self, (size_t)(slash - self), name, ret, size);
}

int launch_find_executor(const char *backend, char *ret, size_t size, struct diag_list *reterr)
{
    char name[64];
    (void)snprintf(name, sizeof name, "rankfit-%s", backend);
    const char *libexec = getenv("RANKFIT_LIBEXEC");
    if (libexec && libexec[0] && find_in(libexec, strlen(libexec), name, ret, size))
        return 0;
    if (find_beside(name, ret, size) ||
        find_in(RANKFIT_LIBEXECDIR, strlen(RANKFIT_LIBEXECDIR), name, ret, size))
        return 0;
    diag_error(reterr, (struct pos){ 0 },
               "%s is not there: neither in $RANKFIT_LIBEXEC, nor beside rankfit, nor installed",
               name);
    if (strcmp(backend, "host") == 0)
        return diag_hint(reterr, "it is built where MPI and OpenBLAS are: install Debian's "
                                 "libopenmpi-dev and libopenblas-pthread-dev, then build again");
    return diag_hint(reterr,
                     "it is built where CUDA, cuDNN, NCCL and MPI are (meson's option cuda); "
                     "--backend host runs small models on local processes");
}

int launch_find_mpirun(char *ret, size_t size, struct diag_list *reterr)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t length = strcspn(path, ":");
        if (length > 0 && find_in(path, length, "mpirun", ret, size))
            return 0;
        path += length + (path[length] == ':');
    }
    diag_error(reterr, (struct pos){ 0 },
               "mpirun is not on the PATH; it starts the ranks of a run");
    return diag_hint(reterr, "install Debian's package openmpi-bin");
}

/* The user's own settings go first. Several machines need not have the same directories. */
static void set_place(const struct launch_place *place)
{
    static const char *const allocations[] = { "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID",
                                               "PE_HOSTFILE" };
    for (size_t i = 0; i < sizeof allocations / sizeof *allocations; i++)
        if (getenv(allocations[i]))
            return;
    if (place->session)
        (void)setenv("OMPI_MCA_orte_tmpdir_base", place->session, 0);
    if (place->shared_memory)
        (void)setenv("OMPI_MCA_btl_vader_backing_directory", place->shared_memory, 0);
}

/* In the child, which leads a group of its own: whoever ends ours as a whole (a terminal, timeout)
 * would otherwise have mpirun signalled twice, and the second time it leaves without its ranks.
 * Results belong to rankfit, so what the executor says is talk. */
static void become(char *const *argv, const struct launch_place *place)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0)
        (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    if (place->allow_root) {
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 0);
    set_place(place);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execv(argv[0], argv);
    _exit(127);
}

static time_t seconds_now(void)
{
    struct timespec now = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Waits for the child and passes the first request to end on, as SIGTERM: at a second one a
 * launcher leaves at once, without its files. A child that has not ended PATIENCE_SECONDS after it
 * is killed; the ranks of a launcher that is gone end by themselves. Nothing is sent once the child
 * has been waited for: its number may be another's. Returns 0 or the error number of waitpid. */
static int wait_for(pid_t child, const sigset_t *signals, struct launch_end *ret)
{
    const struct timespec second = { .tv_sec = 1 };
    time_t patience_ends = 0;
    int status = 0;
    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            break;
        if (ended < 0 && errno != EINTR)
            return errno;
        int number = sigtimedwait(signals, NULL, &second);
        if (number > 0 && number != SIGCHLD && ret->interruption == 0) {
            (void)kill(child, SIGTERM);
            patience_ends = seconds_now() + PATIENCE_SECONDS;
            ret->interruption = number;
        }
        if (patience_ends > 0 && seconds_now() >= patience_ends)
            (void)kill(child, SIGKILL);
    }
    ret->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

int launch_and_wait(char *const *argv, const struct launch_place *place, struct launch_end *ret,
                    struct diag_list *reterr)
{
    sigset_t signals, old;
    *ret = (struct launch_end){ 0 };
    signals_of_requests(&signals);
    (void)sigaddset(&signals, SIGCHLD);
    (void)sigaddset(&signals, SIGPIPE); /* the reader of our output has gone */
    (void)fflush(NULL);
    (void)sigprocmask(SIG_BLOCK, &signals, &old);
    pid_t child = fork();
    if (child == 0)
        become(argv, place);
    int failure = child < 0 ? errno : wait_for(child, &signals, ret);
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    if (failure != 0)
        return diag_error(reterr, (struct pos){ 0 }, "cannot %s %s: %s",
                          child < 0 ? "start" : "wait for", argv[0], strerror(failure));
    if (ret->status == 127)
        return diag_error(reterr, (struct pos){ 0 }, "cannot execute %s", argv[0]);
    return 0;
}
