/* delta_net.c - the gated delta net, which no table of ARCHITECTURE.md lists and no executor runs
 * yet. Follows the same rule of what is kept. The chunked rule works on 64 tokens at a time: it
 * keeps one 64 x 64 triangular system a head and chunk, and remakes in backward what the forward
 * made of it (w, u, the chunks' states). Projections are bf16; decay and beta are fp32. */
#include "planner/residency/tables.h"

enum { G1_NORM, G2_IN, G3_CONV, G4_GATES, G5_DELTA, G6_NORM, G7_OUTPUT, G_STEPS };

static const struct residency_row forward_rows[] = {
    ROW("n1", WORKING, NORM, HIDDEN, 2, G1_NORM, G2_IN, REMADE, 0, 0),
    ROW("n1 gathered", WORKING, TOKENS, HIDDEN, 2, G2_IN, G2_IN, REMADE, WHEN_TP, 0),
    ROW("qkvz", WORKING, TOKENS, DELTA_IN, 2, G2_IN, G6_NORM, KEPT, 0, 0),
    ROW("b", WORKING, TOKENS, DELTA_HEADS, 2, G2_IN, G4_GATES, KEPT, 0, 0),
    ROW("a", WORKING, TOKENS, DELTA_HEADS, 2, G2_IN, G4_GATES, KEPT, 0, 0),
    ROW("qkv", WORKING, TOKENS, DELTA_CONV, 2, G3_CONV, G5_DELTA, REMADE, 0, 0),
    ROW("decay", WORKING, TOKENS, DELTA_HEADS, 4, G4_GATES, G5_DELTA, REMADE, 0, 0),
    ROW("beta", WORKING, TOKENS, DELTA_HEADS, 4, G4_GATES, G5_DELTA, REMADE, 0, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_FORWARD, 1, G5_DELTA, G5_DELTA, REMADE, 0, 0),
    ROW("w", WORKING, TOKENS, DELTA_KEY, 2, G5_DELTA, G5_DELTA, REMADE, 0, 0),
    ROW("u", WORKING, TOKENS, DELTA_VALUE, 2, G5_DELTA, G5_DELTA, REMADE, 0, 0),
    ROW("states", WORKING, DELTA_CHUNK, DELTA_STATE, 2, G5_DELTA, G5_DELTA, REMADE, 0, 0),
    ROW("triangle", WORKING, TOKENS, DELTA_TILE, 2, G5_DELTA, G5_DELTA, KEPT, 0, 0),
    ROW("o", WORKING, TOKENS, DELTA_VALUE, 2, G5_DELTA, G6_NORM, KEPT, 0, 0),
    ROW("on", WORKING, TOKENS, DELTA_VALUE, 2, G6_NORM, G7_OUTPUT, REMADE, 0, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, G7_OUTPUT, G7_OUTPUT, REMADE, WHEN_TP, 0),
    ROW("x1", WORKING, NORM, HIDDEN, 2, G7_OUTPUT, G7_OUTPUT, REMADE, 0, 0),
};

enum {
    K1_WEIGHT,
    K2_DO,
    K3_NORM,
    K4_AGAIN,
    K5_STATES,
    K6_DELTA,
    K7_CONV,
    K8_WEIGHT,
    K9_DN1,
    K10_NORM,
    K_STEPS
};

static const struct residency_row backward_rows[] = {
    ROW("qkvz", WORKING, TOKENS, DELTA_IN, 2, K1_WEIGHT, K7_CONV, KEPT, 0, 0),
    ROW("b", WORKING, TOKENS, DELTA_HEADS, 2, K1_WEIGHT, K7_CONV, KEPT, 0, 0),
    ROW("a", WORKING, TOKENS, DELTA_HEADS, 2, K1_WEIGHT, K7_CONV, KEPT, 0, 0),
    ROW("triangle", WORKING, TOKENS, DELTA_TILE, 2, K1_WEIGHT, K6_DELTA, KEPT, 0, 0),
    ROW("o", WORKING, TOKENS, DELTA_VALUE, 2, K1_WEIGHT, K3_NORM, KEPT, 0, 0),
    ROW("on", WORKING, TOKENS, DELTA_VALUE, 2, K1_WEIGHT, K1_WEIGHT, REMADE, 0, 0),
    ROW("dx gathered", WORKING, TOKENS, HIDDEN, 2, K1_WEIGHT, K2_DO, REMADE, WHEN_TP, 0),
    ROW("do", WORKING, TOKENS, DELTA_VALUE, 2, K2_DO, K6_DELTA, REMADE, 0, 0),
    ROW("dqkvz", WORKING, TOKENS, DELTA_IN, 2, K3_NORM, K9_DN1, REMADE, 0, 0),
    ROW("qkv", WORKING, TOKENS, DELTA_CONV, 2, K4_AGAIN, K7_CONV, REMADE, 0, 0),
    ROW("decay", WORKING, TOKENS, DELTA_HEADS, 4, K4_AGAIN, K7_CONV, REMADE, 0, 0),
    ROW("beta", WORKING, TOKENS, DELTA_HEADS, 4, K4_AGAIN, K7_CONV, REMADE, 0, 0),
    ROW("w", WORKING, TOKENS, DELTA_KEY, 2, K5_STATES, K6_DELTA, REMADE, 0, 0),
    ROW("v new", WORKING, TOKENS, DELTA_VALUE, 2, K5_STATES, K6_DELTA, REMADE, 0, 0),
    ROW("states", WORKING, DELTA_CHUNK, DELTA_STATE, 2, K5_STATES, K6_DELTA, REMADE, 0, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_BACKWARD, 1, K5_STATES, K6_DELTA, REMADE, 0, 0),
    ROW("dstates", WORKING, DELTA_CHUNK, DELTA_STATE, 2, K6_DELTA, K6_DELTA, REMADE, 0, 0),
    ROW("dqkv", WORKING, TOKENS, DELTA_CONV, 2, K6_DELTA, K7_CONV, REMADE, 0, 0),
    ROW("ddecay", WORKING, TOKENS, DELTA_HEADS, 4, K6_DELTA, K7_CONV, REMADE, 0, 0),
    ROW("dbeta", WORKING, TOKENS, DELTA_HEADS, 4, K6_DELTA, K7_CONV, REMADE, 0, 0),
    ROW("db", WORKING, TOKENS, DELTA_HEADS, 2, K7_CONV, K9_DN1, REMADE, 0, 0),
    ROW("da", WORKING, TOKENS, DELTA_HEADS, 2, K7_CONV, K9_DN1, REMADE, 0, 0),
    ROW("n1", WORKING, NORM, HIDDEN, 2, K8_WEIGHT, K8_WEIGHT, REMADE, 0, 0),
    ROW("n1 gathered", WORKING, TOKENS, HIDDEN, 2, K8_WEIGHT, K8_WEIGHT, REMADE, WHEN_TP, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, K9_DN1, K9_DN1, REMADE, WHEN_TP, 0),
    ROW("dn1", WORKING, NORM, HIDDEN, 2, K9_DN1, K10_NORM, REMADE, 0, 0),
};

const struct residency_table residency_delta_forward = TABLE("delta net", G_STEPS, forward_rows);
const struct residency_table residency_delta_backward = TABLE("delta net", K_STEPS, backward_rows);
