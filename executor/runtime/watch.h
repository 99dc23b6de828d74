/* watch.h - a thread of each rank that sees to it that a run ends: it notices a rank of this
 * machine that stands still or was killed, a launcher that is gone (of more than one rank), and a
 * request to end (SIGTERM, SIGINT, SIGHUP). The first to notice says the cause, and the process
 * ends with `status`; the launcher then ends the others. Calls nothing of MPI. Ranks of other
 * machines are watched there.
 */
#ifndef RANKFIT_EXECUTOR_RUNTIME_WATCH_H
#define RANKFIT_EXECUTOR_RUNTIME_WATCH_H

#include "executor/fabric/fabric.h"

struct watch;

/* Leaves requests to end to the watch. Before any thread is made, so that all inherit it. */
void watch_hold_signals(void);

/* A rank that makes no progress for `seconds` outside an operation of the fabric stands still; so
 * does a world whose ranks all wait for as long. NULL with a diagnostic. */
struct watch *watch_open(const struct fabric *fabric, int64_t seconds, int status,
                         struct diag_list *reterr);
/* From now on transfers of this fabric are watched too: one that has failed, or has not ended
 * `seconds` after it was begun, ends the run. `fabric` must outlive the watch. */
void watch_transfers(struct watch *watch, struct fabric *fabric);
/* Accepts NULL. */
void watch_close(struct watch *watch);

#endif
