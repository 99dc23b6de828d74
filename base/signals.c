#include "base/signals.h"

#include <pthread.h>
#include <stddef.h>

void signals_of_requests(sigset_t *ret)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM };
    (void)sigemptyset(ret);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)sigaddset(ret, numbers[i]);
}

void signals_hold(sigset_t *ret_before)
{
    sigset_t set;
    signals_of_requests(&set);
    (void)sigaddset(&set, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &set, ret_before);
}

void signals_release(const sigset_t *before)
{
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}
