#include "budget_events_step.h"

static bool replays(const struct step *s, int layer)
{
    if (s->p->recompute != RECOMPUTE_FULL)
        return false;
    return s->p->recompute_layers < 0 || layer < s->p->recompute_layers;
}

static void play_loss(struct step *s, int use)
{
    uint64_t parts[] = { head_dense(s), embedding_dense(s) };
    int shards[] = { dense_shards(s), dense_shards(s) }, count = s->m->tied ? 2 : 1;
    uint64_t T = s->T, H = s->H, V = (uint64_t)s->m->vocab, n = (uint64_t)s->p->loss_tile_tokens;
    uint64_t t = T < n ? T : n;
    uint64_t strip = (uint64_t)s->p->vocab_strip, w = strip > 0 ? strip : V;
    bool fp32 = s->p->logits_dtype == DTYPE_FP32, full = s->p->loss == LOSS_FULL;
    begin_use(s, use);
    open_gradients(s, parts, shards, count);
    struct tensor_alive nf = make(s, ITEM_LOSS_WORKING, 2 * T * H);
    struct tensor_alive dnf = make(s, ITEM_LOSS_WORKING, 2 * T * H), one = { 0 }, two = { 0 };
    struct tensor_alive lse = { 0 }, d_hidden = { 0 };
    if (full)
        one = make(s, ITEM_LOGITS, (fp32 ? 4u : 2u) * T * V);
    else
        one = make(s, ITEM_LOSS_WORKING, 4 * t * w);
    if (!full || fp32)
        two = make(s, ITEM_LOSS_WORKING, 2 * t * w);
    if (strip > 0) {
        lse = make(s, ITEM_LOSS_WORKING, 4 * T);
        d_hidden = make(s, ITEM_LOSS_WORKING, 4 * t * H);
    }
    drop(s, &one);
    drop(s, &two);
    drop(s, &lse);
    drop(s, &d_hidden);
    s->dx = make(s, ITEM_LAYER_WORKING, 2 * T * H);
    drop(s, &s->checkpoint[s->m->layers]);
    drop(s, &nf);
    drop(s, &dnf);
    end_use(s, use);
    close_gradients(s, parts, shards, count);
}

static void play_backward(struct step *s, int layer, int use, struct kept *k)
{
    uint64_t parts[] = { layer_dense(s, layer), layer_expert(s, layer) };
    int shards[] = { dense_shards(s), s->l->e_fsdp };
    begin_use(s, use);
    open_gradients(s, parts, shards, 2);
    if (replays(s, layer))
        layer_forward(s, layer, REPLAY, k);
    layer_backward(s, layer, replays(s, layer), k);
    end_use(s, use);
    close_gradients(s, parts, shards, 2);
}

static void play_micro_batch(struct step *s)
{
    static struct kept kept[MODEL_MAX_LAYERS];
    int layers = s->m->layers, use = 0;
    uint64_t embedding[] = { embedding_dense(s) };
    int shards[] = { dense_shards(s) };
    memset(s->issued, 0, sizeof s->issued);
    struct tensor_alive ids = make(s, ITEM_INPUTS, 4 * s->T),
                        targets = make(s, ITEM_INPUTS, 4 * s->T);
    begin_use(s, use);
    s->checkpoint[0] = make(s, ITEM_CHECKPOINTS, 2 * s->T * s->H);
    end_use(s, use++);
    for (int i = 0; i < layers; i++) {
        begin_use(s, use);
        layer_forward(s, i, replays(s, i) ? PLAIN : SAVE, &kept[i]);
        end_use(s, use++);
    }
    play_loss(s, use++);
    for (int i = layers - 1; i >= 0; i--)
        play_backward(s, i, use++, &kept[i]);
    open_gradients(s, embedding, shards, 1);
    drop(s, &s->dx);
    close_gradients(s, embedding, shards, 1);
    drop_old(s);
    drop(s, &ids);
    drop(s, &targets);
}

static void reduce_part(struct step *s, uint64_t elements, int shards)
{
    if (s->p->sharding != SHARDING_ZERO1 || shards == 1)
        return;
    struct tensor_alive receive =
        make(s, ITEM_GATHERED_GRADIENTS, grad_bytes(s) * elements / (uint64_t)shards);
    drop(s, &receive);
}

void play_step(const struct budget_input *in, const uint64_t *received, struct played *ret)
{
    static struct step step;
    struct step *s = &step;
    const struct gqa *g = &in->model->gqa;
    memset(s, 0, sizeof *s);
    memset(ret, 0, sizeof *ret);
    *s = (struct step){ .in = in, .m = in->model, .l = &in->choices->layout, .ledger = ret };
    s->p = &in->choices->primitives;
    s->received = received;
    s->T = (uint64_t)s->l->micro_batch * in->seq_tokens / (uint64_t)s->l->cp;
    s->H = (uint64_t)in->model->hidden;
    s->heads = (uint64_t)g->heads;
    s->Q = (uint64_t)g->heads * (uint64_t)g->head_dim;
    s->K = (uint64_t)g->kv_heads * (uint64_t)g->head_dim;
    s->G = g->output_gate ? s->Q : 0;
    play_state(s);
    make(s, ITEM_WORKSPACE, in->hardware->workspace_bytes);
    for (int i = 0; i < s->l->micro_batches; i++)
        play_micro_batch(s);
    reduce_part(s, embedding_dense(s), dense_shards(s));
    reduce_part(s, head_dense(s), dense_shards(s));
    for (int i = 0; i < s->m->layers; i++) {
        reduce_part(s, layer_dense(s, i), dense_shards(s));
        reduce_part(s, layer_expert(s, i), s->l->e_fsdp);
    }
}
