#include "executor/memory/arena.h"

#include "base/checked.h"
#include "base/units.h"
#include "executor/memory/ledger.h"
#include "executor/memory/pack.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One take of the dry pass. Events count takes and gives; a take's buffer is live from its `first`
 * event to just before `last`. */
struct take {
    enum owner owner;     /* as recorded */
    enum owner owner_now; /* arena_own may have changed it */
    uint32_t first, last; /* last 0: never given */
    uint64_t capacity, offset;
    uint64_t live_bytes; /* rounded; 0 beside live false */
    bool live;
};

struct arena {
    struct arena_source source;
    struct take *takes;
    uint32_t count, room;
    uint32_t mark;            /* first take of the step */
    uint32_t mark_event;      /* its event */
    uint32_t next, event;     /* cursor */
    uint32_t first_given_bad; /* index + 1 of a give out of sequence, not yet reported */
    bool dry, marked, failed;
    void *block;
    uint64_t extent, room_bytes, limit; /* limit 0: none */
    long fail_at;
    struct ledger ledger;
};

static const struct pos nowhere = { NULL, 0, 0 };

struct arena *arena_open(const struct arena_source *source)
{
    struct arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return NULL;
    arena->source = *source;
    arena->dry = true;
    return arena;
}

void arena_close(struct arena *arena)
{
    if (!arena)
        return;
    if (arena->block)
        arena->source.release(arena->source.context, arena->block, arena->extent);
    free(arena->takes);
    free(arena);
}

bool arena_is_dry(const struct arena *arena)
{
    return arena->dry;
}

static uint64_t rounded(uint64_t bytes)
{
    return round_up_to(bytes, ARENA_ALIGNMENT);
}

/* The largest live owners; the ledger rests during the dry pass, so the takes are asked. */
static void describe_live(const struct arena *arena, char *ret, size_t size)
{
    struct ledger live = arena->ledger;
    for (uint32_t i = 0; i < arena->count && arena->dry; i++)
        if (arena->takes[i].live)
            live.owner_live[arena->takes[i].owner_now] += arena->takes[i].live_bytes;
    ledger_describe(&live, ret, size);
}

/* Reports `what` happened to a take of `owner`, with the phase, and the largest owners as hint. */
static int fail(struct arena *arena, enum owner owner, const char *what, uint64_t bytes,
                uint64_t limit, struct diag_list *reterr)
{
    char wanted[32], allowed[32], live[200];
    arena->failed = true;
    describe_live(arena, live, sizeof live);
    (void)diag_error(reterr, nowhere, "memory for '%s': %s: %s bytes wanted, %s there, during %s",
                     owner_infos[owner].name, what,
                     units_format_count(wanted, sizeof wanted, bytes),
                     units_format_count(allowed, sizeof allowed, limit),
                     arena->ledger.phase[0] ? arena->ledger.phase : "setup");
    return diag_hint(reterr, "live, in bytes: %s", live);
}

/* The same for the whole: every tensor of setup and step in one reservation. */
static int fail_whole(struct arena *arena, const char *what, struct diag_list *reterr)
{
    const struct arena_source *source = &arena->source;
    uint64_t left = source->available ? source->available(source->context) : 0;
    char extent[32], number[32], there[80] = "", live[200];
    describe_live(arena, live, sizeof live);
    if (source->available)
        (void)snprintf(there, sizeof there, ", %s there%s",
                       units_format_count(number, sizeof number, left),
                       left < arena->extent ? "" : ", some of which it would cost besides");
    (void)diag_error(reterr, nowhere,
                     "memory for the arena: %s: %s bytes wanted for setup and step together%s",
                     what, units_format_count(extent, sizeof extent, arena->extent), there);
    return diag_hint(reterr, "resident, in bytes: %s", live);
}

void arena_mark_step(struct arena *arena)
{
    arena->failed = false;
    if (arena->dry) {
        arena->marked = true;
        arena->mark = arena->count;
        arena->mark_event = arena->event;
        return;
    }
    arena->next = arena->mark;
    arena->event = arena->mark_event;
}

static struct take *append_take(struct arena *arena)
{
    if (arena->count == arena->room) {
        uint32_t room = arena->room ? 2 * arena->room : 256;
        struct take *grown = realloc(arena->takes, room * sizeof *grown);
        if (!grown)
            return NULL;
        arena->takes = grown;
        arena->room = room;
    }
    struct take *take = &arena->takes[arena->count++];
    memset(take, 0, sizeof *take);
    return take;
}

