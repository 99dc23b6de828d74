/* state.c - parameters, gradients and optimizer state by sharding mode, and how the model's tensors
 * fall into units. */
#include "planner/predict/parts.h"

#include "base/checked.h"
#include "base/layout/trained.h"

#include <string.h>

enum { PAD_ELEMENTS = 64, ARENA_BYTES = 256 };

struct noted {
    struct model_sizes *sizes;
    const struct model *model;
    bool first[MODEL_MAX_LAYERS]; /* of its kind */
};

static void note_tensor(const struct tensor *tensor, struct layer_tensors *ret)
{
    uint64_t cols = 1;
    if (ret->count == LAYER_TENSORS_MAX)
        return;
    for (int i = 1; i < tensor->axes; i++)
        cols = mul_sat(cols, tensor->shape[i]);
    ret->items[ret->count++] = (struct layer_tensor){
        .component = (uint8_t)tensor->component,
        .tp_axis = (int8_t)tensor->tp_axis,
        .expert = tensor->mesh == MESH_EXPERT,
        .matmul = tensor->matmul,
        .matrix = tensor_is_matrix(tensor),
        .rows = tensor->shape[0],
        .cols = cols,
        .copies = tensor->copies,
    };
}

/* whole: of the elements, those that no rank splits. */
static void count(const struct tensor *tensor, uint64_t *all, uint64_t *whole)
{
    *all += tensor->params;
    if (tensor->tp_axis < 0)
        *whole += tensor->params;
}

static int add_tensor(const struct tensor *tensor, void *context)
{
    const struct noted *noted = context;
    const struct model *m = noted->model;
    struct model_sizes *sizes = noted->sizes;
    if (tensor->unit >= 0 && noted->first[tensor->unit])
        note_tensor(tensor,
                    &sizes->tensors[m->layer_mixer[tensor->unit]][m->layer_ffn[tensor->unit]]);
    if (tensor->unit == UNIT_EMBEDDING)
        sizes->embedding_params += tensor->params;
    else if (tensor->unit == UNIT_HEAD)
        sizes->head_params += tensor->params;
    else if (tensor->unit == UNIT_VISION)
        sizes->vision_params += tensor->params;
    else if (tensor->unit == UNIT_MTP && tensor->mesh == MESH_EXPERT)
        count(tensor, &sizes->mtp_expert_params, &sizes->mtp_expert_whole);
    else if (tensor->unit == UNIT_MTP)
        count(tensor, &sizes->mtp_dense_params, &sizes->mtp_dense_replicated);
    else if (tensor->mesh == MESH_EXPERT)
        count(tensor, &sizes->layer_expert_params[tensor->unit],
              &sizes->layer_expert_whole[tensor->unit]);
    else
        count(tensor, &sizes->layer_dense_params[tensor->unit],
              &sizes->layer_dense_replicated[tensor->unit]);
    return 0;
}

void model_sizes_init(struct model_sizes *ret, const struct model *model)
{
    struct noted noted = { .sizes = ret, .model = model };
    bool seen[MIXER_COUNT][FFN_COUNT] = { { false } };
    memset(ret, 0, sizeof *ret);
    for (int i = 0; i < model->layers; i++) {
        bool *kind = &seen[model->layer_mixer[i]][model->layer_ffn[i]];
        noted.first[i] = !*kind;
        *kind = true;
    }
    model_tensors(model, add_tensor, &noted);
    if (!model->mtp_trained)
        ret->mtp_dense_params = ret->mtp_expert_params = 0;
    ret->frozen_params = model->vision_frozen ? ret->vision_params : 0;
    if (!model->vision_trained)
        ret->vision_params = 0;
    model_count(model, &ret->counts);
    for (int i = 0; i < model->layers; i++) {
        ret->indexers_before[i + 1] =
            (uint16_t)(ret->indexers_before[i] + (model->layer_mixer[i] == MIXER_DSA));
        ret->experts_before[i + 1] =
            (uint16_t)(ret->experts_before[i] + (model->layer_ffn[i] == FFN_MOE));
    }
}

