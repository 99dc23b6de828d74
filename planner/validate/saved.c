/* Sources: Megatron-Core (tensor_parallel/layers.py, transformer/mlp.py, moe/experts.py,
 * multi_latent_attention.py) and Transformer Engine (module/layernorm_linear.py, module/linear.py:
 * a linear keeps its input; module/base.py: one gradient buffer, never read, for each shape of a
 * weight whose matmul adds to the gradient itself). */
#include "planner/validate/saved.h"

#include "base/checked.h"
#include "planner/predict/parts.h"

#include <string.h>

/* One rank's stage. */
struct view {
    const struct budget_input *in;
    const struct model *m;
    struct step_sizes shape;
    int stage, first, layers;
    uint64_t held; /* micro-batches in flight */
};

static uint64_t rows_of(const struct view *v, enum step_rows rows, enum step_width width)
{
    return mul3_sat(2, v->shape.rows[rows], v->shape.width[width]);
}

static bool is_latent(enum mixer mixer)
{
    return mixer == MIXER_MLA;
}

/* A norm's output is the input of the linear behind it: 2 T H for each half, split by tp. */
static uint64_t normed_inputs(const struct view *v, enum mixer mixer, enum ffn ffn)
{
    int halves = (mixer != MIXER_NONE) + (ffn != FFN_NONE);
    return (uint64_t)halves * rows_of(v, ROWS_NORM, WIDTH_HIDDEN);
}

/* A down projection keeps its input, the activation: 2 T F, or 2 R f and 2 T s. */
static uint64_t activations(const struct view *v, enum mixer mixer, enum ffn ffn)
{
    (void)mixer;
    if (ffn == FFN_DENSE)
        return rows_of(v, ROWS_TOKENS, WIDTH_DENSE);
    if (ffn == FFN_MOE)
        return add_sat(rows_of(v, ROWS_RECV, WIDTH_EXPERT), rows_of(v, ROWS_TOKENS, WIDTH_SHARED));
    return 0;
}

/* Norms of query and key heads keep what comes in beside what attention keeps: 2 T (Q + K). */
static uint64_t normed_heads(const struct view *v, enum mixer mixer, enum ffn ffn)
{
    (void)ffn;
    if (is_latent(mixer) || !v->m->gqa.qk_norm)
        return 0;
    return add_sat(rows_of(v, ROWS_TOKENS, WIDTH_QUERY), rows_of(v, ROWS_TOKENS, WIDTH_KEY));
}

/* Heads exchanged for tokens: attention's output before it is exchanged back, 2 T Q. */
static uint64_t exchanged_output(const struct view *v, enum mixer mixer, enum ffn ffn)
{
    (void)ffn;
    bool exchanged =
        v->in->choices->layout.cp > 1 && v->in->choices->primitives.context == CONTEXT_ULYSSES;
    enum step_width width = is_latent(mixer) ? WIDTH_VALUE : WIDTH_QUERY;
    return exchanged ? rows_of(v, ROWS_TOKENS, width) : 0;
}

/* Latents behind their norms, 2 T (q_rank + kv_rank), and the rope key at every head. */
static uint64_t latents(const struct view *v, enum mixer mixer, enum ffn ffn)
{
    (void)ffn;
    if (!is_latent(mixer))
        return 0;
    uint64_t rope = v->shape.width[WIDTH_HEADS] * (uint64_t)v->m->mla.rope_dim;
    uint64_t both = v->shape.width[WIDTH_QUERY_LATENT] + v->shape.width[WIDTH_LATENT] + rope;
    return mul3_sat(2, v->shape.rows[ROWS_TOKENS], both);
}

/* Rules by layer. Adding one is adding a row. */
static const struct saved_rule {
    const char *name, *mechanism;
    uint64_t (*bytes)(const struct view *v, enum mixer mixer, enum ffn ffn);
} rules[] = {
    { "inputs", "a linear keeps its input, here a norm's output", normed_inputs },
    { "activations", "a down projection keeps its input", activations },
    { "heads", "norms of heads keep their input", normed_heads },
    { "output", "attention keeps its output before heads are exchanged back", exchanged_output },
    { "latents", "latents behind their norms, and the rope key at every head", latents },
};
enum { RULES = sizeof rules / sizeof *rules };
_Static_assert(sizeof rules / sizeof *rules + 2 <= SAVED_ITEMS_MAX, "room for each and two more");

/* Distinct shapes of weights on the rank. */
struct shapes {
    int count;
    uint64_t rows[16], columns[16];
};

static void add_shape(struct shapes *ret, uint64_t rows, uint64_t columns)
{
    for (int i = 0; i < ret->count; i++)
        if (ret->rows[i] == rows && ret->columns[i] == columns)
            return;
    if (rows == 0 || columns == 0 || ret->count == (int)(sizeof ret->rows / sizeof *ret->rows))
        return;
    ret->rows[ret->count] = rows;
    ret->columns[ret->count++] = columns;
}

