#include "planner/predict/shared.h"

#include "base/checked.h"

#include <string.h>

static void forget_optimizer(struct primitives *p)
{
    p->optimizer = (enum optimizer)0;
    p->moments_dtype = (enum dtype)0;
    p->master = (enum master)0;
}

/* What the layers of a micro-batch do not depend on. Selective recompute would be a matter of the
 * layers themselves and stays. */
static void forget_state_and_loss(struct primitives *p)
{
    p->sharding = (enum sharding)0;
    p->grad_dtype = p->logits_dtype = (enum dtype)0;
    p->recompute = p->recompute == RECOMPUTE_SELECTIVE ? p->recompute : (enum recompute)0;
    p->recompute_layers = 0;
    p->loss = (enum loss)0;
    p->prefetch_units = p->comm_streams = 0;
    p->offload = 0;
    p->sco_host_bytes = p->bucket_params = 0;
    p->slots = p->vocab_group = p->vocab_strip = p->loss_tile_tokens = 0;
    forget_optimizer(p);
}

/* Whatever makes a layer, and what is fetched or kept elsewhere around it. */
static void forget_layers(struct primitives *p)
{
    p->recompute = (enum recompute)0;
    p->recompute_layers = p->keep_attention = 0;
    p->moe = (enum moe_schedule)0;
    p->moe_chunks = p->wgrad_delay = 0;
    p->moe_cap_tokens = 0;
    p->exchange = (enum exchange)0;
    p->context = (enum context)0;
    p->linear_context = (enum linear_context)0;
    p->prefetch_units = p->comm_streams = 0;
    p->offload = 0;
    p->sco_host_bytes = p->bucket_params = 0;
    p->slots = 0;
}

/* What units of state do not depend on. */
static void forget_layers_and_loss(struct primitives *p)
{
    forget_layers(p);
    p->logits_dtype = (enum dtype)0;
    p->loss = (enum loss)0;
    p->vocab_group = p->vocab_strip = p->loss_tile_tokens = 0;
}

static void forget_layers_and_state(struct primitives *p)
{
    forget_layers(p);
    forget_optimizer(p);
    p->sharding = (enum sharding)0;
}

/* Where a body's kinds and seconds are: behind it. */
static void take_room(const struct predictor *p, struct body *ret)
{
    ret->bytes = (void *)(ret + 1);
    ret->seconds = (void *)(ret->bytes + ROW_SETS * body_kinds(p));
}

size_t body_size(const struct predictor *p)
{
    return sizeof(struct body) + (size_t)(ROW_SETS * body_kinds(p)) * sizeof(struct kind_bytes) +
           (size_t)(DTYPE_COUNT * (p->classes.count + 1)) * sizeof(struct kind_seconds);
}

static void body_init(struct predictor *p, int group, struct body *ret)
{
    const struct budget_input *in = &p->in;
    struct rows_received rows = dispatch_rows(in, group);
    take_room(p, ret);
    ret->rows[ROWS_POINT] = in->slowest ? dispatch_most_rows(in) : rows.point;
    ret->rows[ROWS_HIGH] = in->hardware->host ? rows.upper : dispatch_reserved(in);
    ret->checkpoint = arena_bytes(mul_sat(norm_tokens(in), (uint64_t)in->model->hidden), 2);
    ret->inputs = inputs_bytes(in);
}

struct body *shared_body(struct predictor *p, int group)
{
    const struct layout *l = &p->in.choices->layout;
    struct body_key key;
    bool known;
    if (group == -1 && p->current.body)
        return p->current.body;
    p->current.body = NULL; /* the table may need its place */
    memset(&key, 0, sizeof key);
    key.tp = l->tp;
    key.cp = l->cp;
    key.ep = l->ep;
    key.etp = l->etp;
    key.micro_batch = l->micro_batch;
    key.group = group;
    key.pieces = packed_pieces(&p->in);
    memcpy(&key.primitives, &p->in.choices->primitives, sizeof key.primitives);
    forget_state_and_loss(&key.primitives);
    struct body *body = memo_find(&p->bodies, &key, &known);
    if (!known)
        body_init(p, group, body);
    if (group == -1)
        p->current.body = body;
    return body;
}

