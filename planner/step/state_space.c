/* state_space.c - lightning attention and Mamba-2. Both work on runs of tokens: within a run like
 * attention, between runs through a state, fp32, one of which exists for every run while the mixer
 * is at work and is made again in backward. No executor runs them yet. */
#include "planner/predict/step_time.h"
#include "planner/step/step.h"

#define LAYER ITEM_LAYER_WORKING

/* Tensors that both kinds have. in: all that the input projection makes; active: what the scan
 * reads; y: what it makes. Lightning's projection is in two tensors, qkv and gate. */
enum {
    N1 = TENSOR_FIRST_OWN,
    N1_GATHERED,
    IN,
    GATE,
    ACTIVE,
    DT,
    DECAY,
    PRODUCTS,
    STATES,
    CONTEXT,
    Y,
    GATED,
    PARTIAL,
    DX_GATHERED,
    DY,
    D_IN,
    D_GATE,
    D_PRODUCTS,
    DSTATES,
    CONTEXT_BACK,
    D_ACTIVE,
    DDT,
    DN1,
    TENSORS
};

#define SHARED_TENSORS                                                                             \
    [TENSOR_X1] = { "x1", ROWS_NORM, WIDTH_HIDDEN, 2, LAYER, FATE_SAVED },                         \
    [N1] = { "n1", ROWS_NORM, WIDTH_HIDDEN, 2, LAYER },                                            \
    [N1_GATHERED] = { "n1 gathered", ROWS_TOKENS, WIDTH_HIDDEN, 2, LAYER },                        \
    [CONTEXT] = { "context", ROWS_ONE, WIDTH_CONTEXT_FORWARD, 1, ITEM_KV_GATHER },                 \
    [PARTIAL] = { "partial sum", ROWS_TOKENS, WIDTH_HIDDEN, 2, LAYER },                            \
    [DX_GATHERED] = { "dx gathered", ROWS_TOKENS, WIDTH_HIDDEN, 2, LAYER },                        \
    [CONTEXT_BACK] = { "context", ROWS_ONE, WIDTH_CONTEXT_BACKWARD, 1, ITEM_KV_GATHER },           \
    [DN1] = { "dn1", ROWS_NORM, WIDTH_HIDDEN, 2, LAYER }

static const struct step_tensor lightning_tensors[TENSORS] = {
    SHARED_TENSORS,
    [IN] = { "qkv", ROWS_TOKENS, WIDTH_LIGHTNING_THREE, 2, LAYER, FATE_SAVED },
    [GATE] = { "gate", ROWS_TOKENS, WIDTH_LIGHTNING, 2, LAYER, FATE_SAVED },
    [ACTIVE] = { "active qkv", ROWS_TOKENS, WIDTH_LIGHTNING_THREE, 2, LAYER },
    [STATES] = { "states", ROWS_ONE, WIDTH_LIGHTNING_STATES, 4, LAYER },
    [Y] = { "o", ROWS_TOKENS, WIDTH_LIGHTNING, 2, LAYER, FATE_SAVED },
    [GATED] = { "gated o", ROWS_TOKENS, WIDTH_LIGHTNING, 2, LAYER },
    [DY] = { "do", ROWS_TOKENS, WIDTH_LIGHTNING, 2, LAYER },
    [D_IN] = { "dqkv", ROWS_TOKENS, WIDTH_LIGHTNING_THREE, 2, LAYER },
    [D_GATE] = { "dgate", ROWS_TOKENS, WIDTH_LIGHTNING, 2, LAYER },
    [DSTATES] = { "dstates", ROWS_ONE, WIDTH_LIGHTNING_STATES, 4, LAYER },
};

