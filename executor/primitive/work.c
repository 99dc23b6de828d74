#include "executor/primitive/work.h"
#include "base/checked.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

struct buffer work_take(struct work *w, enum owner owner, uint64_t bytes)
{
    struct buffer ret = { 0 };
    if (!w->failed)
        work_note(w, arena_take(w->arena, owner, bytes, bytes, &ret, w->errors));
    return ret;
}

struct buffer work_take_tensor(struct work *w, enum owner owner, int64_t rows, int64_t width,
                               uint64_t element_bytes)
{
    return work_take(w, owner, mul3_sat((uint64_t)rows, (uint64_t)width, element_bytes));
}

struct buffer work_take_rows(struct work *w, enum owner owner, int64_t rows, int64_t room,
                             int64_t width, uint64_t element_bytes)
{
    struct buffer ret = { 0 };
    uint64_t bytes = mul3_sat((uint64_t)rows, (uint64_t)width, element_bytes);
    uint64_t capacity = mul3_sat((uint64_t)room, (uint64_t)width, element_bytes);
    if (!w->failed)
        work_note(w, arena_take(w->arena, owner, bytes, capacity, &ret, w->errors));
    return ret;
}

void work_give(struct work *w, struct buffer *buffer)
{
    if (!w->failed)
        arena_give(w->arena, buffer);
}

void work_give_unless_kept(struct work *w, enum keep keep, struct buffer *buffer)
{
    if (keep == KEEP_NOTHING)
        work_give(w, buffer);
}

void work_sync(struct work *w)
{
    if (!work_runs(w))
        return;
    observe_begin(&w->observers, OBSERVED_OPERATION, "sync");
    work_note(w, w->backend->ops->sync(w->backend, STREAM_COMPUTE, w->errors));
    observe_end(&w->observers);
}

void work_begin(struct work *w, enum observed what, const char *format, ...)
{
    char name[48];
    va_list arguments;

    if (w->dry || w->observers.count == 0)
        return;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    observe_begin(&w->observers, what, name);
}

void work_end(struct work *w)
{
    if (!w->dry)
        observe_end(&w->observers);
}

double work_clock(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return 0;
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