/* Mixer, feed-forward half and choices of a kind. */
struct kind_facts {
    enum mixer mixer;
    enum ffn ffn;
    struct budget_input in;
    struct choices choices; /* where they are not the layout's */
};

static void kind_facts_init(const struct predictor *p, int kind, struct kind_facts *ret)
{
    const struct model *m = p->in.model;
    int classes = p->classes.count;
    ret->in = p->in;
    if (kind == kind_of_prediction(p)) {
        ret->mixer = model_mtp_mixer(m);
        ret->ffn = model_mtp_ffn(m);
        ret->choices = predicted_choices(&p->in);
        ret->in.choices = &ret->choices;
        return;
    }
    int layer = p->classes.layer[kind < classes ? kind : kind - classes];
    ret->mixer = (enum mixer)m->layer_mixer[layer];
    ret->ffn = kind < classes ? (enum ffn)m->layer_ffn[layer] : FFN_NONE;
}

const struct step_layer *shared_layer(struct predictor *p, const struct budget_input *in,
                                      enum mixer mixer, enum ffn ffn)
{
    struct step_kind key;
    bool known;
    layer_kind(in, mixer, ffn, &key);
    struct structure *structure = memo_find(&p->structures, &key, &known);
    if (!known)
        step_layer_init(&key, &structure->layer);
    return &structure->layer;
}

static void kind_sizes(const struct kind_facts *facts, uint64_t received, struct step_sizes *ret)
{
    layer_sizes(&facts->in, received, ret);
    layer_sizes_mixer(&facts->in, facts->mixer, ret);
}

static void kind_init(struct predictor *p, uint64_t received, int kind, struct kind_bytes *ret)
{
    struct kind_facts facts;
    struct step_sizes sizes;
    kind_facts_init(p, kind, &facts);
    kind_sizes(&facts, received, &sizes);
    const struct step_layer *layer = shared_layer(p, &facts.in, facts.mixer, facts.ffn);
    for (int mode = 0; mode < MODE_COUNT; mode++)
        layer_bytes_fold(&layer->pass[mode], &sizes, &ret->mode[mode]);
}

void body_learn(struct predictor *p, struct body *body, int rows, int kind)
{
    kind_init(p, body->rows[rows], kind, &body->bytes[rows * body_kinds(p) + kind]);
    body->known[rows][kind] = 1;
}

void measured_bytes(struct predictor *p, int kind, uint64_t received, const uint64_t *chunks,
                    enum step_mode mode, struct layer_bytes *ret)
{
    struct kind_facts facts;
    struct step_sizes sizes;
    kind_facts_init(p, kind, &facts);
    kind_sizes(&facts, received, &sizes);
    sizes.chunks.received = chunks;
    layer_bytes_fold(&shared_layer(p, &facts.in, facts.mixer, facts.ffn)->pass[mode], &sizes, ret);
}

void seconds_at(struct predictor *p, uint64_t received, struct kind_seconds *ret)
{
    struct kind_facts facts;
    struct step_sizes sizes;
    int kinds = p->classes.count + (model_predicts(p->in.model) ? 1 : 0);
    for (int c = 0; c < kinds; c++) {
        bool predicted = c == p->classes.count;
        kind_facts_init(p, predicted ? kind_of_prediction(p) : c, &facts);
        kind_sizes(&facts, received, &sizes);
        kind_seconds_init(&facts.in, &p->machine, &sizes, facts.mixer,
                          shared_layer(p, &facts.in, facts.mixer, facts.ffn), &ret[c]);
        if (predicted)
            add_joins(&p->in, &p->machine, &ret[c]);
    }
}

const struct kind_seconds *shared_seconds(struct predictor *p, struct body *body)
{
    enum dtype dtype = p->in.choices->primitives.grad_dtype;
    struct kind_seconds *seconds = body->seconds + (int)dtype * (p->classes.count + 1);
    if (!body->timed[dtype])
        seconds_at(p, body->rows[ROWS_POINT], seconds);
    body->timed[dtype] = 1;
    return seconds;
}

