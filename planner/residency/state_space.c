/* state_space.c - lightning attention and Mamba-2, which no table of ARCHITECTURE.md lists and no
 * executor runs yet; the same rule of what is kept. Both work on runs of tokens at a time: within a
 * run like attention, between runs through a state, fp32, one of which exists for every run while
 * the mixer is at work and is made again in backward. And the halves that a layer may lack. */
#include "planner/residency/tables.h"

enum { L1_NORM, L2_IN, L3_ACTIVATION, L4_STATES, L5_GATE, L6_OUTPUT, L_STEPS };

static const struct residency_row lightning_forward_rows[] = {
    ROW("n1", WORKING, NORM, HIDDEN, 2, L1_NORM, L2_IN, REMADE, 0, 0),
    ROW("n1 gathered", WORKING, TOKENS, HIDDEN, 2, L2_IN, L2_IN, REMADE, WHEN_TP, 0),
    ROW("n1 A", WORKING, TOKENS, ADAPTER_IN, 2, L2_IN, L2_IN, REMADE, WHEN_ADAPTERS, 0),
    ROW("qkv", WORKING, TOKENS, LIGHTNING_THREE, 2, L2_IN, L3_ACTIVATION, KEPT, 0, 0),
    ROW("gate", WORKING, TOKENS, LIGHTNING, 2, L2_IN, L5_GATE, KEPT, 0, 0),
    ROW("active qkv", WORKING, TOKENS, LIGHTNING_THREE, 2, L3_ACTIVATION, L4_STATES, REMADE, 0, 0),
    ROW("states", WORKING, ONE, LIGHTNING_STATES, 4, L4_STATES, L4_STATES, REMADE, 0, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_FORWARD, 1, L4_STATES, L4_STATES, REMADE, 0, 0),
    ROW("o", WORKING, TOKENS, LIGHTNING, 2, L4_STATES, L5_GATE, KEPT, 0, 0),
    ROW("gated o", WORKING, TOKENS, LIGHTNING, 2, L5_GATE, L6_OUTPUT, REMADE, 0, 0),
    ROW("o A", WORKING, TOKENS, ADAPTER_OUT, 2, L6_OUTPUT, L6_OUTPUT, REMADE, WHEN_ADAPTERS, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, L6_OUTPUT, L6_OUTPUT, REMADE, WHEN_TP, 0),
    ROW("x1", WORKING, NORM, HIDDEN, 2, L6_OUTPUT, L6_OUTPUT, REMADE, 0, WHEN_X1_SAVED),
    ROW("x1", SAVED, NORM, HIDDEN, 2, L6_OUTPUT, L6_OUTPUT, REMADE, WHEN_X1_SAVED, 0),
};

enum { N1_WEIGHT, N2_DO, N3_GATE, N4_AGAIN, N5_STATES, N6_IN, N7_WEIGHT, N8_DN1, N9_NORM, N_STEPS };

static const struct residency_row lightning_backward_rows[] = {
    ROW("qkv", WORKING, TOKENS, LIGHTNING_THREE, 2, N1_WEIGHT, N6_IN, KEPT, 0, 0),
    ROW("gate", WORKING, TOKENS, LIGHTNING, 2, N1_WEIGHT, N3_GATE, KEPT, 0, 0),
    ROW("o", WORKING, TOKENS, LIGHTNING, 2, N1_WEIGHT, N3_GATE, KEPT, 0, 0),
    ROW("gated o", WORKING, TOKENS, LIGHTNING, 2, N1_WEIGHT, N1_WEIGHT, REMADE, 0, WHEN_IDLE_MIXER),
    ROW("o A", WORKING, TOKENS, ADAPTER_OUT, 2, N1_WEIGHT, N1_WEIGHT, REMADE, WHEN_ADAPTERS, 0),
    ROW("d o A", WORKING, TOKENS, ADAPTER_OUT, 2, N1_WEIGHT, N2_DO, REMADE, WHEN_ADAPTERS, 0),
    ROW("dx gathered", WORKING, TOKENS, HIDDEN, 2, N1_WEIGHT, N2_DO, REMADE, WHEN_TP, 0),
    ROW("do", WORKING, TOKENS, LIGHTNING, 2, N2_DO, N5_STATES, REMADE, 0, 0),
    ROW("dgate", WORKING, TOKENS, LIGHTNING, 2, N3_GATE, N8_DN1, REMADE, 0, 0),
    ROW("active qkv", WORKING, TOKENS, LIGHTNING_THREE, 2, N4_AGAIN, N5_STATES, REMADE, 0, 0),
    ROW("states", WORKING, ONE, LIGHTNING_STATES, 4, N5_STATES, N5_STATES, REMADE, 0, 0),
    ROW("dstates", WORKING, ONE, LIGHTNING_STATES, 4, N5_STATES, N5_STATES, REMADE, 0, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_BACKWARD, 1, N5_STATES, N5_STATES, REMADE, 0, 0),
    ROW("dqkv", WORKING, TOKENS, LIGHTNING_THREE, 2, N5_STATES, N8_DN1, REMADE, 0, 0),
    ROW("n1", WORKING, NORM, HIDDEN, 2, N7_WEIGHT, N7_WEIGHT, REMADE, 0, WHEN_IDLE_MIXER),
    ROW("n1 gathered", WORKING, TOKENS, HIDDEN, 2, N7_WEIGHT, N7_WEIGHT, REMADE, WHEN_TP,
        WHEN_IDLE_MIXER),
    ROW("n1 A", WORKING, TOKENS, ADAPTER_IN, 2, N7_WEIGHT, N7_WEIGHT, REMADE, WHEN_ADAPTERS, 0),
    ROW("d n1 A", WORKING, TOKENS, ADAPTER_IN, 2, N7_WEIGHT, N8_DN1, REMADE, WHEN_ADAPTERS, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, N8_DN1, N8_DN1, REMADE, WHEN_TP, 0),
    ROW("dn1", WORKING, NORM, HIDDEN, 2, N8_DN1, N9_NORM, REMADE, 0, 0),
};

