/* formula.c - each item's formula with its numbers put in; rendered only when asked for. */
#include "planner/predict/methods.h"
#include "planner/predict/shared.h"

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *ret;
    size_t size;
    struct predictor *p;
    const struct budget_input *in;
    const struct rank_budget *rank;
    const struct stage *stage;
    enum item item;
};

enum { COUNT_TEXT = 32 };

static const char *count(char *buffer, uint64_t value)
{
    return units_format_count(buffer, COUNT_TEXT, value);
}

enum share { SHARE_HELD, SHARE_TRAINED, SHARE_SECOND };

static uint64_t part_elements(const struct unit *unit, enum share share, bool experts)
{
    const struct trained *trained = experts ? &unit->expert_trained : &unit->dense_trained;
    if (share == SHARE_HELD)
        return experts ? unit->expert : unit->dense;
    return share == SHARE_TRAINED ? trained->all : trained->second;
}

static uint64_t stage_elements(const struct text *t, enum share share, bool experts)
{
    const struct units *units = shared_units(t->p);
    uint64_t sum = part_elements(&stage_extra(units, t->stage)->unit, share, experts);
    for (int c = 0; c < t->p->classes.count; c++)
        sum = add_sat(sum, mul_sat(t->stage->classes[c],
                                   part_elements(&units->layer[c].unit, share, experts)));
    if (!experts && stage_holds_embedding(t->in->model, t->stage))
        sum = add_sat(sum, part_elements(&units->embedding.unit, share, false));
    if (!experts && t->stage->has_head)
        sum = add_sat(sum, part_elements(&units->head.unit, share, false));
    return sum;
}

/* The stage's last layer. */
static const struct unit_shared *last_unit(const struct text *t)
{
    int layer = t->stage->first + t->stage->layers - 1;
    return &shared_units(t->p)->layer[t->p->classes.of[layer]];
}

/* "2 B x (1,000 dense / 8 + 2,000 expert / 4)" */
static void append_elements(const struct text *t, uint64_t each, enum share share, size_t *used)
{
    const struct primitives *p = &t->in->choices->primitives;
    const struct layout *l = &t->in->choices->layout;
    char dense[COUNT_TEXT], expert[COUNT_TEXT];
    bool state = t->item == ITEM_MASTER || t->item == ITEM_MOMENTS;
    bool sharded = p->sharding == SHARDING_FSDP || (state && p->sharding != SHARDING_REPLICATED) ||
                   (t->item == ITEM_GRADIENTS && p->sharding == SHARDING_ZERO2);
    text_append(t->ret, t->size, used, "%d B x (%s dense / %d + %s expert / %d)", (int)each,
                count(dense, stage_elements(t, share, false)), sharded ? layout_dense_shards(l) : 1,
                count(expert, stage_elements(t, share, true)),
                sharded ? layout_expert_shards(l) : 1);
}

static void append_moments(const struct text *t, size_t *used)
{
    const struct primitives *p = &t->in->choices->primitives;
    if (p->optimizer == OPTIMIZER_ADAMW) {
        append_elements(t, 2 * moment_bytes(p), SHARE_TRAINED, used);
        return;
    }
    append_elements(t, moment_bytes(p), SHARE_TRAINED, used);
    text_append(t->ret, t->size, used, " + ");
    append_elements(t, moment_bytes(p), SHARE_SECOND, used);
    text_append(t->ret, t->size, used, " of what AdamW updates");
}

static void state_text(const struct text *t)
{
    const struct primitives *p = &t->in->choices->primitives;
    bool whole = p->lora_rank == 0 && p->frozen == 0;
    bool weights = t->item == ITEM_WEIGHTS || t->item == ITEM_REFERENCE_WEIGHTS;
    size_t used = 0;
    if (weights)
        append_elements(t, 2, SHARE_HELD, &used);
    else if (t->item == ITEM_GRADIENTS)
        append_elements(t, dtype_bytes(p->grad_dtype), SHARE_TRAINED, &used);
    else if (t->item == ITEM_MOMENTS)
        append_moments(t, &used);
    else if (master_bytes(p) > 0)
        append_elements(t, master_bytes(p), SHARE_TRAINED, &used);
    else
        text_append(t->ret, t->size, &used,
                    "no master weights: updates are rounded into the bf16 weights");
    text_append(t->ret, t->size, &used, ", padded");
    if (!whole && !weights)
        text_append(t->ret, t->size, &used, "; %s",
                    p->lora_rank > 0 ? "adapters alone are trained" : "frozen parts have none");
}