static void unit_shared_init(struct predictor *p, struct unit unit, struct unit_shared *ret)
{
    ret->unit = unit;
    ret->gathered = unit_gathered_bytes(&p->in, &unit);
    ret->receive = unit_receive_bytes(&p->in, &unit);
    unit_gradient_bytes(&p->in, &unit, &ret->gradient);
    unit_seconds_init(&p->in, &unit, &ret->seconds);
    if (unit.dense || unit.expert)
        unit_state_add(&p->in, &unit, ret->state);
}

static void muon_init(struct predictor *p, struct units *ret)
{
    for (int c = 0; c < p->classes.count; c++) {
        enum mixer mixer = (enum mixer)p->in.model->layer_mixer[p->classes.layer[c]];
        enum ffn ffn = (enum ffn)p->in.model->layer_ffn[p->classes.layer[c]];
        ret->muon[c] = (struct muon_bytes){ 0, 0 };
        muon_bytes_raise(&p->in, mixer, ffn, &ret->muon[c]);
        muon_unit_init(&p->in, &p->machine, mixer, ffn, &ret->muon_seconds[c]);
    }
}

static void units_init(struct predictor *p, struct units *ret)
{
    struct end_units last, first;
    for (int c = 0; c < p->classes.count; c++)
        unit_shared_init(p, layer_unit(&p->in, p->classes.layer[c]), &ret->layer[c]);
    if (p->in.choices->primitives.optimizer == OPTIMIZER_MUON)
        muon_init(p, ret);
    end_units_init(&p->in, p->in.choices->layout.pp - 1, &last);
    end_units_init(&p->in, 0, &first);
    unit_shared_init(p, last.embedding, &ret->embedding);
    unit_shared_init(p, last.head, &ret->head);
    unit_shared_init(p, last.prediction, &ret->prediction);
    unit_shared_init(p, last.extra, &ret->last_extra);
    unit_shared_init(p, first.extra, &ret->first_extra);
}

const struct units *shared_units(struct predictor *p)
{
    const struct layout *l = &p->in.choices->layout;
    struct units_key key;
    bool known;
    if (p->current.units)
        return p->current.units;
    memset(&key, 0, sizeof key);
    key.tp = l->tp;
    key.ep = l->ep;
    key.etp = l->etp;
    key.dense_shards = layout_dense_shards(l);
    key.expert_shards = layout_expert_shards(l);
    key.single = l->pp == 1;
    memcpy(&key.primitives, &p->in.choices->primitives, sizeof key.primitives);
    forget_layers_and_loss(&key.primitives);
    struct units *units = memo_find(&p->units, &key, &known);
    if (!known)
        units_init(p, units);
    return p->current.units = units;
}

uint64_t shared_links(struct predictor *p)
{
    const struct layout *l = &p->in.choices->layout;
    struct links_key key;
    bool known;
    const int degrees[] = { l->tp,  l->pp,   l->vpp,   l->cp,     l->ep,
                            l->etp, l->fsdp, l->d_rep, l->e_fsdp, l->e_rep };
    if (p->current.links)
        return p->current.links->bytes;
    memset(&key, 0, sizeof key);
    memcpy(key.degrees, degrees, sizeof degrees);
    memcpy(&key.primitives, &p->in.choices->primitives, sizeof key.primitives);
    enum linear_context linear = key.primitives.linear_context;
    enum context context = key.primitives.context;
    enum exchange exchange = key.primitives.exchange;
    forget_layers_and_loss(&key.primitives);
    forget_optimizer(&key.primitives);
    key.primitives.optimizer = p->in.choices->primitives.optimizer;
    key.primitives.sharding = (enum sharding)0;
    key.primitives.grad_dtype = (enum dtype)0;
    key.primitives.lora_rank = 0;
    key.primitives.lora_targets = key.primitives.frozen = 0;
    key.primitives.linear_context = linear;
    key.primitives.context = context;
    key.primitives.exchange = exchange;
    struct links *links = memo_find(&p->links, &key, &known);
    if (!known)
        links->bytes = communicator_bytes(&p->in);
    p->current.links = links;
    return links->bytes;
}