uint64_t arena_bytes(uint64_t elements, uint64_t element_bytes)
{
    return round_up_to(mul_sat(elements, element_bytes), ARENA_BYTES);
}

/* Padded to a multiple of 64 elements x the shards, so that every shard is whole. */
uint64_t padded_elements(uint64_t elements, int shards)
{
    return round_up_to(elements, (uint64_t)PAD_ELEMENTS * (uint64_t)shards);
}

static struct unit unit_of(const struct layout *l, uint64_t dense, uint64_t replicated,
                           uint64_t expert, uint64_t whole)
{
    uint64_t split = div_up(dense - replicated, (uint64_t)l->tp), etp = (uint64_t)l->etp;
    uint64_t experts = div_up(add_sat(expert, mul_sat(whole, etp - 1)), (uint64_t)l->ep * etp);
    uint64_t d = padded_elements(add_sat(split, replicated), layout_dense_shards(l));
    uint64_t e = expert == 0 ? 0 : padded_elements(experts, layout_expert_shards(l));
    return (struct unit){ d, e, { d, d }, { e, e } };
}

struct unit layer_unit(const struct budget_input *in, int layer)
{
    const struct model_sizes *s = in->sizes;
    if (!trains_plainly(&in->choices->primitives))
        return trained_layer_unit(in, layer);
    return unit_of(&in->choices->layout, s->layer_dense_params[layer],
                   s->layer_dense_replicated[layer], s->layer_expert_params[layer],
                   s->layer_expert_whole[layer]);
}

uint64_t vocab_rows(const struct budget_input *in)
{
    int tp = in->choices->layout.tp;
    return layout_padded_vocab((uint64_t)in->model->vocab, tp) / (uint64_t)tp;
}

/* Elements that padding adds to a matrix of vocabulary rows. */
static uint64_t vocab_padding(const struct budget_input *in)
{
    uint64_t vocab = (uint64_t)in->model->vocab;
    uint64_t more = layout_padded_vocab(vocab, in->choices->layout.tp) - vocab;
    return mul_sat(more, (uint64_t)in->model->hidden);
}

/* The norm is whole on every rank of tp. */
static void ends_init(const struct budget_input *in, struct end_units *ret)
{
    const struct layout *l = &in->choices->layout;
    const struct model_sizes *s = in->sizes;
    uint64_t norm = (uint64_t)in->model->hidden, padding = vocab_padding(in);
    uint64_t head = add_sat(s->head_params, in->model->tied ? 0 : padding);
    unsigned trained = trained_components(&in->choices->primitives);
    norm = norm < s->head_params ? norm : s->head_params;
    ret->embedding = unit_of(l, add_sat(s->embedding_params, padding), 0, 0, 0);
    ret->head = unit_of(l, head, norm, 0, 0);
    if (!has_component(trained, COMPONENT_EMBEDDING))
        ret->embedding.dense_trained = (struct trained){ 0, 0 };
    if (!has_component(trained, COMPONENT_HEAD) || !has_component(trained, COMPONENT_NORMS))
        ret->head = trained_head_unit(in, head - norm, norm);
}

static void add_dense(uint64_t elements, struct unit *ret)
{
    ret->dense = add_sat(ret->dense, elements);
    ret->dense_trained.all = add_sat(ret->dense_trained.all, elements);
    ret->dense_trained.second = add_sat(ret->dense_trained.second, elements);
}

void end_units_init(const struct budget_input *in, int index, struct end_units *ret)
{
    const struct layout *l = &in->choices->layout;
    const struct model_sizes *s = in->sizes;
    ends_init(in, ret);
    ret->prediction = (struct unit){ .dense = 0 };
    if (index == l->pp - 1 && model_predicts(in->model))
        ret->prediction = unit_of(l, s->mtp_dense_params, s->mtp_dense_replicated,
                                  s->mtp_expert_params, s->mtp_expert_whole);
    ret->extra = ret->prediction;
    if (index == 0 && s->vision_params) /* which no rank of tp splits */
        add_dense(unit_of(l, s->vision_params, s->vision_params, 0, 0).dense, &ret->extra);
}

