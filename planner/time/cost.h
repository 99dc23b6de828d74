/* cost.h - seconds of one layer kind, its forward and its backward; and of collectives. Internal to
 * planner/time. */
#ifndef RANKFIT_PLANNER_TIME_COST_H
#define RANKFIT_PLANNER_TIME_COST_H

#include "planner/budget/parts.h"
#include "planner/time/step_time.h"

/* collective.c - a group of `size` ranks, `stride` apart. */
struct ranks {
    int size, stride;
};
struct ranks dense_shard_ranks(const struct layout *l);
struct ranks expert_shard_ranks(const struct layout *l);

/* All-gather or reduce-scatter of `bytes` in all (the whole tensor). */
double gather_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* All-to-all: `bytes` leave or reach one rank, its own share included. */
double exchange_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* One message to the next of the group. */
double send_seconds(const struct hardware *h, struct ranks ranks, double bytes);
/* Gathering a unit's weights; reduce-scattering its gradients. */
double unit_gather_seconds(const struct budget_input *in, const struct unit *unit);
double unit_scatter_seconds(const struct budget_input *in, const struct unit *unit);

/* One pass of one layer: seconds of each time item that the pass itself knows, and launches. */
struct pass {
    double item[TIME_ITEM_COUNT];
    double launches;
};
struct layer_cost {
    struct pass forward, backward;
};

/* compute.c */
void compute_cost(const struct budget_input *in, const struct residency_shape *shape,
                  uint64_t received, enum mixer mixer, enum ffn ffn, struct layer_cost *ret);
double loss_seconds(const struct budget_input *in);
/* Sum of the items that are computation. */
double compute_seconds(const struct pass *pass);

/* exposed.c - collectives inside a layer that nothing hides; adds to the cost. */
void exposed_cost(const struct budget_input *in, uint64_t received, enum mixer mixer, enum ffn ffn,
                  struct layer_cost *cost);

/* a / b, or 0 where a machine does not say b. */
static inline double over(double a, double b)
{
    return b > 0 ? a / b : 0;
}

#endif
