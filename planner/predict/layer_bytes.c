#include "planner/predict/layer_bytes.h"

#include "base/checked.h"

#include <string.h>

const enum item layer_slot_items[SLOT_COUNT] = {
    [SLOT_WORKING] = ITEM_LAYER_WORKING, [SLOT_SEND] = ITEM_DISPATCH_SEND,
    [SLOT_RECV] = ITEM_DISPATCH_RECV,    [SLOT_EXPERT] = ITEM_EXPERT_WORKING,
    [SLOT_SAVED] = ITEM_LAYER_SAVED,     [SLOT_CONTEXT] = ITEM_KV_GATHER,
    [SLOT_WORKSPACE] = ITEM_WORKSPACE,   [SLOT_OUTPUT] = ITEM_CHECKPOINTS,
};

enum { ZONE_POINTS_MAX = 80, POINTS_MAX = 2 * ZONE_POINTS_MAX + (CHUNKS_MAX + 2) * 24 };

/* Sums of sizes up to this one cannot wrap, and what reaches it counts as beyond 64 bits. */
static const uint64_t too_large = UINT64_C(1) << 52;

uint64_t tensor_bytes(uint64_t rows, uint64_t width, uint64_t element_bytes)
{
    return round_up_to(mul3_sat(rows, width, element_bytes), 256);
}

/* One life of one tensor, of one chunk where each has its own. */
struct span {
    uint64_t bytes;
    int made, last;
    uint8_t slot;
};

struct fold {
    const struct step_pass *pass;
    const struct step_sizes *sizes;
    int chunks, points;
    uint64_t sent[CHUNKS_MAX], received[CHUNKS_MAX];
    int count;
    struct span spans[STEP_LIVES + 24 * CHUNKS_MAX];
};

static enum layer_slot slot_of(const struct step_life *life)
{
    if (life->output)
        return SLOT_OUTPUT;
    for (int i = 0; i < SLOT_OUTPUT; i++)
        if (layer_slot_items[i] == (enum item)life->item)
            return (enum layer_slot)i;
    return SLOT_WORKING;
}

/* More chunks than are enumerated count as that many, which are larger. Of capped ones, which have
 * nothing in common, the first, another and the last. */
static int chunk_count(const struct step_sizes *s)
{
    int most = s->chunks.capped ? 3 : CHUNKS_MAX;
    return s->chunks.count < most ? s->chunks.count : most;
}

/* Runs of ceil(T / n) tokens; rows received in proportion, unless they are known. */
static void chunk_rows(struct fold *f)
{
    const struct step_sizes *s = f->sizes;
    uint64_t n = (uint64_t)(s->chunks.capped ? s->chunks.count : f->chunks);
    uint64_t tokens = s->rows[ROWS_NORM], run = div_up(tokens, n), left = tokens;
    for (int i = 0; i < f->chunks; i++) {
        if (i == f->chunks - 1)
            left = tokens > run * (n - 1) ? tokens - run * (n - 1) : 0;
        uint64_t mine = left < run ? left : run;
        left -= mine;
        f->sent[i] = tokens ? div_up(mul_sat(s->rows[ROWS_SENT], mine), tokens) : 0;
        f->received[i] = tokens ? div_up(mul_sat(s->rows[ROWS_RECV], mine), tokens) : 0;
        if (s->chunks.received && s->chunks.count == f->chunks)
            f->received[i] = s->chunks.received[i];
    }
}

/* The point of a place that counts from this chunk. Around the chunks there is one more turn on
 * each side, for what is done ahead of the first and after the last. */
static int point_of(const struct fold *f, const struct step_place *place, int chunk)
{
    const int *points = f->pass->points;
    int delay = f->sizes->chunks.delay, turn = chunk + place->chunk;
    if (place->zone == ZONE_BEFORE)
        return place->point;
    if (place->zone == ZONE_AFTER)
        return points[ZONE_BEFORE] + (f->chunks + 2) * points[ZONE_CHUNK] + place->point;
    if (place->late)
        turn = chunk + delay < f->chunks ? chunk + delay : f->chunks - 1;
    return points[ZONE_BEFORE] + (turn + 1) * points[ZONE_CHUNK] + place->point;
}

