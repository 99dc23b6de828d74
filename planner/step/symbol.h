/* symbol.h - the quantities that operation lists are written in, and a place for their values. */
#ifndef RANKFIT_PLANNER_STEP_SYMBOL_H
#define RANKFIT_PLANNER_STEP_SYMBOL_H

#include <stdint.h>

/* How often a tensor repeats its width. */
enum step_rows {
    ROWS_ONE,         /* the width is the whole size */
    ROWS_NORM,        /* local tokens where sequence parallelism splits them: T / tp */
    ROWS_TOKENS,      /* local tokens T */
    ROWS_ALL,         /* tokens of the whole context group: T x cp */
    ROWS_EXPANDED,    /* tokens whose latents a rank expands: T, or all where they are gathered */
    ROWS_SENT,        /* routed rows sent in an exchange; in chunks: of one chunk */
    ROWS_RECV,        /* routed rows received, likewise */
    ROWS_DELTA_RUNS,     /* runs of the delta rule on a rank */
    ROWS_DELTA_ALL_RUNS, /* of the whole context group */
    ROWS_DELTA_SEGMENTS, /* of 4,096 tokens, of all runs on a rank */
    ROWS_COUNT
};

/* Elements of a row, after division by tensor parallelism. */
enum step_width {
    WIDTH_ONE,
    WIDTH_HIDDEN,    /* H */
    WIDTH_QUERY,     /* Q */
    WIDTH_KEY,       /* K */
    WIDTH_KEY_VALUE, /* 2K */
    WIDTH_QKV,       /* Q + G + 2K */
    WIDTH_HEADS,     /* query heads */
    WIDTH_EXPERTS,   /* E */
    WIDTH_TOP_K,     /* k */
    WIDTH_SCORES,    /* E + k: the router's scores and choices */
    WIDTH_GATE_UP,   /* 2f */
    WIDTH_EXPERT,    /* f */
    WIDTH_SHARED_TWO,
    WIDTH_SHARED, /* s */
    WIDTH_DENSE_TWO,
    WIDTH_DENSE,         /* F */
    WIDTH_ROUTED,        /* of a routed row: the experts' latent, or H */
    WIDTH_ROUTED_SUM,    /* what un-permuting reads and writes of the sum: W, twice where it adds */
    WIDTH_EXPERT_LATENT, /* the experts' latent; 0: none */
    WIDTH_DELTA_IN,      /* queries, keys, values and gate of the delta net: 2Kd + 2Vd */
    WIDTH_DELTA_ALL,     /* the same with b and a */
    WIDTH_DELTA_KEY,     /* key dim at every value head */
    WIDTH_DELTA_TILE,    /* a 64 x 64 system of each chunk, per token: 64 x value heads */
    WIDTH_DELTA_CONV,    /* queries, keys and values: 2Kd + Vd */
    WIDTH_DELTA_VALUE,   /* Vd = value heads x value dim */
    WIDTH_DELTA_HEADS,   /* value heads */
    WIDTH_DELTA_STATE,   /* value heads x key dim x value dim; heads split: of a rank's */
    WIDTH_DELTA_SQUARE,  /* value heads x key dim x key dim */
    WIDTH_DELTA_HALO,    /* convolved channels of the tokens before a run; states not passed: 0 */
    WIDTH_DELTA_SPLIT,   /* what enters the rule, of a rank's heads; heads not split: 0 */
    WIDTH_DELTA_SPLIT_VALUE,
    WIDTH_QUERY_LATENT,
    WIDTH_QUERY_INPUT,    /* what queries are projected from: their latent, or H */
    WIDTH_LATENT,         /* of keys and values */
    WIDTH_LATENT_KEY,     /* the same and the rope key */
    WIDTH_LATENTS,        /* latents of queries and of keys and values */
    WIDTH_DOWN,           /* all that the down projections make */
    WIDTH_EXPANDED,       /* heads x (nope + value) */
    WIDTH_VALUE,          /* heads x value */
    WIDTH_APART,          /* heads x nope + rope: what keys are put together from */
    WIDTH_NOPE,           /* of one head */
    WIDTH_VALUE_DIM,      /* of one head */
    WIDTH_ROTATED,        /* (heads + 1) x rope */
    WIDTH_BLOCK_EXPANDED, /* heads x (nope + value) of one block of heads */
    WIDTH_BLOCK_KEY,
    WIDTH_ABSORBED,     /* heads x (latent + rope): queries against latents */
    WIDTH_ABSORBED_OUT, /* heads x latent */
    WIDTH_INDEX_QUERY,
    WIDTH_INDEX_KEY,
    WIDTH_INDEX_HEADS,
    WIDTH_INDEX_DOWN, /* key and weights of the indexer */
    WIDTH_INDEX_TILE, /* bytes of the scores of a run of queries against every key */
    WIDTH_CHOICES,    /* keys a query */
    WIDTH_LIGHTNING,  /* heads x head dim */
    WIDTH_LIGHTNING_THREE,
    WIDTH_LIGHTNING_FOUR,
    WIDTH_LIGHTNING_STATES, /* elements, of all runs of 256 tokens */
    WIDTH_MAMBA_IN,         /* gate, channels and dt */
    WIDTH_MAMBA_CHANNELS,
    WIDTH_MAMBA_INNER,
    WIDTH_MAMBA_HEADS,
    WIDTH_MAMBA_TILE,   /* a token's products with its chunk, a group */
    WIDTH_MAMBA_STATES, /* elements, of all chunks */
    /* Matrices of a linear operation that have adapters of their own. */
    WIDTH_PARTS_ONE,
    WIDTH_PARTS_MIXER, /* those that read a mixer's normed input */
    WIDTH_PARTS_UP,    /* gate and up, or up alone */
    WIDTH_PARTS_EXPERT_UP,
    /* Bytes. */
    WIDTH_CONTEXT_FORWARD, /* that context parallelism adds at attention */
    WIDTH_CONTEXT_BACKWARD,
    WIDTH_ATTENTION_WORKSPACE,
    WIDTH_DELTA_WORKSPACE,
    WIDTH_DELTA_WORKSPACE_BACK,
    WIDTH_COUNT
};

