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

void sum_layer(const struct model *model, const struct dims *dims, enum mixer mixer, enum ffn ffn,
               struct row_sum *ret)
{
    const enum row_group groups[] = { ROWS_INPUT_NORM, rows_of_mixer(mixer), ROWS_POST_NORM,
                                      rows_of_ffn(ffn) };
    *ret = (struct row_sum){ 0 };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
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

static void sum_mtp(const struct model *model, const struct dims *dims, struct row_sum *ret)
{
    struct row_sum layer;
    *ret = (struct row_sum){ 0 };
    sum_layer(model, dims, MIXER_GQA, (enum ffn)model->layer_ffn[model->layers - 1], &layer);
    add_times(ret, &layer, (uint64_t)model->mtp_layers);
    add_group(ROWS_MTP_IN, dims, 0, ret);
    add_group(ROWS_MTP_OUT, dims, 0, ret);
}

static void sum_vision(const struct model *model, const struct dims *dims, struct row_sum *ret)
{
    struct row_sum block = { 0 };
    *ret = (struct row_sum){ 0 };
    add_group(ROWS_VISION_BLOCK, dims, 0, &block);
    add_times(ret, &block, (uint64_t)model->vision.depth);
    add_group(ROWS_VISION_IN, dims, 0, ret);
    add_group(ROWS_VISION_OUT, dims, 0, ret);
}

void model_count(const struct model *model, struct model_counts *ret)
{
    struct dims dims;
    struct row_sum trunk, mtp, vision;
    dims_of(model, &dims);
    uint64_t lookup = mul_sat(dims.size[DIM_VOCAB], dims.size[DIM_HIDDEN]);
    *ret = (struct model_counts){ 0 };

    sum_layers(model, &dims, 0, model->layers, &trunk);
    add_group(ROWS_EMBEDDING, &dims, 0, &trunk);
    add_group(ROWS_FINAL_NORM, &dims, 0, &trunk);
    add_group(ROWS_HEAD, &dims, 0, &trunk);
    sum_mtp(model, &dims, &mtp);
    sum_vision(model, &dims, &vision);

    for (int i = 0; i < COMPONENT_COUNT; i++)
        ret->by_component[i] = trunk.by_component[i];
    ret->by_component[COMPONENT_MTP] = mtp.total;
    ret->by_component[COMPONENT_VISION] = vision.total;
    ret->total = add_sat(trunk.total, add_sat(mtp.total, vision.total));
    ret->trained = add_sat(trunk.total, add_sat(model->mtp_trained ? mtp.total : 0,
                                                model->vision_trained ? vision.total : 0));
    /* A tied matrix is one tensor, which the head multiplies by: it is active, and not core. */
    ret->active_all = trunk.active;
    ret->active = model->tied ? trunk.active : trunk.active - lookup;
    ret->active_core = ret->active - lookup;
    ret->matmul_active = add_sat(trunk.matmul, model->tied ? lookup : 0);
    if (model->mtp_trained) /* each prediction layer multiplies by the trunk's head once more */
        ret->matmul_active = add_sat(
            ret->matmul_active, add_sat(mtp.matmul, mul_sat(lookup, (uint64_t)model->mtp_layers)));
}
