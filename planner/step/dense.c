/* dense.c - the dense MLP: gate and up, SwiGLU, down. */
#include "planner/predict/step_time.h"
#include "planner/step/step.h"

enum { N2 = TENSOR_FIRST_OWN, N2_GATHERED, HD, AD, PARTIAL, DX_GATHERED, DAD, DN2, TENSORS };

static const struct step_tensor tensors[TENSORS] = {
    [TENSOR_X1] = { "x1", ROWS_NORM, WIDTH_HIDDEN, 2, ITEM_LAYER_WORKING, FATE_SAVED },
    [TENSOR_OUTPUT] = { "output", ROWS_NORM, WIDTH_HIDDEN, 2, ITEM_CHECKPOINTS },
    [N2] = { "n2", ROWS_NORM, WIDTH_HIDDEN, 2, ITEM_LAYER_WORKING },
    [N2_GATHERED] = { "n2 gathered", ROWS_TOKENS, WIDTH_HIDDEN, 2, ITEM_LAYER_WORKING },
    [HD] = { "hd", ROWS_TOKENS, WIDTH_DENSE_TWO, 2, ITEM_LAYER_WORKING, FATE_SAVED },
    [AD] = { "ad", ROWS_TOKENS, WIDTH_DENSE, 2, ITEM_LAYER_WORKING },
    [PARTIAL] = { "partial sum", ROWS_TOKENS, WIDTH_HIDDEN, 2, ITEM_LAYER_WORKING },
    [DX_GATHERED] = { "dx gathered", ROWS_TOKENS, WIDTH_HIDDEN, 2, ITEM_LAYER_WORKING },
    [DAD] = { "dad", ROWS_TOKENS, WIDTH_DENSE, 2, ITEM_LAYER_WORKING },
    [DN2] = { "dn2", ROWS_NORM, WIDTH_HIDDEN, 2, ITEM_LAYER_WORKING },
};

enum {
    NORM,
    GATHER_N2,
    UP,
    SWIGLU,
    RESIDUAL,
    DOWN,
    SCATTER_OUT,
    GATHER_DX,
    DOWN_WEIGHT,
    DOWN_INPUT,
    SWIGLU_BACK,
    UP_WEIGHT,
    UP_INPUT,
    SCATTER_DN2,
    NORM_BACK,
    OPS
};