static void inputs_text(const struct text *t)
{
    struct in_flight f;
    char tokens[COUNT_TEXT], ends[64] = "";
    uint64_t pieces = packed_pieces(t->in), bytes = t->rank->item_bytes[ITEM_INPUTS];
    in_flight_init(t->in, t->rank->stage, t->stage->layers, &f);
    if (pieces > 0)
        (void)snprintf(ends, sizeof ends, " + 4 B x %" PRIu64 " ends of pieces)", pieces + 1);
    (void)snprintf(t->ret, t->size, "%s%d B x %s tokens%s x %d micro-batches",
                   pieces > 0 ? "(" : "", 4 * inputs_values(t->in),
                   count(tokens, local_tokens(t->in)), ends,
                   bytes > 0 ? (int)(bytes / f.inputs) : f.micro_batches); /* at the peak */
}

static void checkpoints_text(const struct text *t)
{
    struct in_flight f;
    char tokens[COUNT_TEXT], layers[COUNT_TEXT], choices[80] = "", predicted[48] = "";
    in_flight_init(t->in, t->rank->stage, t->stage->layers, &f);
    uint64_t held = add_sat(f.other_layers, (uint64_t)f.run);
    if (f.choices > 0)
        (void)snprintf(choices, sizeof choices,
                       ", and 4 B x %d chosen keys in layers with indexers",
                       t->in->model->indexer.top_k);
    if (t->stage->has_head && model_predicts(t->in->model))
        (void)snprintf(predicted, sizeof predicted, ", and %d of prediction layers",
                       t->in->model->mtp_layers);
    (void)snprintf(t->ret, t->size, "%s layer inputs x 2 B x %s tokens x %d%s%s%s",
                   count(layers, held), count(tokens, norm_tokens(t->in)), t->in->model->hidden,
                   predicted, choices,
                   f.device_limit == UINT64_MAX ? "" : ", less what is offloaded");
}

static void rows_text(const struct text *t)
{
    struct dispatch d;
    char sent[COUNT_TEXT], received[COUNT_TEXT], chunks[COUNT_TEXT] = "";
    dispatch_init(t->in, t->rank->routed_rows, &d);
    if (d.chunks > 1)
        (void)snprintf(chunks, sizeof chunks, " in %d chunks", d.chunks);
    if (t->item == ITEM_EXPERT_WORKING)
        (void)snprintf(t->ret, t->size,
                       "fullest step of %s rows received, 2 B x %d and expert width %d%s",
                       count(received, d.received), model_routed_width(t->in->model),
                       t->in->model->moe.width, chunks);
    else
        (void)snprintf(t->ret, t->size,
                       "fullest exchange of %s rows sent, %s received, 2 B x %d + 4 B%s",
                       count(sent, d.sent), count(received, d.received),
                       model_routed_width(t->in->model), chunks);
}

static void working_text(const struct text *t)
{
    char tokens[COUNT_TEXT];
    (void)snprintf(
        t->ret, t->size, "fullest step of the layer's liveness table at %s tokens, hidden %d%s",
        count(tokens, local_tokens(t->in)), t->in->model->hidden,
        t->item == ITEM_LAYER_SAVED && t->in->choices->primitives.recompute == RECOMPUTE_SELECTIVE
            ? "; selective recompute of core attention saves nothing: fused attention "
              "keeps no scores"
            : "");
}

