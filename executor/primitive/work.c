#include "executor/primitive/work.h"
#include "base/checked.h"

#include <time.h>

struct buffer work_take(struct work *w, enum owner owner, uint64_t bytes)
{
    struct buffer ret = { 0 };
    if (!w->failed)
        work_note(w, arena_take(w->arena, owner, bytes, bytes, &ret, w->errors));
    return ret;
}

struct buffer work_take_rows(struct work *w, enum owner owner, uint64_t rows, uint64_t row_bytes)
{
    struct buffer ret = { 0 };
    uint64_t room = w->plan->choices.layout.ep > 1 ? w->plan->dispatch_bound_rows : rows;
    uint64_t capacity = mul_sat(room, row_bytes);
    if (!w->failed)
        work_note(w,
                  arena_take(w->arena, owner, mul_sat(rows, row_bytes), capacity, &ret, w->errors));
    return ret;
}

void work_give(struct work *w, struct buffer *buffer)
{
    if (!w->failed)
        arena_give(w->arena, buffer);
}

double work_clock(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return 0;
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
