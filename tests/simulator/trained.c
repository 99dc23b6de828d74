/* trained.c - what is trained: weights, adapters in their place, matrices that Muon updates. */
#include "tests/simulator/rank.h"

#include <string.h>

bool trains(const struct rank *s, enum component component)
{
    return s->p->lora_rank == 0 && (s->p->frozen >> component & 1U) == 0;
}

uint64_t adapter_rank(const struct rank *s, enum component component)
{
    static const unsigned targets[COMPONENT_COUNT] = {
        [COMPONENT_ATTENTION] = LORA_ATTENTION, [COMPONENT_LINEAR_ATTENTION] = LORA_ATTENTION,
        [COMPONENT_DENSE_MLP] = LORA_MLP,       [COMPONENT_SHARED_EXPERT] = LORA_MLP,
        [COMPONENT_EXPERTS] = LORA_EXPERTS,
    };
    return s->p->lora_targets & targets[component] ? (uint64_t)s->p->lora_rank : 0;
}

/* Of a prediction layer everything, since it is a component of its own. */
bool layer_trains(const struct layer *y, enum component component)
{
    return trains(y->s, y->predicted ? COMPONENT_MTP : component);
}

bool reads_inputs(const struct layer *y, enum component component)
{
    return layer_trains(y, component) || adapter_rank(y->s, component) > 0;
}

static enum component component_of(enum mixer mixer)
{
    bool linear = mixer == MIXER_GDN || mixer == MIXER_LIGHTNING || mixer == MIXER_MAMBA;
    return linear ? COMPONENT_LINEAR_ATTENTION : COMPONENT_ATTENTION;
}

bool mixer_reads(const struct layer *y)
{
    bool index = y->mixer == MIXER_DSA && reads_inputs(y, COMPONENT_INDEXER);
    return index || reads_inputs(y, component_of(y->mixer));
}

/* q, k and v; down projections of queries (or queries) and keys; what a recurrence has. */
struct held input_adapter(struct layer *y)
{
    static const uint64_t inputs[MIXER_COUNT] = {
        [MIXER_GQA] = 3,        [MIXER_LOCAL] = 3,     [MIXER_MLA] = 2,  [MIXER_DSA] = 2,
        [MIXER_DSA_SHARED] = 2, [MIXER_LIGHTNING] = 2, [MIXER_MAMBA] = 1
    };
    uint64_t n = y->mixer == MIXER_GDN ? y->s->delta_inputs : inputs[y->mixer];
    return working(y, 2 * y->s->T * n * adapter_rank(y->s, component_of(y->mixer)));
}

struct held output_adapter(struct layer *y)
{
    return working(y, 2 * y->s->T * adapter_rank(y->s, component_of(y->mixer)));
}

struct held output_backward(struct layer *y, uint64_t bytes)
{
    enum component component = component_of(y->mixer);
    struct held again = working(y, reads_inputs(y, component) ? bytes : 0);
    if (y->mixer == MIXER_DSA && again.bytes == 0 && mixer_reads(y))
        again = working(y, bytes);
    struct held adapter = output_adapter(y), ret = output_adapter(y);
    drop(y->s, &again);
    drop(y->s, &adapter);
    return ret;
}

static int count_matrices(const struct tensor *tensor, void *context)
{
    struct rank *s = context;
    int layer = 0;
    while (layer < s->m->layers && s->m->layer_mixer[layer] != MIXER_GDN)
        layer++;
    s->delta_inputs += tensor->unit == layer && is_matrix(tensor) && tensor->tp_axis == 0 &&
                       tensor->component == COMPONENT_LINEAR_ATTENTION;
    s->fused_experts |= tensor->component == COMPONENT_EXPERTS && is_matrix(tensor) &&
                        strstr(tensor->name, "gate_up") != NULL;
    return 0;
}

void count_adapted(struct rank *s)
{
    model_tensors(s->m, count_matrices, s);
}

uint64_t expert_up_adapters(const struct rank *s)
{
    uint64_t r = adapter_rank(s, COMPONENT_EXPERTS);
    return s->fused_experts ? r : gate_up_width(s, r);
}

bool is_matrix(const struct tensor *tensor)
{
    return tensor->unit >= 0 && tensor->matmul && tensor->axes == 2 && tensor->shape[0] > 1 &&
           tensor->shape[1] > 1;
}

bool is_muons(const struct rank *s, const struct tensor *tensor)
{
    return s->p->optimizer == OPTIMIZER_MUON && is_matrix(tensor) &&
           tensor->component != COMPONENT_ROUTER && trains(s, tensor->component);
}

/* A step's matrices, one after another, through buffers that hold the largest. */
struct matrices {
    struct rank *s;
    uint64_t gathered, work;
};

static int consider(const struct tensor *tensor, void *context)
{
    struct matrices *all = context;
    struct rank *s = all->s;
    const struct layout *l = s->l;
    bool expert = tensor->mesh == MESH_EXPERT;
    bool mine = tensor->unit >= s->first && tensor->unit < s->first + s->layers;
    if (!mine || !is_muons(s, tensor))
        return 0;
    int ranks = expert ? l->etp : l->tp;
    if (s->p->sharding != SHARDING_REPLICATED)
        ranks *= expert ? l->e_fsdp : l->fsdp * l->cp;
    uint64_t a = tensor->shape[0], b = tensor->shape[1], m = a < b ? a : b;
    uint64_t x = make_size(2 * a * b), work = 2 * make_size(2 * m * m) + x;
    if (ranks == 1)
        work += x;
    else if (2 * x > all->gathered)
        all->gathered = 2 * x;
    all->work = work > all->work ? work : all->work;
    return 0;
}

void play_optimizer(struct rank *s)
{
    struct matrices all = { .s = s };
    model_tensors(s->m, consider, &all);
    struct held gathered = make(s, ITEM_GATHERED_GRADIENTS, all.gathered);
    struct held work = make(s, ITEM_WORKSPACE, all.work);
    drop(s, &gathered);
    drop(s, &work);
}
