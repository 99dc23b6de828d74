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
    DIM_HEADS,
    DIM_HEAD,
    DIM_QUERY,
    DIM_QUERY_GATED, /* query width, twice with an output gate */
    DIM_KV,
    DIM_QK_NORM,      /* condition */
    DIM_QK_NORM_WIDE, /* condition */
    DIM_QKV_BIAS,     /* condition */
    DIM_OUTPUT_BIAS,  /* condition */
    DIM_SINKS,        /* condition */
    DIM_MLA_QUERY_LATENT,
    DIM_MLA_DIRECT, /* condition: queries without a latent */
    DIM_MLA_LATENT,
    DIM_MLA_DOWN,   /* latent and rope key */
    DIM_MLA_EXPAND, /* heads x (nope + value) */
    DIM_MLA_VALUE,  /* heads x value */
    DIM_INDEX_HEADS,
    DIM_INDEX_KEY,
    DIM_INDEX_QUERY,  /* heads x dim */
    DIM_INDEX_INPUT,  /* what its queries are made of: the query latent, or hidden */
    DIM_GDN_CHANNELS, /* 2 K + V */
    DIM_GDN_VALUE,
    DIM_GDN_VALUE_HEADS,
    DIM_GDN_VALUE_DIM,
    DIM_GDN_CONV,
    DIM_GDN_QKVZ,  /* 2 K + 2 V */
    DIM_GDN_PAIR,  /* 2 value heads */
    DIM_GDN_JOINT, /* condition: qkvz and ba are one matrix each */
    DIM_GDN_APART, /* condition: its opposite */
    DIM_LIGHTNING,
    DIM_LIGHTNING_QKV,
    DIM_MAMBA_IN,       /* gate, x, B, C and dt: 2 inner + 2 groups x state + heads */
    DIM_MAMBA_CHANNELS, /* x, B and C */
    DIM_MAMBA_INNER,    /* heads x head_dim */
    DIM_MAMBA_HEADS,
    DIM_MAMBA_CONV,
    DIM_EXPERTS,
    DIM_EXPERT,
    DIM_EXPERT_PAIR,    /* gate and up of one expert; without gates up alone */
    DIM_ROUTED,         /* what experts read and write: latent or hidden */
    DIM_LATENT,         /* condition and size */
    DIM_STACKED,        /* condition: experts of a layer in one tensor, [out, in] */
    DIM_STACKED_IN_OUT, /* condition: in one tensor, [in, out] */
    DIM_SEPARATE,       /* condition: each in its own */
    DIM_SEPARATE_GATE,  /* condition: each in its own, and gated */
    DIM_ROUTER_BIAS,    /* condition */
    DIM_EXPERT_BIAS,    /* condition */
    DIM_SHARED,
    DIM_SHARED_GATED,  /* condition: its MLP has a gate */
    DIM_SHARED_SCALAR, /* condition: a scalar gate on its output */
    DIM_DENSE,
    DIM_GATED,           /* condition: MLPs have gates */
    DIM_MLP_BIAS,        /* condition */
    DIM_MLA_LATENT_BIAS, /* condition: q and kv biases, and a query latent */
    DIM_MTP,             /* condition */
    DIM_VISION_WIDTH,
    DIM_VISION_QKV,
    DIM_VISION_MLP,
    DIM_VISION_MERGED, /* width x merge^2 */
    DIM_VISION_POSITIONS,
    DIM_VISION_CHANNELS,
    DIM_VISION_TEMPORAL,
    DIM_VISION_PATCH,
    DIM_VISION_FLAT,       /* one patch: channels x patch^2 */
    DIM_VISION_FINAL_NORM, /* condition */
    DIM_VISION_ADAPTER_IN,
    DIM_VISION_ADAPTER_OUT,
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
    ROWS_MLA,
    ROWS_INDEXER,
    ROWS_LIGHTNING,
    ROWS_MAMBA,
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
    ROWS_VISION_DEEPSTACK,
    ROWS_VISION_ADAPTED_IN, /* of towers with an adapter, instead of IN, BLOCK and OUT */
    ROWS_VISION_ADAPTED_BLOCK,
    ROWS_VISION_ADAPTED_OUT,
    ROWS_VISION_PROJECTOR,
    ROWS_COUNT
};

struct row_list {
    const struct tensor_row *rows;
    size_t count;
};

void dims_of(const struct model *model, struct dims *ret);
struct row_list rows_of(enum row_group group);

/* The groups of one layer, in checkpoint order: at most LAYER_GROUPS; returns how many. */
enum { LAYER_GROUPS = 5 };
int rows_of_layer(enum mixer mixer, enum ffn ffn, enum row_group ret[LAYER_GROUPS]);

/* How many times each group of a vision tower occurs, in checkpoint order. */
struct vision_part {
    enum row_group group;
    int times;
    const char *prefix; /* after the tower's own, before the index; NULL when it occurs once */
};
enum { VISION_PARTS = 4 };
int rows_of_vision(const struct vision *vision, struct vision_part ret[VISION_PARTS]);

/* Parameters of one row, all copies; 0 when its condition is not met. */
uint64_t row_params(const struct tensor_row *row, const struct dims *dims);

/* How a family calls its tensors. The rows have the names of Llama, Qwen and DeepSeek; a rename
 * replaces the part of a name behind the layer's prefix that begins with `from`. */
struct rename {
    const char *from, *to;
};
struct name_style {
    const struct rename *renames;
    size_t rename_count;
    const char *head, *final_norm, *embedding; /* whole names; NULL: as the rows say */
    const char *vision;                        /* prefix of the tower; NULL: "model.visual." */
    const char *vision_blocks;                 /* NULL: as the parts say */
    const char *projector;                     /* prefix of what ends at the text's width */
    bool mtp_in_layers; /* prediction layers follow the trunk's and have joins of their own */
    bool halves;        /* mixer and feed-forward half are layers of their own */
    bool experts_in_out, delta_joint;
};

#endif
