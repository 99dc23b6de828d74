/* front.h - layouts that no other beats in both time and memory. */
#ifndef RANKFIT_PLANNER_SEARCH_FRONT_H
#define RANKFIT_PLANNER_SEARCH_FRONT_H

#include "base/layout/key.h"

#include <stdbool.h>

enum { FRONT_POINTS = 1024 };

struct front_point {
    double seconds;
    uint64_t bytes, unit; /* unit: of equals the smallest wins */
    struct choices choices;
};

/* Points in the order of seconds; bytes fall. When full, new points are left out. */
struct front {
    int count;
    struct front_point *points;
};

int front_init(struct front *front);
void front_done(struct front *front);
/* Whether some point takes neither more seconds nor more bytes. */
bool front_covers(const struct front *front, double seconds, uint64_t bytes);
void front_add(struct front *front, uint64_t unit, double seconds, uint64_t bytes,
               const struct choices *choices);

#endif
