/* latent.c - attention through latents, which no table of ARCHITECTURE.md lists and no executor
 * runs yet. Follows the same rule of what is kept. Keys and values are expanded for all heads from
 * the rank's own latents, and kept. When the context group gathers, latents travel, and keys and
 * values of the whole sequences are expanded for a block of heads at a time, in both passes. The
 * sparse form never expands: queries are absorbed into the latent space and read, each, the keys
 * that an indexer chose (layers that share a choice have no indexer and no widths of one); scores
 * of a run of queries exist at a time. Its choices are saved even where the layer is recomputed;
 * then they belong to the checkpoints. */
#include "planner/residency/tables.h"

#define GATHER WHEN_GATHER_KV

enum { P1_NORM, P2_DOWN, P3_UP, P4_ROPE, P4_GATHER, P5_ATTENTION, P6_OUTPUT, P_STEPS };

static const struct residency_row expanded_forward_rows[] = {
    ROW("n1", WORKING, NORM, HIDDEN, 2, P1_NORM, P2_DOWN, REMADE, 0, 0),
    ROW("query latent", WORKING, TOKENS, QUERY_LATENT, 2, P2_DOWN, P3_UP, KEPT, 0, 0),
    ROW("latent", WORKING, TOKENS, LATENT_KEY, 2, P2_DOWN, P4_ROPE, KEPT, 0, 0),
    ROW("query latent normed", WORKING, TOKENS, QUERY_LATENT, 2, P3_UP, P3_UP, REMADE, 0, 0),
    ROW("latent normed", WORKING, TOKENS, LATENT, 2, P3_UP, P3_UP, REMADE, 0, GATHER),
    ROW("q", WORKING, TOKENS, QUERY, 2, P3_UP, P4_ROPE, KEPT, 0, 0),
    ROW("kv", WORKING, TOKENS, EXPANDED, 2, P3_UP, P5_ATTENTION, KEPT, 0, GATHER),
    ROW("qr", WORKING, TOKENS, QUERY, 2, P4_ROPE, P5_ATTENTION, REMADE, 0, 0),
    ROW("kr", WORKING, TOKENS, KEY, 2, P4_ROPE, P5_ATTENTION, REMADE, 0, GATHER),
    ROW("latents", CONTEXT, TOKENS, LATENT_KEY, 2, P4_ROPE, P4_GATHER, REMADE, GATHER, 0),
    ROW("all latents", CONTEXT, ALL, LATENT_KEY, 2, P4_GATHER, P5_ATTENTION, REMADE, GATHER, 0),
    ROW("kv block", CONTEXT, ALL, BLOCK_EXPANDED, 2, P5_ATTENTION, P5_ATTENTION, REMADE, GATHER, 0),
    ROW("kr block", CONTEXT, ALL, BLOCK_KEY, 2, P5_ATTENTION, P5_ATTENTION, REMADE, GATHER, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_FORWARD, 1, P5_ATTENTION, P5_ATTENTION, REMADE, 0, 0),
    ROW("o", WORKING, TOKENS, VALUE, 2, P5_ATTENTION, P6_OUTPUT, KEPT, 0, 0),
    ROW("lse", WORKING, TOKENS, HEADS, 4, P5_ATTENTION, P5_ATTENTION, KEPT, 0, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, P6_OUTPUT, P6_OUTPUT, REMADE, WHEN_TP, 0),
    ROW("x1", WORKING, NORM, HIDDEN, 2, P6_OUTPUT, P6_OUTPUT, REMADE, 0, 0),
};

enum {
    Q1_WEIGHT,
    Q2_DO,
    Q3_AGAIN,
    Q4_GATHER,
    Q5_ATTENTION,
    Q5_REDUCE,
    Q6_UP,
    Q7_WEIGHT,
    Q8_DN1,
    Q9_NORM,
    Q_STEPS
};

