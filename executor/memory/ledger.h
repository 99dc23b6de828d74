/* ledger.h - what is live, by owner and item, and the largest it has been. Counts bytes that the
 * arena has already rounded; knows nothing of offsets. */
#ifndef RANKFIT_EXECUTOR_MEMORY_LEDGER_H
#define RANKFIT_EXECUTOR_MEMORY_LEDGER_H

#include "executor/memory/arena.h"

struct ledger {
    uint64_t live;
    uint64_t owner_live[OWNER_COUNT], item_live[ITEM_COUNT];
    struct arena_record record; /* extent_bytes and room_bytes unused */
    char phase[64];
};

void ledger_add(struct ledger *ledger, enum owner owner, uint64_t bytes);
void ledger_remove(struct ledger *ledger, enum owner owner, uint64_t bytes);
/* Hands bytes from one owner to another; nothing becomes live. */
void ledger_move(struct ledger *ledger, enum owner from, enum owner to, uint64_t bytes);
/* Forgets the maxima; what is live now is the new peak. */
void ledger_reset(struct ledger *ledger);

/* Writes "expert rows 12,582,912, weights 8,388,608, ..." for the largest live owners. */
void ledger_describe(const struct ledger *ledger, char *ret, size_t size);

#endif