/* Shards of weights, gradients and optimizer state of a part whose group has `shards` ranks. Every
 * trained element has a first moment. */
static void part_add(const struct primitives *p, uint64_t elements, const struct trained *trained,
                     int shards, uint64_t *items)
{
    uint64_t n = (uint64_t)shards, moment = moment_bytes(p), frozen = elements - trained->all;
    uint64_t w = p->sharding == SHARDING_FSDP ? n : 1;
    uint64_t s = p->sharding == SHARDING_REPLICATED ? 1 : n;
    bool whole_gradient = p->sharding == SHARDING_REPLICATED || p->sharding == SHARDING_ZERO1;
    uint64_t gradients = trained->all / (whole_gradient ? 1 : n);
    uint64_t pairs = trained->second / s, singles = trained->all / s - pairs;
    uint64_t weights = add_sat(arena_bytes(trained->all / w, 2), arena_bytes(frozen / w, 2));
    uint64_t moments = add_sat(arena_bytes(pairs, 2 * moment), arena_bytes(singles, moment));
    items[ITEM_WEIGHTS] = add_sat(items[ITEM_WEIGHTS], weights);
    items[ITEM_GRADIENTS] =
        add_sat(items[ITEM_GRADIENTS], arena_bytes(gradients, dtype_bytes(p->grad_dtype)));
    items[ITEM_MASTER] =
        add_sat(items[ITEM_MASTER], arena_bytes(trained->all / s, master_bytes(p)));
    items[ITEM_MOMENTS] = add_sat(items[ITEM_MOMENTS], moments);
}

void unit_state_add(const struct budget_input *in, const struct unit *unit, uint64_t *items)
{
    const struct layout *l = &in->choices->layout;
    part_add(&in->choices->primitives, unit->dense, &unit->dense_trained, layout_dense_shards(l),
             items);
    if (unit->expert)
        part_add(&in->choices->primitives, unit->expert, &unit->expert_trained,
                 layout_expert_shards(l), items);
}

/* Slots for buckets of parameters whose state takes `bytes` each; the last is as small as what is
 * left of `all`. */
static uint64_t slot_bytes(const struct primitives *p, uint64_t bytes, uint64_t all)
{
    uint64_t bucket = mul_sat(p->bucket_params, bytes), slots = (uint64_t)p->slots;
    uint64_t full = bucket > 0 ? all / bucket : 0;
    if (full >= slots)
        return mul_sat(slots, arena_bytes(bucket, 1));
    return add_sat(mul_sat(full, arena_bytes(bucket, 1)), arena_bytes(all - full * bucket, 1));
}

/* Optimizer state that stays on the device: all, or the buckets that stream through slots. */
uint64_t state_offload(const struct primitives *p, uint64_t *items)
{
    uint64_t all = add_sat(items[ITEM_MASTER], items[ITEM_MOMENTS]);
    if (!(p->offload & OFFLOAD_OPTIMIZER))
        return 0;
    uint64_t moments = mul_sat(2, moment_bytes(p));
    items[ITEM_MASTER] = slot_bytes(p, master_bytes(p), items[ITEM_MASTER]);
    items[ITEM_MOMENTS] = slot_bytes(p, moments, items[ITEM_MOMENTS]);
    return all;
}

/* What is held but not trained has weights alone; on the first stage, sharded like dense state. */
void frozen_state_add(const struct budget_input *in, uint64_t *items)
{
    int shards = layout_dense_shards(&in->choices->layout);
    uint64_t n = padded_elements(in->sizes->frozen_params, shards);
    if (in->choices->primitives.sharding == SHARDING_FSDP)
        n /= (uint64_t)shards;
    items[ITEM_WEIGHTS] = add_sat(items[ITEM_WEIGHTS], arena_bytes(n, 2));
}
