/* observe.h - for whoever wants to know what a rank is at: the ranges of a step (phases, layers)
 * and every operation in them, as they are asked for. Knows nothing of what is done with it. */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_OBSERVE_H
#define RANKFIT_EXECUTOR_PRIMITIVE_OBSERVE_H

enum observed {
    OBSERVED_PHASE,     /* begins and ends with nothing under way */
    OBSERVED_PART,      /* of a phase: asked for, and perhaps carried out later */
    OBSERVED_OPERATION, /* of the backend */
    OBSERVED_COLLECTIVE /* of the fabric */
};

/* Called by the rank's thread, properly nested. Names of operations live for ever, those of ranges
 * until begin returns. */
struct observer {
    void (*begin)(void *context, enum observed what, const char *name);
    void (*end)(void *context);
    void *context;
};

enum { OBSERVERS_MAX = 2 };
struct observers {
    int count;
    struct observer list[OBSERVERS_MAX];
};

static inline void observe_begin(const struct observers *o, enum observed what, const char *name)
{
    for (int i = 0; i < o->count; i++)
        o->list[i].begin(o->list[i].context, what, name);
}

static inline void observe_end(const struct observers *o)
{
    for (int i = o->count - 1; i >= 0; i--)
        o->list[i].end(o->list[i].context);
}

#endif
