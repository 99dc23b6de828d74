/* end.c - what comes once a step: gradients zeroed at its start; at its end reduced, and weights
 * updated. */
#include "planner/predict/stage_time.h"

#include "planner/predict/shared.h"

#include "base/layout/trained.h"

#include <string.h>

static double positive(double value)
{
    return value > 0 ? value : 0;
}

void elements_init(const struct budget_input *in, const struct stage_sums *sums,
                   struct elements *ret)
{
    const struct layout *l = &in->choices->layout;
    enum sharding sharding = in->choices->primitives.sharding;
    bool whole = sharding == SHARDING_REPLICATED;
    bool scattered = sharding == SHARDING_FSDP || sharding == SHARDING_ZERO2;
    *ret = (struct elements){ .dense = sums->dense.all, .expert = sums->expert.all };
    ret->n = whole ? 1 : layout_dense_shards(l);
    ret->e = whole ? 1 : layout_expert_shards(l);
    ret->updated = ret->dense / ret->n + ret->expert / ret->e;
    ret->second = sums->dense.second / ret->n + sums->expert.second / ret->e;
    ret->gradients = scattered ? ret->updated : ret->dense + ret->expert;
}

/* Rings both ways. */
static double sum_seconds(const struct hardware *h, struct ranks ranks, double bytes)
{
    return gather_seconds(h, ranks, bytes) + scatter_seconds(h, ranks, bytes);
}

static const struct layer_tensors *class_tensors(const struct step_terms *t, int class)
{
    int layer = t->classes->layer[class];
    const struct model *m = t->in->model;
    return &t->in->sizes->tensors[m->layer_mixer[layer]][m->layer_ffn[layer]];
}

/* Of an adapter's two matrices the one that tensor parallelism does not split. */
static double whole_adapter(const struct primitives *p, const struct layer_tensor *t)
{
    double rows = (double)t->rows, cols = (double)t->cols, rank = p->lora_rank;
    return rank * (t->tp_axis < 0 ? rows + cols : t->tp_axis == 0 ? cols : rows);
}

/* Trained elements of a layer that ranks of tp (experts: etp) hold whole. */
static double whole_elements(const struct budget_input *in, const struct layer_tensors *tensors,
                             bool expert)
{
    const struct primitives *p = &in->choices->primitives;
    unsigned trained = trained_components(p), adapted = adapted_components(p);
    double ret = 0;
    for (int i = 0; i < tensors->count; i++) {
        const struct layer_tensor *t = &tensors->items[i];
        enum component component = (enum component)t->component;
        double copies = (double)t->copies / (expert ? in->choices->layout.ep : 1);
        if (t->expert != expert)
            continue;
        if (t->tp_axis < 0 && has_component(trained, component))
            ret += copies * (double)t->rows * (double)t->cols;
        if (t->matrix && has_component(adapted, component))
            ret += copies * whole_adapter(p, t);
    }
    return ret;
}

/* Ranks that split a layer's products each have a part of the gradient of what they hold whole. */
static double whole_seconds(const struct step_terms *t, const struct stage *stage,
                            const struct elements *part, bool expert)
{
    const struct budget_input *in = t->in;
    const struct layout *l = &in->choices->layout;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype), all = 0;
    struct ranks ranks = { expert ? l->etp : l->tp, 1 };
    if (ranks.size == 1)
        return 0;
    for (int c = 0; c < t->classes->count; c++)
        if (stage->classes[c] > 0)
            all += stage->classes[c] * whole_elements(in, class_tensors(t, c), expert);
    if (stage->has_head && terms_prediction(t))
        all += (double)(expert ? in->sizes->mtp_expert_whole / (uint64_t)l->ep
                               : in->sizes->mtp_dense_replicated);
    return sum_seconds(in->hardware, ranks, grad * all / (expert ? part->e : part->n));
}

/* The embedding's gradient on the stages that both hold it: the first, and the last where the head
 * is tied or prediction layers look up in it. Each sums the slice that it updates. */
static double copies_seconds(const struct budget_input *in, const struct stage_sums *sums,
                             const struct elements *part)
{
    const struct layout *l = &in->choices->layout;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    struct ranks ends = { 2, layout_world(l) / l->pp * (l->pp - 1) };
    return sum_seconds(in->hardware, ends, grad * sums->copied / part->n);
}

