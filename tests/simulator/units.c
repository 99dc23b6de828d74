/* units.c - units of state from the tensor table: what stays, what is gathered for a use, gradients
 * on their way to the shard that keeps them. */
#include "tests/simulator/rank.h"

#include <stdlib.h>
#include <string.h>

enum { PAD_ELEMENTS = 64 };

/* Elements on this rank of tp, ep and etp; of the trained ones, those with a second moment. */
struct amount {
    uint64_t frozen, trained, second;
};

/* Of dense and expert tensors, by unit. */
struct tally {
    const struct rank *s;
    struct amount embedding, head, vision, mtp[2];
    struct amount (*layer)[2];
};

uint64_t sim_vocab(const struct rank *s)
{
    uint64_t vocab = (uint64_t)s->m->vocab, multiple = 128 * s->tp;
    if (vocab % s->tp != 0)
        vocab = (vocab + multiple - 1) / multiple * multiple;
    return vocab / s->tp;
}

static struct amount *tally_of(struct tally *t, const struct tensor *tensor)
{
    if (tensor->unit == UNIT_EMBEDDING)
        return &t->embedding;
    if (tensor->unit == UNIT_HEAD)
        return &t->head;
    if (tensor->unit == UNIT_VISION)
        return &t->vision;
    return tensor->unit == UNIT_MTP ? &t->mtp[tensor->mesh] : &t->layer[tensor->unit][tensor->mesh];
}

static int add_tensor(const struct tensor *tensor, void *context)
{
    struct tally *t = context;
    const struct rank *s = t->s;
    struct amount *to = tally_of(t, tensor);
    bool expert = tensor->mesh == MESH_EXPERT;
    uint64_t ranks = expert ? (uint64_t)s->l->etp : s->tp, n = 1, sides = 0;
    uint64_t copies = expert ? tensor->copies / (uint64_t)s->l->ep : tensor->copies;
    for (int i = 0; i < tensor->axes; i++) {
        uint64_t size = tensor->shape[i];
        if (i == tensor->tp_axis)
            size = size == (uint64_t)s->m->vocab && !expert ? sim_vocab(s) : size / ranks;
        n *= size;
        sides += size; /* A [r, in] and B [out, r] */
    }
    if (is_matrix(tensor)) {
        to->trained += adapter_rank(s, tensor->component) * sides * copies;
        to->second += adapter_rank(s, tensor->component) * sides * copies;
    }
    if (!trains(s, tensor->component)) {
        to->frozen += n * copies;
        return 0;
    }
    to->trained += n * copies;
    to->second += is_muons(s, tensor) ? 0 : n * copies;
    return 0;
}

static uint64_t pad(uint64_t elements, int shards)
{
    uint64_t to = (uint64_t)PAD_ELEMENTS * (uint64_t)shards;
    return (elements + to - 1) / to * to;
}

/* A flat run of tensors, so long that every shard has whole 64s; frozen ones are a run of their
 * own. */
static void add_part(struct unit *u, const struct amount *a, int shards, enum mesh mesh)
{
    struct part *part = &u->part[u->count];
    if (a->frozen + a->trained == 0)
        return;
    *part = (struct part){ 0, pad(a->trained, shards), pad(a->second, shards), shards, mesh };
    part->elements = part->trained + pad(a->frozen, shards);
    u->count++;
}

static int dense_shards(const struct rank *s)
{
    return s->l->fsdp * s->l->cp;
}

/* What is trained beside the text trunk is one unit of its stage: prediction layers of the last,
 * the tower of the first; the tower behind the layers where both are one. */
static void add_extra(struct rank *s, const struct tally *t)
{
    struct unit tower = { .count = 0 };
    if (s->predictions > 0) {
        add_part(&s->prediction, &t->mtp[MESH_DENSE], dense_shards(s), MESH_DENSE);
        add_part(&s->prediction, &t->mtp[MESH_EXPERT], s->l->e_fsdp, MESH_EXPERT);
    }
    s->extra = s->prediction;
    if (!s->m->vision_trained || !s->has_embedding)
        return;
    add_part(&tower, &t->vision, dense_shards(s), MESH_DENSE);
    if (s->extra.count > 0) {
        s->extra.part[0].elements += tower.part[0].elements;
        s->extra.part[0].trained += tower.part[0].trained;
        s->extra.part[0].second += tower.part[0].second;
    } else
        s->extra = tower;
}

