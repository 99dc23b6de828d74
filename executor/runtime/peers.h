/* peers.h - what the other ranks of an expert group send to a rank that is rehearsed. Told from the
 * plan's profile, or from the experts that are given to every token, these are the rows that the
 * real ranks would send, to the row: draws depend on seed, layer and token alone. Where the router
 * decides, peers choose uniformly at random; or what a rank received in a real run is replayed: it
 * comes from all members and to all experts of the rank in even shares, this rank's own tokens
 * being directed likewise. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_PEERS_H
#define RANKFIT_EXECUTOR_RUNTIME_PEERS_H

#include "executor/primitive/work.h"

struct peers_question {
    const struct plan *plan;
    int rank;
    uint64_t seed;
    const struct choice_book *book;     /* NULL: none is given */
    const struct measured_rank *replay; /* whose routed rows are replayed; NULL: none are */
};

/* -1 with a diagnostic. Borrows what the question refers to. peers_close accepts NULL. */
int peers_open(const struct peers_question *question, struct peers **ret, struct diag_list *reterr);
void peers_close(struct peers *peers);

/* The rank of the measurement in the file at `path` whose routed rows can be replayed: of this
 * plan, with an entry for every layer with experts and every micro-batch. -1 with a diagnostic;
 * measurement_done is due in any case. */
int peers_read_rows(const char *path, const struct plan *plan, int rank, struct measurement *ret,
                    const struct measured_rank **ret_rank, struct diag_list *reterr);

#endif
