/* step.h - the training step as lists of operations: one list for each half of a layer, one file a
 * kind. A list says what an operation reads and makes, and how large that is in symbols; which
 * tensors are saved for backward, what a recompute has to make again, how long a tensor lives, what
 * is at work at once, seconds and formulas are computed from it (planner/predict). Knows nothing of
 * layouts, hardware, stages or units of state. The executor never reads these lists. */
#ifndef RANKFIT_PLANNER_STEP_STEP_H
#define RANKFIT_PLANNER_STEP_STEP_H

#include "base/item.h"
#include "base/model/tensor.h"
#include "planner/step/symbol.h"

#include <stdbool.h>
#include <stdint.h>

/* Conditions under which an operation, or its place in an order, exists. */
enum step_condition {
    WHEN_TP = 1 << 0,             /* tensor parallelism, sequence parallelism between its regions */
    WHEN_GATE = 1 << 1,           /* attention with an output gate */
    WHEN_BIAS = 1 << 2,           /* biases of queries, keys and values */
    WHEN_EXCHANGE = 1 << 3,       /* routed rows travel between ranks */
    WHEN_SHARED = 1 << 4,         /* a shared expert */
    WHEN_SHARED_GATE = 1 << 5,    /* ... with a scalar gate */
    WHEN_LATENT = 1 << 6,         /* routed experts that work at a latent width */
    WHEN_GATHER_KV = 1 << 7,      /* keys and values of the context group are gathered */
    WHEN_CONTEXT = 1 << 8,        /* a context group of more than one rank */
    WHEN_ORDERED = 1 << 9,        /* attention's backward in blocks whose sums have one order */
    WHEN_DELAY = 1 << 10,         /* weight gradients of a chunk wait for later chunks */
    WHEN_INDEXER = 1 << 11,       /* the layer's own indexer chooses keys */
    WHEN_KEEP_ATTENTION = 1 << 12, /* recomputed layers keep what attention made */
    WHEN_SPLIT_HEADS = 1 << 13,    /* a recurrence whose heads are exchanged for tokens */
    WHEN_PASS_STATES = 1 << 14     /* ... whose states pass from run to run */
};

/* What becomes of a tensor that backward reads. */
enum step_fate {
    FATE_REMADE,   /* made again where backward wants it; also of tensors that it does not read */
    FATE_SAVED,    /* saved from forward to backward; in a recomputed layer from its recompute */
    FATE_ATTENDED, /* the same, and under WHEN_KEEP_ATTENTION saved from forward in every layer */
    FATE_CARRIED   /* saved from forward in every layer; in recomputed ones with the checkpoints */
};

struct step_tensor {
    const char *name;
    uint8_t rows, width, bytes; /* symbols; bytes of one element */
    uint8_t item;               /* enum item, while its layer is at work */
    uint8_t fate;
};

/* Tensors that a layer's halves share, first in every list. Neither the input nor the gradient
 * stream is the list's: their bytes are counted where layers are put together. */
enum {
    TENSOR_NONE,
    TENSOR_X,      /* the layer's input, its checkpoint */
    TENSOR_X1,     /* the hidden states between the halves */
    TENSOR_OUTPUT, /* the next layer's input */
    TENSOR_DX,     /* the gradient of the output, updated in place to that of the input */
    TENSOR_FIRST_OWN
};

enum step_op_kind {
    OP_MARK,        /* takes no time: a wait, or the end of a tensor's life */
    OP_GEMM,        /* [rows, k] x [k, n] */
    OP_GROUPED,     /* the same for routed rows, one GEMM an expert and chunk */
    OP_WGRAD,       /* gradient of the weight of GEMM `of` */
    OP_DGRAD,       /* gradient of the input of GEMM `of` */
    OP_ELEMENTWISE, /* bytes read and written at memory bandwidth */
    OP_KERNEL,      /* attention, scans: seconds by `work` */
    OP_READ,        /* the host waits for the device and reads counts */
    OP_LINK         /* a collective or an exchange: seconds by `link` */
};

enum { OP_READS = 8, OP_ALSO = 3, OP_HOLDS = 4, OP_MAKES = 6, OP_TRAFFIC = 3 };

/* coefficient x rows x width bytes */
struct step_traffic {
    uint8_t coefficient, rows, width;
};

struct step_op {
    const char *name;
    uint8_t kind;
    uint8_t time_item;       /* enum time_item; GEMMs: of their product */
    uint8_t reads[OP_READS]; /* tensors that it cannot do without */
    uint8_t also[OP_ALSO];   /* the same, but not under `also_unless` */
    uint32_t also_unless;
    uint8_t holds[OP_HOLDS]; /* tensors that, where they exist, are released no earlier */
    uint8_t makes[OP_MAKES]; /* tensors made here, or added to where they are there already */
    uint32_t when, unless;   /* enum step_condition */
    struct {
        uint8_t rows, times, n, k; /* GEMM: rows x times by n over k */
        uint8_t result_bytes;      /* of an element of the result; twice where it is added to */
        uint8_t of;                /* WGRAD and DGRAD: the GEMM of the forward */
        uint8_t component;         /* whose weight; COMPONENT_COUNT: it has none */
        uint8_t adapters;          /* matrices that each have a low-rank adapter, as a symbol */
        bool absorbed;             /* other operations multiply by the weight: only adapters here */
    } gemm;
    struct step_traffic traffic[OP_TRAFFIC];
    uint8_t calls; /* enum step_calls: of elementwise kernels and reads */
    uint8_t work;  /* enum step_work */
    uint8_t link;  /* enum step_link */
};

/* One operation in an order. The operations of one point run one after another and nothing is
 * released before the last of them. An operation of the forward in the order of a backward makes
 * its results again, unless they are saved. */
struct step_entry {
    uint8_t op;
    int8_t chunk; /* of chunked orders: the chunk less the current one */
    bool joined;  /* to the point of the entry before */
    bool late;    /* waits `delay` chunks, and after the last chunk for none */
    uint32_t when, unless;
};

/* Entries before the chunks, for each chunk, after them. */
enum step_zone { ZONE_BEFORE, ZONE_CHUNK, ZONE_AFTER, ZONE_COUNT };
struct step_order {
    struct {
        uint8_t count;
        const struct step_entry *entries;
    } zone[ZONE_COUNT];
};

/* How the routed rows of a layer are scheduled. */
enum step_schedule { SCHEDULE_PLAIN, SCHEDULE_CHUNKED, SCHEDULE_CAPPED, SCHEDULE_COUNT };

/* The operations of one half of a layer. Schedules that a list lacks are its plain one. */
struct step_list {
    const char *name;
    uint8_t tensor_count, op_count;
    const struct step_tensor *tensors;
    const struct step_op *ops;
    struct step_order forward[SCHEDULE_COUNT], backward[SCHEDULE_COUNT];
};

extern const struct step_list *const step_mixers[MIXER_COUNT];
extern const struct step_list *const step_ffns[FFN_COUNT];

#define STEP_ENTRIES(list)                                                                         \
    {                                                                                              \
        (uint8_t)(sizeof(list) / sizeof(list)[0]), list                                            \
    }
#define STEP_COUNT(array) ((uint8_t)(sizeof(array) / sizeof(array)[0]))

#endif
