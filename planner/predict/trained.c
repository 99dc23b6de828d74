/* trained.c - units of state of which a part is frozen, has adapters, or is updated by Muon. In
 * each part the trained elements are one run and the frozen ones another, both padded to whole
 * shards.
 */
#include "planner/predict/parts.h"

#include "base/checked.h"
#include "base/layout/trained.h"

#include <string.h>

bool trains_plainly(const struct primitives *p)
{
    return p->optimizer == OPTIMIZER_ADAMW && p->lora_rank == 0 && p->frozen == 0;
}

uint64_t master_bytes(const struct primitives *p)
{
    return p->master == MASTER_FP32 ? 4 : 0;
}

uint64_t moment_bytes(const struct primitives *p)
{
    return dtype_bytes(p->moments_dtype);
}

/* Elements that tensor parallelism splits, and those that every rank has whole. */
struct elements {
    uint64_t split, whole;
};

/* second: of the trained ones, those with a second moment. */
struct part {
    struct elements frozen, trained, second;
};

static void add(struct elements *to, const struct elements *more)
{
    to->split = add_sat(to->split, more->split);
    to->whole = add_sat(to->whole, more->whole);
}

static struct elements elements_of(const struct layer_tensor *t, uint64_t etp)
{
    uint64_t n = mul3_sat(t->rows, t->cols, t->copies);
    if (t->expert) /* what etp does not split counts on each of its ranks */
        return (struct elements){ mul_sat(n, t->tp_axis < 0 ? etp : 1), 0 };
    if (t->tp_axis >= 0)
        return (struct elements){ n, 0 };
    return (struct elements){ 0, n };
}

/* Both matrices of an adapter, rank x in and out x rank: the one at the axis that tensor
 * parallelism splits is split with it, the other whole on every rank (as PEFT does for Megatron's
 * parallel layers). */
static struct elements adapter_of(const struct layer_tensor *t, int rank, uint64_t etp)
{
    uint64_t r = mul_sat((uint64_t)rank, t->copies);
    uint64_t axis[2] = { mul_sat(r, t->rows), mul_sat(r, t->cols) };
    if (t->tp_axis < 0)
        return (struct elements){ 0, add_sat(axis[0], axis[1]) };
    struct elements ret = { axis[t->tp_axis], axis[1 - t->tp_axis] };
    if (!t->expert)
        return ret;
    return (struct elements){ add_sat(ret.split, mul_sat(ret.whole, etp)), 0 };
}

static void add_tensor(const struct budget_input *in, const struct layer_tensor *t,
                       struct part *part)
{
    const struct primitives *p = &in->choices->primitives;
    enum component component = (enum component)t->component;
    struct elements weights = elements_of(t, (uint64_t)in->choices->layout.etp);
    if (t->matrix && has_component(adapted_components(p), component)) {
        struct elements more = adapter_of(t, p->lora_rank, (uint64_t)in->choices->layout.etp);
        add(&part->trained, &more);
        add(&part->second, &more);
    }
    if (!has_component(trained_components(p), component)) {
        add(&part->frozen, &weights);
        return;
    }
    add(&part->trained, &weights);
    if (!muon_updates(p, t))
        add(&part->second, &weights);
}

/* On a rank, before sharding. */
static uint64_t held(const struct elements *e, uint64_t ranks, int shards)
{
    return padded_elements(add_sat(div_up(e->split, ranks), e->whole), shards);
}

/* Returns the elements of both runs. */
static uint64_t part_elements(const struct part *part, uint64_t ranks, int shards,
                              struct trained *ret)
{
    ret->all = held(&part->trained, ranks, shards);
    ret->second = held(&part->second, ranks, shards);
    return add_sat(held(&part->frozen, ranks, shards), ret->all);
}

struct unit trained_layer_unit(const struct budget_input *in, int layer)
{
    const struct layout *l = &in->choices->layout;
    const struct model *m = in->model;
    const struct layer_tensors *tensors =
        &in->sizes->tensors[m->layer_mixer[layer]][m->layer_ffn[layer]];
    struct part dense, expert;
    struct unit ret;
    memset(&dense, 0, sizeof dense);
    memset(&expert, 0, sizeof expert);
    for (int i = 0; i < tensors->count; i++)
        add_tensor(in, &tensors->items[i], tensors->items[i].expert ? &expert : &dense);
    ret.dense = part_elements(&dense, (uint64_t)l->tp, layout_dense_shards(l), &ret.dense_trained);
    ret.expert = part_elements(&expert, (uint64_t)l->ep * (uint64_t)l->etp, layout_expert_shards(l),
                               &ret.expert_trained);
    return ret;
}

int mixer_input_matrices(const struct budget_input *in, enum mixer mixer)
{
    int count = 0;
    if (mixer_is_latent(mixer))
        return 2; /* down projections, of queries or the queries themselves, and of keys */
    for (int ffn = 0; ffn < FFN_COUNT && count == 0; ffn++) {
        const struct layer_tensors *tensors = &in->sizes->tensors[mixer][ffn];
        for (int i = 0; i < tensors->count; i++) {
            const struct layer_tensor *t = &tensors->items[i];
            bool mixes =
                t->component == COMPONENT_ATTENTION || t->component == COMPONENT_LINEAR_ATTENTION;
            count += mixes && t->matrix && t->tp_axis == 0;
        }
    }
    return count;
}

struct unit trained_head_unit(const struct budget_input *in, uint64_t matrix, uint64_t norm)
{
    const struct layout *l = &in->choices->layout;
    unsigned trained = trained_components(&in->choices->primitives);
    struct elements rows = { matrix, 0 }, whole = { 0, norm };
    struct part part;
    struct unit ret;
    memset(&part, 0, sizeof part);
    add(has_component(trained, COMPONENT_HEAD) ? &part.trained : &part.frozen, &rows);
    add(has_component(trained, COMPONENT_NORMS) ? &part.trained : &part.frozen, &whole);
    part.second = part.trained;
    memset(&ret, 0, sizeof ret);
    ret.dense = part_elements(&part, (uint64_t)l->tp, layout_dense_shards(l), &ret.dense_trained);
    return ret;
}
