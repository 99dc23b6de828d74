/* Sources: torchtitan at 83c879f18, 9dec370ad and d66b72a6a (the model's modules, parallelize:
 * units, activation checkpoints, tensor parallelism; train: when logits are let go; optimizer),
 * PyTorch (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py: the output of a gather is
 * freed once copied out, a reduction's input lives until the next unit's; tensor/parallel/loss.py).
 */
#include "planner/validate/modules.h"

#include "base/checked.h"
#include "planner/predict/shared.h"

#include <string.h>

/* Bytes of a stage as the modules hold it; counts of elements are a rank's before sharding. */
struct view {
    const struct budget_input *in;
    const struct module_facts *facts;
    struct step_sizes shape;
    const struct stage *stage;
    uint64_t shards, layer_unit, embedding, head, elements; /* elements: of the shard */
    uint64_t kept, worked; /* of one layer: from forward to backward; at its backward */
};

static uint64_t tokens_of(const struct view *v, enum step_width width)
{
    return mul3_sat(2, v->shape.rows[ROWS_TOKENS], v->shape.width[width]);
}

/* A tensor of the residual stream, split by tp: 2 B T / tp x H. */
static uint64_t stream(const struct view *v)
{
    return mul3_sat(2, v->shape.rows[ROWS_NORM], v->shape.width[WIDTH_HIDDEN]);
}

static bool repeats_keys(const struct view *v)
{
    return v->shape.width[WIDTH_KEY] < v->shape.width[WIDTH_QUERY];
}

/* Log-sum-exp of attention, fp32 a token and head. */
static uint64_t sums(const struct view *v)
{
    return mul3_sat(4, v->shape.rows[ROWS_TOKENS], v->shape.width[WIDTH_HEADS]);
}

/* What norms of queries and keys keep: their input, or that in fp32 and the normed in bf16. */
static uint64_t normed_heads(const struct view *v)
{
    if (!v->in->model->gqa.qk_norm)
        return 0;
    uint64_t both = add_sat(tokens_of(v, WIDTH_QUERY), tokens_of(v, WIDTH_KEY));
    return v->facts->fused_norms ? both : mul_sat(3, both);
}

/* What automatic differentiation has of a layer at the end of its forward, its input left out: the
 * norms' own; their outputs, whole where tp gathers them for the matmuls; queries, keys and values
 * as attention has them (keys and values at every query head), its output and sums; of the MLP both
 * up projections, the activation and the product: 8 T F. */
static uint64_t autograd_bytes(const struct view *v)
{
    uint64_t norms = v->facts->fused_norms ? stream(v) : mul_sat(6, stream(v));
    uint64_t keys = tokens_of(v, repeats_keys(v) ? WIDTH_QUERY : WIDTH_KEY);
    uint64_t attention = add_sat(mul_sat(2, tokens_of(v, WIDTH_QUERY)), mul_sat(2, keys));
    uint64_t ret = add_sat(norms, mul_sat(2, tokens_of(v, WIDTH_HIDDEN)));
    ret = add_sat(ret, add_sat(add_sat(attention, sums(v)), normed_heads(v)));
    return add_sat(ret, mul_sat(4, tokens_of(v, WIDTH_DENSE)));
}

/* selective: the layer's input; of seven matmuls the first, third, fifth and seventh (queries,
 * values, one up projection, the layer's end); attention's output and sums; with tp both
 * reduce-scatters. */
static uint64_t chosen_kept_bytes(const struct view *v)
{
    uint64_t scattered = v->in->choices->layout.tp > 1 ? mul_sat(2, stream(v)) : 0;
    uint64_t matmuls = add_sat(add_sat(tokens_of(v, WIDTH_QUERY), tokens_of(v, WIDTH_KEY)),
                               add_sat(tokens_of(v, WIDTH_DENSE), tokens_of(v, WIDTH_HIDDEN)));
    uint64_t attention = add_sat(tokens_of(v, WIDTH_QUERY), sums(v));
    return add_sat(add_sat(stream(v), scattered), add_sat(matmuls, attention));
}

/* The same tensors in both: an up projection, attention's output and sums, values not repeated. */
static uint64_t chosen_twice_bytes(const struct view *v)
{
    uint64_t values = repeats_keys(v) ? 0 : tokens_of(v, WIDTH_KEY);
    return add_sat(add_sat(tokens_of(v, WIDTH_DENSE), values),
                   add_sat(tokens_of(v, WIDTH_QUERY), sums(v)));
}

