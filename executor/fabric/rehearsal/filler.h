/* filler.h - how a rehearsal moves bytes in the memory of its backend while the time of a
 * collective passes. Knows neither groups nor machines. For fabric/rehearsal only. */
#ifndef RANKFIT_EXECUTOR_FABRIC_REHEARSAL_FILLER_H
#define RANKFIT_EXECUTOR_FABRIC_REHEARSAL_FILLER_H

#include "executor/fabric/fabric.h"

struct filler;

/* Between begin and end lies one collective, which begins behind what the compute stream has been
 * given and behind the collective before it. All calls return 0 or -1 with a diagnostic. */
struct filler_ops {
    int (*begin)(struct filler *filler, struct diag_list *reterr);
    /* ret NULL: the compute stream waits; else whoever calls `wait`, which frees it. */
    int (*end)(struct filler *filler, struct transfer **ret, struct diag_list *reterr);
    int (*wait)(struct filler *filler, struct transfer *t, struct diag_list *reterr);

    /* At once, beside the collective: within `begin` and `end` in its order, else in that of the
     * compute stream. */
    int (*copy)(struct filler *filler, void *to, const void *from, uint64_t bytes,
                struct diag_list *reterr);
    /* to[i] = from[i % from_bytes], over `seconds`; from_bytes 0: zeros. */
    int (*fill)(struct filler *filler, void *to, uint64_t bytes, const void *from,
                uint64_t from_bytes, double seconds, struct diag_list *reterr);
    /* The same by copies from memory to memory, which leave the multiprocessors alone. */
    int (*carry)(struct filler *filler, void *to, uint64_t bytes, const void *from,
                 uint64_t from_bytes, double seconds, struct diag_list *reterr);
    /* to[i] = sum over s < slices of from[s * elements + i], in fp32, over `seconds`. */
    int (*sum)(struct filler *filler, void *to, const void *from, uint64_t elements, int slices,
               enum dtype dtype, double seconds, struct diag_list *reterr);
    /* values[i] *= factor, over `seconds`. */
    int (*scale)(struct filler *filler, void *values, uint64_t elements, int factor,
                 enum dtype dtype, double seconds, struct diag_list *reterr);

    /* What collectives took since this was last asked, with none under way. */
    double (*busy_seconds)(struct filler *filler);
    /* Takes memory that a communicator would hold until close. */
    int (*hold)(struct filler *filler, uint64_t bytes, struct diag_list *reterr);
    void (*close)(struct filler *filler);
};

struct filler {
    const struct filler_ops *ops;
};

/* In host memory: bytes move at once, time passes where they are waited for. NULL without memory.
 */
struct filler *filler_host_open(void);

/* A fabric around a filler, which belongs to it from then on unless NULL is returned. */
struct rehearsal_world;
struct fabric *rehearsal_open(struct fabric *host, struct filler *filler,
                              const struct rehearsal_world *world, struct diag_list *reterr);

#endif