static double reduce_seconds(const struct budget_input *in, const struct elements *part)
{
    const struct layout *l = &in->choices->layout;
    const struct hardware *h = in->hardware;
    enum sharding sharding = in->choices->primitives.sharding;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    struct ranks d_rep = { l->d_rep, l->tp * l->cp * l->fsdp };
    struct ranks e_rep = { l->e_rep, l->etp * l->ep * l->e_fsdp };
    struct ranks dense = dense_shard_ranks(l), expert = expert_shard_ranks(l);
    double sums = sharding == SHARDING_REPLICATED ? grad : 0;    /* all-reduce: both ways */
    double scattered = sharding == SHARDING_ZERO1 ? grad : sums; /* zero1: then gathered */
    double gathered = sharding == SHARDING_ZERO1 || sharding == SHARDING_ZERO2 ? 2 : sums;
    double ret = sum_seconds(h, d_rep, grad * part->dense / part->n) +
                 sum_seconds(h, e_rep, grad * part->expert / part->e);
    ret += scatter_seconds(h, dense, scattered * part->dense) +
           scatter_seconds(h, expert, scattered * part->expert);
    return ret + gather_seconds(h, dense, gathered * part->dense) +
           gather_seconds(h, expert, gathered * part->expert);
}

/* AdamW is called for runs of tensors that decay alike, the norm for each part of a unit: of a
 * layer about six dense runs, and the experts. */
static double unit_calls(enum ffn ffn)
{
    return ffn == FFN_MOE ? 2 + 6 + 1 : 1 + 6;
}

static double optimizer_calls(const struct step_terms *t, const struct stage *stage)
{
    const struct model *m = t->in->model;
    double ret = 4;
    if (stage->has_head && terms_prediction(t))
        ret += m->mtp_layers * unit_calls(model_mtp_ffn(m));
    for (int c = 0; c < t->classes->count; c++)
        ret += stage->classes[c] * unit_calls((enum ffn)m->layer_ffn[t->classes->layer[c]]);
    return ret;
}

/* Bytes that the update of a rank's elements reads and writes, once each: master weights and
 * moments, which the optimizer may keep on the host. Without a master the weight is read. */
static double state_bytes(const struct primitives *p, const struct elements *part)
{
    double moment = (double)moment_bytes(p);
    return ((double)master_bytes(p) + moment) * part->updated + moment * part->second;
}

/* Master and moments read and written; the gradient read, twice with its norm; the weight written,
 * 2, and read where it is its own master; AdamW in fp32: 26 + 2g. A matrix of Muon's is written in
 * bf16, read for its norm, and read as an update: 6. From host memory, master and moments alone
 * come, while others go; gradients and weights stay on the device. */
static double update_seconds(const struct budget_input *in, const struct elements *part)
{
    const struct hardware *h = in->hardware;
    const struct primitives *p = &in->choices->primitives;
    double grad = (double)dtype_bytes(p->grad_dtype), state = state_bytes(p, part);
    double weight = p->master == MASTER_NONE ? 4 : 2, muon = 6 * (part->updated - part->second);
    double reached = h->optimizer_efficiency > 0 ? h->optimizer_efficiency : h->memory_efficiency;
    double both = h->host_link_both_bytes_per_second;
    if (!(p->offload & OFFLOAD_OPTIMIZER))
        return over(2 * state + (weight + 2 * grad) * part->updated + muon,
                    h->memory_bytes_per_second * reached);
    return both > 0 ? over(state, both) : over(2 * state, h->host_link_bytes_per_second);
}

static double optimizer_seconds(const struct step_terms *t, const struct stage *stage,
                                const struct elements *part)
{
    double calls = optimizer_calls(t, stage);
    double device = calls * t->machine->kernel + update_seconds(t->in, part);
    double host = calls * t->machine->launch;
    return device > host ? device : host;
}

/* Gradients zeroed at the step's start; a device does so beside the forward. */
static double zeroing_seconds(const struct step_terms *t, const struct stage *stage,
                              const struct elements *part)
{
    double grad = (double)dtype_bytes(t->in->choices->primitives.grad_dtype), forward = 0;
    double seconds = grad * part->gradients * t->machine->moved_byte;
    if (t->in->hardware->host)
        return seconds;
    for (int c = 0; c < t->classes->count; c++)
        forward += stage->classes[c] * t->kinds[c].forward;
    return positive(seconds - forward);
}

void end_of_step(const struct step_terms *t, const struct stage *stage,
                 const struct stage_sums *sums, const struct elements *part, double *item)
{
    item[TIME_ELEMENTWISE] = zeroing_seconds(t, stage, part);
    item[TIME_REDUCE] = reduce_seconds(t->in, part) + copies_seconds(t->in, sums, part) +
                        whole_seconds(t, stage, part, false) + whole_seconds(t, stage, part, true);
    item[TIME_OPTIMIZER] = optimizer_seconds(t, stage, part);
    if (t->in->choices->primitives.optimizer == OPTIMIZER_MUON)
        muon_end(t, stage, item);
}
