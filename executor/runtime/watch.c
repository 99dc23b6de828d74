#include "executor/runtime/watch.h"
#include "base/signals.h"
#include "base/text.h"
#include "executor/fabric/progress.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MILLISECONDS = 250, PLACE_ROOM = 64 };

/* What the thread remembers of one rank of this machine. */
struct seen {
    uint64_t notes;
    double idle_seconds;
    bool visible; /* its process could be asked after once */
};

struct watch {
    struct progress *progress;
    double limit_seconds;
    int status;
    pid_t parent; /* the launcher; of a world of one perhaps a shell, whose end means nothing */
    atomic_int stopped;
    pthread_t thread;
    struct seen *seen;
    _Atomic(struct fabric *) fabric; /* whose transfers are watched; NULL: none are */
};

void watch_hold_signals(void)
{
    sigset_t set;
    signals_of_requests(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Ends the process; the cause is said only when nobody has said one before. */
static void end(const struct watch *w, const struct diag_list *cause)
{
    if (cause && progress_may_tell(w->progress)) {
        diag_list_print(stderr, cause);
        (void)fflush(stderr);
    }
    _exit(w->status);
}

/* What the other ranks of this machine are at, as a hint. */
static void say_others(const struct watch *w, const struct progress_slot *except,
                       struct diag_list *list)
{
    char words[280] = "";
    size_t used = 0;
    for (int i = 0; i < w->progress->count; i++) {
        const struct progress_slot *slot = &w->progress->slots[i];
        char place[PLACE_ROOM];
        if (slot == except)
            continue;
        progress_describe(slot, place, sizeof place);
        text_append(words, sizeof words, &used, "%srank %d %s %s in %s", used ? "; " : "",
                    slot->rank, atomic_load(&slot->waiting) ? "waits for" : "is",
                    atomic_load(&slot->waiting) ? slot->operation : "at work", place);
    }
    if (used > 0)
        (void)diag_hint(list, "%s", words);
}

/* A rank whose process has gone without saying that it is done. */
static const struct progress_slot *find_gone(const struct watch *w)
{
    for (int i = 0; i < w->progress->count; i++) {
        const struct progress_slot *slot = &w->progress->slots[i];
        bool there = kill(slot->pid, 0) == 0 || errno != ESRCH;
        if (there)
            w->seen[i].visible = true;
        else if (w->seen[i].visible && !atomic_load(&slot->done))
            return slot;
    }
    return NULL;
}

static void end_if_gone(const struct watch *w)
{
    struct diag_list cause = { 0 };
    char place[PLACE_ROOM];
    const struct progress_slot *gone = find_gone(w);

    if (!gone)
        return;
    progress_describe(gone, place, sizeof place);
    (void)diag_error(&cause, (struct pos){ 0 }, "rank %d has ended without a word, in %s",
                     gone->rank, place);
    (void)diag_hint(&cause, "killed from outside, by the system for want of memory, or by a fault "
                            "of its own");
    end(w, &cause);
}

/* Asked to end: because another rank was killed, in which case that is the cause, or by somebody.
 */
static void end_by_request(const struct watch *w, int number)
{
    struct diag_list cause = { 0 };
    char place[PLACE_ROOM];
    const struct progress_slot *own = &w->progress->slots[w->progress->own];

    end_if_gone(w);
    progress_describe(own, place, sizeof place);
    (void)diag_error(&cause, (struct pos){ 0 }, "rank %d was told to end (%s), in %s", own->rank,
                     strsignal(number), place);
    end(w, &cause);
}

static void end_stalled(const struct watch *w, const struct progress_slot *slot)
{
    struct diag_list cause = { 0 };
    char place[PLACE_ROOM];

    progress_describe(slot, place, sizeof place);
    (void)diag_error(&cause, (struct pos){ 0 }, "rank %d has made no progress for %g s, in %s",
                     slot->rank, w->limit_seconds, place);
    say_others(w, slot, &cause);
    end(w, &cause);
}

/* Whether the system says that the process is stopped (proc(5), the state behind the name). */
static bool is_suspended(int pid)
{
    char path[32], line[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    bool got = file && fgets(line, sizeof line, file);
    if (file)
        (void)fclose(file);
    const char *name_end = got ? strrchr(line, ')') : NULL;
    return name_end && (strncmp(name_end, ") T", 3) == 0 || strncmp(name_end, ") t", 3) == 0);
}

/* All wait: for a rank suspended within an operation, or for each other. */
static void end_waiting(const struct watch *w)
{
    struct diag_list cause = { 0 };
    const struct progress_slot *suspended = NULL;
    for (int i = 0; i < w->progress->count && !suspended; i++)
        if (is_suspended(w->progress->slots[i].pid))
            suspended = &w->progress->slots[i];
    if (suspended)
        (void)diag_error(&cause, (struct pos){ 0 }, "rank %d is suspended, in %s; %g s have passed",
                         suspended->rank, suspended->operation, w->limit_seconds);
    else
        (void)diag_error(&cause, (struct pos){ 0 },
                         "all %d ranks have waited for each other for %g s", w->progress->world,
                         w->limit_seconds);
    say_others(w, suspended, &cause);
    end(w, &cause);
}

/* Adds `seconds` to every rank that has noted nothing since the last look. */
static void look(struct watch *w, double seconds)
{
    const struct progress *p = w->progress;
    int waiting = 0;

    for (int i = 0; i < p->count; i++) {
        struct progress_slot *slot = &p->slots[i];
        struct seen *seen = &w->seen[i];
        uint64_t notes = atomic_load(&slot->notes);
        bool moved = notes != seen->notes || atomic_load(&slot->done);
        seen->notes = notes;
        seen->idle_seconds = moved ? 0 : seen->idle_seconds + seconds;
        if (seen->idle_seconds < w->limit_seconds)
            continue;
        if (!atomic_load(&slot->waiting))
            end_stalled(w, slot);
        waiting++;
    }
    if (waiting == p->world)
        end_waiting(w);
}

/* A transfer names itself: before the ranks that stand still because of it are named. */
static void end_if_overdue(const struct watch *w)
{
    struct diag_list cause = { 0 };
    struct fabric *fabric = atomic_load(&w->fabric);

    if (!fabric || !fabric->ops->overdue ||
        fabric->ops->overdue(fabric, w->limit_seconds - 1, &cause) == 0)
        return;
    say_others(w, &w->progress->slots[w->progress->own], &cause);
    end(w, &cause);
}

static double clock_seconds(void)
{
    struct timespec now = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A whole run that was suspended for a while has not stood still: a tick never counts for more than
 * two. */
static void *watch_ranks(void *context)
{
    struct watch *w = context;
    const struct timespec tick = { .tv_nsec = TICK_MILLISECONDS * 1000000L };
    const double most = 2e-3 * TICK_MILLISECONDS;
    double before = clock_seconds();
    sigset_t set;

    signals_of_requests(&set);
    while (!atomic_load(&w->stopped)) {
        int number = sigtimedwait(&set, NULL, &tick);
        if (atomic_load(&w->stopped))
            break;
        if (number > 0)
            end_by_request(w, number);
        if (w->progress->world > 1 && getppid() != w->parent)
            end(w, NULL);
        end_if_gone(w);
        end_if_overdue(w);
        double now = clock_seconds();
        look(w, now - before < most ? now - before : most);
        before = now;
    }
    return NULL;
}

static struct watch *no_watch(struct watch *w, int error, struct diag_list *reterr)
{
    if (w)
        free(w->seen);
    free(w);
    diag_error(reterr, (struct pos){ 0 }, "the run's watch cannot be started: %s", strerror(error));
    return NULL;
}

struct watch *watch_open(const struct fabric *fabric, int64_t seconds, int status,
                         struct diag_list *reterr)
{
    struct watch *w = calloc(1, sizeof *w);
    if (!w)
        return no_watch(w, ENOMEM, reterr);
    w->progress = fabric->progress;
    w->limit_seconds = (double)seconds;
    w->status = status;
    w->parent = getppid();
    w->seen = calloc((size_t)w->progress->count, sizeof *w->seen);
    if (!w->seen)
        return no_watch(w, ENOMEM, reterr);
    (void)find_gone(w); /* every slot is filled by now: who can be asked after is noted */
    int error = pthread_create(&w->thread, NULL, watch_ranks, w);
    return error ? no_watch(w, error, reterr) : w;
}

void watch_transfers(struct watch *w, struct fabric *fabric)
{
    atomic_store(&w->fabric, fabric);
}

void watch_close(struct watch *w)
{
    if (!w)
        return;
    progress_done(w->progress);
    atomic_store(&w->stopped, 1);
    (void)pthread_join(w->thread, NULL);
    free(w->seen);
    free(w);
}
