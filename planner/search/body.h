/* body.h - what shapes the layers of a layout, its body; sharding and its widths, offload and loss
 * make its families. Internal to planner/search. */
#ifndef RANKFIT_PLANNER_SEARCH_BODY_H
#define RANKFIT_PLANNER_SEARCH_BODY_H

#include "planner/search/family.h"

/* Where master weights and moments are: what a step takes at its end, and most of what is held, are
 * a matter of it. */
enum place { ON_DEVICE, ON_HOST, PLACES };

struct body {
    struct degrees degrees;
    struct settings settings;                /* of the layers */
    struct variants variants;                /* of any offload */
    const struct least_seconds *least;       /* of each place */
    const struct least_seconds *first_least; /* likewise, of the first stage alone */
    bool open[PLACES];                       /* what may be of interest */
    int first[PLACES];                       /* variant: no family keeps more layers */
};

/* bound.c. Each closes the places at which nothing of a body is of interest; false: none is left.
 * Of one context: whatever the schedule of the experts and what moves their rows, without a cap or
 * under one. Of one body. Of one sharding and its widths, which are a family's. */
bool bound_context(struct worker *worker, struct body *body, bool capped);
bool bound_body(struct worker *worker, struct body *body);
bool bound_widths(struct worker *worker, struct body *body, const struct family *family);

/* Whether the first stage alone leaves nothing of a context to be of interest, nor of one whose
 * first stage has more layers. */
bool first_is_hopeless(struct worker *worker, const struct body *context, bool capped);

enum place place_of(const struct space *space, unsigned offload);
unsigned offload_least(const struct space *space);
unsigned offload_most(const struct space *space);

/* What no layout with so many ranks and such micro-batches takes less of, of each place; in all
 * stages, in the first. */
void least_seconds_init(struct worker *worker, const struct degrees *degrees,
                        struct least_seconds ret[PLACES], struct least_seconds ret_first[PLACES]);

#endif