/* A layer's fullest moment is the backward of the MLP's product: beside what is saved (without the
 * product, which is freed) its gradient and those of its two factors, 4 T F more, and the gradient
 * of the layer's output. */
static void layer_init(struct view *v)
{
    enum recompute recompute = v->in->choices->primitives.recompute;
    uint64_t saved = autograd_bytes(v);
    uint64_t passing = add_sat(mul_sat(2, tokens_of(v, WIDTH_DENSE)), stream(v));
    if (recompute == RECOMPUTE_NONE) {
        v->kept = add_sat(saved, v->facts->fused_norms ? stream(v) : 0);
        v->worked = passing;
    } else if (recompute == RECOMPUTE_SELECTIVE) {
        v->kept = chosen_kept_bytes(v);
        v->worked = add_sat(saved, passing) - chosen_twice_bytes(v);
    } else {
        v->kept = stream(v);
        v->worked = add_sat(saved, passing);
    }
}

static void view_init(const struct prediction *prediction, const struct rank_budget *rank,
                      const struct module_facts *facts, struct view *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->in = &prediction->input;
    ret->facts = facts;
    layer_sizes(ret->in, rank->routed_rows, &ret->shape);
    ret->stage = stage_at(prediction->predictor, rank->stage);
    const struct units *units = shared_units(prediction->predictor);
    ret->shards = (uint64_t)layout_dense_shards(&ret->in->choices->layout);
    ret->layer_unit = units->layer[0].unit.dense;
    ret->embedding = units->embedding.unit.dense;
    ret->head = units->head.unit.dense;
    uint64_t all = add_sat(ret->embedding, ret->head);
    all = add_sat(all, mul_sat((uint64_t)ret->stage->layers, ret->layer_unit));
    ret->elements = div_up(all, ret->shards);
    layer_init(ret);
}

/* One moment: sharded gradients; gathered units, their gradients and reductions under way; what
 * layers keep; the layer at work; the loss, or the optimizer. */
struct instant {
    uint64_t gradients, units, kept, worked, loss;
};

static uint64_t sharded(const struct view *v, uint64_t elements)
{
    return mul_sat(4, div_up(elements, v->shards));
}

/* The end of the forward: every layer's, the last norm's and the head's input, all logits. No
 * gradient is there: they were given back before the step. */
static void loss_moment(const struct view *v, struct instant *ret)
{
    bool split = v->in->choices->layout.tp > 1;
    int each = split ? v->facts->logit_bytes_tp : v->facts->logit_bytes;
    uint64_t root = add_sat(v->embedding, v->head);
    uint64_t norm = v->facts->fused_norms ? stream(v) : mul_sat(3, stream(v));
    ret->units = mul_sat(2, v->facts->one_root ? add_sat(root, v->layer_unit) : v->head);
    ret->kept = mul_sat((uint64_t)v->stage->layers, v->kept);
    ret->loss = mul3_sat((uint64_t)each, v->shape.rows[ROWS_TOKENS], vocab_rows(v->in));
    ret->loss = add_sat(ret->loss, add_sat(norm, tokens_of(v, WIDTH_HIDDEN)));
}

/* Backward of layer i: its weights and those of the unit before it, fetched ahead; the fp32 input
 * of the reduction of the unit behind it; the gradient of the down projection. A root in one unit
 * is gathered throughout, with the head's gradient. */
static void layer_moment(const struct view *v, int i, struct instant *ret)
{
    int behind = v->stage->layers - 1 - i;
    bool last = behind == 0, apart = !v->facts->one_root;
    uint64_t before = i > 0 ? v->layer_unit : apart ? v->embedding : 0;
    uint64_t reduced = !last ? v->layer_unit : apart ? v->head : 0;
    uint64_t done = mul_sat((uint64_t)behind, v->layer_unit);
    uint64_t root = add_sat(v->embedding, mul_sat(2, v->head));
    uint64_t down = mul3_sat(2, v->shape.width[WIDTH_DENSE], v->shape.width[WIDTH_HIDDEN]);
    ret->gradients = sharded(v, add_sat(done, apart ? v->head : 0));
    ret->units = add_sat(mul_sat(2, add_sat(v->layer_unit, before)), mul_sat(4, reduced));
    ret->units = add_sat(ret->units, add_sat(down, apart ? 0 : mul_sat(2, root)));
    ret->kept = mul_sat((uint64_t)i + 1, v->kept);
    ret->worked = v->worked;
}