static const struct residency_row expanded_backward_rows[] = {
    ROW("query latent", WORKING, TOKENS, QUERY_LATENT, 2, Q1_WEIGHT, Q6_UP, KEPT, 0, 0),
    ROW("latent", WORKING, TOKENS, LATENT_KEY, 2, Q1_WEIGHT, Q6_UP, KEPT, 0, 0),
    ROW("q", WORKING, TOKENS, QUERY, 2, Q1_WEIGHT, Q3_AGAIN, KEPT, 0, 0),
    ROW("kv", WORKING, TOKENS, EXPANDED, 2, Q1_WEIGHT, Q5_ATTENTION, KEPT, 0, GATHER),
    ROW("o", WORKING, TOKENS, VALUE, 2, Q1_WEIGHT, Q5_ATTENTION, KEPT, 0, 0),
    ROW("lse", WORKING, TOKENS, HEADS, 4, Q1_WEIGHT, Q5_ATTENTION, KEPT, 0, 0),
    ROW("dx gathered", WORKING, TOKENS, HIDDEN, 2, Q1_WEIGHT, Q2_DO, REMADE, WHEN_TP, 0),
    ROW("do", WORKING, TOKENS, VALUE, 2, Q2_DO, Q5_ATTENTION, REMADE, 0, 0),
    ROW("qr", WORKING, TOKENS, QUERY, 2, Q3_AGAIN, Q5_ATTENTION, REMADE, 0, 0),
    ROW("kr", WORKING, TOKENS, KEY, 2, Q3_AGAIN, Q5_ATTENTION, REMADE, 0, GATHER),
    ROW("latents", CONTEXT, TOKENS, LATENT_KEY, 2, Q3_AGAIN, Q4_GATHER, REMADE, GATHER, 0),
    ROW("all latents", CONTEXT, ALL, LATENT_KEY, 2, Q4_GATHER, Q5_ATTENTION, REMADE, GATHER, 0),
    ROW("kv block", CONTEXT, ALL, BLOCK_EXPANDED, 2, Q5_ATTENTION, Q5_ATTENTION, REMADE, GATHER, 0),
    ROW("kr block", CONTEXT, ALL, BLOCK_KEY, 2, Q5_ATTENTION, Q5_ATTENTION, REMADE, GATHER, 0),
    ROW("dkv block", CONTEXT, ALL, BLOCK_EXPANDED, 2, Q5_ATTENTION, Q5_ATTENTION, REMADE, GATHER,
        0),
    ROW("dkr block", CONTEXT, ALL, BLOCK_KEY, 2, Q5_ATTENTION, Q5_ATTENTION, REMADE, GATHER, 0),
    ROW("all dlatents", CONTEXT, ALL, LATENT_KEY, 4, Q5_ATTENTION, Q5_REDUCE, REMADE, GATHER, 0),
    ROW("dlatents", CONTEXT, TOKENS, LATENT_KEY, 4, Q5_REDUCE, Q6_UP, REMADE, GATHER, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_BACKWARD, 1, Q5_ATTENTION, Q5_ATTENTION, REMADE, 0, 0),
    ROW("delta", WORKING, TOKENS, HEADS, 4, Q5_ATTENTION, Q5_ATTENTION, REMADE, 0, 0),
    ROW("workspace", WORKSPACE, ONE, ATTENTION_WORKSPACE, 1, Q5_ATTENTION, Q5_ATTENTION, REMADE, 0,
        0),
    ROW("dq", WORKING, TOKENS, QUERY, 2, Q5_ATTENTION, Q6_UP, REMADE, 0, 0),
    ROW("dkr", WORKING, TOKENS, KEY, 2, Q5_ATTENTION, Q6_UP, REMADE, 0, GATHER),
    ROW("dkv", WORKING, TOKENS, EXPANDED, 2, Q5_ATTENTION, Q6_UP, REMADE, 0, GATHER),
    ROW("query latent normed", WORKING, TOKENS, QUERY_LATENT, 2, Q6_UP, Q6_UP, REMADE, 0, 0),
    ROW("latent normed", WORKING, TOKENS, LATENT, 2, Q6_UP, Q6_UP, REMADE, 0, 0),
    ROW("d query latent", WORKING, TOKENS, QUERY_LATENT, 2, Q6_UP, Q8_DN1, REMADE, 0, 0),
    ROW("d latent", WORKING, TOKENS, LATENT_KEY, 2, Q6_UP, Q8_DN1, REMADE, 0, 0),
    ROW("n1", WORKING, NORM, HIDDEN, 2, Q7_WEIGHT, Q7_WEIGHT, REMADE, 0, 0),
    ROW("dn1", WORKING, NORM, HIDDEN, 2, Q8_DN1, Q9_NORM, REMADE, 0, 0),
};

enum {
    X1_NORM,
    X2_DOWN,
    X3_UP,
    X4_GATHER,
    X5_INDEX,
    X6_ABSORB,
    X7_ATTENTION,
    X8_VALUE,
    X9_OUTPUT,
    X_STEPS
};