static const struct step_tensor mamba_tensors[TENSORS] = {
    SHARED_TENSORS,
    [IN] = { "in", ROWS_TOKENS, WIDTH_MAMBA_IN, 2, LAYER, FATE_SAVED },
    [ACTIVE] = { "channels", ROWS_TOKENS, WIDTH_MAMBA_CHANNELS, 2, LAYER },
    [DT] = { "dt", ROWS_TOKENS, WIDTH_MAMBA_HEADS, 4, LAYER },
    [DECAY] = { "decay", ROWS_TOKENS, WIDTH_MAMBA_HEADS, 4, LAYER },
    [PRODUCTS] = { "products", ROWS_TOKENS, WIDTH_MAMBA_TILE, 4, LAYER },
    [STATES] = { "states", ROWS_ONE, WIDTH_MAMBA_STATES, 4, LAYER },
    [Y] = { "y", ROWS_TOKENS, WIDTH_MAMBA_INNER, 2, LAYER, FATE_SAVED },
    [GATED] = { "gated y", ROWS_TOKENS, WIDTH_MAMBA_INNER, 2, LAYER },
    [DY] = { "dy", ROWS_TOKENS, WIDTH_MAMBA_INNER, 2, LAYER },
    [D_IN] = { "d in", ROWS_TOKENS, WIDTH_MAMBA_IN, 2, LAYER },
    [D_PRODUCTS] = { "d products", ROWS_TOKENS, WIDTH_MAMBA_TILE, 4, LAYER },
    [DSTATES] = { "dstates", ROWS_ONE, WIDTH_MAMBA_STATES, 4, LAYER },
    [D_ACTIVE] = { "d channels", ROWS_TOKENS, WIDTH_MAMBA_CHANNELS, 2, LAYER },
    [DDT] = { "ddt", ROWS_TOKENS, WIDTH_MAMBA_HEADS, 4, LAYER },
};

enum {
    NORM,
    GATHER_N1,
    PROJECT,
    ACTIVATE,
    OPEN_DT,
    PASS_STATE,
    SCAN,
    APPLY_GATE,
    RESIDUAL,
    PROJECT_OUT,
    SCATTER_OUT,
    GATHER_DX,
    OUT_WEIGHT,
    OUT_INPUT,
    GATE_BACK,
    PASS_STATE_BACK,
    SCAN_BACK,
    ACTIVATE_BACK,
    PROJECT_WEIGHT,
    PROJECT_INPUT,
    SCATTER_DN1,
    NORM_BACK,
    OPS
};