enum { T1_NORM, T2_IN, T3_CONV, T4_SCAN, T5_GATE, T6_OUTPUT, T_STEPS };

/* in: gate, channels (x, B, C) and dt of one projection. dt and its running sums are fp32. */
static const struct residency_row mamba_forward_rows[] = {
    ROW("n1", WORKING, NORM, HIDDEN, 2, T1_NORM, T2_IN, REMADE, 0, 0),
    ROW("n1 gathered", WORKING, TOKENS, HIDDEN, 2, T2_IN, T2_IN, REMADE, WHEN_TP, 0),
    ROW("n1 A", WORKING, TOKENS, ADAPTER_IN, 2, T2_IN, T2_IN, REMADE, WHEN_ADAPTERS, 0),
    ROW("in", WORKING, TOKENS, MAMBA_IN, 2, T2_IN, T5_GATE, KEPT, 0, 0),
    ROW("channels", WORKING, TOKENS, MAMBA_CHANNELS, 2, T3_CONV, T4_SCAN, REMADE, 0, 0),
    ROW("dt", WORKING, TOKENS, MAMBA_HEADS, 4, T4_SCAN, T4_SCAN, REMADE, 0, 0),
    ROW("decay", WORKING, TOKENS, MAMBA_HEADS, 4, T4_SCAN, T4_SCAN, REMADE, 0, 0),
    ROW("products", WORKING, TOKENS, MAMBA_TILE, 4, T4_SCAN, T4_SCAN, REMADE, 0, 0),
    ROW("states", WORKING, ONE, MAMBA_STATES, 4, T4_SCAN, T4_SCAN, REMADE, 0, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_FORWARD, 1, T4_SCAN, T4_SCAN, REMADE, 0, 0),
    ROW("y", WORKING, TOKENS, MAMBA_INNER, 2, T4_SCAN, T5_GATE, KEPT, 0, 0),
    ROW("gated y", WORKING, TOKENS, MAMBA_INNER, 2, T5_GATE, T6_OUTPUT, REMADE, 0, 0),
    ROW("y A", WORKING, TOKENS, ADAPTER_OUT, 2, T6_OUTPUT, T6_OUTPUT, REMADE, WHEN_ADAPTERS, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, T6_OUTPUT, T6_OUTPUT, REMADE, WHEN_TP, 0),
    ROW("x1", WORKING, NORM, HIDDEN, 2, T6_OUTPUT, T6_OUTPUT, REMADE, 0, WHEN_X1_SAVED),
    ROW("x1", SAVED, NORM, HIDDEN, 2, T6_OUTPUT, T6_OUTPUT, REMADE, WHEN_X1_SAVED, 0),
};

enum { U1_WEIGHT, U2_DY, U3_GATE, U4_AGAIN, U5_SCAN, U6_CONV, U7_WEIGHT, U8_DN1, U9_NORM, U_STEPS };

