/* attention.c - grouped-query attention, forward a1-a6 and backward c1-c9. Rows marked WHEN_TP are
 * the gathered input and the partial sums of tensor parallelism with sequence parallelism between
 * its regions. x1 belongs to the feed-forward half's tables: it lives to the end of the layer. */
#include "planner/residency/tables.h"

enum { A1_NORM, A2_QKV, A3_ROPE, A4_ATTENTION, A5_GATE, A6_OUTPUT, A_STEPS };

static const struct residency_row forward_rows[] = {
    ROW("n1", WORKING, NORM, HIDDEN, 2, A1_NORM, A2_QKV, REMADE, 0, 0),
    ROW("n1 gathered", WORKING, TOKENS, HIDDEN, 2, A2_QKV, A2_QKV, REMADE, WHEN_TP, 0),
    ROW("qkv", WORKING, TOKENS, QKV, 2, A2_QKV, A4_ATTENTION, KEPT, 0, WHEN_GATE),
    ROW("qkv", WORKING, TOKENS, QKV, 2, A2_QKV, A5_GATE, KEPT, WHEN_GATE, 0),
    ROW("qr", WORKING, TOKENS, QUERY, 2, A3_ROPE, A4_ATTENTION, REMADE, 0, 0),
    ROW("kr", WORKING, TOKENS, KEY, 2, A3_ROPE, A4_ATTENTION, REMADE, 0, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_FORWARD, 1, A4_ATTENTION, A4_ATTENTION, REMADE, 0, 0),
    ROW("o", WORKING, TOKENS, QUERY, 2, A4_ATTENTION, A6_OUTPUT, KEPT, 0, WHEN_GATE),
    ROW("o", WORKING, TOKENS, QUERY, 2, A4_ATTENTION, A5_GATE, KEPT, WHEN_GATE, 0),
    ROW("lse", WORKING, TOKENS, HEADS, 4, A4_ATTENTION, A4_ATTENTION, KEPT, 0, 0),
    ROW("og", WORKING, TOKENS, QUERY, 2, A5_GATE, A6_OUTPUT, REMADE, WHEN_GATE, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, A6_OUTPUT, A6_OUTPUT, REMADE, WHEN_TP, 0),
    ROW("x1", WORKING, NORM, HIDDEN, 2, A6_OUTPUT, A6_OUTPUT, REMADE, 0, 0),
};

enum {
    C1_WEIGHT,
    C2_DO,
    C3_GATE,
    C4_AGAIN,
    C5_ATTENTION,
    C6_ROPE,
    C7_WEIGHT,
    C8_DN1,
    C9_NORM,
    C_STEPS
};

static const struct residency_row backward_rows[] = {
    ROW("qkv", WORKING, TOKENS, QKV, 2, C1_WEIGHT, C6_ROPE, KEPT, 0, 0),
    ROW("o", WORKING, TOKENS, QUERY, 2, C1_WEIGHT, C5_ATTENTION, KEPT, 0, 0),
    ROW("lse", WORKING, TOKENS, HEADS, 4, C1_WEIGHT, C5_ATTENTION, KEPT, 0, 0),
    ROW("og", WORKING, TOKENS, QUERY, 2, C1_WEIGHT, C1_WEIGHT, REMADE, WHEN_GATE, 0),
    ROW("dx gathered", WORKING, TOKENS, HIDDEN, 2, C1_WEIGHT, C2_DO, REMADE, WHEN_TP, 0),
    ROW("do", WORKING, TOKENS, QUERY, 2, C2_DO, C5_ATTENTION, REMADE, 0, 0),
    ROW("dqkv", WORKING, TOKENS, QKV, 2, C3_GATE, C8_DN1, REMADE, WHEN_GATE, 0),
    ROW("dqkv", WORKING, TOKENS, QKV, 2, C5_ATTENTION, C8_DN1, REMADE, 0, WHEN_GATE),
    ROW("qr", WORKING, TOKENS, QUERY, 2, C4_AGAIN, C5_ATTENTION, REMADE, 0, 0),
    ROW("kr", WORKING, TOKENS, KEY, 2, C4_AGAIN, C5_ATTENTION, REMADE, 0, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_BACKWARD, 1, C5_ATTENTION, C5_ATTENTION, REMADE, 0, 0),
    ROW("delta", WORKING, TOKENS, HEADS, 4, C5_ATTENTION, C5_ATTENTION, REMADE, 0, 0),
    ROW("workspace", WORKSPACE, ONE, ATTENTION_WORKSPACE, 1, C5_ATTENTION, C5_ATTENTION, REMADE, 0,
        0),
    ROW("n1", WORKING, NORM, HIDDEN, 2, C7_WEIGHT, C7_WEIGHT, REMADE, 0, 0),
    ROW("n1 gathered", WORKING, TOKENS, HIDDEN, 2, C7_WEIGHT, C7_WEIGHT, REMADE, WHEN_TP, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, C8_DN1, C8_DN1, REMADE, WHEN_TP, 0),
    ROW("dn1", WORKING, NORM, HIDDEN, 2, C8_DN1, C9_NORM, REMADE, 0, 0),
};

const struct residency_table residency_attention_forward =
    TABLE("attention", A_STEPS, forward_rows);
const struct residency_table residency_attention_backward =
    TABLE("attention", C_STEPS, backward_rows);