static const struct step_op ops[OPS] = {
    [NORM] = { "norm", OP_ELEMENTWISE, TIME_ELEMENTWISE, .reads = { TENSOR_X1 }, .makes = { N2 },
               .traffic = { { 4, ROWS_NORM, WIDTH_HIDDEN } } },
    [GATHER_N2] = { "gather n2", OP_LINK, TIME_EXPOSED_TENSOR, .reads = { N2 },
                    .makes = { N2_GATHERED }, .when = WHEN_TP, .link = LINK_TENSOR_HIDDEN },
    [UP] = { "gate and up", OP_GEMM, TIME_MATMUL, .reads = { N2, N2_GATHERED }, .makes = { HD },
             .gemm = { ROWS_TOKENS, WIDTH_ONE, WIDTH_DENSE_TWO, WIDTH_HIDDEN, 2,
                       .component = COMPONENT_DENSE_MLP, .adapters = WIDTH_PARTS_UP } },
    [SWIGLU] = { "SwiGLU", OP_ELEMENTWISE, TIME_ELEMENTWISE, .reads = { HD }, .makes = { AD },
                 .traffic = { { 6, ROWS_TOKENS, WIDTH_DENSE } } },
    [RESIDUAL] = { "residual", OP_ELEMENTWISE, TIME_ELEMENTWISE, .reads = { TENSOR_X1 },
                   .makes = { TENSOR_OUTPUT }, .traffic = { { 4, ROWS_NORM, WIDTH_HIDDEN } } },
    [DOWN] = { "down", OP_GEMM, TIME_MATMUL, .reads = { AD }, .makes = { TENSOR_OUTPUT },
               .gemm = { ROWS_TOKENS, WIDTH_ONE, WIDTH_HIDDEN, WIDTH_DENSE, 4,
                         .component = COMPONENT_DENSE_MLP, .adapters = WIDTH_PARTS_ONE } },
    [SCATTER_OUT] = { "scatter output", OP_LINK, TIME_EXPOSED_TENSOR,
                      .makes = { PARTIAL, TENSOR_OUTPUT }, .when = WHEN_TP,
                      .link = LINK_TENSOR_HIDDEN },
    [GATHER_DX] = { "gather dx", OP_LINK, TIME_EXPOSED_TENSOR, .makes = { DX_GATHERED },
                    .when = WHEN_TP, .link = LINK_TENSOR_HIDDEN },
    [DOWN_WEIGHT] = { "down, weight", OP_WGRAD, TIME_MATMUL, .reads = { AD, DX_GATHERED },
                      .gemm.of = DOWN },
    [DOWN_INPUT] = { "dad", OP_DGRAD, TIME_MATMUL, .reads = { DX_GATHERED }, .holds = { AD },
                     .makes = { DAD }, .gemm = { .result_bytes = 2, .of = DOWN } },
    [SWIGLU_BACK] = { "SwiGLU, backward", OP_ELEMENTWISE, TIME_ELEMENTWISE, .reads = { DAD },
                      .makes = { HD }, .traffic = { { 10, ROWS_TOKENS, WIDTH_DENSE } } },
    [UP_WEIGHT] = { "gate and up, weight", OP_WGRAD, TIME_MATMUL, .reads = { HD, N2, N2_GATHERED },
                    .gemm.of = UP },
    [UP_INPUT] = { "dn2", OP_DGRAD, TIME_MATMUL, .reads = { HD }, .makes = { DN2 },
                   .gemm = { .result_bytes = 2, .of = UP } },
    [SCATTER_DN2] = { "scatter dn2", OP_LINK, TIME_EXPOSED_TENSOR, .makes = { PARTIAL, DN2 },
                      .when = WHEN_TP, .link = LINK_TENSOR_HIDDEN },
    [NORM_BACK] = { "norm, backward", OP_ELEMENTWISE, TIME_ELEMENTWISE, .reads = { TENSOR_X1, DN2 },
                    .makes = { TENSOR_DX }, .traffic = { { 8, ROWS_NORM, WIDTH_HIDDEN } } },
};

static const struct step_entry forward[] = {
    { NORM },
    { GATHER_N2 },
    { UP },
    { SWIGLU },
    { RESIDUAL },
    { DOWN, .joined = true },
    { SCATTER_OUT, .joined = true },
};

static const struct step_entry backward[] = {
    { SWIGLU },    { GATHER_DX }, { DOWN_WEIGHT }, { DOWN_INPUT }, { SWIGLU_BACK },
    { NORM },      { GATHER_N2 }, { UP_WEIGHT },   { UP_INPUT },   { SCATTER_DN2, .joined = true },
    { NORM_BACK },
};

const struct step_list step_dense = {
    .name = "dense MLP",
    .tensor_count = TENSORS,
    .op_count = OPS,
    .tensors = tensors,
    .ops = ops,
    .forward = { [SCHEDULE_PLAIN] = { .zone = { STEP_ENTRIES(forward) } } },
    .backward = { [SCHEDULE_PLAIN] = { .zone = { STEP_ENTRIES(backward) } } },
};

/* A layer without a feed-forward half hands x1 on: the output takes its place. */
enum { HAND_ON, HAND_ON_OPS };

static const struct step_tensor none_tensors[] = {
    [TENSOR_OUTPUT] = { "output", ROWS_NORM, WIDTH_HIDDEN, 2, ITEM_CHECKPOINTS },
    [TENSOR_DX] = { NULL },
};

static const struct step_op none_ops[] = {
    [HAND_ON] = { "hand on", OP_MARK, .makes = { TENSOR_OUTPUT } },
};

static const struct step_entry none_forward[] = { { HAND_ON } };

const struct step_list step_no_ffn = {
    .name = "no feed-forward",
    .tensor_count = STEP_COUNT(none_tensors),
    .op_count = HAND_ON_OPS,
    .tensors = none_tensors,
    .ops = none_ops,
    .forward = { [SCHEDULE_PLAIN] = { .zone = { STEP_ENTRIES(none_forward) } } },
};

const struct step_list step_no_mixer = {
    .name = "no mixer",
    .tensor_count = STEP_COUNT(none_tensors),
    .tensors = none_tensors,
};
