/* memo.h - a table of fixed size that remembers what was computed for a key: direct-mapped, the
 * newest key of a place wins. Keys are compared byte by byte, so whoever fills one zeroes it first.
 */
#ifndef RANKFIT_PLANNER_ESTIMATE_MEMO_H
#define RANKFIT_PLANNER_ESTIMATE_MEMO_H

#include <stdbool.h>
#include <stddef.h>

struct memo {
    size_t places, key_size, entry_size; /* places: a power of two; an entry begins with its key */
    size_t clear_size;                   /* bytes of a new entry that are zeroed */
    char *entries, *used, *newest;
};

/* key_size: a multiple of 8. clear_size may be lowered to what its owner relies on. -1 when there
 * is no memory. */
int memo_init(struct memo *memo, size_t places, size_t key_size, size_t entry_size);
void memo_done(struct memo *memo);
/* Takes all of its memory from the system at once, before it has to remember anything. */
void memo_settle(struct memo *memo);

/* The entry of a key. *ret_known false: it is new, zeroed but for the key, and to be filled. */
void *memo_find(struct memo *memo, const void *key, bool *ret_known);

#endif
