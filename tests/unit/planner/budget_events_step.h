/* budget_events_step.h - the state of a played step, shared by its sources. */
#ifndef RANKFIT_TESTS_PLANNER_BUDGET_EVENTS_STEP_H
#define RANKFIT_TESTS_PLANNER_BUDGET_EVENTS_STEP_H

#include "budget_events.h"

#include "base/hardware/hardware.h"

#include <assert.h>
#include <string.h>

struct tensor_alive {
    enum item item;
    uint64_t bytes;
};

struct step {
    const struct budget_input *in;
    const struct model *m;
    const struct layout *l;
    const struct primitives *p;
    const uint64_t *received;
    struct played *ledger;
    uint64_t T, H, Q, K, G, heads;
    struct tensor_alive checkpoint[MODEL_MAX_LAYERS + 1]; /* [layers]: xf */
    struct tensor_alive dx;
    struct tensor_alive gathered[2 * MODEL_MAX_LAYERS + 1][4];
    bool issued[2 * MODEL_MAX_LAYERS + 1];
    struct tensor_alive full[4];                /* gradient buffers of this unit */
    struct tensor_alive old[4], old_receive[4]; /* of the unit before, under two streams */
};

enum mode { PLAIN, SAVE, REPLAY };

enum { MAX_CHUNKS = 16 };

struct kept_rows {
    struct tensor_alive xe, we, map, h;
};

struct kept {
    struct kept_rows chunk[MAX_CHUNKS]; /* under chunked schedules */
    struct tensor_alive qkv, o, lse, x1, probs, choices, weights, slots, xe, we, map, h, hs, gate;
    struct tensor_alive hd;
};

/* One layer at work. */
struct layer {
    struct step *s;
    int index;
    enum mode mode;
    struct kept *k;
    uint64_t S, R;
};

/* The ledger. */
struct tensor_alive make(struct step *s, enum item item, uint64_t bytes);
void drop(struct step *s, struct tensor_alive *t);

/* Units of state. */
int dense_shards(const struct step *s);
uint64_t grad_bytes(const struct step *s);
uint64_t layer_dense(const struct step *s, int layer);
uint64_t layer_expert(const struct step *s, int layer);
uint64_t embedding_dense(const struct step *s);
uint64_t head_dense(const struct step *s);
void play_state(struct step *s);
void begin_use(struct step *s, int use);
void end_use(struct step *s, int use);
void open_gradients(struct step *s, const uint64_t *parts, const int *shards, int count);
void close_gradients(struct step *s, const uint64_t *parts, const int *shards, int count);
void drop_old(struct step *s);

/* One layer, and what its plain and its chunked form share. */
struct tensor_alive working(struct layer *y, uint64_t bytes);
struct tensor_alive keep(struct layer *y, enum item item, uint64_t bytes);
void unless_kept(struct layer *y, struct tensor_alive *t);
void make_output(struct layer *y);
void router_forward(struct layer *y);
void shared_forward(struct layer *y, struct tensor_alive *n2);
void shared_backward(struct layer *y, struct tensor_alive *n2, struct tensor_alive *dn2);
void chunked_forward(struct layer *y);
/* again: the layer is computed again, and brings each chunk's rows once more. */
void chunked_backward(struct layer *y, bool again);
void layer_forward(struct step *s, int index, enum mode mode, struct kept *k);
void layer_backward(struct step *s, int index, bool again, struct kept *k);

#endif
