#include "planner/estimate/shared.h"

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

static void body_init(struct estimator *e, struct body *ret)
{
    const struct budget_input *in = &e->in;
    struct rows_received rows = dispatch_rows(in, -1);
    ret->rows[ROWS_POINT] = rows.point;
    ret->rows[ROWS_HIGH] = in->hardware->host ? rows.upper : dispatch_reserved(in);
    ret->checkpoint = arena_bytes(mul_sat(norm_tokens(in), (uint64_t)in->model->hidden), 2);
    ret->inputs = inputs_bytes(in);
}

struct body *shared_body(struct estimator *e)
{
    const struct layout *l = &e->in.choices->layout;
    struct body_key key;
    bool known;
    memset(&key, 0, sizeof key);
    key.tp = l->tp;
    key.cp = l->cp;
    key.ep = l->ep;
    key.etp = l->etp;
    key.micro_batch = l->micro_batch;
    key.pieces = packed_pieces(&e->in);
    memcpy(&key.primitives, &e->in.choices->primitives, sizeof key.primitives);
    forget_state_and_loss(&key.primitives);
    struct body *body = memo_find(&e->bodies, &key, &known);
    if (!known)
        body_init(e, body);
    return body;
}

static struct kind_peak peak_of(const struct residency *table)
{
    const uint64_t *live = table->live[table->peak_step];
    return (struct kind_peak){ table->peak, live[OWNER_WORKSPACE], table->bare,
                               table->bare_live[OWNER_WORKSPACE], table->kept };
}

static void kind_init(struct estimator *e, struct body *body, int rows, enum mixer mixer,
                      enum ffn ffn, enum residency_mode mode)
{
    struct residency_shape shape;
    struct residency table;
    working_shape(&e->in, body->rows[rows], &shape);
    working_shape_mixer(&e->in, mixer, &shape);
    residency_evaluate(&shape, mixer, ffn, mode, body->halves[rows], &table);
    body->kinds[rows][mixer][ffn][mode] = peak_of(&table);
    body->done[rows][mixer][ffn] |= (uint8_t)(1U << mode);
}

static const struct kind_peak *kind_of(struct estimator *e, struct body *body, int rows,
                                       enum mixer mixer, enum ffn ffn, enum residency_mode mode)
{
    if (!(body->done[rows][mixer][ffn] & (1U << mode)))
        kind_init(e, body, rows, mixer, ffn, mode);
    return &body->kinds[rows][mixer][ffn][mode];
}

const struct kind_peak *shared_kind(struct estimator *e, struct body *body, int rows, int layer,
                                    enum residency_mode mode)
{
    const struct model *m = e->in.model;
    return kind_of(e, body, rows, (enum mixer)m->layer_mixer[layer], (enum ffn)m->layer_ffn[layer],
                   mode);
}

const struct kind_peak *shared_mixer(struct estimator *e, struct body *body, int rows, int layer,
                                     enum residency_mode mode)
{
    return kind_of(e, body, rows, (enum mixer)e->in.model->layer_mixer[layer], FFN_NONE, mode);
}

const struct kind_peak *shared_predicted(struct estimator *e, struct body *body, int rows,
                                         enum residency_mode mode)
{
    const struct model *m = e->in.model;
    struct residency table;
    if (e->in.choices->primitives.frozen == 0)
        return kind_of(e, body, rows, model_mtp_mixer(m), model_mtp_ffn(m), mode);
    if (!(body->predicted_done[rows] & (1U << mode))) {
        predicted_residency(&e->in, body->rows[rows], mode, &table);
        body->predicted[rows][mode] = peak_of(&table);
        body->predicted_done[rows] |= (uint8_t)(1U << mode);
    }
    return &body->predicted[rows][mode];
}

static void unit_shared_init(struct estimator *e, struct unit unit, struct unit_shared *ret)
{
    ret->unit = unit;
    ret->gathered = unit_gathered_bytes(&e->in, &unit);
    ret->receive = unit_receive_bytes(&e->in, &unit);
    unit_gradient_bytes(&e->in, &unit, &ret->gradient);
    unit_seconds_init(&e->in, &unit, &ret->seconds);
    if (unit.dense || unit.expert)
        unit_state_add(&e->in, &unit, ret->state);
}

