/* Parameter counts: the rows of each kind of layer are summed once and multiplied by the layers
 * of that kind. */
#include "base/model/count.h"
#include "base/checked.h"

static void add_group(enum row_group group, const struct dims *dims, uint64_t top_k,
                      struct row_sum *ret)
{
    struct row_list list = rows_of(group);
    for (size_t i = 0; i < list.count; i++) {
        const struct tensor_row *row = &list.rows[i];
        uint64_t params = row_params(row, dims);
        uint64_t active = params;
        if ((row->flags & ROW_EXPERT) != 0 && params > 0)
            active = mul_sat(params / dims->size[DIM_EXPERTS], top_k);
        ret->total = add_sat(ret->total, params);
        ret->active = add_sat(ret->active, active);
        if ((row->flags & ROW_MATMUL) != 0)
            ret->matmul = add_sat(ret->matmul, active);
        ret->by_component[row->component] = add_sat(ret->by_component[row->component], params);
    }
}

static void add_times(struct row_sum *into, const struct row_sum *one, uint64_t times)
{
    into->total = add_sat(into->total, mul_sat(one->total, times));
    into->active = add_sat(into->active, mul_sat(one->active, times));
    into->matmul = add_sat(into->matmul, mul_sat(one->matmul, times));
    for (int i = 0; i < COMPONENT_COUNT; i++)
        into->by_component[i] =
            add_sat(into->by_component[i], mul_sat(one->by_component[i], times));
}

/* Parts, each to the sum of its component. A lookup is active for active_all only, as the embedding
 * is. */
static void add_parts(const struct model *model, struct row_sum *trunk, struct row_sum *mtp,
                      struct row_sum *vision, uint64_t *ret_lookup)
{
    *ret_lookup = 0;
    for (int i = 0; i < model->part_count; i++) {
        const struct model_part *part = &model->parts[i];
        struct row_sum one = { .total = part->params, .active = part->params };
        one.by_component[part->component] = part->params;
        struct row_sum *into = part->component == COMPONENT_VISION ? vision
                               : part->component == COMPONENT_MTP  ? mtp
                                                                   : trunk;
        add_times(into, &one, (uint64_t)part->times);
        if (part->lookup)
            *ret_lookup = add_sat(*ret_lookup, mul_sat(part->params, (uint64_t)part->times));
    }
}

void sum_layer(const struct model *model, const struct dims *dims, enum mixer mixer, enum ffn ffn,
               struct row_sum *ret)
{
    enum row_group groups[LAYER_GROUPS];
    int count = rows_of_layer(mixer, ffn, groups);
    *ret = (struct row_sum){ 0 };
    for (int i = 0; i < count; i++)
        add_group(groups[i], dims, (uint64_t)model->moe.top_k, ret);
}

void sum_layers(const struct model *model, const struct dims *dims, int first, int count,
                struct row_sum *ret)
{
    uint64_t layers[MIXER_COUNT][FFN_COUNT] = { { 0 } };
    struct row_sum one;
    *ret = (struct row_sum){ 0 };
    for (int i = first; i < first + count; i++)
        layers[model->layer_mixer[i]][model->layer_ffn[i]]++;
    for (enum mixer m = 0; m < MIXER_COUNT; m++) {
        for (enum ffn f = 0; f < FFN_COUNT; f++) {
            if (layers[m][f] == 0)
                continue;
            sum_layer(model, dims, m, f, &one);
            add_times(ret, &one, layers[m][f]);
        }
    }
}

/* Layers of the full kind; joins once, or with each layer. */
static void sum_mtp(const struct model *model, const struct dims *dims, struct row_sum *ret)
{
    const struct model_family *family = model_family_find(model->architecture);
    bool each = family != NULL && family->names != NULL && family->names->mtp_in_layers;
    struct row_sum layer, join = { 0 };
    *ret = (struct row_sum){ 0 };
    if (model->mtp_layers == 0)
        return;
    sum_layer(model, dims, model_mtp_mixer(model), model_mtp_ffn(model), &layer);
    add_times(ret, &layer, (uint64_t)model->mtp_layers);
    add_group(ROWS_MTP_IN, dims, 0, &join);
    add_group(ROWS_MTP_OUT, dims, 0, &join);
    add_times(ret, &join, each ? (uint64_t)model->mtp_layers : 1);
}

static void sum_vision(const struct model *model, const struct dims *dims, struct row_sum *ret)
{
    struct vision_part parts[VISION_PARTS];
    int count = rows_of_vision(&model->vision, parts);
    *ret = (struct row_sum){ 0 };
    for (int i = 0; i < count; i++) {
        struct row_sum part = { 0 };
        add_group(parts[i].group, dims, 0, &part);
        add_times(ret, &part, (uint64_t)parts[i].times);
    }
}

void model_count(const struct model *model, struct model_counts *ret)
{
    struct dims dims;
    struct row_sum trunk, mtp, vision;
    uint64_t table;
    dims_of(model, &dims);
    uint64_t lookup = mul_sat(dims.size[DIM_VOCAB], dims.size[DIM_HIDDEN]);
    *ret = (struct model_counts){ 0 };

    sum_layers(model, &dims, 0, model->layers, &trunk);
    add_group(ROWS_EMBEDDING, &dims, 0, &trunk);
    add_group(ROWS_FINAL_NORM, &dims, 0, &trunk);
    add_group(ROWS_HEAD, &dims, 0, &trunk);
    sum_mtp(model, &dims, &mtp);
    sum_vision(model, &dims, &vision);
    add_parts(model, &trunk, &mtp, &vision, &table);

    for (int i = 0; i < COMPONENT_COUNT; i++)
        ret->by_component[i] = trunk.by_component[i];
    ret->by_component[COMPONENT_MTP] = mtp.total;
    ret->by_component[COMPONENT_VISION] = vision.total;
    ret->total = add_sat(trunk.total, add_sat(mtp.total, vision.total));
    ret->trained = add_sat(trunk.total, add_sat(model->mtp_trained ? mtp.total : 0,
                                                model->vision_trained ? vision.total : 0));
    /* A tied matrix is one tensor, which the head multiplies by: it is active, and not core. */
    ret->active_all = trunk.active;
    ret->active = (model->tied ? trunk.active : trunk.active - lookup) - table;
    ret->active_core = ret->active - lookup;
    ret->matmul_active = add_sat(trunk.matmul, model->tied ? lookup : 0);
    if (model->mtp_trained) /* each prediction layer multiplies by the trunk's head once more */
        ret->matmul_active = add_sat(
            ret->matmul_active, add_sat(mtp.matmul, mul_sat(lookup, (uint64_t)model->mtp_layers)));
}