static void units_text(const struct text *t)
{
    const struct primitives *p = &t->in->choices->primitives;
    char first[COUNT_TEXT], second[COUNT_TEXT];
    const struct unit_shared *u = last_unit(t);
    if (t->item == ITEM_GATHERED_WEIGHTS)
        (void)snprintf(t->ret, t->size, "units current and %d ahead x 2 B; a layer: %s B",
                       p->prefetch_units, count(first, u->gathered));
    else {
        const struct unit_gradient g = u->gradient;
        size_t used = 0;
        text_append(t->ret, t->size, &used, "full buffer of a layer %s B + shard received %s B",
                    count(first, add_sat(g.dense, g.expert)),
                    count(second, add_sat(g.dense_receive, g.expert_receive)));
        struct muon_bytes muon = stage_muon_bytes(t->p, shared_units(t->p), t->stage);
        if (muon.gathered > 0)
            text_append(t->ret, t->size, &used, "; two of Muon's matrices in bf16 %s B",
                        count(first, muon.gathered));
    }
}

static void loss_text(const struct text *t)
{
    const struct primitives *p = &t->in->choices->primitives;
    char tokens[COUNT_TEXT], vocab[COUNT_TEXT];
    const char *entropy = p->rl & RL_ENTROPY ? "; entropy: a tile more, 4 B each" : "";
    uint64_t shard = vocab_rows(t->in);
    if (t->item == ITEM_LOGITS)
        (void)snprintf(t->ret, t->size, "%s tokens x %s vocabulary x %d B",
                       count(tokens, local_tokens(t->in)), count(vocab, shard),
                       (int)dtype_bytes(p->logits_dtype));
    else if (p->loss == LOSS_LINEAR_CE && p->vocab_strip > 0)
        (void)snprintf(t->ret, t->size,
                       "3 x 2 B x %s tokens x %d + tiles of at most %d tokens x (6 B x strips of "
                       "%d + 4 B x %d) + 4 B x tokens%s",
                       count(tokens, norm_tokens(t->in)), t->in->model->hidden, p->loss_tile_tokens,
                       p->vocab_strip, t->in->model->hidden, entropy);
    else
        (void)snprintf(t->ret, t->size,
                       "3 x 2 B x %s tokens x %d + tiles of at most %d tokens x %s vocabulary%s",
                       count(tokens, norm_tokens(t->in)), t->in->model->hidden, p->loss_tile_tokens,
                       count(vocab, shard), entropy);
}

/* What a token brings to those who gather it. */
static void keys_text(const struct budget_input *in, char *ret, size_t size)
{
    const struct model *m = in->model;
    char how[64] = ", index keys of layers that choose";
    if (m->indexer.heads == 0)
        (void)snprintf(how, sizeof how, ", expanded %llu heads at a time",
                       (unsigned long long)latent_head_block(in));
    if (m->mla.kv_rank > 0)
        (void)snprintf(ret, size, "latents of %d + %d%s", m->mla.kv_rank, m->mla.rope_dim, how);
    else
        (void)snprintf(ret, size, "%d key heads x %d", m->gqa.kv_heads, m->gqa.head_dim);
}

static void context_text(const struct text *t)
{
    char tokens[COUNT_TEXT], keys[120];
    keys_text(t->in, keys, sizeof keys);
    (void)snprintf(t->ret, t->size, "%s and %s over cp %d, %s tokens of %s",
                   context_names[t->in->choices->primitives.context],
                   linear_context_names[t->in->choices->primitives.linear_context],
                   t->in->choices->layout.cp, count(tokens, t->in->seq_tokens), keys);
}

static void pipeline_text(const struct text *t)
{
    char tokens[COUNT_TEXT];
    (void)snprintf(t->ret, t->size, "2 directions x 2 x %s tokens x %d a neighbour",
                   count(tokens, norm_tokens(t->in)), t->in->model->hidden);
}

static void communicators_text(const struct text *t)
{
    const struct hardware *h = t->in->hardware;
    char first[COUNT_TEXT], next[COUNT_TEXT], ring[COUNT_TEXT], peer[COUNT_TEXT], list[320];
    communicator_list(t->in, list, sizeof list);
    (void)snprintf(t->ret, t->size,
                   "%d communicators: first %s B, next %s B; a ring %s B, an exchange %s B a peer; "
                   "%s",
                   communicator_count(t->in), count(first, h->communicator_first_bytes),
                   count(next, h->communicator_next_bytes),
                   count(ring, mul_sat((uint64_t)h->ring_channels, h->channel_bytes)),
                   count(peer, h->exchange_peer_bytes), list);
}