/* in, active, inner: their widths. */
#define SHARED_OPS(in_width, active_width, inner_width)                                            \
    [NORM] = { "norm",           OP_ELEMENTWISE,                                                   \
               TIME_ELEMENTWISE, .reads = { TENSOR_X },                                            \
               .makes = { N1 },  .traffic = { { 4, ROWS_NORM, WIDTH_HIDDEN } } },                  \
    [GATHER_N1] = { "gather n1",                                                                   \
                    OP_LINK,                                                                       \
                    TIME_EXPOSED_TENSOR,                                                           \
                    .reads = { N1 },                                                               \
                    .makes = { N1_GATHERED },                                                      \
                    .when = WHEN_TP,                                                               \
                    .link = LINK_TENSOR_INPUT },                                                   \
    [PROJECT] = { "in",                                                                            \
                  OP_GEMM,                                                                         \
                  TIME_MATMUL,                                                                     \
                  .reads = { N1, N1_GATHERED },                                                    \
                  .makes = { IN, GATE },                                                           \
                  .gemm = { ROWS_TOKENS, WIDTH_ONE, in_width, WIDTH_HIDDEN, 2,                     \
                            .component = COMPONENT_LINEAR_ATTENTION,                               \
                            .adapters = WIDTH_PARTS_MIXER } },                                     \
    [ACTIVATE] = { "activation",        OP_ELEMENTWISE,                                            \
                   TIME_ELEMENTWISE,    .reads = { IN },                                           \
                   .makes = { ACTIVE }, .traffic = { { 4, ROWS_TOKENS, active_width } } },         \
    [OPEN_DT] = { "dt, decay", OP_MARK, .makes = { DT, DECAY } },                                  \
    [PASS_STATE] = { "pass the state",     OP_LINK,                                                \
                     TIME_EXPOSED_CONTEXT, .makes = { CONTEXT },                                   \
                     .when = WHEN_CONTEXT, .link = LINK_STATE },                                   \
    [SCAN] = { "scan",                                                                             \
               OP_KERNEL,                                                                          \
               TIME_LINEAR_ATTENTION,                                                              \
               .reads = { ACTIVE, DT, DECAY, CONTEXT },                                            \
               .makes = { PRODUCTS, STATES, Y },                                                   \
               .work = WORK_SCAN },                                                                \
    [RESIDUAL] = { "residual",                                                                     \
                   OP_ELEMENTWISE,                                                                 \
                   TIME_ELEMENTWISE,                                                               \
                   .reads = { TENSOR_X },                                                          \
                   .makes = { TENSOR_X1 },                                                         \
                   .traffic = { { 4, ROWS_NORM, WIDTH_HIDDEN } } },                                \
    [PROJECT_OUT] = { "output",                                                                    \
                      OP_GEMM,                                                                     \
                      TIME_MATMUL,                                                                 \
                      .reads = { GATED },                                                          \
                      .makes = { TENSOR_X1 },                                                      \
                      .gemm = { ROWS_TOKENS, WIDTH_ONE, WIDTH_HIDDEN, inner_width, 4,              \
                                .component = COMPONENT_LINEAR_ATTENTION,                           \
                                .adapters = WIDTH_PARTS_ONE } },                                   \
    [SCATTER_OUT] = { "scatter output",    OP_LINK,                                                \
                      TIME_EXPOSED_TENSOR, .makes = { PARTIAL, TENSOR_X1 },                        \
                      .when = WHEN_TP,     .link = LINK_TENSOR_HIDDEN },                           \
    [GATHER_DX] = { "gather dx",         OP_LINK,                                                  \
                    TIME_EXPOSED_TENSOR, .makes = { DX_GATHERED },                                 \
                    .when = WHEN_TP,     .link = LINK_TENSOR_HIDDEN },                             \
    [OUT_WEIGHT] = { "output, weight", OP_WGRAD, TIME_MATMUL, .reads = { GATED, DX_GATHERED },     \
                     .gemm.of = PROJECT_OUT },                                                     \
    [OUT_INPUT] = { "dy",                                                                          \
                    OP_DGRAD,                                                                      \
                    TIME_MATMUL,                                                                   \
                    .reads = { DX_GATHERED },                                                      \
                    .makes = { DY },                                                               \
                    .gemm = { .result_bytes = 2, .of = PROJECT_OUT } },                            \
    [PASS_STATE_BACK] = { "pass the state and its gradient",                                       \
                          OP_LINK,                                                                 \
                          TIME_EXPOSED_CONTEXT,                                                    \
                          .makes = { CONTEXT_BACK },                                               \
                          .when = WHEN_CONTEXT,                                                    \
                          .link = LINK_STATE_BACK },                                               \
    [ACTIVATE_BACK] = { "activation, backward",                                                    \
                        OP_ELEMENTWISE,                                                            \
                        TIME_ELEMENTWISE,                                                          \
                        .reads = { IN, D_ACTIVE, DDT },                                            \
                        .holds = { ACTIVE_HELD },                                                  \
                        .makes = { D_IN },                                                         \
                        .traffic = { { 6, ROWS_TOKENS, active_width } } },                         \
    [PROJECT_WEIGHT] = { "in, weight", OP_WGRAD, TIME_MATMUL,                                      \
                         .reads = { N1, N1_GATHERED, D_IN, D_GATE }, .gemm.of = PROJECT },         \
    [PROJECT_INPUT] = { "dn1",                                                                     \
                        OP_DGRAD,                                                                  \
                        TIME_MATMUL,                                                               \
                        .reads = { D_IN, D_GATE },                                                 \
                        .makes = { DN1 },                                                          \
                        .gemm = { .result_bytes = 2, .of = PROJECT } },                            \
    [SCATTER_DN1] = { "scatter dn1",       OP_LINK,                                                \
                      TIME_EXPOSED_TENSOR, .makes = { PARTIAL, DN1 },                              \
                      .when = WHEN_TP,     .link = LINK_TENSOR_INPUT },                            \
    [NORM_BACK] = { "norm, backward",       OP_ELEMENTWISE,                                        \
                    TIME_ELEMENTWISE,       .reads = { TENSOR_X, DN1 },                            \
                    .makes = { TENSOR_DX }, .traffic = { { 8, ROWS_NORM, WIDTH_HIDDEN } } }

