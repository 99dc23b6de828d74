#include "planner/engine/megatron.h"

#include "base/checked.h"
#include "planner/engine/autograd.h"
#include "planner/engine/megatron_layer.h"
#include "planner/predict/parts.h"

#include <stdlib.h>

enum { FP32_BYTES = 4, BF16_BYTES = 2, IN_FLIGHT_MAX = 256 };

/* Workspaces of cuBLAS: PyTorch's for each thread that multiplies, and Transformer Engine's own
 * (pytorch/module/base.py: 32 MiB on Hopper and later). */
static const uint64_t workspace_bytes = UINT64_C(32) << 20;
enum { WORKSPACES = 3 };

int megatron_describes(const struct model *m, struct pos at, struct diag_list *reterr)
{
    for (int i = 0; i < m->layers; i++)
        if ((m->layer_mixer[i] != MIXER_GQA && m->layer_mixer[i] != MIXER_MLA) ||
            m->layer_ffn[i] == FFN_NONE || m->mlp_ungated)
            return diag_error(reterr, at,
                              "engine megatron describes grouped-query and latent attention with a "
                              "gated MLP or experts; layer %d of %s is another kind",
                              i, m->name);
    return 0;
}

int megatron_check(const struct choices *c, struct pos at, struct diag_list *reterr)
{
    int before = reterr->errors;
    if (c->primitives.sharding != SHARDING_ZERO1 && c->primitives.sharding != SHARDING_REPLICATED)
        diag_error(reterr, at, "engine megatron shards by its distributed optimizer alone");
    if (reterr->errors > before && c->primitives.sharding == SHARDING_FSDP)
        diag_hint(reterr, "sharding=zero1");
    if (c->layout.vpp > 1)
        diag_error(reterr, at, "engine megatron describes no interleaved stages yet: vpp is %d",
                   c->layout.vpp);
    if (c->primitives.loss != LOSS_FULL)
        diag_error(reterr, at, "engine megatron makes all logits: loss=full");
    if (c->layout.cp > 1 && c->primitives.context != CONTEXT_ULYSSES)
        diag_error(reterr, at,
                   "engine megatron describes one form of context parallelism: context=ulysses");
    return reterr->errors > before ? -1 : 0;
}

/* The output of the embedding, or of the stage before; it needs a gradient. */
static int stage_input(struct megatron_view *v, bool embeds)
{
    struct tape *t = v->tape;
    uint64_t bytes = megatron_bytes(v, ROWS_NORM, WIDTH_HIDDEN);
    uint64_t table = mul3_sat(BF16_BYTES, vocab_rows(v->in), (uint64_t)v->model->hidden);
    int weight = embeds ? tape_resident(t, 0, true) : -1;
    struct tape_step *step = tape_run(t, embeds ? "embedding" : "received", bytes, weight, -1);
    if (!step)
        return -1;
    int ret = tape_last(t);
    t->tensors[ret].differs = true;
    if (!embeds)
        return ret;
    /* the gradient of the table is made in full, added to the buffer, and freed */
    t->tensors[weight].parameter = false;
    t->tensors[weight].bytes = table;
    step->gradient[0] = GRADIENT_MADE;
    step->scratch[0] = v->tp > 1 ? mul_sat(bytes, (uint64_t)v->tp) : 0;
    return ret;
}

/* Last norm, logits and loss. Transformer Engine's fused loss leaves the gradient in the logits;
 * the native one works in fp32 on a copy and keeps exponentials. */
static void stage_loss(struct megatron_view *v, int x)
{
    struct tape *t = v->tape;
    bool fused = v->in->choices->primitives.logits_dtype == DTYPE_BF16;
    uint64_t logits = mul3_sat(BF16_BYTES, v->shape.rows[ROWS_TOKENS], vocab_rows(v->in));
    uint64_t full = v->tp > 1 ? megatron_bytes(v, ROWS_TOKENS, WIDTH_HIDDEN) : 0;
    int normed = megatron_norm(v, x);
    struct tape_step *step = tape_run(t, "logits", logits, normed, -1);
    if (!step)
        return;
    step->gradient[0] = GRADIENT_MADE;
    step->backward_scratch[0] = full;
    tape_save(t, normed);
    int output = tape_last(t);
    if (fused) /* the gradient lies in the logits */
        tape_save(t, output);
    tape_release(t, normed);
    step = tape_run(t, "loss", mul_sat(FP32_BYTES, v->shape.rows[ROWS_TOKENS]), output, -1);
    if (!step)
        return;
    step->gradient[0] = fused ? GRADIENT_PASSED : GRADIENT_MADE;
    step->scratch[0] = fused ? 0 : mul_sat(2, logits);
    step->backward_scratch[0] = fused ? 0 : mul_sat(2, logits);
    if (!fused)
        tape_save(t, output);
    tape_release(t, output);
}

