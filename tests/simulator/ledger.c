/* ledger.c - what is alive, item by item, and when there was the most of it. */
#include "tests/simulator/rank.h"

#include <assert.h>
#include <string.h>

enum { ARENA_BYTES = 256 };

uint64_t make_size(uint64_t bytes)
{
    return (bytes + ARENA_BYTES - 1) / ARENA_BYTES * ARENA_BYTES;
}

struct held make(struct rank *s, enum item item, uint64_t bytes)
{
    struct sim_result *g = s->ledger;
    uint64_t rounded = make_size(bytes);
    g->live[item] += rounded;
    g->total += rounded;
    if (g->live[item] > g->max[item])
        g->max[item] = g->live[item];
    if (g->total > s->phase_most)
        s->phase_most = g->total;
    if (g->total > g->peak) {
        g->peak = g->total;
        g->phase = s->phase;
        memcpy(g->at_peak, g->live, sizeof g->live);
    }
    return (struct held){ item, rounded };
}

void drop(struct rank *s, struct held *t)
{
    assert(s->ledger->live[t->item] >= t->bytes);
    s->ledger->live[t->item] -= t->bytes;
    s->ledger->total -= t->bytes;
    t->bytes = 0;
}

void drop_all(struct rank *s, struct held *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        drop(s, list[i]);
}

void end_phase(struct rank *s)
{
    if (s->job->phase_ended)
        s->job->phase_ended(&s->phase, s->phase_most, s->job->context);
}

void enter(struct rank *s, enum sim_phase_kind kind, int micro_batch, int layer)
{
    const struct sim_phase *p = &s->phase;
    if (p->kind == kind && p->micro_batch == micro_batch && p->layer == layer)
        return;
    end_phase(s);
    s->phase = (struct sim_phase){ kind, s->stage, micro_batch, layer };
    s->phase_most = s->ledger->total;
}

struct held working(struct layer *y, uint64_t bytes)
{
    return make(y->s, ITEM_LAYER_WORKING, bytes);
}

struct held keep(struct layer *y, enum item item, uint64_t bytes)
{
    return make(y->s, y->mode == SAVE ? ITEM_LAYER_SAVED : item, bytes);
}

void unless_kept(struct layer *y, struct held *t)
{
    if (y->mode == PLAIN || y->mode == KEEP_ATTENTION)
        drop(y->s, t);
}

struct held attended(struct layer *y, uint64_t bytes)
{
    bool saved = y->mode == SAVE || y->mode == KEEP_ATTENTION;
    return make(y->s, saved ? ITEM_LAYER_SAVED : ITEM_LAYER_WORKING, bytes);
}

void unless_attended(struct layer *y, struct held *t)
{
    if (y->mode == PLAIN)
        drop(y->s, t);
}

bool attends(const struct layer *y)
{
    return y->mode != REPLAY || !y->s->p->keep_attention;
}

struct held whole_hidden(struct layer *y)
{
    return working(y, y->s->tp > 1 ? 2 * y->s->T * y->s->H : 0);
}