static void muon_init(struct estimator *e, struct units *ret)
{
    for (int c = 0; c < e->classes.count; c++) {
        enum mixer mixer = (enum mixer)e->in.model->layer_mixer[e->classes.layer[c]];
        enum ffn ffn = (enum ffn)e->in.model->layer_ffn[e->classes.layer[c]];
        ret->muon[c] = (struct muon_bytes){ 0, 0 };
        muon_bytes_raise(&e->in, mixer, ffn, &ret->muon[c]);
        muon_unit_init(&e->in, &e->machine, mixer, ffn, &ret->muon_seconds[c]);
    }
}

static void units_init(struct estimator *e, struct units *ret)
{
    struct stage stage;
    for (int c = 0; c < e->classes.count; c++)
        unit_shared_init(e, layer_unit(&e->in, e->classes.layer[c]), &ret->layer[c]);
    if (e->in.choices->primitives.optimizer == OPTIMIZER_MUON)
        muon_init(e, ret);
    stage_ends_init(&e->in, e->in.choices->layout.pp - 1, &stage);
    unit_shared_init(e, stage.embedding, &ret->embedding);
    unit_shared_init(e, stage.head, &ret->head);
    unit_shared_init(e, stage.extra, &ret->last_extra);
    if (stage.predicts)
        unit_shared_init(e, stage.prediction, &ret->prediction);
    stage_ends_init(&e->in, 0, &stage);
    unit_shared_init(e, stage.extra, &ret->first_extra);
}

struct units *shared_units(struct estimator *e)
{
    const struct layout *l = &e->in.choices->layout;
    struct units_key key;
    bool known;
    memset(&key, 0, sizeof key);
    key.tp = l->tp;
    key.ep = l->ep;
    key.etp = l->etp;
    key.dense_shards = layout_dense_shards(l);
    key.expert_shards = layout_expert_shards(l);
    key.single = l->pp == 1;
    memcpy(&key.primitives, &e->in.choices->primitives, sizeof key.primitives);
    forget_layers_and_loss(&key.primitives);
    struct units *units = memo_find(&e->units, &key, &known);
    if (!known)
        units_init(e, units);
    return units;
}

uint64_t shared_links(struct estimator *e)
{
    const struct layout *l = &e->in.choices->layout;
    struct links_key key;
    bool known;
    const int degrees[] = { l->tp,  l->pp,   l->vpp,   l->cp,     l->ep,
                            l->etp, l->fsdp, l->d_rep, l->e_fsdp, l->e_rep };
    memset(&key, 0, sizeof key);
    memcpy(key.degrees, degrees, sizeof degrees);
    memcpy(&key.primitives, &e->in.choices->primitives, sizeof key.primitives);
    enum linear_context linear = key.primitives.linear_context;
    enum context context = key.primitives.context;
    enum exchange exchange = key.primitives.exchange;
    forget_layers_and_loss(&key.primitives);
    forget_optimizer(&key.primitives);
    key.primitives.optimizer = e->in.choices->primitives.optimizer;
    key.primitives.sharding = (enum sharding)0;
    key.primitives.grad_dtype = (enum dtype)0;
    key.primitives.lora_rank = 0;
    key.primitives.lora_targets = key.primitives.frozen = 0;
    key.primitives.linear_context = linear;
    key.primitives.context = context;
    key.primitives.exchange = exchange;
    struct links *links = memo_find(&e->links, &key, &known);
    if (!known)
        links->bytes = communicator_bytes(&e->in);
    return links->bytes;
}

const struct loss_shared *shared_loss(struct estimator *e)
{
    const struct layout *l = &e->in.choices->layout;
    struct loss_key key;
    bool known;
    memset(&key, 0, sizeof key);
    key.tp = l->tp;
    key.cp = l->cp;
    key.micro_batch = l->micro_batch;
    memcpy(&key.primitives, &e->in.choices->primitives, sizeof key.primitives);
    forget_layers_and_state(&key.primitives);
    struct loss_shared *loss = memo_find(&e->losses, &key, &known);
    if (known)
        return loss;
    loss_bytes(&e->in, &loss->bytes);
    loss_cost(&e->in, &e->machine, &loss->pass);
    loss->logprob = logprob_head_seconds(&e->in, &e->machine);
    return loss;
}

const struct pipeline_spots *shared_spots(struct estimator *e)
{
    struct spots_key key;
    bool known, flat = (e->in.choices->primitives.offload & OFFLOAD_CHECKPOINTS) != 0;
    spots_key_init(e->in.choices, flat, &key);
    struct pipeline_spots *spots = memo_find(&e->spots, &key, &known);
    if (!known)
        pipeline_spots_init(&e->classes, spots);
    return spots;
}
