/* Sources: Megatron-Lite (ISEEKYAN/mlite, experimental/lite/megatron/lite/primitive: modules
 * gated_delta_net, gqa, moe, dispatcher, experts; recompute) for what modules make and keep,
 * flash-linear-attention (fla/ops/gated_delta_rule/chunk.py) for the delta rule. A tensor lives
 * while automatic differentiation has saved it for a backward, or while a function that has not
 * returned still names it. Elementwise products that are compiled keep their operands alone. */
#include "planner/validate/layer_rows.h"

#define KEPT(tensor, times, width, bytes, made, last)                                              \
    {                                                                                              \
        tensor, TIMES_##times, KEPT_##width, bytes, made, last                                     \
    }
#define KEPT_TABLE(rows)                                                                           \
    {                                                                                              \
        rows, sizeof(rows) / sizeof(rows)[0]                                                       \
    }

/* Gated softmax attention, keys and values passing around a ring. */
static const struct kept_row attention_rows[] = {
    KEPT("normed input", NORM, HIDDEN, 2, MIX_PROJECT, MIX_D_PROJECT),
    KEPT("projections", TOKENS, QKV, 2, MIX_PROJECT, MIX_D_HEADS),
    KEPT("normed queries", TOKENS, QUERY, 2, MIX_HEADS, MIX_HEADS),
    KEPT("rotated queries", TOKENS, QUERY, 2, MIX_HEADS, MIX_D_CORE_END),
    KEPT("keys and values", TOKENS, KEY_VALUE, 2, MIX_HEADS, MIX_D_CORE_END),
    KEPT("ring", ONE, RING, 1, MIX_CORE, MIX_CORE),
    KEPT("output of attention", TOKENS, QUERY, 2, MIX_CORE, MIX_D_CORE_END),
    KEPT("log-sum-exp", TOKENS, HEADS, 4, MIX_CORE, MIX_D_CORE_END),
    KEPT("sigmoid of the gate", TOKENS, QUERY, 4, MIX_GATE, MIX_D_GATE),
    KEPT("output in fp32", TOKENS, QUERY, 4, MIX_GATE, MIX_D_GATE),
    KEPT("product in fp32", TOKENS, QUERY, 4, MIX_GATE, MIX_GATE),
    KEPT("gated output", TOKENS, QUERY, 2, MIX_GATE, MIX_D_OUTPUT),
    KEPT("x1", NORM, HIDDEN, 2, MIX_OUTPUT, MIX_D_PROJECT),
    KEPT("d x1", NORM, HIDDEN, 2, MIX_D_OUTPUT, MIX_D_PROJECT),
    KEPT("d gated output", TOKENS, QUERY, 2, MIX_D_OUTPUT, MIX_D_GATE),
    KEPT("d product in fp32", TOKENS, QUERY, 4, MIX_D_GATE, MIX_D_GATE),
    KEPT("d output in fp32", TOKENS, QUERY, 4, MIX_D_GATE, MIX_D_GATE),
    KEPT("d gate", TOKENS, QUERY, 2, MIX_D_GATE, MIX_D_HEADS),
    KEPT("d output", TOKENS, QUERY, 2, MIX_D_GATE, MIX_D_CORE_END),
    KEPT("ring backward", ONE, RING_BACKWARD, 1, MIX_D_CORE, MIX_D_CORE_END),
    KEPT("workspace", ONE, WORKSPACE, 1, MIX_D_CORE, MIX_D_CORE_END),
    KEPT("d queries", TOKENS, QUERY, 2, MIX_D_CORE, MIX_D_HEADS),
    KEPT("d keys and values", TOKENS, KEY_VALUE, 2, MIX_D_CORE, MIX_D_HEADS),
    KEPT("d projections", TOKENS, QKV, 2, MIX_D_HEADS, MIX_D_PROJECT),
    KEPT("d normed input", NORM, HIDDEN, 2, MIX_D_PROJECT, MIX_D_PROJECT),
};

