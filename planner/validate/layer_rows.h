/* layer_rows.h - the tensors of a layer under automatic differentiation as data: when each is made
 * and last used. One table a mixer, one for experts. Internal to this folder. */
#ifndef RANKFIT_PLANNER_VALIDATE_LAYER_ROWS_H
#define RANKFIT_PLANNER_VALIDATE_LAYER_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* The moments of a recomputed layer, in order: replay of mixer and experts, backward of experts
 * and mixer. */
enum moment {
    MIX_PROJECT,
    MIX_GATHER,
    MIX_CONV,
    MIX_HEADS,
    MIX_CORE,
    MIX_GATE,
    MIX_OUTPUT,
    MOE_NORM,
    MOE_PERMUTE,
    MOE_EXCHANGE,
    MOE_ORDER,
    MOE_UP,
    MOE_ACT,
    MOE_DOWN,
    MOE_BACK,
    MOE_RETURN,
    MOE_SUM,
    MOE_D_SUM,
    MOE_D_RETURN,
    MOE_D_BACK,
    MOE_D_DOWN,
    MOE_D_ACT,
    MOE_D_UP,
    MOE_D_ORDER,
    MOE_D_EXCHANGE,
    MOE_D_PERMUTE,
    MOE_D_NORM,
    MIX_D_OUTPUT,
    MIX_D_GATE,
    MIX_D_CORE,
    MIX_D_CORE_END,
    MIX_D_HEADS,
    MIX_D_CONV,
    MIX_D_GATHER,
    MIX_D_PROJECT,
    MOMENT_COUNT
};

/* How often a tensor repeats its width. */
enum kept_times {
    TIMES_ONE,
    TIMES_NORM,     /* local tokens where sequence parallelism splits them */
    TIMES_TOKENS,   /* local tokens */
    TIMES_SEQUENCE, /* tokens that a delta net works at: see enum delta_share */
    TIMES_CHUNKS,   /* chunks of 64 of these */
    TIMES_ROWS,     /* routed rows received */
    TIMES_COUNT
};

/* Elements of a row, after tensor parallelism. */
enum kept_width {
    KEPT_HIDDEN,
    KEPT_QUERY,
    KEPT_KEY_VALUE, /* keys and values */
    KEPT_QKV,       /* with the gate's half of the queries */
    KEPT_HEADS,
    KEPT_RING,          /* bytes that a ring of keys and values takes, forward */
    KEPT_RING_BACKWARD, /* the same, backward */
    KEPT_WORKSPACE,     /* bytes of attention's backward */
    KEPT_EXPERTS,
    KEPT_GATE_UP,
    KEPT_EXPERT,
    KEPT_SHARED_TWO,
    KEPT_SHARED,
    KEPT_ONE,
    KEPT_DELTA_IN,   /* queries, keys, values and gate */
    KEPT_DELTA_CONV, /* queries, keys and values */
    KEPT_DELTA_KEYS, /* queries and keys at the key heads */
    KEPT_DELTA_KEY,  /* keys at every value head */
    KEPT_DELTA_VALUE,
    KEPT_DELTA_HEADS, /* value heads */
    KEPT_DELTA_TILE,  /* a token's row of the chunk's 64 x 64 system, a value head */
    KEPT_DELTA_STATE, /* of one chunk */
    KEPT_WIDTH_COUNT
};

/* One tensor: alive from moment `made` to moment `last`, both included. */
struct kept_row {
    const char *tensor;
    uint8_t times, width, bytes; /* bytes of one element */
    uint8_t made, last;
};

struct kept_table {
    const struct kept_row *rows;
    size_t count;
};

extern const struct kept_table kept_attention, kept_delta_net, kept_experts;

#endif
