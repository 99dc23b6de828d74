/* arena.h - one reservation for everything a rank allocates. First a dry pass of setup and one step
 * records every take and give; arena_pack then lays all of them out at fixed offsets and reserves
 * the extent; the real steps replay the same sequence. Tensors whose size is known only at run time
 * (routed rows) state the capacity they were promised and fail with owner, size and what was alive
 * when it is not enough. Keeps its own record of what was live: the measured figures. Knows nothing
 * of budgets. */
#ifndef RANKFIT_EXECUTOR_MEMORY_ARENA_H
#define RANKFIT_EXECUTOR_MEMORY_ARENA_H

#include "base/diag.h"
#include "executor/memory/owner.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ARENA_ALIGNMENT = 256 };

struct arena;

/* Reserves and releases the one block: mmap on the host, the device's allocator elsewhere. */
struct arena_source {
    void *(*reserve)(void *context, uint64_t bytes); /* NULL when it cannot be had */
    void (*release)(void *context, void *block, uint64_t bytes);
    void *context;
    uint64_t (*available)(void *context); /* what could be had now; NULL: nobody knows */
};

/* A taken tensor. data is NULL during the dry pass. A zeroed buffer is valid and holds nothing. */
struct buffer {
    void *data;
    uint64_t bytes; /* as asked for */
    uint32_t take;  /* arena's own index + 1; 0: holds nothing */
};

struct arena *arena_open(const struct arena_source *source);
void arena_close(struct arena *arena);

bool arena_is_dry(const struct arena *arena);

/* Ends the dry pass: packs, reserves. What was taken before arena_mark_step and not given back is
 * resident and gets its memory now (call arena_resident_data to learn where); the step replays from
 * the mark. */
int arena_pack(struct arena *arena, struct diag_list *reterr);

/* The boundary between setup and step: called once in the dry pass, and at the start of each real
 * step. */
void arena_mark_step(struct arena *arena);

/* Memory for `bytes`, live until given back. capacity_bytes >= bytes in the dry pass; equal to
 * bytes for tensors of static size. -1 with a diagnostic (overflow of the capacity; a sequence that
 * differs from the dry pass; no memory), *ret zeroed. bytes 0 is valid. */
int arena_take(struct arena *arena, enum owner owner, uint64_t bytes, uint64_t capacity_bytes,
               struct buffer *ret, struct diag_list *reterr);
void arena_give(struct arena *arena, struct buffer *buffer);

/* Changes the owner of a live buffer (a layer's output becomes the next checkpoint). */
void arena_own(struct arena *arena, struct buffer *buffer, enum owner owner);

/* After arena_pack: a resident buffer taken in the dry pass gets its address. */
void arena_resident(struct arena *arena, struct buffer *buffer);

/* Of every tensor's place and room, after arena_pack: equal at ranks that laid out the same. */
uint64_t arena_fingerprint(const struct arena *arena);

/* Labels what follows, for the peak's report ("backward micro-batch 0 layer 5"). */
void arena_phase(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What was seen since the last arena_record_reset (which keeps what is live now). */
struct arena_record {
    uint64_t live_peak_bytes; /* sum of live tensors, rounded as the arena rounds */
    uint64_t extent_bytes;    /* reserved */
    uint64_t room_bytes;      /* the most that may be live at once, every tensor at its capacity: no
                                 packing reserves less */
    uint64_t owner_at_peak[OWNER_COUNT];
    uint64_t owner_max[OWNER_COUNT];
    uint64_t item_at_peak[ITEM_COUNT];
    uint64_t item_max[ITEM_COUNT]; /* maximum over time of the item's sum of owners */
    char peak_phase[64];
};
void arena_record(const struct arena *arena, struct arena_record *ret);
void arena_record_reset(struct arena *arena);

/* At most `bytes` are live at a time, residents included; a take beyond them fails. For memory that
 * is used only where it is touched, so that the reservation itself costs nothing; a device limits
 * what can be reserved. 0: no limit. */
void arena_limit(struct arena *arena, uint64_t bytes);

/* Test hook: the n-th take from now fails (n from 1; 0 never). */
void arena_fail_at(struct arena *arena, long n);

#endif