static void add_mixer_shapes(const struct view *v, enum mixer mixer, struct shapes *ret)
{
    const uint64_t *w = v->shape.width;
    uint64_t hidden = w[WIDTH_HIDDEN];
    if (!is_latent(mixer)) {
        add_shape(ret, w[WIDTH_QKV], hidden);
        add_shape(ret, hidden, w[WIDTH_QUERY]);
        return;
    }
    uint64_t before = w[WIDTH_QUERY_LATENT] > 0 ? w[WIDTH_QUERY_LATENT] : hidden;
    add_shape(ret, w[WIDTH_QUERY_LATENT], hidden);
    add_shape(ret, w[WIDTH_QUERY], before);
    add_shape(ret, w[WIDTH_LATENT_KEY], hidden);
    add_shape(ret, w[WIDTH_EXPANDED], w[WIDTH_LATENT]);
    add_shape(ret, hidden, w[WIDTH_VALUE]);
}

static void add_ffn_shapes(const struct view *v, enum ffn ffn, struct shapes *ret)
{
    const uint64_t *w = v->shape.width;
    uint64_t hidden = w[WIDTH_HIDDEN];
    if (ffn == FFN_DENSE) {
        add_shape(ret, w[WIDTH_DENSE_TWO], hidden);
        add_shape(ret, hidden, w[WIDTH_DENSE]);
        return;
    }
    add_shape(ret, w[WIDTH_GATE_UP], hidden);
    add_shape(ret, hidden, w[WIDTH_EXPERT]);
    add_shape(ret, w[WIDTH_SHARED_TWO], hidden);
    add_shape(ret, hidden, w[WIDTH_SHARED]);
}

/* A matmul that adds to the fp32 gradient itself still returns a bf16 one, never read and kept for
 * good, one for each shape: 2 B x rows x columns; the head's vocabulary is split by tp. */
static uint64_t unread_gradients(const struct view *v)
{
    struct shapes shapes = { 0 };
    uint64_t sum = 0, tp = (uint64_t)v->in->choices->layout.tp;
    for (int i = v->first; i < v->first + v->layers; i++) {
        add_mixer_shapes(v, (enum mixer)v->m->layer_mixer[i], &shapes);
        add_ffn_shapes(v, (enum ffn)v->m->layer_ffn[i], &shapes);
    }
    if (v->stage == v->in->choices->layout.pp - 1)
        add_shape(&shapes, div_up((uint64_t)v->m->vocab, tp), v->shape.width[WIDTH_HIDDEN]);
    for (int i = 0; i < shapes.count; i++)
        sum = add_sat(sum, mul3_sat(2, shapes.rows[i], shapes.columns[i]));
    return sum;
}

/* Megatron updates no bf16 weights without a master in fp32; its precision-aware optimizer holds
 * the 16 bits that the weights lack (store_param_remainders): 2 B an element of the shard. */
static uint64_t remainders(const struct view *v, const struct rank_budget *rank)
{
    const struct primitives *p = &v->in->choices->primitives;
    if (master_bytes(p) > 0)
        return 0;
    return rank->item_max_bytes[ITEM_MOMENTS] / moment_bytes(p);
}

static void add_item(struct saved *ret, const char *name, const char *mechanism, uint64_t bytes)
{
    if (bytes == 0)
        return;
    ret->item[ret->count++] = (struct saved_item){ name, mechanism, bytes };
    ret->bytes = add_sat(ret->bytes, bytes);
}

static int check(const struct prediction *p, struct pos at, struct diag_list *reterr)
{
    const struct primitives *primitives = &p->plan.choices.primitives;
    for (int i = 0; i < p->plan.model.layers; i++)
        if (p->plan.model.layer_mixer[i] != MIXER_GQA && p->plan.model.layer_mixer[i] != MIXER_MLA)
            return diag_error(reterr, at, "what Megatron keeps of layer %d is not known", i);
    if (primitives->recompute == RECOMPUTE_NONE && primitives->sharding == SHARDING_ZERO1)
        return 0;
    diag_error(reterr, at, "Megatron's rules are known where nothing is recomputed");
    return diag_hint(reterr, "recompute=none and sharding=zero1");
}

int engine_saved(const struct prediction *prediction, const struct rank_budget *rank, struct pos at,
                 struct saved *ret, struct diag_list *reterr)
{
    const struct layout *l = &prediction->plan.choices.layout;
    struct view v = { .in = &prediction->input,
                      .m = &prediction->plan.model,
                      .stage = rank->stage };
    memset(ret, 0, sizeof *ret);
    if (check(prediction, at, reterr) != 0)
        return -1;
    v.first = layout_first_layer(l, rank->stage);
    v.layers = l->stage_layers[rank->stage];
    v.held = (uint64_t)held_micro_batches(v.in, rank->stage);
    layer_sizes(v.in, rank->routed_rows, &v.shape);
    for (int i = 0; i < RULES; i++) {
        uint64_t sum = 0;
        for (int layer = v.first; layer < v.first + v.layers; layer++)
            sum = add_sat(sum, rules[i].bytes(&v, (enum mixer)v.m->layer_mixer[layer],
                                              (enum ffn)v.m->layer_ffn[layer]));
        add_item(ret, rules[i].name, rules[i].mechanism, mul_sat(sum, v.held));
    }
    add_item(ret, "gradients", "one bf16 gradient for each shape of a weight, never read",
             unread_gradients(&v));
    add_item(ret, "remainders", "of the fp32 master the 16 bits that bf16 weights lack",
             remainders(&v, rank));
    return 0;
}
