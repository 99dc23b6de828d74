/* search.h - every legal layout of a question: factorizations of the world, interleaving, a lighter
 * last stage, micro-batch, contexts, exchange, shard widths and sharding, chunks, loss and its
 * tiles, recompute of the first N layers, what runs ahead, offload. Nothing is skipped but by proof
 * (bound.c and family.c list the proofs). Dtypes and lists of stages are as said. */
#ifndef RANKFIT_PLANNER_SEARCH_SEARCH_H
#define RANKFIT_PLANNER_SEARCH_SEARCH_H

#include "planner/derive/derive.h"

enum objective {
    OBJECTIVE_THROUGHPUT, /* the shortest step that fits */
    OBJECTIVE_HEADROOM,   /* the smallest upper estimate */
    OBJECTIVE_GPUS,       /* the fewest GPUs on which something fits, then the shortest step */
    OBJECTIVE_GPU_HOURS,  /* the fewest GPU-hours for a number of tokens */
    OBJECTIVE_COUNT
};
extern const char *const objective_names[OBJECTIVE_COUNT + 1]; /* up to a NULL */

struct search_options {
    enum objective objective;
    int threads;     /* 0: one a core */
    bool everything; /* also micro-batches, interleaving and offload, which derivation leaves */
    bool front; /* also, from the fastest to the smallest, the fastest at even steps of bytes */
    bool skip_nothing;    /* judge every layout, for tests */
    bool fits_only;       /* nothing of interest where nothing fits */
    bool no_smallest;     /* where nothing fits, tightly neither, the smallest is not looked for */
    bool settled;         /* what is held at any time is held from the start */
    double worth_seconds; /* only shorter steps are of interest; 0: any */
    /* Told now and then, from the calling thread; share of the work done. */
    void (*progress)(void *context, double share);
    void *context;
};

enum { FRONT_MAX = 16 };

struct search_result {
    bool any;
    int gpus;  /* of the best */
    int fewer; /* of several numbers of GPUs the largest below all on which something fits; 0: none
                */
    struct candidate best;
    uint64_t layouts, legal, judged; /* of which the last were not skipped */
    uint64_t table_bytes;            /* settled: of all threads' tables */
    double seconds;
    int front_count;
    struct candidate front[FRONT_MAX]; /* shortest step first */
};

/* One number of GPUs: objectives throughput and headroom. -1 with a diagnostic when there is no
 * memory. Where nothing fits, the best is the fastest of what is tight, else the smallest. */
int search_run(const struct question *q, const struct search_options *options,
               struct search_result *ret, struct diag_list *reterr);

/* All numbers of GPUs up to the question's that machines come in: divisors of a node, whole nodes;
 * objectives gpus and gpu_hours. */
int search_worlds(const struct question *q, const struct search_options *options,
                  struct search_result *ret, struct diag_list *reterr);

#endif