static const struct residency_row mamba_backward_rows[] = {
    ROW("in", WORKING, TOKENS, MAMBA_IN, 2, U1_WEIGHT, U6_CONV, KEPT, 0, 0),
    ROW("y", WORKING, TOKENS, MAMBA_INNER, 2, U1_WEIGHT, U3_GATE, KEPT, 0, 0),
    ROW("gated y", WORKING, TOKENS, MAMBA_INNER, 2, U1_WEIGHT, U1_WEIGHT, REMADE, 0,
        WHEN_IDLE_MIXER),
    ROW("y A", WORKING, TOKENS, ADAPTER_OUT, 2, U1_WEIGHT, U1_WEIGHT, REMADE, WHEN_ADAPTERS, 0),
    ROW("d y A", WORKING, TOKENS, ADAPTER_OUT, 2, U1_WEIGHT, U2_DY, REMADE, WHEN_ADAPTERS, 0),
    ROW("dx gathered", WORKING, TOKENS, HIDDEN, 2, U1_WEIGHT, U2_DY, REMADE, WHEN_TP, 0),
    ROW("dy", WORKING, TOKENS, MAMBA_INNER, 2, U2_DY, U5_SCAN, REMADE, 0, 0),
    ROW("d in", WORKING, TOKENS, MAMBA_IN, 2, U3_GATE, U8_DN1, REMADE, 0, 0),
    ROW("channels", WORKING, TOKENS, MAMBA_CHANNELS, 2, U4_AGAIN, U6_CONV, REMADE, 0, 0),
    ROW("dt", WORKING, TOKENS, MAMBA_HEADS, 4, U4_AGAIN, U6_CONV, REMADE, 0, 0),
    ROW("decay", WORKING, TOKENS, MAMBA_HEADS, 4, U4_AGAIN, U5_SCAN, REMADE, 0, 0),
    ROW("products", WORKING, TOKENS, MAMBA_TILE, 4, U5_SCAN, U5_SCAN, REMADE, 0, 0),
    ROW("d products", WORKING, TOKENS, MAMBA_TILE, 4, U5_SCAN, U5_SCAN, REMADE, 0, 0),
    ROW("states", WORKING, ONE, MAMBA_STATES, 4, U5_SCAN, U5_SCAN, REMADE, 0, 0),
    ROW("dstates", WORKING, ONE, MAMBA_STATES, 4, U5_SCAN, U5_SCAN, REMADE, 0, 0),
    ROW("context", CONTEXT, ONE, CONTEXT_BACKWARD, 1, U5_SCAN, U5_SCAN, REMADE, 0, 0),
    ROW("d channels", WORKING, TOKENS, MAMBA_CHANNELS, 2, U5_SCAN, U6_CONV, REMADE, 0, 0),
    ROW("ddt", WORKING, TOKENS, MAMBA_HEADS, 4, U5_SCAN, U6_CONV, REMADE, 0, 0),
    ROW("n1", WORKING, NORM, HIDDEN, 2, U7_WEIGHT, U7_WEIGHT, REMADE, 0, WHEN_IDLE_MIXER),
    ROW("n1 gathered", WORKING, TOKENS, HIDDEN, 2, U7_WEIGHT, U7_WEIGHT, REMADE, WHEN_TP,
        WHEN_IDLE_MIXER),
    ROW("n1 A", WORKING, TOKENS, ADAPTER_IN, 2, U7_WEIGHT, U7_WEIGHT, REMADE, WHEN_ADAPTERS, 0),
    ROW("d n1 A", WORKING, TOKENS, ADAPTER_IN, 2, U7_WEIGHT, U8_DN1, REMADE, WHEN_ADAPTERS, 0),
    ROW("partial sum", WORKING, TOKENS, HIDDEN, 2, U8_DN1, U8_DN1, REMADE, WHEN_TP, 0),
    ROW("dn1", WORKING, NORM, HIDDEN, 2, U8_DN1, U9_NORM, REMADE, 0, 0),
};

/* A layer without a feed-forward half: the mixer's sum is its output. */
static const struct residency_row no_ffn_rows[] = {
    ROW("output", OUTPUT, NORM, HIDDEN, 2, 0, 0, REMADE, 0, WHEN_REPLAY),
};

const struct residency_table residency_lightning_forward =
    TABLE("lightning attention", L_STEPS, lightning_forward_rows);
const struct residency_table residency_lightning_backward =
    TABLE("lightning attention", N_STEPS, lightning_backward_rows);
const struct residency_table residency_mamba_forward =
    TABLE("Mamba-2", T_STEPS, mamba_forward_rows);
const struct residency_table residency_mamba_backward =
    TABLE("Mamba-2", U_STEPS, mamba_backward_rows);
const struct residency_table residency_no_ffn_forward = TABLE("no feed-forward", 1, no_ffn_rows);
const struct residency_table residency_no_ffn_backward = { "no feed-forward", 0, 0, NULL };
const struct residency_table residency_no_mixer = { "no mixer", 0, 0, NULL };
