#include "planner/cli/progress.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const double first_after_seconds = 1, again_after_seconds = 0.1;

static double now_seconds(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now))
        return 0;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* An interruption ends the process; the line of progress goes first. Calls only functions of
 * signal-safety(7). */
static void clean_line(int number)
{
    static const char clean[] = "\r\033[K";
    (void)!write(STDERR_FILENO, clean, sizeof clean - 1);
    (void)raise(number);
}

/* Once: the signal that is raised then acts as usual. One that is ignored stays so. */
static void clean_on(int number)
{
    struct sigaction old, action = { .sa_handler = clean_line, .sa_flags = (int)SA_RESETHAND };
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
        (void)sigaction(number, &action, NULL);
}

void progress_start(struct progress *progress, const char *what)
{
    *progress = (struct progress){ .what = what, .terminal = isatty(STDERR_FILENO) == 1 };
    progress->started = now_seconds();
    if (!progress->terminal)
        return;
    clean_on(SIGINT);
    clean_on(SIGTERM);
    clean_on(SIGHUP);
}

void progress_tell(void *context, double share)
{
    struct progress *progress = context;
    double now = now_seconds();
    if (!progress->terminal || now - progress->started < first_after_seconds ||
        now - progress->last < again_after_seconds)
        return;
    (void)fprintf(stderr, "\r%s: %.0f %% after %.0f s ", progress->what, 100 * share,
                  now - progress->started);
    progress->last = now;
    progress->shown = true;
}

void progress_end(struct progress *progress)
{
    if (progress->shown)
        (void)fputs("\r\033[K", stderr);
    progress->shown = false;
}