const struct loss_shared *shared_loss(struct predictor *p)
{
    const struct layout *l = &p->in.choices->layout;
    struct loss_key key;
    bool known;
    if (p->current.loss)
        return p->current.loss;
    memset(&key, 0, sizeof key);
    key.tp = l->tp;
    key.cp = l->cp;
    key.micro_batch = l->micro_batch;
    memcpy(&key.primitives, &p->in.choices->primitives, sizeof key.primitives);
    forget_layers_and_state(&key.primitives);
    struct loss_shared *loss = memo_find(&p->losses, &key, &known);
    p->current.loss = loss;
    if (known)
        return loss;
    loss_bytes(&p->in, &loss->bytes);
    loss_cost(&p->in, &p->machine, &loss->pass);
    loss->logprob = logprob_head_seconds(&p->in, &p->machine);
    return loss;
}

const struct pipeline *shared_pipeline(struct predictor *p, enum detail detail)
{
    struct pipeline_key key;
    bool known;
    if (p->current.pipeline[detail])
        return p->current.pipeline[detail];
    memset(p->current.pipeline, 0, sizeof p->current.pipeline); /* the table may need its place */
    pipeline_key_init(p->in.choices, detail, &key);
    struct pipeline *pipeline = memo_find(&p->pipelines, &key, &known);
    if (!known)
        pipeline_init(&p->classes, pipeline);
    return p->current.pipeline[detail] = pipeline;
}

const struct unit_shared *stage_extra(const struct units *units, const struct stage *stage)
{
    static const struct unit_shared nothing = { .gathered = 0 };
    if (stage->has_head)
        return &units->last_extra;
    return stage->has_embedding ? &units->first_extra : &nothing;
}

static void add_state(const struct unit_shared *unit, uint64_t times, uint64_t *items)
{
    static const enum item kept[] = { ITEM_WEIGHTS, ITEM_MASTER, ITEM_MOMENTS, ITEM_GRADIENTS };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        items[kept[i]] = add_sat(items[kept[i]], mul_sat(times, unit->state[kept[i]]));
}

uint64_t stage_items(struct predictor *p, const struct stage *stage, const struct units *units,
                     uint64_t *items)
{
    for (int c = 0; c < p->classes.count; c++)
        add_state(&units->layer[c], stage->classes[c], items);
    if (stage_holds_embedding(p->in.model, stage))
        add_state(&units->embedding, 1, items);
    if (stage->has_head)
        add_state(&units->head, 1, items);
    add_state(stage_extra(units, stage), 1, items);
    if (stage->has_embedding)
        frozen_state_add(&p->in, items);
    uint64_t host = state_offload(&p->in.choices->primitives, items);
    host = add_sat(host, reference_add(&p->in, items));
    runtime_add(&p->in, items);
    return host;
}

const struct stage *stage_at(struct predictor *p, int index)
{
    return &shared_pipeline(p, DETAIL_STAGES)->stages[index];
}

static void raise_to(uint64_t *most, uint64_t bytes)
{
    *most = bytes > *most ? bytes : *most;
}

struct muon_bytes stage_muon_bytes(const struct predictor *p, const struct units *units,
                                   const struct stage *stage)
{
    struct muon_bytes ret = { 0, 0 };
    if (p->in.choices->primitives.optimizer != OPTIMIZER_MUON)
        return ret;
    for (int c = 0; c < p->classes.count; c++)
        if (stage->classes[c]) {
            raise_to(&ret.gathered, units->muon[c].gathered);
            raise_to(&ret.workspace, units->muon[c].workspace);
        }
    return ret;
}

uint64_t stage_largest_weights(const struct predictor *p, const struct units *units,
                               const struct stage *stage)
{
    uint64_t largest = 0;
    for (int c = 0; c < p->classes.count; c++)
        if (stage->classes[c])
            raise_to(&largest, units->layer[c].state[ITEM_WEIGHTS]);
    if (stage->has_embedding || (stage->has_head && p->in.model->tied))
        raise_to(&largest, units->embedding.state[ITEM_WEIGHTS]);
    if (stage->has_head)
        raise_to(&largest, units->head.state[ITEM_WEIGHTS]);
    return largest;
}
