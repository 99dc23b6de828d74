/* residency.h - which tensors of a layer are alive at which moment: the tables of ARCHITECTURE.md
 * ("The training step, tensor by tensor") as data, one file a layer kind, and their evaluation for
 * given widths and rows. Knows nothing of layouts, stages or units of state. */
#ifndef RANKFIT_PLANNER_RESIDENCY_RESIDENCY_H
#define RANKFIT_PLANNER_RESIDENCY_RESIDENCY_H

#include "base/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who a tensor of a layer belongs to. OUTPUT: what the next layer keeps as its input. */
enum owner {
    OWNER_WORKING,
    OWNER_DISPATCH_SEND,
    OWNER_DISPATCH_RECV,
    OWNER_EXPERT,
    OWNER_SAVED,
    OWNER_CONTEXT,
    OWNER_WORKSPACE,
    OWNER_OUTPUT,
    OWNER_COUNT
};

/* How often a tensor repeats its width. */
enum rows {
    ROWS_ONE,         /* the width is the whole size */
    ROWS_NORM,        /* local tokens where sequence parallelism splits them: T / tp */
    ROWS_TOKENS,      /* local tokens T */
    ROWS_ALL,         /* tokens of the whole context group: T * cp */
    ROWS_SENT,        /* routed rows sent in an exchange; chunked: of the whole layer */
    ROWS_RECV,        /* routed rows received, likewise */
    ROWS_DELTA_CHUNK, /* chunks of 64 tokens of the delta rule */
    ROWS_COUNT
};

/* Elements of a row; the model's widths after division by tensor parallelism. */
enum width {
    WIDTH_ONE,
    WIDTH_HIDDEN,        /* H */
    WIDTH_QUERY,         /* Q */
    WIDTH_KEY,           /* K */
    WIDTH_KEY_VALUE,     /* 2K */
    WIDTH_QKV,           /* Q + G + 2K */
    WIDTH_HEADS,         /* query heads */
    WIDTH_EXPERTS,       /* E */
    WIDTH_TOP_K,         /* k */
    WIDTH_GATE_UP,       /* 2f */
    WIDTH_EXPERT,        /* f */
    WIDTH_SHARED_TWO,    /* 2s */
    WIDTH_SHARED,        /* s */
    WIDTH_DENSE_TWO,     /* 2F */
    WIDTH_DENSE,         /* F */
    WIDTH_DELTA_IN,      /* queries, keys, values and gate of the delta net: 2Kd + 2Vd */
    WIDTH_DELTA_CONV,    /* queries, keys and values: 2Kd + Vd */
    WIDTH_DELTA_VALUE,   /* Vd = value heads x value dim */
    WIDTH_DELTA_KEY,     /* key dim at every value head */
    WIDTH_DELTA_HEADS,   /* value heads */
    WIDTH_DELTA_TILE,    /* the 64 x 64 triangular system of a chunk, a token: 64 x value heads */
    WIDTH_DELTA_STATE,   /* value heads x key dim x value dim */
    WIDTH_ROUTED,        /* of a routed row: the experts' latent, or H */
    WIDTH_EXPERT_LATENT, /* the experts' latent; 0: none */
    WIDTH_QUERY_LATENT,
    WIDTH_LATENT,         /* of keys and values */
    WIDTH_LATENT_KEY,     /* the same and the rope key */
    WIDTH_EXPANDED,       /* heads x (nope + value) */
    WIDTH_VALUE,          /* heads x value */
    WIDTH_BLOCK_EXPANDED, /* the same of one block of heads */
    WIDTH_BLOCK_KEY,
    WIDTH_ABSORBED,     /* heads x (latent + rope): queries against latents */
    WIDTH_ABSORBED_OUT, /* heads x latent */
    WIDTH_INDEX_QUERY,
    WIDTH_INDEX_KEY,
    WIDTH_INDEX_HEADS,
    WIDTH_INDEX_TILE, /* bytes of the scores of a run of queries against every key */
    WIDTH_CHOICES,    /* keys a query */
    WIDTH_LIGHTNING,  /* heads x head dim */
    WIDTH_LIGHTNING_THREE,
    WIDTH_LIGHTNING_STATES, /* elements, of all runs of 256 tokens */
    WIDTH_MAMBA_IN,         /* gate, channels and dt */
    WIDTH_MAMBA_CHANNELS,
    WIDTH_MAMBA_INNER,
    WIDTH_MAMBA_HEADS,
    WIDTH_MAMBA_TILE,   /* a token's products with its chunk, a group */
    WIDTH_MAMBA_STATES, /* elements, of all chunks */
    WIDTH_ADAPTER_IN,   /* ranks of adapters, 0: none; of all matrices that read a mixer's input */
    WIDTH_ADAPTER_OUT,
    WIDTH_ADAPTER_DENSE_UP, /* of gate and up */
    WIDTH_ADAPTER_DENSE,
    WIDTH_ADAPTER_SHARED_UP,
    WIDTH_ADAPTER_SHARED,
    WIDTH_ADAPTER_EXPERT_UP,
    WIDTH_ADAPTER_EXPERT,
    WIDTH_CONTEXT_FORWARD,  /* bytes that context parallelism adds at attention, forward */
    WIDTH_CONTEXT_BACKWARD, /* the same, backward */
    WIDTH_ATTENTION_WORKSPACE,
    WIDTH_COUNT
};

