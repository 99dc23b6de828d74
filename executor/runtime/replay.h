/* replay.h - the experts of every token of a step from a file, so that a run follows another
 * framework's or layout's routing: tensors choices.LAYER of I32, for each token of the global batch
 * its experts. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_REPLAY_H
#define RANKFIT_EXECUTOR_RUNTIME_REPLAY_H

#include "base/pool.h"
#include "executor/primitive/work.h"

/* A zeroed replay is valid and empty. */
struct replay {
    struct pool pool;
    struct choice_book book;
};

/* -1 with a diagnostic: unreadable, a layer with experts is missing or has another number of
 * choices than the plan's step, an expert that the model has not, or the same one twice for a
 * token. replay_close is due in any case. */
int replay_open(const char *path, const struct plan *plan, struct replay *ret,
                struct diag_list *reterr);
void replay_close(struct replay *replay);

/* A book of nothing yet, for the plan's step. */
int replay_blank(const struct plan *plan, struct replay *ret, struct diag_list *reterr);

#endif
