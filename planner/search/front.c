#include "planner/search/front.h"

#include <stdlib.h>
#include <string.h>

int front_init(struct front *front)
{
    front->count = 0;
    front->points = calloc(FRONT_POINTS, sizeof *front->points);
    return front->points ? 0 : -1;
}

void front_done(struct front *front)
{
    free(front->points);
    front->points = NULL;
}

/* Index of the first point that takes more seconds. */
static int after(const struct front *front, double seconds)
{
    int low = 0, high = front->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (front->points[middle].seconds <= seconds)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool front_covers(const struct front *front, double seconds, uint64_t bytes)
{
    int next = after(front, seconds);
    return next > 0 && front->points[next - 1].bytes <= bytes;
}

/* The point with just these figures, or NULL. */
static struct front_point *same_point(struct front *front, double seconds, uint64_t bytes)
{
    int next = after(front, seconds);
    struct front_point *point = next > 0 ? &front->points[next - 1] : NULL;
    bool same = point && point->bytes == bytes && !(point->seconds < seconds);
    return same ? point : NULL;
}

void front_add(struct front *front, uint64_t unit, double seconds, uint64_t bytes,
               const struct choices *choices)
{
    struct front_point *same = same_point(front, seconds, bytes);
    const struct front_point point = { seconds, bytes, unit, *choices };
    if (same && unit < same->unit)
        *same = point;
    if (front_covers(front, seconds, bytes))
        return;
    int from = after(front, seconds), to = from;
    while (from > 0 && front->points[from - 1].seconds >= seconds)
        from--; /* as fast, and larger */
    while (to < front->count && front->points[to].bytes >= bytes)
        to++;
    if (from == to && front->count == FRONT_POINTS)
        return;
    memmove(front->points + from + 1, front->points + to,
            (size_t)(front->count - to) * sizeof *front->points);
    front->count += 1 - (to - from);
    front->points[from] = point;
}
