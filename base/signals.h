/* signals.h - the signals that end a process which does not see to them, and that both programs
 * keep waiting until nothing is left behind. */
#ifndef RANKFIT_BASE_SIGNALS_H
#define RANKFIT_BASE_SIGNALS_H

#include <signal.h>

/* Requests to end, from a terminal, a batch system or a timer: INT, TERM, HUP, QUIT, USR1, USR2,
 * ALRM. Not SIGPIPE, which nobody requests. */
void signals_of_requests(sigset_t *ret);

/* Blocks the requests and SIGPIPE for this thread. Those that arrive wait until signals_release. */
void signals_hold(sigset_t *ret_before);
void signals_release(const sigset_t *before);

#endif