void units_init(struct rank *s)
{
    struct tally t = { .s = s };
    t.layer = calloc(MODEL_MAX_LAYERS, sizeof t.layer[0]);
    s->layer = calloc((size_t)s->layers, sizeof s->layer[0]);
    model_tensors(s->m, add_tensor, &t);
    add_part(&s->embedding, &t.embedding, dense_shards(s), MESH_DENSE);
    add_part(&s->head, &t.head, dense_shards(s), MESH_DENSE);
    for (int i = 0; i < s->layers; i++) {
        add_part(&s->layer[i], &t.layer[s->first + i][MESH_DENSE], dense_shards(s), MESH_DENSE);
        add_part(&s->layer[i], &t.layer[s->first + i][MESH_EXPERT], s->l->e_fsdp, MESH_EXPERT);
    }
    add_extra(s, &t);
    if (s->m->vision_frozen)
        add_part(&s->frozen, &t.vision, dense_shards(s), MESH_DENSE);
    free(t.layer);
}

void units_done(struct rank *s)
{
    free(s->layer);
}

static uint64_t grad_bytes(const struct rank *s)
{
    return s->p->grad_dtype == DTYPE_BF16 ? 2 : 4;
}

static uint64_t master_bytes(const struct rank *s)
{
    return s->p->master == MASTER_NONE ? 0 : 4;
}

static uint64_t moment_bytes(const struct rank *s)
{
    return s->p->moments_dtype == DTYPE_BF16 ? 2 : 4;
}

/* A first step makes them later, in one piece here. */
static void keep_moments(struct rank *s, uint64_t bytes)
{
    if (s->first_step)
        s->moments += make_size(bytes);
    else
        make(s, ITEM_MOMENTS, bytes);
}

void make_moments(struct rank *s)
{
    make(s, ITEM_MOMENTS, s->moments);
}

/* Master weights and moments of a part: on the device, or on the host. */
static void make_optimizer(struct rank *s, uint64_t elements, uint64_t second)
{
    uint64_t master = master_bytes(s) * elements, both = 2 * moment_bytes(s) * second;
    uint64_t first = moment_bytes(s) * (elements - second);
    if (s->p->offload & OFFLOAD_OPTIMIZER) {
        s->ledger->host_bytes += make_size(master) + make_size(both) + make_size(first);
        return;
    }
    make(s, ITEM_MASTER, master);
    keep_moments(s, both);
    keep_moments(s, first);
}

static void keep_state(struct rank *s, const struct unit *u)
{
    enum sharding how = s->p->sharding;
    for (int i = 0; i < u->count; i++) {
        const struct part *part = &u->part[i];
        uint64_t n = part->trained, of = (uint64_t)part->shards, frozen = part->elements - n;
        bool grad_whole = how == SHARDING_REPLICATED || how == SHARDING_ZERO1;
        uint64_t weights = how == SHARDING_FSDP ? of : 1,
                 state = how == SHARDING_REPLICATED ? 1 : of;
        make(s, ITEM_WEIGHTS, 2 * (n / weights));
        make(s, ITEM_WEIGHTS, 2 * (frozen / weights));
        make(s, ITEM_GRADIENTS, grad_bytes(s) * (grad_whole ? n : n / of));
        make_optimizer(s, n / state, part->second / state);
    }
}

/* A prediction looks up in it too. */
static bool holds_embedding(const struct rank *s)
{
    return s->has_embedding || (s->has_head && s->m->tied) || s->predictions > 0;
}

/* Buckets of the offloaded optimizer pass through their slots; never more than there is state. */
static void make_slots(struct rank *s, uint64_t state)
{
    if (!(s->p->offload & OFFLOAD_OPTIMIZER))
        return;
    for (int i = 0; i < s->p->slots && state > 0; i++) {
        uint64_t bucket = s->p->bucket_params < state ? s->p->bucket_params : state;
        make(s, ITEM_MASTER, master_bytes(s) * bucket);
        keep_moments(s, 2 * moment_bytes(s) * bucket);
        state -= bucket;
    }
}

static uint64_t state_elements(const struct rank *s, const struct unit *u)
{
    uint64_t sum = 0;
    for (int i = 0; i < u->count; i++)
        sum += s->p->sharding == SHARDING_REPLICATED
                   ? u->part[i].trained
                   : u->part[i].trained / (uint64_t)u->part[i].shards;
    return sum;
}

/* Every unit that the stage trains, one after another; returns how many. */
static int trained_units(struct rank *s, struct unit **ret)
{
    int n = 0;
    if (holds_embedding(s))
        ret[n++] = &s->embedding;
    for (int i = 0; i < s->layers; i++)
        ret[n++] = &s->layer[i];
    if (s->has_head)
        ret[n++] = &s->head;
    ret[n++] = &s->extra;
    return n;
}