static const struct residency_row sparse_forward_rows[] = {
    ROW("n1", WORKING, NORM, HIDDEN, 2, X1_NORM, X2_DOWN, REMADE, 0, 0),
    ROW("query latent", WORKING, TOKENS, QUERY_LATENT, 2, X2_DOWN, X3_UP, KEPT, 0, 0),
    ROW("latent", WORKING, TOKENS, LATENT_KEY, 2, X2_DOWN, X3_UP, KEPT, 0, 0),
    ROW("index key", WORKING, TOKENS, INDEX_KEY, 2, X2_DOWN, X5_INDEX, KEPT, 0, 0),
    ROW("index weights", WORKING, TOKENS, INDEX_HEADS, 4, X2_DOWN, X5_INDEX, KEPT, 0, 0),
    ROW("query latent normed", WORKING, TOKENS, QUERY_LATENT, 2, X3_UP, X3_UP, REMADE, 0, 0),
    ROW("q", WORKING, TOKENS, QUERY, 2, X3_UP, X6_ABSORB, KEPT, 0, 0),
    ROW("index query", WORKING, TOKENS, INDEX_QUERY, 2, X3_UP, X5_INDEX, KEPT, 0, 0),
    ROW("latents", WORKING, TOKENS, LATENT_KEY, 2, X3_UP, X7_ATTENTION, REMADE, 0, GATHER),
    ROW("latents", CONTEXT, TOKENS, LATENT_KEY, 2, X3_UP, X4_GATHER, REMADE, GATHER, 0),
    ROW("all latents", CONTEXT, ALL, LATENT_KEY, 2, X4_GATHER, X7_ATTENTION, REMADE, GATHER, 0),
    ROW("all index keys", CONTEXT, ALL, INDEX_KEY, 2, X4_GATHER, X5_INDEX, REMADE, GATHER, 0),
    ROW("index scores", WORKING, ONE, INDEX_TILE, 1, X5_INDEX, X5_INDEX, REMADE, 0, WHEN_REPLAY),
    ROW("choices", WORKING, TOKENS, CHOICES, 4, X5_INDEX, X7_ATTENTION, KEPT, WHEN_SAVED, 0),
    ROW("absorbed q", WORKING, TOKENS, ABSORBED, 2, X6_ABSORB, X7_ATTENTION, REMADE, 0, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_FORWARD, 1, X7_ATTENTION, X7_ATTENTION, REMADE, 0, 0),
    ROW("latent o", WORKING, TOKENS, ABSORBED_OUT, 2, X7_ATTENTION, X8_VALUE, KEPT, 0, 0),
    ROW("lse", WORKING, TOKENS, HEADS, 4, X7_ATTENTION, X7_ATTENTION, KEPT, 0, 0),
    ROW("o", WORKING, TOKENS, VALUE, 2, X8_VALUE, X9_OUTPUT, REMADE, 0, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, X9_OUTPUT, X9_OUTPUT, REMADE, WHEN_TP, 0),
    ROW("x1", WORKING, NORM, HIDDEN, 2, X9_OUTPUT, X9_OUTPUT, REMADE, 0, 0),
};

enum {
    Y1_WEIGHT,
    Y2_DO,
    Y3_VALUE,
    Y4_AGAIN,
    Y5_GATHER,
    Y6_ATTENTION,
    Y7_ABSORB,
    Y8_INDEX,
    Y9_UP,
    Y10_WEIGHT,
    Y11_DN1,
    Y12_NORM,
    Y_STEPS
};

