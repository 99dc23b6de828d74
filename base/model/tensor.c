#include "base/model/tensor.h"

#include "base/checked.h"
#include "base/model/row.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

const char *const component_names[COMPONENT_COUNT] = {
    "embedding", "head",          "norms",     "attention", "linear_attention", "indexer", "router",
    "experts",   "shared_expert", "dense_mlp", "mtp",       "vision",
};

struct walk {
    const struct model *model;
    const struct name_style *names;
    const char *trunk; /* prefix of the text trunk's names */
    struct dims dims;
    int (*visit)(const struct tensor *tensor, void *context);
    void *context;
};

/* The family's own name for what a row calls `name`. */
static void put_name(const struct name_style *names, const char *prefix, const char *name,
                     struct tensor *ret)
{
    for (size_t i = 0; i < names->rename_count; i++) {
        size_t length = strlen(names->renames[i].from);
        if (strncmp(name, names->renames[i].from, length) != 0)
            continue;
        (void)snprintf(ret->name, sizeof ret->name, "%s%s%s", prefix, names->renames[i].to,
                       name + length);
        return;
    }
    (void)snprintf(ret->name, sizeof ret->name, "%s%s", prefix, name);
}

static void fill_tensor(const struct walk *walk, const struct tensor_row *row, const char *prefix,
                        int unit, struct tensor *ret)
{
    *ret = (struct tensor){ .component = row->component, .unit = unit, .tp_axis = row->tp_axis };
    if (unit == UNIT_MTP)
        ret->component = COMPONENT_MTP;
    put_name(walk->names, prefix, row->name, ret);
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
    enum row_group groups[LAYER_GROUPS];
    int count = rows_of_layer(mixer, ffn, groups);
    for (int i = 0; i < count; i++) {
        int stop = walk_rows(walk, groups[i], prefix, unit);
        if (stop != 0)
            return stop;
    }
    return 0;
}

/* A tensor outside the layers under its family's own name: the trunk's prefix and the row's name
 * unless the family says otherwise. */
static int walk_single(const struct walk *walk, enum row_group group, const char *whole,
                       const char *prefix, int unit)
{
    struct tensor tensor;
    struct row_list list = rows_of(group);
    if (whole == NULL)
        return walk_rows(walk, group, prefix, unit);
    if (walk->dims.size[list.rows[0].when] == 0)
        return 0;
    fill_tensor(walk, &list.rows[0], "", unit, &tensor);
    (void)snprintf(tensor.name, sizeof tensor.name, "%s", whole);
    return walk->visit(&tensor, walk->context);
}

static int walk_trunk(const struct walk *walk)
{
    const struct model *model = walk->model;
    char prefix[64];
    int stop =
        walk_single(walk, ROWS_EMBEDDING, walk->names->embedding, walk->trunk, UNIT_EMBEDDING);
    for (int i = 0; i < model->layers && stop == 0; i++) {
        (void)snprintf(prefix, sizeof prefix, "%slayers.%d.", walk->trunk, i);
        stop = walk_layer(walk, (enum mixer)model->layer_mixer[i], (enum ffn)model->layer_ffn[i],
                          prefix, i);
    }
    if (stop == 0)
        stop = walk_single(walk, ROWS_FINAL_NORM, walk->names->final_norm, walk->trunk, UNIT_HEAD);
    return stop != 0 ? stop : walk_single(walk, ROWS_HEAD, walk->names->head, "", UNIT_HEAD);
}

/* Prediction layers that follow the trunk's, each with a join of its own. */
static int walk_mtp_layers(const struct walk *walk)
{
    const struct model *model = walk->model;
    char prefix[64];
    int stop = 0;
    for (int i = 0; i < model->mtp_layers && stop == 0; i++) {
        (void)snprintf(prefix, sizeof prefix, "%slayers.%d.", walk->trunk, model->layers + i);
        stop = walk_rows(walk, ROWS_MTP_IN, prefix, UNIT_MTP);
        if (stop == 0)
            stop = walk_layer(walk, model_mtp_mixer(model), model_mtp_ffn(model), prefix, UNIT_MTP);
        if (stop == 0)
            stop = walk_rows(walk, ROWS_MTP_OUT, prefix, UNIT_MTP);
    }
    return stop;
}