/* The stage of one micro-batch. */
static void stage_tape(struct megatron_view *v, int stage)
{
    const struct layout *l = &v->in->choices->layout;
    const struct primitives *p = &v->in->choices->primitives;
    int first = layout_first_layer(l, stage), layers = l->stage_layers[stage];
    int recomputed = p->recompute != RECOMPUTE_FULL                ? 0
                     : p->recompute_layers == RECOMPUTE_ALL_LAYERS ? layers
                                                                   : p->recompute_layers;
    v->tape->mark = -1;
    int x = stage_input(v, stage == 0);
    for (int i = 0; i < layers && !v->tape->failed; i++) {
        v->tape->mark = first + i;
        if (i < recomputed)
            tape_segment(v->tape, true);
        int next = megatron_layer(v, x, first + i);
        if (i < recomputed)
            tape_segment(v->tape, false);
        tape_release(v->tape, x);
        x = next;
    }
    v->tape->mark = -1;
    if (stage == l->pp - 1)
        stage_loss(v, x);
    tape_release(v->tape, x); /* freed once sent (deallocate_pipeline_outputs) */
}

/* Distinct shapes of weights on a stage: a matmul that adds to the gradient's buffer returns a bf16
 * tensor that is never read, one for each shape, kept for good (module/base.py: get_dummy_wgrad).
 */
struct shapes {
    int count;
    uint64_t elements[32], rows[32];
};

static void add_shape(struct shapes *ret, uint64_t rows, uint64_t columns)
{
    uint64_t elements = mul_sat(rows, columns);
    for (int i = 0; i < ret->count; i++)
        if (ret->elements[i] == elements && ret->rows[i] == rows)
            return;
    if (elements == 0 || ret->count == 32)
        return;
    ret->rows[ret->count] = rows;
    ret->elements[ret->count++] = elements;
}

static void add_mixer_shapes(const uint64_t *w, enum mixer mixer, struct shapes *ret)
{
    uint64_t hidden = w[WIDTH_HIDDEN], latent = w[WIDTH_QUERY_LATENT];
    if (mixer != MIXER_MLA) {
        add_shape(ret, w[WIDTH_QKV], hidden);
        add_shape(ret, hidden, w[WIDTH_QUERY]);
        return;
    }
    add_shape(ret, latent, hidden);
    add_shape(ret, w[WIDTH_QUERY], latent > 0 ? latent : hidden);
    add_shape(ret, w[WIDTH_LATENT_KEY], hidden);
    add_shape(ret, w[WIDTH_EXPANDED], w[WIDTH_LATENT]);
    add_shape(ret, hidden, w[WIDTH_VALUE]);
}

static uint64_t unread_gradients(const struct megatron_view *v, int stage)
{
    const struct layout *l = &v->in->choices->layout;
    const uint64_t *w = v->shape.width, hidden = w[WIDTH_HIDDEN];
    struct shapes shapes = { .count = 0 };
    uint64_t sum = 0;
    int first = layout_first_layer(l, stage);
    for (int i = first; i < first + l->stage_layers[stage]; i++) {
        add_mixer_shapes(w, (enum mixer)v->model->layer_mixer[i], &shapes);
        bool dense = v->model->layer_ffn[i] == FFN_DENSE;
        add_shape(&shapes, w[dense ? WIDTH_DENSE_TWO : WIDTH_GATE_UP], hidden);
        add_shape(&shapes, hidden, w[dense ? WIDTH_DENSE : WIDTH_EXPERT]);
        add_shape(&shapes, dense ? 0 : w[WIDTH_SHARED_TWO], hidden);
        add_shape(&shapes, hidden, dense ? 0 : w[WIDTH_SHARED]);
    }
    if (stage == l->pp - 1)
        add_shape(&shapes, vocab_rows(v->in), hidden);
    for (int i = 0; i < shapes.count; i++)
        sum = add_sat(sum, mul_sat(BF16_BYTES, shapes.elements[i]));
    return sum;
}