/* Gated delta net. What crosses the context group is held twice: as it arrives and in order. */
static const struct kept_row delta_rows[] = {
    KEPT("normed input", NORM, HIDDEN, 2, MIX_PROJECT, MIX_D_PROJECT),
    KEPT("projections", TOKENS, DELTA_IN, 2, MIX_PROJECT, MIX_GATHER),
    KEPT("projections as they arrive", SEQUENCE, DELTA_IN, 2, MIX_GATHER, MIX_GATHER),
    KEPT("projections in order", SEQUENCE, DELTA_IN, 2, MIX_GATHER, MIX_OUTPUT),
    KEPT("input of the convolution", SEQUENCE, DELTA_CONV, 2, MIX_CONV, MIX_D_CONV),
    KEPT("output of the convolution", SEQUENCE, DELTA_CONV, 2, MIX_CONV, MIX_OUTPUT),
    KEPT("normed queries and keys", SEQUENCE, DELTA_KEYS, 2, MIX_HEADS, MIX_D_HEADS),
    KEPT("queries at value heads", SEQUENCE, DELTA_KEY, 2, MIX_HEADS, MIX_D_CORE_END),
    KEPT("keys at value heads", SEQUENCE, DELTA_KEY, 2, MIX_HEADS, MIX_D_CORE_END),
    KEPT("values", SEQUENCE, DELTA_VALUE, 2, MIX_HEADS, MIX_D_CORE_END),
    KEPT("gate", SEQUENCE, DELTA_VALUE, 2, MIX_HEADS, MIX_D_GATE),
    KEPT("decay", SEQUENCE, DELTA_HEADS, 4, MIX_HEADS, MIX_D_CORE_END),
    KEPT("beta", SEQUENCE, DELTA_HEADS, 2, MIX_HEADS, MIX_D_CORE_END),
    KEPT("triangle", SEQUENCE, DELTA_TILE, 2, MIX_CORE, MIX_D_CORE_END),
    KEPT("w", SEQUENCE, DELTA_KEY, 2, MIX_CORE, MIX_CORE),
    KEPT("u", SEQUENCE, DELTA_VALUE, 2, MIX_CORE, MIX_CORE),
    KEPT("v new", SEQUENCE, DELTA_VALUE, 2, MIX_CORE, MIX_CORE),
    KEPT("states", CHUNKS, DELTA_STATE, 2, MIX_CORE, MIX_CORE),
    KEPT("o", SEQUENCE, DELTA_VALUE, 2, MIX_CORE, MIX_D_GATE),
    KEPT("normed o", SEQUENCE, DELTA_VALUE, 2, MIX_GATE, MIX_D_GATE),
    KEPT("gated o", SEQUENCE, DELTA_VALUE, 2, MIX_GATE, MIX_OUTPUT),
    KEPT("own part of gated o", TOKENS, DELTA_VALUE, 2, MIX_OUTPUT, MIX_D_OUTPUT),
    KEPT("x1", NORM, HIDDEN, 2, MIX_OUTPUT, MIX_D_PROJECT),
    KEPT("d x1", NORM, HIDDEN, 2, MIX_D_OUTPUT, MIX_D_PROJECT),
    KEPT("d own part", TOKENS, DELTA_VALUE, 2, MIX_D_OUTPUT, MIX_D_OUTPUT),
    KEPT("d gated o", SEQUENCE, DELTA_VALUE, 2, MIX_D_OUTPUT, MIX_D_GATE),
    KEPT("d normed o", SEQUENCE, DELTA_VALUE, 2, MIX_D_GATE, MIX_D_GATE),
    KEPT("d gate", SEQUENCE, DELTA_VALUE, 2, MIX_D_GATE, MIX_D_GATHER),
    KEPT("d o", SEQUENCE, DELTA_VALUE, 2, MIX_D_GATE, MIX_D_CORE_END),
    KEPT("w again", SEQUENCE, DELTA_KEY, 2, MIX_D_CORE, MIX_D_CORE_END),
    KEPT("u again", SEQUENCE, DELTA_VALUE, 2, MIX_D_CORE, MIX_D_CORE_END),
    KEPT("v new again", SEQUENCE, DELTA_VALUE, 2, MIX_D_CORE, MIX_D_CORE_END),
    KEPT("states again", CHUNKS, DELTA_STATE, 2, MIX_D_CORE, MIX_D_CORE_END),
    KEPT("d states", CHUNKS, DELTA_STATE, 2, MIX_D_CORE, MIX_D_CORE_END),
    KEPT("d v new", SEQUENCE, DELTA_VALUE, 2, MIX_D_CORE, MIX_D_CORE_END),
    KEPT("d w", SEQUENCE, DELTA_KEY, 2, MIX_D_CORE, MIX_D_CORE_END),
    KEPT("d queries", SEQUENCE, DELTA_KEY, 2, MIX_D_CORE, MIX_D_HEADS),
    KEPT("d keys", SEQUENCE, DELTA_KEY, 2, MIX_D_CORE, MIX_D_HEADS),
    KEPT("d keys of the system", SEQUENCE, DELTA_KEY, 2, MIX_D_CORE_END, MIX_D_CORE_END),
    KEPT("d values", SEQUENCE, DELTA_VALUE, 2, MIX_D_CORE_END, MIX_D_CONV),
    KEPT("d queries and keys", SEQUENCE, DELTA_KEYS, 2, MIX_D_HEADS, MIX_D_CONV),
    KEPT("d output of the convolution", SEQUENCE, DELTA_CONV, 2, MIX_D_CONV, MIX_D_CONV),
    KEPT("d input of the convolution", SEQUENCE, DELTA_CONV, 2, MIX_D_CONV, MIX_D_GATHER),
    KEPT("d projections in order", SEQUENCE, DELTA_IN, 2, MIX_D_GATHER, MIX_D_GATHER),
    KEPT("d projections as they leave", SEQUENCE, DELTA_IN, 2, MIX_D_GATHER, MIX_D_GATHER),
    KEPT("d projections", TOKENS, DELTA_IN, 2, MIX_D_GATHER, MIX_D_PROJECT),
    KEPT("d normed input", NORM, HIDDEN, 2, MIX_D_PROJECT, MIX_D_PROJECT),
};