/* The first kind of softmax attention, whose workspace is told. */
static enum mixer softmax_mixer(const struct model *m)
{
    for (int i = 0; i < m->layers; i++)
        if (mixer_is_softmax((enum mixer)m->layer_mixer[i]))
            return (enum mixer)m->layer_mixer[i];
    return MIXER_NONE;
}

static void workspace_text(const struct text *t, uint64_t attention)
{
    char one[COUNT_TEXT], two[COUNT_TEXT];
    struct muon_bytes muon = stage_muon_bytes(t->p, shared_units(t->p), t->stage);
    size_t used = 0;
    text_append(t->ret, t->size, &used, "matmul scratch %s B + attention backward %s B",
                count(one, t->in->hardware->workspace_bytes), count(two, attention));
    if (muon.workspace > 0)
        text_append(t->ret, t->size, &used,
                    ", or Newton-Schulz on the largest matrix (m x n, m <= n) %s B",
                    count(one, muon.workspace));
}

static void runtime_text(const struct text *t)
{
    char one[COUNT_TEXT], two[COUNT_TEXT];
    const struct hardware *h = t->in->hardware;
    struct context_bytes c;
    context_bytes(t->in, softmax_mixer(t->in->model), &c);
    if (t->item == ITEM_CONTEXT)
        (void)snprintf(t->ret, t->size, "driver context %s B", count(one, h->context_bytes));
    else if (t->item == ITEM_MODULES)
        (void)snprintf(t->ret, t->size, "kernels %s B + library handles %s B",
                       count(one, h->modules_bytes), count(two, h->library_bytes));
    else if (t->item == ITEM_WORKSPACE)
        workspace_text(t, c.workspace);
    else
        (void)snprintf(t->ret, t->size, "none in the point estimate; upper: 1 %% of what moves");
}

static void (*const writers[ITEM_COUNT])(const struct text *) = {
    [ITEM_WEIGHTS] = state_text,
    [ITEM_MASTER] = state_text,
    [ITEM_MOMENTS] = state_text,
    [ITEM_GRADIENTS] = state_text,
    [ITEM_REFERENCE_WEIGHTS] = state_text,
    [ITEM_CHECKPOINTS] = checkpoints_text,
    [ITEM_LAYER_SAVED] = working_text,
    [ITEM_LAYER_WORKING] = working_text,
    [ITEM_GATHERED_WEIGHTS] = units_text,
    [ITEM_GATHERED_GRADIENTS] = units_text,
    [ITEM_KV_GATHER] = context_text,
    [ITEM_DISPATCH_SEND] = rows_text,
    [ITEM_DISPATCH_RECV] = rows_text,
    [ITEM_EXPERT_WORKING] = rows_text,
    [ITEM_PIPELINE_BUFFERS] = pipeline_text,
    [ITEM_INPUTS] = inputs_text,
    [ITEM_LOGITS] = loss_text,
    [ITEM_LOSS_WORKING] = loss_text,
    [ITEM_COMMUNICATORS] = communicators_text,
    [ITEM_CONTEXT] = runtime_text,
    [ITEM_MODULES] = runtime_text,
    [ITEM_WORKSPACE] = runtime_text,
    [ITEM_SLACK] = runtime_text,
};

void budget_formula(struct predictor *p, const struct rank_budget *rank, enum item item, char *ret,
                    size_t size)
{
    struct text text = { ret, size, p, &p->in, rank, stage_at(p, rank->stage), item };
    if (size > 0)
        ret[0] = '\0';
    const char *engine = p->in.engine ? p->in.engine->formula(item) : NULL;
    if (engine)
        (void)snprintf(ret, size, "%s", engine);
    else if (size > 0 && item < ITEM_COUNT)
        writers[item](&text);
}