static int take_dry(struct arena *arena, enum owner owner, uint64_t bytes, uint64_t capacity,
                    struct buffer *ret, struct diag_list *reterr)
{
    struct take *take = append_take(arena);
    if (!take)
        return fail(arena, owner, "no host memory for the record", bytes, 0, reterr);
    take->owner = take->owner_now = owner;
    take->first = arena->event++;
    take->capacity = rounded(capacity);
    take->live_bytes = rounded(bytes);
    take->live = true;
    *ret = (struct buffer){ .bytes = bytes, .take = arena->count };
    return 0;
}

/* The take that the dry pass made at this place, or a diagnostic. */
static struct take *replayed_take(struct arena *arena, enum owner owner, uint64_t bytes,
                                  uint64_t capacity, struct diag_list *reterr)
{
    if (arena->first_given_bad) {
        const struct take *bad = &arena->takes[arena->first_given_bad - 1];
        arena->first_given_bad = 0;
        (void)fail(arena, bad->owner, "given back out of the dry pass's sequence", bytes,
                   bad->capacity, reterr);
        return NULL;
    }
    if (arena->next >= arena->count) {
        (void)fail(arena, owner, "a take beyond the dry pass's last", bytes, 0, reterr);
        return NULL;
    }
    struct take *take = &arena->takes[arena->next];
    if (take->live) {
        (void)fail(arena, owner, "the step before has not given it back", bytes, take->capacity,
                   reterr);
        return NULL;
    }
    if (take->owner != owner || take->first != arena->event ||
        take->capacity != rounded(capacity)) {
        char what[120];
        (void)snprintf(what, sizeof what, "take %u differs from the dry pass, which had '%s' here",
                       arena->next - arena->mark + 1, owner_infos[take->owner].name);
        (void)fail(arena, owner, what, bytes, take->capacity, reterr);
        return NULL;
    }
    return take;
}

/* The ledger never goes beyond the limit: residents are judged before it opens. */
static bool beyond_limit(const struct arena *arena, uint64_t bytes)
{
    return arena->limit > 0 && bytes > arena->limit - arena->ledger.live;
}

int arena_take(struct arena *arena, enum owner owner, uint64_t bytes, uint64_t capacity_bytes,
               struct buffer *ret, struct diag_list *reterr)
{
    memset(ret, 0, sizeof *ret);
    if (arena->fail_at > 0 && --arena->fail_at == 0)
        return fail(arena, owner, "refused by request", bytes, 0, reterr);
    if (bytes > capacity_bytes)
        return fail(arena, owner, "more than its promised capacity", bytes, capacity_bytes, reterr);
    if (bytes_overflowed(rounded(capacity_bytes)))
        return fail(arena, owner, "a size beyond 64 bits", bytes, UINT64_MAX, reterr);
    if (arena->dry)
        return take_dry(arena, owner, bytes, capacity_bytes, ret, reterr);
    struct take *take = replayed_take(arena, owner, bytes, capacity_bytes, reterr);
    if (!take)
        return -1;
    arena->next++;
    arena->event++;
    if (beyond_limit(arena, rounded(bytes)))
        return fail(arena, owner, "beyond what this rank may hold", bytes,
                    arena->limit - arena->ledger.live, reterr);
    take->owner_now = owner;
    take->live = true;
    take->live_bytes = rounded(bytes);
    ledger_add(&arena->ledger, owner, take->live_bytes);
    *ret = (struct buffer){ (char *)arena->block + take->offset, bytes, arena->next };
    return 0;
}

void arena_give(struct arena *arena, struct buffer *buffer)
{
    if (buffer->take == 0)
        return;
    uint32_t index = buffer->take - 1;
    struct take *take = &arena->takes[index];
    memset(buffer, 0, sizeof *buffer);
    take->live = false;
    if (arena->dry) {
        take->last = arena->event++;
        return;
    }
    ledger_remove(&arena->ledger, take->owner_now, take->live_bytes);
    if (index < arena->mark)
        return;
    if (take->last != arena->event && !arena->failed && arena->first_given_bad == 0)
        arena->first_given_bad = index + 1;
    arena->event++;
}

void arena_own(struct arena *arena, struct buffer *buffer, enum owner owner)
{
    if (buffer->take == 0)
        return;
    struct take *take = &arena->takes[buffer->take - 1];
    if (!arena->dry)
        ledger_move(&arena->ledger, take->owner_now, owner, take->live_bytes);
    take->owner_now = owner;
}

void arena_resident(struct arena *arena, struct buffer *buffer)
{
    if (arena->dry || buffer->take == 0)
        return;
    buffer->data = (char *)arena->block + arena->takes[buffer->take - 1].offset;
}

/* Residents must outlive the step, and what a step takes it must give back: only then can the next
 * step replay it. */
