#include "base/model/tensor.h"

#include "base/model/row.h"

#include <stdio.h>

const char *const component_names[COMPONENT_COUNT] = {
    "embedding", "head",          "norms",     "attention", "linear_attention", "indexer", "router",
    "experts",   "shared_expert", "dense_mlp", "mtp",       "vision",
};

struct walk {
    const struct model *model;
    const char *trunk; /* prefix of the text trunk's names */
    struct dims dims;
    int (*visit)(const struct tensor *tensor, void *context);
    void *context;
};

static void fill_tensor(const struct walk *walk, const struct tensor_row *row, const char *prefix,
                        int unit, struct tensor *ret)
{
    *ret = (struct tensor){ .component = row->component, .unit = unit, .tp_axis = row->tp_axis };
    if (unit == UNIT_MTP)
        ret->component = COMPONENT_MTP;
    (void)snprintf(ret->name, sizeof ret->name, "%s%s", prefix, row->name);
    ret->mesh = (row->flags & ROW_EXPERT) != 0 ? MESH_EXPERT : MESH_DENSE;
    ret->copies = ret->mesh == MESH_EXPERT ? walk->dims.size[DIM_EXPERTS] : 1;
    ret->matmul = (row->flags & ROW_MATMUL) != 0;
    for (; ret->axes < TENSOR_MAX_AXES && row->shape[ret->axes] != DIM_NONE; ret->axes++)
        ret->shape[ret->axes] = walk->dims.size[row->shape[ret->axes]];
    ret->params = row_params(row, &walk->dims);
}

static int walk_rows(const struct walk *walk, enum row_group group, const char *prefix, int unit)
{
    struct row_list list = rows_of(group);
    struct tensor tensor;
    for (size_t i = 0; i < list.count; i++) {
        if (walk->dims.size[list.rows[i].when] == 0)
            continue;
        fill_tensor(walk, &list.rows[i], prefix, unit, &tensor);
        int stop = walk->visit(&tensor, walk->context);
        if (stop != 0)
            return stop;
    }
    return 0;
}

static int walk_layer(const struct walk *walk, enum mixer mixer, enum ffn ffn, const char *prefix,
                      int unit)
{
    const enum row_group groups[] = { ROWS_INPUT_NORM, rows_of_mixer(mixer), ROWS_POST_NORM,
                                      rows_of_ffn(ffn) };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        int stop = walk_rows(walk, groups[i], prefix, unit);
        if (stop != 0)
            return stop;
    }
    return 0;
}

static int walk_trunk(const struct walk *walk)
{
    const struct model *model = walk->model;
    char prefix[64];
    int stop = walk_rows(walk, ROWS_EMBEDDING, walk->trunk, UNIT_EMBEDDING);
    for (int i = 0; i < model->layers && stop == 0; i++) {
        (void)snprintf(prefix, sizeof prefix, "%slayers.%d.", walk->trunk, i);
        stop = walk_layer(walk, (enum mixer)model->layer_mixer[i], (enum ffn)model->layer_ffn[i],
                          prefix, i);
    }
    if (stop == 0)
        stop = walk_rows(walk, ROWS_FINAL_NORM, walk->trunk, UNIT_HEAD);
    return stop != 0 ? stop : walk_rows(walk, ROWS_HEAD, "", UNIT_HEAD);
}

/* A prediction layer is a softmax-attention layer with the trunk's kind of feed-forward half. */
static int walk_mtp(const struct walk *walk)
{
    const struct model *model = walk->model;
    enum ffn ffn = (enum ffn)model->layer_ffn[model->layers - 1];
    char prefix[64];
    int stop = walk_rows(walk, ROWS_MTP_IN, "mtp.", UNIT_MTP);
    for (int i = 0; i < model->mtp_layers && stop == 0; i++) {
        (void)snprintf(prefix, sizeof prefix, "mtp.layers.%d.", i);
        stop = walk_layer(walk, MIXER_GQA, ffn, prefix, UNIT_MTP);
    }
    return stop != 0 ? stop : walk_rows(walk, ROWS_MTP_OUT, "mtp.", UNIT_MTP);
}

static int walk_vision(const struct walk *walk)
{
    char prefix[64];
    int stop = walk_rows(walk, ROWS_VISION_IN, "model.visual.", UNIT_VISION);
    for (int i = 0; i < walk->model->vision.depth && stop == 0; i++) {
        (void)snprintf(prefix, sizeof prefix, "model.visual.blocks.%d.", i);
        stop = walk_rows(walk, ROWS_VISION_BLOCK, prefix, UNIT_VISION);
    }
    return stop != 0 ? stop : walk_rows(walk, ROWS_VISION_OUT, "model.visual.", UNIT_VISION);
}

int model_tensors(const struct model *model,
                  int (*visit)(const struct tensor *tensor, void *context), void *context)
{
    const struct model_family *family = model_family_find(model->architecture);
    struct walk walk = { .model = model,
                         .trunk = family != NULL ? family->tensor_prefix : "model.",
                         .visit = visit,
                         .context = context };
    dims_of(model, &walk.dims);
    int stop = walk_trunk(&walk);
    if (stop == 0)
        stop = walk_mtp(&walk);
    return stop != 0 ? stop : walk_vision(&walk);
}
