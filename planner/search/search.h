/* search.h - every legal layout of a question: factorizations of the world, interleaving, a lighter
 * last stage, micro-batch, contexts, exchange, shard widths and sharding, chunks, loss and its
 * tiles, recompute of the first N layers, what runs ahead, offload. Nothing is skipped but by proof
 * (bound.c and family.c list the proofs). Dtypes and lists of stages are as said. */
#ifndef RANKFIT_PLANNER_SEARCH_SEARCH_H
#define RANKFIT_PLANNER_SEARCH_SEARCH_H

#include "planner/derive/derive.h"

struct search_options {
    enum objective objective;
    int threads;      /* 0: one a core */
    bool kinds;       /* also every kind of context parallelism and zero2 */
    bool everything;  /* also micro-batches, interleaving, caps, exchanges, ring loss */
    bool host_memory; /* also offload */
    bool offloads;    /* nothing but offload */
    bool front; /* also, from the fastest to the smallest, the fastest at even steps of bytes */
    bool skip_nothing;    /* judge every layout, for tests */
    bool fits_only;       /* nothing of interest where nothing fits */
    bool no_smallest;     /* where nothing fits, tightly neither, the smallest is not looked for */
    bool settled;         /* what is held at any time is held from the start */
    bool fastest;         /* the shortest step itself, whatever is as fast */
    double worth_seconds; /* only shorter steps are of interest; 0: any */
    /* Told now and then, from the calling thread; share of the work done. */
    void (*progress)(void *context, double share);
    void *context;
};

enum { FRONT_MAX = 16 };

struct search_result {
    bool any;
    bool possible; /* some factorization of the world is legal */
    int gpus;      /* of the best */
    int fewer; /* of several numbers of GPUs the largest below all on which something fits; 0: none
                */
    struct candidate best;
    uint64_t layouts, legal, judged; /* of which the last were not skipped */
    uint64_t table_bytes;            /* settled: of all threads' tables */
    double fastest_seconds; /* the shortest step, at the upper end of its range; 0: none fits */
    double seconds;
    int front_count;
    struct candidate front[FRONT_MAX]; /* shortest step first */
};

/* Options of the search behind `plan` (planner/derive/best.c). */
void best_options(const struct question *q, struct search_options *ret);

/* Steps within this share of the shortest are as good. */
#define SEARCH_EQUALLY_FAST 0.02
/* Under headroom: steps that may take so much longer than the shortest. */
#define SEARCH_HEADROOM 0.25
/* Parts of the limit that memory to spare is counted in. */
enum { SEARCH_ROOM_UNITS = 100 };

/* One number of GPUs: objectives throughput and headroom. -1 with a diagnostic when there is no
 * memory. Under throughput the best is, of the layouts that fit and whose step is within 2 % of the
 * shortest (under headroom 25 %), and of these whose expected step is within the same share of the
 * shortest expected, the one with
 * the most memory to spare in hundredths of the limit; then the simplest (choices_complexity); then
 * the one with the shortest expected step; then the first in the order of the space. Where nothing
 * fits, all of this is said of what is tight, else the smallest is the best. */
int search_run(const struct question *q, const struct search_options *options,
               struct search_result *ret, struct diag_list *reterr);

/* All numbers of GPUs up to the question's that machines come in: divisors of a node, whole nodes;
 * objectives gpus and gpu_hours. */
int search_worlds(const struct question *q, const struct search_options *options,
                  struct search_result *ret, struct diag_list *reterr);

#endif
