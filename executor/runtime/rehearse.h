/* rehearse.h - a run of which one rank is there: what can be wrong with asking for it, and who
 * stands in for the others. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_REHEARSE_H
#define RANKFIT_EXECUTOR_RUNTIME_REHEARSE_H

#include "executor/fabric/rehearsal/fabric_rehearsal.h"
#include "executor/runtime/options.h"
#include "executor/runtime/peers.h"

struct rehearse {
    struct rehearsal_world world; /* world 0: nothing is rehearsed */
    struct peers *peers;
    struct measurement measurement;   /* whose rows are replayed, */
    const struct measured_rank *rows; /* those of this rank */
};

/* Of options without a rank, the options that need one. -1 with everything that stands against the
 * rehearsal; `started` processes were. rehearse_close is due in any case. */
int rehearse_open(struct rehearse *rehearse, const struct run_options *options,
                  const struct plan *plan, int started, struct diag_list *reterr);
/* Who sends what rows; `book` as the router is given it. */
int rehearse_cast(struct rehearse *rehearse, const struct run_options *options,
                  const struct plan *plan, const struct choice_book *book,
                  struct diag_list *reterr);
void rehearse_close(struct rehearse *rehearse);

#endif
