/* trained.c - what is trained: weights, adapters in their place, matrices that Muon updates. */
#include "tests/simulator/rank.h"

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

bool reads_inputs(const struct rank *s, enum component component)
{
    return trains(s, component) || adapter_rank(s, component) > 0;
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