static int check_lifetimes(struct arena *arena, struct diag_list *reterr)
{
    for (uint32_t i = 0; i < arena->count; i++) {
        const struct take *take = &arena->takes[i];
        if (i < arena->mark && take->last > arena->mark_event)
            return fail(arena, take->owner, "taken before the step and given back in it",
                        take->live_bytes, take->capacity, reterr);
        if (i >= arena->mark && take->live)
            return fail(arena, take->owner, "not given back at the end of the step",
                        take->live_bytes, take->capacity, reterr);
    }
    return 0;
}

/* Residents side by side from offset 0, the step's takes packed above them. */
static int place(struct arena *arena)
{
    uint64_t residents = 0, extent = 0, room = 0;
    for (uint32_t i = 0; i < arena->mark; i++) {
        struct take *take = &arena->takes[i];
        if (!take->live)
            continue;
        take->offset = residents;
        residents = add_sat(residents, take->capacity);
    }
    uint32_t count = arena->count - arena->mark;
    struct pack_item *items = calloc(count ? count : 1, sizeof *items);
    if (!items)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        const struct take *take = &arena->takes[arena->mark + i];
        items[i] = (struct pack_item){ take->first, take->last, take->capacity, 0 };
    }
    int status = pack_live_peak(items, count, &room);
    if (status == 0)
        status = pack_items(items, count, &extent);
    for (uint32_t i = 0; i < count && status == 0; i++)
        arena->takes[arena->mark + i].offset = add_sat(residents, items[i].offset);
    free(items);
    arena->extent = add_sat(residents, extent);
    arena->room_bytes = add_sat(residents, room);
    return status;
}

/* What is resident is live at every moment; the first that is too much is told. */
static int check_residents(struct arena *arena, struct diag_list *reterr)
{
    uint64_t live = 0;
    arena->ledger.phase[0] = '\0'; /* the dry pass left its last */
    for (uint32_t i = 0; i < arena->mark && arena->limit > 0; i++) {
        const struct take *take = &arena->takes[i];
        if (!take->live)
            continue;
        if (take->live_bytes > arena->limit - live)
            return fail(arena, take->owner_now, "beyond what this rank may hold", take->live_bytes,
                        arena->limit - live, reterr);
        live += take->live_bytes;
    }
    return 0;
}

/* FNV-1a over a number, a byte at a time, the lowest first:
 * http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t hash_number(uint64_t hash, uint64_t number)
{
    for (int shift = 0; shift < 64; shift += 8)
        hash = (hash ^ (number >> shift & 0xff)) * UINT64_C(1099511628211);
    return hash;
}

uint64_t arena_fingerprint(const struct arena *arena)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t i = 0; i < arena->count; i++) {
        hash = hash_number(hash, arena->takes[i].offset);
        hash = hash_number(hash, arena->takes[i].capacity);
    }
    return hash;
}

int arena_pack(struct arena *arena, struct diag_list *reterr)
{
    if (!arena->marked) {
        arena->mark = arena->count;
        arena->mark_event = arena->event;
    }
    if (check_lifetimes(arena, reterr) || check_residents(arena, reterr))
        return -1;
    if (place(arena))
        return fail_whole(arena, "no host memory to lay the tensors out", reterr);
    if (bytes_overflowed(arena->extent))
        return fail_whole(arena, "the tensors are beyond 64 bits", reterr);
    if (arena->extent > 0) {
        arena->block = arena->source.reserve(arena->source.context, arena->extent);
        if (!arena->block)
            return fail_whole(arena, "it cannot be had", reterr);
    }
    arena->dry = false;
    for (uint32_t i = 0; i < arena->mark; i++)
        if (arena->takes[i].live)
            ledger_add(&arena->ledger, arena->takes[i].owner_now, arena->takes[i].live_bytes);
    arena->next = arena->mark;
    arena->event = arena->mark_event;
    return 0;
}

void arena_phase(struct arena *arena, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(arena->ledger.phase, sizeof arena->ledger.phase, format, arguments);
    va_end(arguments);
}

void arena_record(const struct arena *arena, struct arena_record *ret)
{
    *ret = arena->ledger.record;
    ret->extent_bytes = arena->dry ? 0 : arena->extent;
    ret->room_bytes = arena->dry ? 0 : arena->room_bytes;
}

void arena_record_reset(struct arena *arena)
{
    ledger_reset(&arena->ledger);
}

void arena_limit(struct arena *arena, uint64_t bytes)
{
    arena->limit = bytes;
}

void arena_fail_at(struct arena *arena, long n)
{
    arena->fail_at = n;
}