/* Conditions of a row. */
enum {
    WHEN_TP = 1 << 0,
    WHEN_GATE = 1 << 1,     /* attention with an output gate */
    WHEN_EXCHANGE = 1 << 2, /* ep > 1 */
    WHEN_SHARED = 1 << 3,
    WHEN_SHARED_GATE = 1 << 4,
    WHEN_GATHER_KV = 1 << 5, /* keys and values of the context group are gathered */
    WHEN_REPLAY = 1 << 6,    /* set by the evaluation: the mode is RESIDENCY_REPLAY */
    WHEN_ALONE = 1 << 7,     /* no mixer before the feed-forward half: x1 is the checkpoint */
    WHEN_SAVED = 1 << 8,     /* set by the evaluation: what is kept is saved from the forward */
    /* Weights without gradients and adapters: backward does not read what their products read. */
    WHEN_IDLE_MIXER = 1 << 9,
    WHEN_IDLE_DENSE = 1 << 10,
    WHEN_IDLE_SHARED = 1 << 11,
    WHEN_IDLE_EXPERTS = 1 << 12,
    WHEN_ADAPTERS = 1 << 13,        /* low-rank adapters somewhere */
    WHEN_X1_SAVED = 1 << 14,        /* set by the evaluation: x1 is saved for a second half */
    WHEN_CONTEXT = 1 << 15,         /* a context group of more than one rank */
    WHEN_KEEPS_ATTENTION = 1 << 16, /* recomputed layers keep what attention made */
    WHEN_ATTENDED = 1 << 17         /* set by the evaluation: a replay beside what attention made */
};

/* Whether a tensor stays from forward, or replay, to backward. */
enum stays {
    STAYS_NOT,
    STAYS_KEPT,    /* made by a GEMM or an exchange */
    STAYS_ATTENDED /* made by attention: WHEN_KEEPS_ATTENTION from the forward of every layer */
};

/* One tensor: alive from step `made` to step `last`, both included. */
struct residency_row {
    const char *tensor;
    uint8_t owner, rows, width, bytes; /* bytes of one element */
    uint8_t made, last;
    uint8_t stays; /* enum stays */
    uint32_t when, unless;
};

struct residency_table {
    const char *name;
    int steps;
    size_t count;
    const struct residency_row *rows;
};

/* Forward and backward of each half of a layer. */
extern const struct residency_table *const residency_mixer_forward[MIXER_COUNT];
extern const struct residency_table *const residency_mixer_backward[MIXER_COUNT];
extern const struct residency_table *const residency_ffn_forward[FFN_COUNT];
extern const struct residency_table *const residency_ffn_backward[FFN_COUNT];

/* What a table is evaluated for. */
struct residency_shape {
    uint64_t rows[ROWS_COUNT];
    uint64_t width[WIDTH_COUNT];
    unsigned when; /* WHEN_... bits that hold */
    struct {
        int count;                /* 1: not chunked */
        bool capped;              /* one after another, nothing of them kept */
        int delay;                /* chunks that weight gradients wait */
        const uint64_t *received; /* rows received of each, where known; NULL: an even share */
    } chunks;
};

enum residency_mode {
    RESIDENCY_FORWARD,        /* keeps nothing, or what attention made */
    RESIDENCY_REPLAY,         /* up to the last kept tensor; keeps them under their own owners */
    RESIDENCY_BACKWARD,       /* after a replay */
    RESIDENCY_FORWARD_SAVED,  /* keeps the kept tensors as OWNER_SAVED */
    RESIDENCY_BACKWARD_SAVED, /* after RESIDENCY_FORWARD_SAVED */
    RESIDENCY_MODES
};

enum { RESIDENCY_MAX_STEPS = 40 };

/* Bytes alive at every step of one layer in one mode. A chunked feed-forward half is one step here,
 * its fullest. */
struct residency {
    int steps, peak_step;
    uint64_t peak; /* all owners at peak_step */
    uint64_t live[RESIDENCY_MAX_STEPS][OWNER_COUNT];
    uint64_t max[OWNER_COUNT]; /* own maximum of each owner */
    uint64_t kept;             /* bytes of the kept tensors; of a forward, those that stay saved */
    /* The fullest step without the output, where that takes no room of its own. */
    uint64_t bare, bare_live[OWNER_COUNT];
};

/* Bytes of one tensor, rounded up to the arena's 256. */
uint64_t residency_row_bytes(const struct residency_row *row, const struct residency_shape *shape);

/* True when the row's conditions hold; of a replay under shape->when with WHEN_REPLAY, of a forward
 * that saves and its backward with WHEN_SAVED. */
bool residency_row_applies(const struct residency_row *row, const struct residency_shape *shape);

/* A chunked feed-forward half in one mode: its fullest step, each owner's own maximum, bytes kept.
 * The same beside every mixer, so it can be remembered; without a mixer it is another. */
struct residency_half {
    bool known;
    uint64_t live[OWNER_COUNT], bare_live[OWNER_COUNT], max[OWNER_COUNT], kept;
};
enum { RESIDENCY_HALVES = 2 * RESIDENCY_MODES };

/* halves: RESIDENCY_HALVES entries, not known at first and filled when a chunked half is needed;
 * to be forgotten when the shape changes. */
void residency_evaluate(const struct residency_shape *shape, enum mixer mixer, enum ffn ffn,
                        enum residency_mode mode, struct residency_half *halves,
                        struct residency *ret);

#endif
