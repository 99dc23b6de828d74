/* work.h - what every part of a step works with: backend, groups, arena, and the first failure.
 * Failure is sticky: after it takes return empty buffers and operations do nothing, so that the
 * step's code reads as the step; whoever loops asks work->failed. In the arena's dry pass (`dry`)
 * takes and gives are recorded and nothing else happens. */
#ifndef RANKFIT_EXECUTOR_PRIMITIVE_WORK_H
#define RANKFIT_EXECUTOR_PRIMITIVE_WORK_H

#include "base/plan/measurement.h"
#include "base/plan/plan.h"
#include "executor/backend/backend.h"
#include "executor/fabric/progress.h"
#include "executor/memory/arena.h"
#include "executor/mesh/mesh.h"
#include "executor/primitive/context/zigzag.h"
#include "executor/primitive/observe.h"

#include <stdbool.h>

/* What a rank works on at a time: its share, in zig-zag order, of whole sequences that follow each
 * other in the global batch. */
struct micro_batch {
    int index;
    int64_t tokens;             /* of this rank */
    uint64_t first_token;       /* index of the sequences' first in the global batch of the step */
    struct zigzag order;        /* which of their tokens are here */
    double loss_scale;          /* 1 / tokens of the step, all ranks */
    double loss_sum;            /* out: sum of the losses of this rank's tokens */
    struct buffer ids, targets; /* int32 [tokens] */
    bf16 *hidden; /* host memory [tokens, hidden] that gets the normed final hidden, or NULL */
};

/* Index in the global batch of the step of the token in `row`. */
static inline uint64_t batch_token(const struct micro_batch *batch, int64_t row)
{
    return batch->first_token + (uint64_t)zigzag_token(&batch->order, row);
}

/* Whether a layer's tensors outlive its forward. */
enum keep {
    KEEP_NOTHING, /* recomputed later */
    KEEP_OWN,     /* the replay: kept for the backward that follows, under their own owners */
    KEEP_SAVED    /* not recomputed: kept as saved tensors */
};

static inline enum owner kept_owner(enum keep keep, enum owner own)
{
    return keep == KEEP_SAVED ? OWNER_LAYER_SAVED : own;
}

/* The experts that every token of a step chose, by its index in the global batch: given to the
 * router in place of its own choice, or noted from it. */
struct choice_book {
    int top_k;
    uint64_t tokens;
    int32_t **layers; /* [layer], each [tokens, top_k]; NULL for a layer without experts */
};

/* Says what the members of an expert group send here where they are not there to say it: a
 * rehearsal. */
struct peers {
    /* incoming[member, chunk, local expert]: rows; outgoing: what this rank sends, likewise. -1
     * with a diagnostic. */
    int (*arrivals)(struct peers *peers, int layer, int micro_batch, const int64_t *outgoing,
                    int64_t *incoming, struct diag_list *reterr);
    /* The experts of this rank's tokens, ret[row, top_k], in the place of the router's. NULL: as
     * without. */
    void (*choices)(struct peers *peers, int layer, int micro_batch, int32_t *ret);
};

struct work {
    const struct plan *plan;
    struct backend *backend;
    struct meshes *mesh;
    struct arena *arena;
    struct diag_list *errors;
    struct progress *progress; /* notes every operation; may be NULL */
    bool dry, failed;
    uint64_t seed;
    struct routed_rows *routed; /* [micro_batch * layers + layer], largest since last measured */
    const struct choice_book *given; /* NULL: the plan's routing decides */
    struct choice_book *noted;       /* NULL: nobody asks; else this rank's tokens are filled in */
    struct peers *peers;             /* NULL: all ranks are there */
    double communication_seconds;    /* spent in fabric calls since it was last zeroed */
    struct observers observers;
};

/* Memory for `bytes`, or for a tensor [rows, width]; for rows whose number is known only at run
 * time, room for as many as can be. */
struct buffer work_take(struct work *w, enum owner owner, uint64_t bytes);
struct buffer work_take_tensor(struct work *w, enum owner owner, int64_t rows, int64_t width,
                               uint64_t element_bytes);
struct buffer work_take_rows(struct work *w, enum owner owner, int64_t rows, int64_t room,
                             int64_t width, uint64_t element_bytes);
void work_give(struct work *w, struct buffer *buffer);
/* Gives back what a recomputed layer does not keep. */
void work_give_unless_kept(struct work *w, enum keep keep, struct buffer *buffer);

/* Waits for the compute stream: host values are complete, and what a phase took can be told. */
void work_sync(struct work *w);

/* A range of the step, told to whoever observes: "layer 5". Nothing in the dry pass. */
void work_begin(struct work *w, enum observed what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void work_end(struct work *w);

/* Seconds of a clock that only moves forward. */
double work_clock(void);

/* True when operations are to be carried out. */
static inline bool work_runs(const struct work *w)
{
    return !w->dry && !w->failed;
}

/* Notes the result of a call. */
static inline void work_note(struct work *w, int result)
{
    if (result != 0)
        w->failed = true;
}

/* Where element `index` of a tensor at `data` is; NULL stays NULL (dry pass). */
static inline void *element_at(const void *data, uint64_t index, uint64_t element_bytes)
{
    /* backend calls take const and plain pointers to the same arena memory */
    union {
        const char *from;
        void *to;
    } at = { .from = data };
    if (data)
        at.from += index * element_bytes;
    return at.to;
}

/* A backend operation on the compute stream: WORK_OP(w, rmsnorm, rows, ...). */
#define WORK_OP(w, name, ...)                                                                      \
    do {                                                                                           \
        if (work_runs(w)) {                                                                        \
            progress_note((w)->progress);                                                          \
            observe_begin(&(w)->observers, OBSERVED_OPERATION, #name);                             \
            work_note((w), (w)->backend->ops->name((w)->backend, STREAM_COMPUTE, __VA_ARGS__,      \
                                                   (w)->errors));                                  \
            observe_end(&(w)->observers);                                                          \
        }                                                                                          \
    } while (0)

/* A fabric operation of a group, timed as communication. */
#define WORK_FABRIC(w, name, ...)                                                                  \
    do {                                                                                           \
        if (work_runs(w)) {                                                                        \
            double begun_ = work_clock();                                                          \
            progress_wait((w)->progress, #name);                                                   \
            observe_begin(&(w)->observers, OBSERVED_COLLECTIVE, #name);                            \
            work_note((w), (w)->mesh->fabric->ops->name(__VA_ARGS__, (w)->errors));                \
            observe_end(&(w)->observers);                                                          \
            progress_waited((w)->progress);                                                        \
            (w)->communication_seconds += work_clock() - begun_;                                   \
        }                                                                                          \
    } while (0)

#endif