/* The reference model has the weights that the policy has; under adapters it is the policy. */
static void make_reference(struct rank *s)
{
    uint64_t bytes = s->ledger->live[ITEM_WEIGHTS];
    if (!(s->p->rl & RL_REFERENCE) || s->p->lora_rank > 0)
        return;
    if (s->p->reference_weights == REFERENCE_HOST)
        s->ledger->host_bytes += bytes;
    else
        make(s, ITEM_REFERENCE_WEIGHTS, bytes);
}

/* What a rank holds of a unit's weights. */
static uint64_t held_weights(const struct rank *s, const struct unit *u)
{
    uint64_t sum = 0;
    for (int i = 0; i < u->count; i++) {
        const struct part *part = &u->part[i];
        uint64_t of = s->p->sharding == SHARDING_FSDP ? (uint64_t)part->shards : 1;
        sum += make_size(2 * (part->trained / of));
        sum += make_size(2 * ((part->elements - part->trained) / of));
    }
    return sum;
}

/* One unit at work, one arriving: either may be the largest that the pass uses. */
struct held make_reference_slots(struct rank *s)
{
    uint64_t most = 0;
    bool none = !(s->p->rl & RL_REFERENCE) || s->p->lora_rank > 0 ||
                s->p->reference_weights != REFERENCE_HOST;
    if (none)
        return (struct held){ ITEM_REFERENCE_WEIGHTS, 0 };
    if (s->has_embedding || (s->has_head && s->m->tied))
        most = held_weights(s, &s->embedding);
    for (int i = 0; i < s->layers; i++) {
        uint64_t bytes = held_weights(s, &s->layer[i]);
        most = bytes > most ? bytes : most;
    }
    if (s->has_head) {
        uint64_t bytes = held_weights(s, &s->head);
        most = bytes > most ? bytes : most;
    }
    return make(s, ITEM_REFERENCE_WEIGHTS, 2 * most);
}

/* bf16: a rank's slice of a part is copied out; rank 0 takes in those of all ranks of the stage,
 * its own once more, and puts together what the slices are of. */
static uint64_t save_part(const struct rank *s, const struct part *part, bool first_rank)
{
    const struct layout *l = s->l;
    uint64_t shards = s->p->sharding == SHARDING_REPLICATED ? 1 : (uint64_t)part->shards;
    uint64_t slice = 2 * (part->elements / shards), bytes = slice;
    int ranks = l->tp * l->cp * l->fsdp * l->d_rep, different = l->tp;
    if (part->mesh == MESH_EXPERT)
        different = l->ep * l->etp;
    for (int i = 0; first_rank && i < ranks; i++)
        bytes += slice;
    for (int i = 0; first_rank && i < different; i++)
        bytes += 2 * part->elements;
    return bytes;
}