/* The indexer learns from its scores at the chosen keys: those scores and their gradients, fp32. */
static const struct residency_row sparse_backward_rows[] = {
    ROW("query latent", WORKING, TOKENS, QUERY_LATENT, 2, Y1_WEIGHT, Y9_UP, KEPT, 0, 0),
    ROW("latent", WORKING, TOKENS, LATENT_KEY, 2, Y1_WEIGHT, Y9_UP, KEPT, 0, 0),
    ROW("index key", WORKING, TOKENS, INDEX_KEY, 2, Y1_WEIGHT, Y8_INDEX, KEPT, 0, 0),
    ROW("index weights", WORKING, TOKENS, INDEX_HEADS, 4, Y1_WEIGHT, Y8_INDEX, KEPT, 0, 0),
    ROW("q", WORKING, TOKENS, QUERY, 2, Y1_WEIGHT, Y7_ABSORB, KEPT, 0, 0),
    ROW("index query", WORKING, TOKENS, INDEX_QUERY, 2, Y1_WEIGHT, Y8_INDEX, KEPT, 0, 0),
    ROW("choices", WORKING, TOKENS, CHOICES, 4, Y1_WEIGHT, Y8_INDEX, KEPT, WHEN_SAVED, 0),
    ROW("latent o", WORKING, TOKENS, ABSORBED_OUT, 2, Y1_WEIGHT, Y6_ATTENTION, KEPT, 0, 0),
    ROW("lse", WORKING, TOKENS, HEADS, 4, Y1_WEIGHT, Y6_ATTENTION, KEPT, 0, 0),
    ROW("o", WORKING, TOKENS, VALUE, 2, Y1_WEIGHT, Y1_WEIGHT, REMADE, 0, 0),
    ROW("dx gathered", WORKING, TOKENS, HIDDEN, 2, Y1_WEIGHT, Y2_DO, REMADE, WHEN_TP, 0),
    ROW("do", WORKING, TOKENS, VALUE, 2, Y2_DO, Y3_VALUE, REMADE, 0, 0),
    ROW("d latent o", WORKING, TOKENS, ABSORBED_OUT, 2, Y3_VALUE, Y6_ATTENTION, REMADE, 0, 0),
    ROW("absorbed q", WORKING, TOKENS, ABSORBED, 2, Y4_AGAIN, Y6_ATTENTION, REMADE, 0, 0),
    ROW("latents", WORKING, TOKENS, LATENT_KEY, 2, Y4_AGAIN, Y6_ATTENTION, REMADE, 0, GATHER),
    ROW("latents", CONTEXT, TOKENS, LATENT_KEY, 2, Y4_AGAIN, Y5_GATHER, REMADE, GATHER, 0),
    ROW("all latents", CONTEXT, ALL, LATENT_KEY, 2, Y5_GATHER, Y6_ATTENTION, REMADE, GATHER, 0),
    ROW("all index keys", CONTEXT, ALL, INDEX_KEY, 2, Y5_GATHER, Y8_INDEX, REMADE, GATHER, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_BACKWARD, 1, Y6_ATTENTION, Y6_ATTENTION, REMADE, 0, 0),
    ROW("delta", WORKING, TOKENS, HEADS, 4, Y6_ATTENTION, Y6_ATTENTION, REMADE, 0, 0),
    ROW("d absorbed q", WORKING, TOKENS, ABSORBED, 2, Y6_ATTENTION, Y7_ABSORB, REMADE, 0, 0),
    ROW("dlatents", WORKING, TOKENS, LATENT_KEY, 4, Y6_ATTENTION, Y9_UP, REMADE, 0, GATHER),
    ROW("all dlatents", CONTEXT, ALL, LATENT_KEY, 4, Y6_ATTENTION, Y7_ABSORB, REMADE, GATHER, 0),
    ROW("dlatents", CONTEXT, TOKENS, LATENT_KEY, 4, Y7_ABSORB, Y9_UP, REMADE, GATHER, 0),
    ROW("dq", WORKING, TOKENS, QUERY, 2, Y7_ABSORB, Y9_UP, REMADE, 0, 0),
    ROW("chosen scores", WORKING, TOKENS, CHOICES, 4, Y8_INDEX, Y8_INDEX, REMADE, 0, 0),
    ROW("d chosen scores", WORKING, TOKENS, CHOICES, 4, Y8_INDEX, Y8_INDEX, REMADE, 0, 0),
    ROW("d index keys", WORKING, TOKENS, INDEX_KEY, 4, Y8_INDEX, Y11_DN1, REMADE, 0, 0),
    ROW("all d index keys", CONTEXT, ALL, INDEX_KEY, 4, Y8_INDEX, Y8_INDEX, REMADE, GATHER, 0),
    ROW("d index query", WORKING, TOKENS, INDEX_QUERY, 2, Y8_INDEX, Y9_UP, REMADE, 0, 0),
    ROW("d index weights", WORKING, TOKENS, INDEX_HEADS, 4, Y8_INDEX, Y11_DN1, REMADE, 0, 0),
    ROW("query latent normed", WORKING, TOKENS, QUERY_LATENT, 2, Y9_UP, Y9_UP, REMADE, 0, 0),
    ROW("d query latent", WORKING, TOKENS, QUERY_LATENT, 2, Y9_UP, Y11_DN1, REMADE, 0, 0),
    ROW("d latent", WORKING, TOKENS, LATENT_KEY, 2, Y9_UP, Y11_DN1, REMADE, 0, 0),
    ROW("n1", WORKING, NORM, HIDDEN, 2, Y10_WEIGHT, Y10_WEIGHT, REMADE, 0, 0),
    ROW("dn1", WORKING, NORM, HIDDEN, 2, Y11_DN1, Y12_NORM, REMADE, 0, 0),
};

const struct residency_table residency_latent_forward =
    TABLE("latent attention", P_STEPS, expanded_forward_rows);
const struct residency_table residency_latent_backward =
    TABLE("latent attention", Q_STEPS, expanded_backward_rows);
const struct residency_table residency_sparse_forward =
    TABLE("sparse attention", X_STEPS, sparse_forward_rows);
const struct residency_table residency_sparse_backward =
    TABLE("sparse attention", Y_STEPS, sparse_backward_rows);
