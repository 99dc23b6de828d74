/* pack_search.h - looks for an order of placing that packs to a target: several simple orders, each
 * bettered by placing first, next time, what ended above the target. The same input gives the same
 * output; effort is counted in comparisons, not in time. For packing only. */
#ifndef RANKFIT_EXECUTOR_MEMORY_PACK_SEARCH_H
#define RANKFIT_EXECUTOR_MEMORY_PACK_SEARCH_H

#include "executor/memory/pack.h"

/* Starts up to PACK_PLAIN_STARTS are the simple orders; those behind them the same with noise. */
enum { PACK_PLAIN_STARTS = 8 };

struct pack_task {
    struct pack_item *items;
    size_t count, fixed; /* the first `fixed` items keep their offsets */
    uint64_t target;     /* an extent that ends the search */
    uint64_t effort;     /* as much may be spent; the first placing is free */
    int first_start, starts;
    int patience;    /* placings without a better extent that end a start */
    uint64_t random; /* state of the noise, not 0 */
};

/* Fills the offsets of the best placing and the end of its highest item that is not fixed, and
 * takes what was spent from the effort. -1 when host memory is short. */
int pack_search(struct pack_task *task, uint64_t *ret_extent);

/* The same for tasks without fixed items, bettered further: for as long as there is effort the
 * neighbourhood of what is highest is packed anew, with all else where it is. */
int pack_search_and_repair(struct pack_task *task, uint64_t *ret_extent);

/* From 0 to below 1. */
double pack_draw(uint64_t *random);

#endif
