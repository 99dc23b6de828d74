#include "planner/search/units.h"

static int *degree_of(struct degrees *d, int degree)
{
    int *const places[UNIT_DEGREES] = { &d->tp, &d->pp, &d->cp, &d->ep, &d->etp };
    return places[degree];
}

void units_init(const struct space *space, struct units *ret)
{
    *ret = (struct units){ .space = space, .degrees = space_fixed_degrees(space) };
}

/* The first values of all degrees from the depth on; there always is one, and it depends on those
 * outside alone. */
static void descend(struct units *u)
{
    for (; u->depth < UNIT_DEGREES; u->depth++) {
        int d = u->depth;
        u->at[d] = 0;
        u->count[d] = space_degree_values(u->space, (enum degree)d, &u->degrees, u->values[d]);
        *degree_of(&u->degrees, d) = u->values[d][0];
    }
}

/* The next value of the innermost degree that has one. */
static void advance(struct units *u)
{
    for (; u->depth > 0; u->depth--) {
        int d = u->depth - 1;
        if (++u->at[d] == u->count[d])
            continue;
        *degree_of(&u->degrees, d) = u->values[d][u->at[d]];
        return;
    }
    u->depth = -1;
}

bool units_next(struct units *u, struct degrees *ret, uint64_t *ret_index)
{
    if (u->next > 0)
        advance(u);
    if (u->depth < 0)
        return false;
    descend(u);
    *ret = u->degrees;
    *ret_index = u->next++;
    return true;
}

uint64_t units_count(const struct space *space)
{
    struct units units;
    struct degrees degrees;
    uint64_t index;
    units_init(space, &units);
    while (units_next(&units, &degrees, &index))
        continue;
    return units.next;
}