/* Routed and shared experts. Of the router: probabilities, what the balance loss has of them, and
 * scores by token and expert; of the permutation an index of 8 bytes a row. */
static const struct kept_row expert_rows[] = {
    KEPT("gradient of the layer's output", NORM, HIDDEN, 2, MIX_PROJECT, MIX_D_PROJECT),
    KEPT("n2", NORM, HIDDEN, 2, MOE_NORM, MOE_D_NORM),
    KEPT("shared gate and up", TOKENS, SHARED_TWO, 2, MOE_NORM, MOE_D_NORM),
    KEPT("shared activation", TOKENS, SHARED, 2, MOE_NORM, MOE_D_NORM),
    KEPT("shared output", NORM, HIDDEN, 2, MOE_NORM, MOE_D_NORM),
    KEPT("router", NORM, EXPERTS, 10, MOE_NORM, MOE_D_NORM),
    KEPT("order of rows", ROWS, ONE, 8, MOE_PERMUTE, MOE_D_PERMUTE),
    KEPT("permuted", ROWS, HIDDEN, 2, MOE_PERMUTE, MOE_ORDER),
    KEPT("received", ROWS, HIDDEN, 2, MOE_EXCHANGE, MOE_ORDER),
    KEPT("expert order", ROWS, HIDDEN, 2, MOE_ORDER, MOE_D_UP),
    KEPT("weights", ROWS, ONE, 4, MOE_ORDER, MOE_D_ACT),
    KEPT("gate and up", ROWS, GATE_UP, 2, MOE_UP, MOE_D_ACT),
    KEPT("activation", ROWS, EXPERT, 2, MOE_ACT, MOE_D_DOWN),
    KEPT("down", ROWS, HIDDEN, 2, MOE_DOWN, MOE_SUM),
    KEPT("source order", ROWS, HIDDEN, 2, MOE_BACK, MOE_SUM),
    KEPT("returned", ROWS, HIDDEN, 2, MOE_RETURN, MOE_SUM),
    KEPT("output", NORM, HIDDEN, 2, MOE_SUM, MIX_D_PROJECT),
    KEPT("d returned", ROWS, HIDDEN, 2, MOE_D_SUM, MOE_D_RETURN),
    KEPT("d source order", ROWS, HIDDEN, 2, MOE_D_RETURN, MOE_D_BACK),
    KEPT("d down", ROWS, HIDDEN, 2, MOE_D_BACK, MOE_D_DOWN),
    KEPT("d activation", ROWS, EXPERT, 2, MOE_D_DOWN, MOE_D_ACT),
    KEPT("d gate and up", ROWS, GATE_UP, 2, MOE_D_ACT, MOE_D_UP),
    KEPT("d expert order", ROWS, HIDDEN, 2, MOE_D_UP, MOE_D_ORDER),
    KEPT("d received", ROWS, HIDDEN, 2, MOE_D_ORDER, MOE_D_EXCHANGE),
    KEPT("d permuted", ROWS, HIDDEN, 2, MOE_D_EXCHANGE, MOE_D_PERMUTE),
    KEPT("d n2", NORM, HIDDEN, 2, MOE_D_PERMUTE, MOE_D_NORM),
};

const struct kept_table kept_attention = KEPT_TABLE(attention_rows);
const struct kept_table kept_delta_net = KEPT_TABLE(delta_rows);
const struct kept_table kept_experts = KEPT_TABLE(expert_rows);