/* How often a kernel is launched. */
enum step_calls { CALLS_ONE, CALLS_CHUNKS };

/* Kernels whose seconds are not those of a GEMM or of bytes moved. */
enum step_work {
    WORK_ATTENTION,
    WORK_ATTENTION_BACK,
    WORK_ORDERED_SCORES, /* attention's backward with sums in one order: kernels on scores, */
    WORK_ORDERED_GEMMS,  /* products, */
    WORK_ORDERED_WAITS,  /* waits for their streams */
    WORK_INDEX,
    WORK_INDEX_BACK,
    WORK_CHOOSE,
    WORK_SCAN, /* delta rule, lightning attention, Mamba-2 */
    WORK_SCAN_BACK,
    WORK_COUNT
};

/* Collectives and exchanges inside a layer. */
enum step_link {
    LINK_TENSOR_INPUT,  /* tokens of a mixer's input, gathered or scattered over tp */
    LINK_TENSOR_HIDDEN, /* hidden states, likewise */
    LINK_DISPATCH,      /* routed rows, one way */
    LINK_CONTEXT,       /* keys and values gathered, or heads exchanged */
    LINK_CONTEXT_BACK,
    LINK_RING, /* blocks that circulate while attention is at work */
    LINK_RING_BACK,
    LINK_INDEX_KEYS,
    LINK_INDEX_HOME,
    LINK_STATE, /* of a recurrence, or its heads exchanged */
    LINK_STATE_BACK,
    LINK_STATE_HOME, /* outputs of a delta net's heads back */
    LINK_TRANSITION, /* of a delta net's runs */
    LINK_HALO,
    LINK_HALO_BACK,
    LINK_COUNT
};

extern const char *const step_rows_names[ROWS_COUNT];
extern const char *const step_width_names[WIDTH_COUNT];

#endif