/* Lightning: the gradient of the gate is a tensor of its own, that of qkv comes from the scan. */
static const struct step_op lightning_ops[OPS] = {
#define ACTIVE_HELD TENSOR_NONE
    SHARED_OPS(WIDTH_LIGHTNING_FOUR, WIDTH_LIGHTNING_THREE, WIDTH_LIGHTNING),
#undef ACTIVE_HELD
    [APPLY_GATE] = { "gate", OP_ELEMENTWISE, TIME_ELEMENTWISE, .reads = { Y, GATE },
                     .makes = { GATED }, .traffic = { { 6, ROWS_TOKENS, WIDTH_LIGHTNING } } },
    [GATE_BACK] = { "gate, backward", OP_ELEMENTWISE, TIME_ELEMENTWISE, .reads = { Y, GATE, DY },
                    .makes = { D_GATE }, .traffic = { { 10, ROWS_TOKENS, WIDTH_LIGHTNING } } },
    [SCAN_BACK] = { "scan, backward", OP_KERNEL, TIME_LINEAR_ATTENTION,
                    .reads = { ACTIVE, DY, CONTEXT_BACK }, .makes = { STATES, DSTATES, D_IN },
                    .work = WORK_SCAN_BACK },
};

/* Mamba-2: one gradient of all that the projection makes, opened with that of the gate. */
static const struct step_op mamba_ops[OPS] = {
#define ACTIVE_HELD ACTIVE, DT
    SHARED_OPS(WIDTH_MAMBA_IN, WIDTH_MAMBA_CHANNELS, WIDTH_MAMBA_INNER),
#undef ACTIVE_HELD
    [APPLY_GATE] = { "gate", OP_ELEMENTWISE, TIME_ELEMENTWISE, .reads = { Y, IN },
                     .makes = { GATED }, .traffic = { { 6, ROWS_TOKENS, WIDTH_MAMBA_INNER } } },
    [GATE_BACK] = { "gate, backward", OP_ELEMENTWISE, TIME_ELEMENTWISE, .reads = { Y, IN, DY },
                    .makes = { D_IN }, .traffic = { { 10, ROWS_TOKENS, WIDTH_MAMBA_INNER } } },
    [SCAN_BACK] = { "scan, backward", OP_KERNEL, TIME_LINEAR_ATTENTION,
                    .reads = { ACTIVE, DT, DECAY, DY, CONTEXT_BACK },
                    .makes = { PRODUCTS, D_PRODUCTS, STATES, DSTATES, D_ACTIVE, DDT },
                    .work = WORK_SCAN_BACK },
};

static const struct step_entry forward[] = {
    { NORM },
    { GATHER_N1 },
    { PROJECT },
    { ACTIVATE },
    { OPEN_DT },
    { PASS_STATE, .joined = true },
    { SCAN, .joined = true },
    { APPLY_GATE },
    { RESIDUAL },
    { PROJECT_OUT, .joined = true },
    { SCATTER_OUT, .joined = true },
};

static const struct step_entry backward[] = {
    { APPLY_GATE },
    { GATHER_DX },
    { OUT_WEIGHT },
    { OUT_INPUT },
    { GATE_BACK },
    { ACTIVATE },
    { OPEN_DT, .joined = true },
    { PASS_STATE_BACK },
    { SCAN_BACK, .joined = true },
    { ACTIVATE_BACK },
    { NORM },
    { GATHER_N1 },
    { PROJECT_WEIGHT },
    { PROJECT_INPUT },
    { SCATTER_DN1, .joined = true },
    { NORM_BACK },
};

const struct step_list step_lightning = {
    .name = "lightning attention",
    .tensor_count = TENSORS,
    .op_count = OPS,
    .tensors = lightning_tensors,
    .ops = lightning_ops,
    .forward = { [SCHEDULE_PLAIN] = { .zone = { STEP_ENTRIES(forward) } } },
    .backward = { [SCHEDULE_PLAIN] = { .zone = { STEP_ENTRIES(backward) } } },
};

const struct step_list step_mamba = {
    .name = "Mamba-2",
    .tensor_count = TENSORS,
    .op_count = OPS,
    .tensors = mamba_tensors,
    .ops = mamba_ops,
    .forward = { [SCHEDULE_PLAIN] = { .zone = { STEP_ENTRIES(forward) } } },
    .backward = { [SCHEDULE_PLAIN] = { .zone = { STEP_ENTRIES(backward) } } },
};
