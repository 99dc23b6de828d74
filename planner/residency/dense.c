/* dense.c - the dense SwiGLU MLP, forward d1-d4 and its backward. */
#include "planner/residency/tables.h"

enum { D1_NORM, D2_GATE_UP, D3_SWIGLU, D4_DOWN, D_STEPS };

static const struct residency_row forward_rows[] = {
    ROW("x1", WORKING, NORM, HIDDEN, 2, D1_NORM, D4_DOWN, KEPT, 0, WHEN_ALONE),
    ROW("n2", WORKING, NORM, HIDDEN, 2, D1_NORM, D2_GATE_UP, REMADE, 0, 0),
    ROW("n2 gathered", WORKING, TOKENS, HIDDEN, 2, D2_GATE_UP, D2_GATE_UP, REMADE, WHEN_TP, 0),
    ROW("hd", WORKING, TOKENS, DENSE_TWO, 2, D2_GATE_UP, D3_SWIGLU, KEPT, 0, 0),
    ROW("ad", WORKING, TOKENS, DENSE, 2, D3_SWIGLU, D4_DOWN, REMADE, 0, WHEN_REPLAY),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, D4_DOWN, D4_DOWN, REMADE, WHEN_TP, WHEN_REPLAY),
    ROW("output", OUTPUT, NORM, HIDDEN, 2, D4_DOWN, D4_DOWN, REMADE, 0, WHEN_REPLAY),
};

enum { E1_WEIGHT, E2_DAD, E3_DHD, E4_WEIGHT, E5_DN2, E6_NORM, E_STEPS };

static const struct residency_row backward_rows[] = {
    ROW("x1", WORKING, NORM, HIDDEN, 2, E1_WEIGHT, E6_NORM, KEPT, 0, WHEN_ALONE),
    ROW("hd", WORKING, TOKENS, DENSE_TWO, 2, E1_WEIGHT, E5_DN2, KEPT, 0, 0),
    ROW("dx gathered", WORKING, TOKENS, HIDDEN, 2, E1_WEIGHT, E2_DAD, REMADE, WHEN_TP, 0),
    ROW("ad", WORKING, TOKENS, DENSE, 2, E1_WEIGHT, E2_DAD, REMADE, 0, 0),
    ROW("dad", WORKING, TOKENS, DENSE, 2, E2_DAD, E3_DHD, REMADE, 0, 0),
    ROW("n2", WORKING, NORM, HIDDEN, 2, E4_WEIGHT, E4_WEIGHT, REMADE, 0, 0),
    ROW("n2 gathered", WORKING, TOKENS, HIDDEN, 2, E4_WEIGHT, E4_WEIGHT, REMADE, WHEN_TP, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, E5_DN2, E5_DN2, REMADE, WHEN_TP, 0),
    ROW("dn2", WORKING, NORM, HIDDEN, 2, E5_DN2, E6_NORM, REMADE, 0, 0),
};

const struct residency_table residency_dense_forward = TABLE("dense MLP", D_STEPS, forward_rows);
const struct residency_table residency_dense_backward = TABLE("dense MLP", E_STEPS, backward_rows);