uint64_t save_most(struct rank *s, bool first_rank)
{
    struct unit *all[MODEL_MAX_LAYERS + 4];
    int n = trained_units(s, all);
    uint64_t most = 0;
    for (int u = 0; u < n; u++) {
        bool copy = all[u] == &s->embedding && !s->has_embedding; /* the first stage saves it */
        for (int i = 0; i < all[u]->count && !copy; i++) {
            uint64_t bytes = save_part(s, &all[u]->part[i], first_rank);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

void make_state(struct rank *s)
{
    struct unit *all[MODEL_MAX_LAYERS + 4];
    int n = trained_units(s, all);
    uint64_t state = 0;
    for (int i = 0; i < n; i++) {
        keep_state(s, all[i]);
        state += state_elements(s, all[i]);
    }
    if (s->has_embedding && s->frozen.count > 0) {
        uint64_t e = s->frozen.part[0].elements;
        make(s, ITEM_WEIGHTS,
             2 * (s->p->sharding == SHARDING_FSDP ? e / (uint64_t)dense_shards(s) : e));
    }
    make_slots(s, state);
    make_reference(s);
}

/* Layers are their numbers; these stand for the others. */
enum { USE_EMBEDDING = -1, USE_HEAD = -2, USE_PREDICTIONS = -3 };

void begin_order(struct rank *s, const struct run *run, bool returns)
{
    memset(s->issued, 0, sizeof s->issued);
    s->uses = 0;
    if (!run)
        return;
    if (run->first && s->has_embedding)
        s->order[s->uses++] = USE_EMBEDDING;
    for (int i = run->from; i < run->to; i++)
        s->order[s->uses++] = i;
    if (returns && s->predictions > 0 && !s->forward_only)
        s->order[s->uses++] = USE_PREDICTIONS;
    if (returns)
        s->order[s->uses++] = USE_HEAD;
    for (int i = run->to - 1; returns && !s->forward_only && i >= run->from; i--)
        s->order[s->uses++] = i;
}

static int gather_unit(struct rank *s, const struct unit *u, struct held *ret)
{
    int n = 0;
    for (int i = 0; i < u->count; i++)
        if (u->part[i].shards > 1)
            ret[n++] = make(s, ITEM_GATHERED_WEIGHTS, 2 * u->part[i].elements);
    return n;
}

static void gather(struct rank *s, int use)
{
    int which = s->order[use], n = 0;
    struct held *to = s->gathered[use];
    memset(to, 0, sizeof s->gathered[use]);
    if (which >= 0)
        (void)gather_unit(s, &s->layer[which], to);
    if (which == USE_HEAD && s->p->loss == LOSS_RING_DTP) /* its shards circulate */
        return;
    if (which == USE_EMBEDDING || which == USE_PREDICTIONS || (which == USE_HEAD && s->m->tied))
        n = gather_unit(s, &s->embedding, to);
    if (which == USE_PREDICTIONS)
        (void)gather_unit(s, &s->prediction, to + n);
    if (which == USE_HEAD)
        (void)gather_unit(s, &s->head, to + n);
}

void begin_use(struct rank *s, int use)
{
    if (s->p->sharding != SHARDING_FSDP)
        return;
    for (int i = use; i <= use + s->p->prefetch_units && i < s->uses; i++) {
        if (!s->issued[i])
            gather(s, i);
        s->issued[i] = true;
    }
}

void end_use(struct rank *s, int use)
{
    if (s->p->sharding == SHARDING_FSDP)
        for (int i = 0; i < SIM_MAX_PARTS; i++)
            drop(s, &s->gathered[use][i]);
}

/* The parts of a unit, and of a second one that goes with it, whose gradients are shared. */
static int shared_parts(const struct rank *s, const struct unit *unit, const struct unit *second,
                        struct part *ret)
{
    const struct unit *both[] = { unit, second };
    int n = 0;
    if (s->p->sharding != SHARDING_FSDP && s->p->sharding != SHARDING_ZERO2)
        return 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; both[k] && i < both[k]->count; i++)
            if (both[k]->part[i].shards > 1)
                ret[n++] = both[k]->part[i];
    return n;
}

struct unit_gradients open_gradients(struct rank *s, const struct unit *unit,
                                     const struct unit *second)
{
    struct unit_gradients ret = { .unit = unit, .second = second };
    struct part part[2 * SIM_MAX_PARTS];
    int n = shared_parts(s, unit, second, part);
    for (int i = 0; i < n; i++)
        ret.full[i] = make(s, ITEM_GATHERED_GRADIENTS, grad_bytes(s) * part[i].trained);
    return ret;
}

void drop_old(struct rank *s)
{
    for (int i = 0; i < SIM_MAX_PARTS; i++) {
        drop(s, &s->old[i]);
        drop(s, &s->old_receive[i]);
    }
}

void close_gradients(struct rank *s, struct unit_gradients *gradients)
{
    struct part part[2 * SIM_MAX_PARTS];
    int n = shared_parts(s, gradients->unit, gradients->second, part);
    bool later = s->p->comm_streams == 2;
    if (later)
        drop_old(s);
    for (int i = 0; i < n; i++) {
        struct held receive = make(s, ITEM_GATHERED_GRADIENTS,
                                   grad_bytes(s) * part[i].trained / (uint64_t)part[i].shards);
        if (later) {
            s->old[i] = gradients->full[i];
            s->old_receive[i] = receive;
        } else {
            drop(s, &receive);
            drop(s, &gradients->full[i]);
        }
    }
}

void reduce_state(struct rank *s)
{
    struct unit *all[MODEL_MAX_LAYERS + 4];
    int n = trained_units(s, all);
    if (s->p->sharding != SHARDING_ZERO1)
        return;
    for (int u = 0; u < n; u++)
        for (int i = 0; i < all[u]->count; i++) {
            const struct part *part = &all[u]->part[i];
            if (part->shards == 1)
                continue;
            struct held receive = make(s, ITEM_GATHERED_GRADIENTS,
                                       grad_bytes(s) * part->trained / (uint64_t)part->shards);
            drop(s, &receive);
        }
}
