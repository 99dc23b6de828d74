#include "base/text.h"
#include "base/units.h"
#include "planner/derive/reason.h"

#include <math.h>

/* The five pressures that a choice moves: bytes at the peak, and shares of the step. */
enum pressure {
    PRESSURE_STATIC,
    PRESSURE_DYNAMIC,
    PRESSURE_KERNELS,
    PRESSURE_COMMUNICATION,
    PRESSURE_HOST,
    PRESSURE_COUNT
};

static const char *const pressure_names[PRESSURE_COUNT] = {
    [PRESSURE_STATIC] = "static",   [PRESSURE_DYNAMIC] = "dynamic",
    [PRESSURE_KERNELS] = "kernels", [PRESSURE_COMMUNICATION] = "exposed communication",
    [PRESSURE_HOST] = "host",
};

/* Waiting for other stages counts as communication: both are time in which kernels stand still. */
static const enum pressure time_pressures[TIME_ITEM_COUNT] = {
    [TIME_MATMUL] = PRESSURE_KERNELS,
    [TIME_EXPERTS] = PRESSURE_KERNELS,
    [TIME_ATTENTION] = PRESSURE_KERNELS,
    [TIME_LINEAR_ATTENTION] = PRESSURE_KERNELS,
    [TIME_ELEMENTWISE] = PRESSURE_KERNELS,
    [TIME_LOSS] = PRESSURE_KERNELS,
    [TIME_EXPOSED_GATHER] = PRESSURE_COMMUNICATION,
    [TIME_EXPOSED_EXCHANGE] = PRESSURE_COMMUNICATION,
    [TIME_EXPOSED_CONTEXT] = PRESSURE_COMMUNICATION,
    [TIME_EXPOSED_TENSOR] = PRESSURE_COMMUNICATION,
    [TIME_PIPELINE] = PRESSURE_COMMUNICATION,
    [TIME_BUBBLE] = PRESSURE_COMMUNICATION,
    [TIME_REDUCE] = PRESSURE_COMMUNICATION,
    [TIME_OPTIMIZER] = PRESSURE_KERNELS,
    [TIME_HOST] = PRESSURE_HOST,
};

/* GB for the first two, seconds for the others. */
static void pressures_of(const struct candidate *c, double ret[PRESSURE_COUNT])
{
    const double gb = 1e9;
    uint64_t static_bytes = c->worst.category_bytes[CATEGORY_STATIC];

    for (int i = 0; i < PRESSURE_COUNT; i++)
        ret[i] = 0;
    ret[PRESSURE_STATIC] = (double)static_bytes / gb;
    ret[PRESSURE_DYNAMIC] = ((double)c->worst.peak_bytes - (double)static_bytes) / gb;
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        ret[time_pressures[i]] += c->time.item_seconds[i];
}

void price_append(const struct candidate *chosen, const struct candidate *other, const char *name,
                  char *text, size_t size, size_t *used)
{
    double now[PRESSURE_COUNT], then[PRESSURE_COUNT];
    bool any = false, share = false;

    pressures_of(chosen, now);
    pressures_of(other, then);
    text_append(text, size, used, "; against %s: ", name);
    for (int i = 0; i < PRESSURE_COUNT; i++) {
        bool bytes = i == PRESSURE_STATIC || i == PRESSURE_DYNAMIC;
        double step = chosen->time.seconds > 0 ? chosen->time.seconds : 1;
        double change = bytes ? now[i] - then[i] : 100 * (now[i] - then[i]) / step;
        if (fabs(change) < 0.05)
            continue;
        text_append(text, size, used, "%s%s %+.1f %s", any ? ", " : "", pressure_names[i], change,
                    bytes ? "GB" : "%");
        any = true;
        share |= !bytes;
    }
    text_append(text, size, used, !any ? "no difference" : share ? " of the step" : "");
    if (other->verdict == VERDICT_DOES_NOT_FIT && chosen->verdict != VERDICT_DOES_NOT_FIT)
        text_append(text, size, used, "; %s does not fit", name);
}

bool alternative(struct space *space, const struct degrees *degrees,
                 const struct settings *settings, struct candidate *ret)
{
    struct settings legal = *settings;
    struct knob linear = space_linear_contexts(space, degrees->cp);
    bool known = false;

    for (int i = 0; i < linear.count; i++)
        known |= linear.values[i] == (int)legal.linear_context;
    for (int i = known ? -1 : 0; i < linear.count; i++) {
        if (i >= 0)
            legal.linear_context = (enum linear_context)linear.values[i];
        if (space_try(space, degrees, &legal, ret)) {
            space_time(space, ret);
            return true;
        }
    }
    return false;
}