static int walk_mtp_halves(const struct walk *walk, int index)
{
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "mtp.layers.%d.", 2 * index);
    int stop = walk_layer(walk, model_mtp_mixer(walk->model), FFN_NONE, prefix, UNIT_MTP);
    (void)snprintf(prefix, sizeof prefix, "mtp.layers.%d.", 2 * index + 1);
    if (stop == 0)
        stop = walk_layer(walk, MIXER_NONE, model_mtp_ffn(walk->model), prefix, UNIT_MTP);
    return stop;
}

/* A prediction layer has attention of the full kind and the trunk's kind of feed-forward half. */
static int walk_mtp(const struct walk *walk)
{
    const struct model *model = walk->model;
    char prefix[64];
    if (walk->names->mtp_in_layers)
        return walk_mtp_layers(walk);
    int stop = walk_rows(walk, ROWS_MTP_IN, "mtp.", UNIT_MTP);
    for (int i = 0; i < model->mtp_layers && stop == 0; i++) {
        (void)snprintf(prefix, sizeof prefix, "mtp.layers.%d.", i);
        stop = walk->names->halves ? walk_mtp_halves(walk, i)
                                   : walk_layer(walk, model_mtp_mixer(model), model_mtp_ffn(model),
                                                prefix, UNIT_MTP);
    }
    return stop != 0 ? stop : walk_rows(walk, ROWS_MTP_OUT, "mtp.", UNIT_MTP);
}

static const char *vision_prefix(const struct name_style *names, enum row_group group)
{
    if ((group == ROWS_VISION_PROJECTOR || group == ROWS_VISION_OUT) && names->projector != NULL)
        return names->projector;
    return names->vision != NULL ? names->vision : "model.visual.";
}

static const char *block_prefix(const struct name_style *names, const struct vision_part *part)
{
    if (part->group == ROWS_VISION_BLOCK && names->vision_blocks != NULL)
        return names->vision_blocks;
    return part->prefix;
}

static int walk_vision(const struct walk *walk)
{
    struct vision_part parts[VISION_PARTS];
    int count = rows_of_vision(&walk->model->vision, parts), stop = 0;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < parts[i].times && stop == 0; j++) {
            char prefix[80];
            size_t used = 0;
            text_append(prefix, sizeof prefix, &used, "%s",
                        vision_prefix(walk->names, parts[i].group));
            if (parts[i].prefix != NULL)
                text_append(prefix, sizeof prefix, &used, "%s.%d.",
                            block_prefix(walk->names, &parts[i]), j);
            stop = walk_rows(walk, parts[i].group, prefix, UNIT_VISION);
        }
    }
    return stop;
}

/* Parts as one tensor each. */
static int walk_parts(const struct walk *walk)
{
    const struct model *model = walk->model;
    int stop = 0;
    for (int i = 0; i < model->part_count && stop == 0; i++) {
        const struct model_part *part = &model->parts[i];
        struct tensor tensor = { .component = (enum component)part->component, .tp_axis = -1 };
        (void)snprintf(tensor.name, sizeof tensor.name, "%s", part->name);
        if (tensor.component == COMPONENT_VISION)
            tensor.unit = UNIT_VISION;
        if (tensor.component == COMPONENT_MTP)
            tensor.unit = UNIT_MTP;
        tensor.axes = 1;
        tensor.copies = 1;
        tensor.params = tensor.shape[0] = mul_sat(part->params, (uint64_t)part->times);
        stop = walk->visit(&tensor, walk->context);
    }
    return stop;
}

int model_tensors(const struct model *model,
                  int (*visit)(const struct tensor *tensor, void *context), void *context)
{
    static const struct name_style plain = { 0 };
    const struct model_family *family = model_family_find(model->architecture);
    bool styled = family != NULL && family->names != NULL;
    struct walk walk = { .model = model,
                         .names = styled ? family->names : &plain,
                         .trunk = family != NULL ? family->tensor_prefix : "model.",
                         .visit = visit,
                         .context = context };
    dims_of(model, &walk.dims);
    int stop = walk_trunk(&walk);
    if (stop == 0)
        stop = walk_mtp(&walk);
    if (stop == 0)
        stop = walk_vision(&walk);
    return stop != 0 ? stop : walk_parts(&walk);
}