static uint64_t life_bytes(const struct fold *f, const struct step_life *life, int chunk)
{
    const struct step_sizes *s = f->sizes;
    uint64_t rows = s->rows[life->rows], width = s->width[life->width];
    if (life->each_chunk)
        rows = life->rows == ROWS_SENT ? f->sent[chunk] : f->received[chunk];
    if (!life->tensor)
        width = mul_sat(width, s->adapter_rank);
    uint64_t bytes = tensor_bytes(rows, width, life->bytes);
    return bytes < too_large ? bytes : too_large;
}

static void add_span(struct fold *f, const struct step_life *life, int chunk, int last_chunk,
                     struct layer_bytes *ret)
{
    struct span *span = &f->spans[f->count];
    span->bytes = life_bytes(f, life, chunk);
    if (span->bytes == 0)
        return;
    f->count++;
    span->slot = (uint8_t)slot_of(life);
    span->made = point_of(f, &life->made, chunk);
    span->last = point_of(f, &life->last, last_chunk);
    span->last = span->last < f->points ? span->last : f->points - 1;
    if (life->kept)
        ret->kept += span->bytes;
}

static void spans_init(struct fold *f, struct layer_bytes *ret)
{
    for (int i = 0; i < f->pass->count; i++) {
        const struct step_life *life = &f->pass->lives[i];
        if (!life->each_chunk)
            add_span(f, life, 0, f->chunks - 1, ret);
        for (int c = 0; life->each_chunk && c < f->chunks; c++)
            add_span(f, life, c, c, ret);
    }
}

static uint64_t mark_overflow(uint64_t bytes)
{
    return bytes < too_large ? bytes : UINT64_MAX;
}

static void mark_all(uint64_t *slots)
{
    for (int i = 0; i < SLOT_COUNT; i++)
        slots[i] = mark_overflow(slots[i]);
}

/* Of all points the first with the largest sum, with the output and without it, and each slot's own
 * maximum. Sums are kept by slot from point to point: what begins is added, what has ended taken
 * off. */
static void sweep(const struct fold *f, struct layer_bytes *ret)
{
    uint64_t change[POINTS_MAX + 1][SLOT_COUNT], live[SLOT_COUNT] = { 0 };
    memset(change, 0, ((size_t)f->points + 1) * sizeof *change);
    for (int i = 0; i < f->count; i++) {
        const struct span *span = &f->spans[i];
        change[span->made][span->slot] += span->bytes;
        change[span->last + 1][span->slot] -= span->bytes;
    }
    for (int point = 0; point < f->points; point++) {
        uint64_t sum = 0;
        for (int i = 0; i < SLOT_COUNT; i++) {
            live[i] += change[point][i];
            sum += live[i];
            ret->max[i] = live[i] > ret->max[i] ? live[i] : ret->max[i];
        }
        if (sum > ret->peak) {
            ret->peak = sum;
            memcpy(ret->live, live, sizeof live);
        }
        if (sum - live[SLOT_OUTPUT] > ret->bare) {
            ret->bare = sum - live[SLOT_OUTPUT];
            memcpy(ret->bare_live, live, sizeof live);
        }
    }
    ret->bare_live[SLOT_OUTPUT] = 0;
}

void layer_bytes_fold(const struct step_pass *pass, const struct step_sizes *sizes,
                      struct layer_bytes *ret)
{
    struct fold f;
    f.pass = pass;
    f.sizes = sizes;
    f.chunks = pass->points[ZONE_CHUNK] > 0 ? chunk_count(sizes) : 1;
    f.count = 0;
    f.points = pass->points[ZONE_BEFORE] + pass->points[ZONE_AFTER];
    if (pass->points[ZONE_CHUNK] > 0) {
        f.points += (f.chunks + 2) * pass->points[ZONE_CHUNK];
        chunk_rows(&f);
    }
    memset(ret, 0, sizeof *ret);
    spans_init(&f, ret);
    sweep(&f, ret);
    ret->kept = mark_overflow(ret->kept);
    ret->peak = mark_overflow(ret->peak);
    ret->bare = mark_overflow(ret->bare);
    mark_all(ret->live);
    mark_all(ret->max);
    mark_all(ret->bare_live);
}