/* Megatron updates no bf16 weights without a master in fp32: its precision-aware optimizer stores
 * the 16 bits that the weights lack, 2 B per element of the shard. */
static uint64_t remainders(const struct budget_input *in, const struct rank_budget *rank)
{
    const struct primitives *p = &in->choices->primitives;
    return master_bytes(p) > 0 ? 0 : rank->item_max_bytes[ITEM_MOMENTS] / moment_bytes(p);
}

static bool take_state(const struct megatron_view *v, const struct rank_budget *rank,
                       struct allocator *allocator)
{
    static const enum item items[] = { ITEM_WEIGHTS, ITEM_GRADIENTS, ITEM_MASTER, ITEM_MOMENTS };
    bool ret = allocator_take(allocator, remainders(v->in, rank)) != -1;
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        ret = allocator_take(allocator, rank->item_bytes[items[i]]) != -1 && ret;
    for (int i = 0; i < WORKSPACES; i++)
        ret = allocator_take(allocator, workspace_bytes) != -1 && ret;
    /* the head gathers its input into a buffer that is never given back (GlobalMemoryBuffer) */
    if (v->tp > 1 && rank->stage == v->in->choices->layout.pp - 1)
        ret = allocator_take(allocator, megatron_bytes(v, ROWS_TOKENS, WIDTH_HIDDEN)) != -1 && ret;
    return allocator_take(allocator, unread_gradients(v, rank->stage)) != -1 && ret;
}

static void take_peak(struct autograd *g, int micro_batch, struct megatron_memory *ret)
{
    if (!g->peaked)
        return;
    ret->peak_in_backward = g->peak_in_backward;
    ret->peak_layer = g->peak_mark;
    ret->peak_micro_batch = micro_batch;
    g->peaked = false;
}

/* 1F1B of one stage: warm-up forwards, then one forward and one backward in turn, then the rest. A
 * few micro-batches beyond those in flight reach the steady state. */
static bool play(const struct tape *tape, struct allocator *allocator, int ahead, int micro_batches,
                 struct megatron_memory *ret_peak)
{
    static const struct autograd none = { .free_object = -1 };
    int slots = ahead + 1 < micro_batches ? ahead + 1 : micro_batches;
    int count = micro_batches < slots + 2 ? micro_batches : slots + 2;
    struct autograd *g = slots > 0 ? calloc((size_t)slots, sizeof *g) : NULL;
    bool ret = g != NULL;
    for (int i = 0; ret && i < slots; i++) {
        g[i] = none;
        ret = autograd_init(&g[i], tape, allocator, true) == 0;
        g[i].reentrant = true;
    }
    for (int i = 0; ret && i < count + ahead; i++) {
        if (i < count)
            ret = autograd_forward(&g[i % slots]) == 0;
        if (i < count)
            take_peak(&g[i % slots], i, ret_peak);
        if (ret && i >= ahead)
            ret = autograd_backward(&g[(i - ahead) % slots]) == 0;
        if (i >= ahead)
            take_peak(&g[(i - ahead) % slots], i - ahead, ret_peak);
    }
    for (int i = 0; g && i < slots; i++)
        autograd_done(&g[i]);
    free(g);
    return ret;
}

int megatron_memory(const struct budget_input *in, const struct rank_budget *rank,
                    struct megatron_memory *ret, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    struct tape tape = { .failed = false };
    struct allocator allocator;
    struct megatron_view v = { .in = in, .model = in->model, .tape = &tape, .tp = l->tp };
    int ahead = l->pp - 1 - rank->stage;
    *ret = (struct megatron_memory){ .peak_layer = -1 };
    layer_sizes(in, rank->routed_rows, &v.shape);
    stage_tape(&v, rank->stage);
    allocator_init(&allocator);
    if (ahead > l->micro_batches - 1)
        ahead = l->micro_batches - 1;
    bool played = !tape.failed && take_state(&v, rank, &allocator) &&
                  play(&tape, &allocator, ahead, l->micro_batches, ret);
    ret->allocated_bytes = allocator.allocated_peak_bytes;
    ret->reserved_bytes = allocator.reserved_peak_bytes;
    ret->resting_bytes = allocator.allocated_bytes;
    allocator_done(&allocator);
    tape_done(&tape);
    return played ? 0 : diag_no_memory(reterr);
}
