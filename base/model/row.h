/* row.h - the parameter tensors of each kind of layer as tables: name, shape in symbols, component,
 * tensor-parallel axis. model_tensors spells them out for every layer, model_count sums each kind
 * once. Private to base/model. */
#ifndef RANKFIT_BASE_MODEL_ROW_H
#define RANKFIT_BASE_MODEL_ROW_H

#include "base/model/tensor.h"

#include <stddef.h>

/* Sizes that shapes are made of; a row's condition is a size that must not be zero. */
enum dim {
    DIM_NONE,
    DIM_ONE,
    DIM_HIDDEN,
    DIM_HIDDEN_PAIR, /* 2 hidden: a hidden state and an embedding side by side */
    DIM_VOCAB,
    DIM_UNTIED, /* condition: 1 when the head has a matrix of its own */
    DIM_HEAD,
    DIM_QUERY,
    DIM_QUERY_GATED, /* query width, twice with an output gate */
    DIM_KV,
    DIM_QK_NORM,      /* condition */
    DIM_QKV_BIAS,     /* condition */
    DIM_GDN_CHANNELS, /* 2 K + V */
    DIM_GDN_VALUE,
    DIM_GDN_VALUE_HEADS,
    DIM_GDN_VALUE_DIM,
    DIM_GDN_CONV,
    DIM_EXPERTS,
    DIM_EXPERT,
    DIM_EXPERT_PAIR, /* gate and up of one expert */
    DIM_STACKED,     /* condition: experts of a layer in one tensor */
    DIM_SEPARATE,    /* condition: its opposite */
    DIM_SHARED,
    DIM_SHARED_GATE, /* condition */
    DIM_DENSE,
    DIM_MTP, /* condition */
    DIM_VISION_WIDTH,
    DIM_VISION_QKV,
    DIM_VISION_MLP,
    DIM_VISION_MERGED, /* width x merge^2 */
    DIM_VISION_POSITIONS,
    DIM_VISION_CHANNELS,
    DIM_VISION_TEMPORAL,
    DIM_VISION_PATCH,
    DIM_COUNT
};

struct dims {
    uint64_t size[DIM_COUNT];
};

enum { ROW_MATMUL = 1, ROW_EXPERT = 2 };

struct tensor_row {
    const char *name; /* after the layer's or tower's prefix */
    enum component component;
    unsigned flags;
    int tp_axis;
    enum dim when; /* DIM_ONE: always */
    enum dim shape[TENSOR_MAX_AXES];
};

/* A run of rows: what comes before, between or after the layers, or one part of a layer. */
enum row_group {
    ROWS_EMBEDDING,
    ROWS_INPUT_NORM,
    ROWS_GQA,
    ROWS_GDN,
    ROWS_POST_NORM,
    ROWS_DENSE,
    ROWS_MOE,
    ROWS_FINAL_NORM,
    ROWS_HEAD,
    ROWS_MTP_IN,
    ROWS_MTP_OUT,
    ROWS_VISION_IN,
    ROWS_VISION_BLOCK,
    ROWS_VISION_OUT,
    ROWS_COUNT
};

struct row_list {
    const struct tensor_row *rows;
    size_t count;
};

void dims_of(const struct model *model, struct dims *ret);
struct row_list rows_of(enum row_group group);

/* The groups of a layer's mixer and feed-forward half. */
enum row_group rows_of_mixer(enum mixer mixer);
enum row_group rows_of_ffn(enum ffn ffn);

/* Parameters of one row, all copies; 0 when its condition is not met. */
uint64_t row_params(const struct tensor_row *row, const struct dims *dims);

#endif