/* The last unit's reduction: gradients of all others are sharded; its own in bf16, then once more
 * in fp32 where the weights have gone. */
static void end_moment(const struct view *v, struct instant *ret)
{
    uint64_t unit = v->facts->one_root ? add_sat(v->embedding, v->head) : v->embedding;
    uint64_t before = add_sat(mul_sat(4, unit), mul_sat(4, v->layer_unit));
    uint64_t reducing = mul_sat(6, unit);
    ret->gradients = mul_sat(4, v->elements) - sharded(v, unit);
    ret->units = before > reducing ? before : reducing;
    ret->worked = stream(v);
}

static void optimizer_moment(const struct view *v, struct instant *ret)
{
    ret->gradients = mul_sat(4, v->elements);
    ret->loss = v->facts->foreach ? mul_sat(4, v->elements) : 0;
}

static uint64_t instant_bytes(const struct instant *m)
{
    return add_sat(add_sat(m->gradients, m->units), add_sat(m->kept, add_sat(m->worked, m->loss)));
}

static void raise_moment(const struct instant *moment, struct instant *most)
{
    if (instant_bytes(moment) > instant_bytes(most))
        *most = *moment;
}

static void fullest(const struct view *v, struct instant *ret)
{
    struct instant loss = { 0 }, end = { 0 }, optimizer = { 0 };
    loss_moment(v, &loss);
    end_moment(v, &end);
    optimizer_moment(v, &optimizer);
    *ret = loss;
    raise_moment(&end, ret);
    raise_moment(&optimizer, ret);
    for (int i = 0; i < v->stage->layers; i++) {
        struct instant layer = { 0 };
        layer_moment(v, i, &layer);
        raise_moment(&layer, ret);
    }
}

static bool is_known(const struct prediction *p)
{
    const struct layout *l = &p->plan.choices.layout;
    const struct primitives *primitives = &p->plan.choices.primitives;
    const struct model *m = &p->plan.model;
    for (int i = 0; i < m->layers; i++)
        if (m->layer_mixer[i] != MIXER_GQA || m->layer_ffn[i] != FFN_DENSE)
            return false;
    return l->pp == 1 && l->cp == 1 && l->d_rep == 1 && l->micro_batches == 1 && !m->tied &&
           !m->mlp_ungated && primitives->sharding == SHARDING_FSDP && primitives->offload == 0 &&
           trains_plainly(primitives) && primitives->recompute_layers == RECOMPUTE_ALL_LAYERS;
}

static void add_item(struct saved *ret, const char *name, const char *mechanism, uint64_t bytes)
{
    if (bytes == 0)
        return;
    ret->item[ret->count++] = (struct saved_item){ name, mechanism, bytes };
    ret->bytes = add_sat(ret->bytes, bytes);
}

int modules_held(const struct prediction *prediction, const struct rank_budget *rank,
                 const struct module_facts *facts, struct pos at, struct saved *ret,
                 struct diag_list *reterr)
{
    struct view v;
    struct instant most;
    memset(ret, 0, sizeof *ret);
    if (!is_known(prediction)) {
        diag_error(reterr, at, "what these modules hold is known for dense layers in one stage");
        return diag_hint(reterr, "sharding=fsdp, pp=1, cp=1, and one micro-batch a step");
    }
    view_init(prediction, rank, facts, &v);
    fullest(&v, &most);
    add_item(ret, "shards", "fp32 weights, 4 B an element of the shard", mul_sat(4, v.elements));
    add_item(ret, "moments", "two in fp32", mul_sat(8, v.elements));
    add_item(ret, "gradients", "sharded, in fp32, as far as the backward has come", most.gradients);
    add_item(ret, "units", "gathered in bf16, their gradients, and a reduction's input in fp32",
             most.units);
    add_item(ret, "kept", "what layers keep from forward to backward", most.kept);
    add_item(ret, "layer", "what the layer at work has beside", most.worked);
    add_item(ret, "loss", "logits, their gradient, and temporaries of the loss or of AdamW",
             most.loss);
    return 0;
}
