#include "planner/engine/torch.h"

#include "base/checked.h"
#include "planner/engine/autograd.h"
#include "planner/engine/eager.h"

#include <stdlib.h>

/* One workspace of cuBLAS for each thread that multiplies, the caller's and that of backwards
 * (aten/src/ATen/cuda/CublasHandlePool.cpp: 32 MiB on Hopper and later). */
enum { CUBLAS_WORKSPACES = 2 };
static const uint64_t cublas_workspace_bytes = UINT64_C(32) << 20;

struct layer_weights {
    struct weight norm1, norm2, q, k, v, o, q_norm, k_norm, gate, up, down;
};

struct builder {
    struct eager e;
    const struct torch_run *run;
    const struct model *model;
    uint64_t tokens, hidden, element; /* element: of the residual stream */
    int cosine, sine;
};

static void make_weights(struct builder *b, struct layer_weights *ret)
{
    const struct model *m = b->model;
    const struct gqa *g = &m->gqa;
    uint64_t hidden = b->hidden, head = (uint64_t)g->head_dim;
    uint64_t q = (uint64_t)g->heads * head, kv = (uint64_t)g->kv_heads * head;
    uint64_t width = (uint64_t)m->dense_width;
    struct eager *e = &b->e;
    *ret = (struct layer_weights){ .norm1 = eager_weight(e, hidden, true),
                                   .norm2 = eager_weight(e, hidden, true),
                                   .q = eager_weight(e, q * hidden, true),
                                   .k = eager_weight(e, kv * hidden, true),
                                   .v = eager_weight(e, kv * hidden, true),
                                   .o = eager_weight(e, q * hidden, true),
                                   .gate = eager_weight(e, width * hidden, true),
                                   .up = eager_weight(e, width * hidden, true),
                                   .down = eager_weight(e, width * hidden, true) };
    if (g->qk_norm) {
        ret->q_norm = eager_weight(e, head, true);
        ret->k_norm = eager_weight(e, head, true);
    }
}

/* A projection of queries or keys: product, norm of its heads, then positions. */
static int project(struct builder *b, int x, uint64_t out, struct weight *w, struct weight *norm,
                   uint64_t *element)
{
    const struct gqa *g = &b->model->gqa;
    uint64_t head = (uint64_t)g->head_dim;
    int ret = eager_linear(&b->e, x, b->tokens, b->hidden, out, w);
    *element = BF16_BYTES;
    if (!g->qk_norm)
        return ret;
    int normed = eager_norm(&b->e, ret, b->tokens * (out / head), head, norm, element);
    tape_release(b->e.tape, ret);
    return normed;
}

/* cuDNN's attention: the log-sum-exp is kept; its backward sums the queries' gradients in fp32, and
 * those of keys and values by query head where several share one. */
static int attend(struct builder *b, int q, int k, int v)
{
    const struct gqa *g = &b->model->gqa;
    uint64_t width = (uint64_t)g->heads * (uint64_t)g->head_dim;
    struct tape *t = b->e.tape;
    (void)tape_run(t, "log-sum-exp", mul3_sat(b->tokens, (uint64_t)g->heads, FP32_BYTES), -1, -1);
    int sums = tape_last(t);
    struct tape_step *step = tape_run(t, "attention", mul3_sat(b->tokens, width, BF16_BYTES), q, k);
    if (!step)
        return -1;
    double keys = (double)b->run->seq_tokens / 2, flops = 4 * (double)b->tokens * keys;
    flops *= (double)width;
    step->input[2] = v;
    for (int i = 0; i < 3; i++)
        step->gradient[i] = GRADIENT_MADE;
    step->backward_scratch[0] = mul3_sat(b->tokens, width, FP32_BYTES);
    if (g->kv_heads < g->heads)
        step->backward_scratch[1] = mul3_sat(b->tokens, width, FP32_BYTES);
    step->work = (struct tape_work){ .flops = flops, .backward_flops = 2.5 * flops };
    int ret = tape_last(t);
    tape_save(t, q);
    tape_save(t, k);
    tape_save(t, v);
    tape_save(t, ret);
    tape_save(t, sums);
    tape_release(t, sums);
    return ret;
}

static int attention(struct builder *b, int x, struct layer_weights *w)
{
    const struct gqa *g = &b->model->gqa;
    struct eager *e = &b->e;
    struct tape *t = e->tape;
    uint64_t head = (uint64_t)g->head_dim, q_width = (uint64_t)g->heads * head;
    uint64_t kv_width = (uint64_t)g->kv_heads * head, q_element, k_element;
    int q = project(b, x, q_width, &w->q, &w->q_norm, &q_element);
    int k = project(b, x, kv_width, &w->k, &w->k_norm, &k_element);
    int v = eager_linear(e, x, b->tokens, b->hidden, kv_width, &w->v);
    int q_turned = eager_rope(e, q, b->tokens * q_width, q_element, b->cosine, b->sine);
    int k_turned = eager_rope(e, k, b->tokens * kv_width, k_element, b->cosine, b->sine);
    tape_release(t, q);
    tape_release(t, k);
    int q16 = eager_cast(e, q_turned, b->tokens * q_width, BF16_BYTES);
    int k16 = eager_cast(e, k_turned, b->tokens * kv_width, BF16_BYTES);
    int o = attend(b, q16, k16, v);
    if (q16 != q_turned)
        tape_release(t, q16);
    if (k16 != k_turned)
        tape_release(t, k16);
    int ret = eager_linear(e, o, b->tokens, q_width, b->hidden, &w->o);
    tape_release(t, q_turned);
    tape_release(t, k_turned);
    tape_release(t, v);
    tape_release(t, o);
    return ret;
}

static int mlp(struct builder *b, int x, struct layer_weights *w)
{
    struct eager *e = &b->e;
    struct tape *t = e->tape;
    uint64_t width = (uint64_t)b->model->dense_width, bytes;
    int gate = eager_linear(e, x, b->tokens, b->hidden, width, &w->gate);
    bytes = eager_bytes(e, gate);
    int active = eager_unary(e, "silu", gate, bytes);
    tape_save(t, gate);
    tape_release(t, gate);
    int up = eager_linear(e, x, b->tokens, b->hidden, width, &w->up);
    int product = eager_multiply(e, active, up, bytes);
    tape_release(t, active);
    tape_release(t, up);
    int ret = eager_linear(e, product, b->tokens, width, b->hidden, &w->down);
    tape_release(t, product);
    return ret;
}

static int layer(struct builder *b, int x, struct layer_weights *w)
{
    struct eager *e = &b->e;
    struct tape *t = e->tape;
    uint64_t bytes = mul3_sat(b->tokens, b->hidden, b->element), element = b->element;
    int normed = eager_norm(e, x, b->tokens, b->hidden, &w->norm1, &element);
    int mixed = attention(b, normed, w);
    tape_release(t, normed);
    int middle = eager_add(e, x, mixed, bytes);
    tape_release(t, mixed);
    element = b->element;
    normed = eager_norm(e, middle, b->tokens, b->hidden, &w->norm2, &element);
    int out = mlp(b, normed, w);
    tape_release(t, normed);
    int ret = eager_add(e, middle, out, bytes);
    tape_release(t, out);
    tape_release(t, middle);
    return ret;
}

/* Logits in fp32, their log-softmax, and the mean of the negative log-likelihoods. */
static void loss(struct builder *b, int x, struct weight *head)
{
    struct eager *e = &b->e;
    struct tape *t = e->tape;
    uint64_t elements = mul_sat(b->tokens, (uint64_t)b->model->vocab);
    int logits = eager_linear(e, x, b->tokens, b->hidden, (uint64_t)b->model->vocab, head);
    int wide = eager_cast(e, logits, elements, FP32_BYTES);
    int likelihoods = eager_unary(e, "log-softmax", wide, mul_sat(elements, FP32_BYTES));
    tape_save(t, likelihoods);
    (void)eager_unary(e, "loss", likelihoods, FP32_BYTES);
    tape_save(t, likelihoods);
    tape_release(t, likelihoods);
    tape_release(t, wide);
    tape_release(t, logits);
}

int torch_describes(const struct model *m, struct pos at, struct diag_list *reterr)
{
    for (int i = 0; i < m->layers; i++)
        if (m->layer_mixer[i] != MIXER_GQA || m->layer_ffn[i] != FFN_DENSE)
            return diag_error(reterr, at,
                              "engine torch describes layers of grouped-query attention with a "
                              "dense MLP; layer %d of %s is another",
                              i, m->name);
    return 0;
}

static void build(struct builder *b, struct layer_weights *w)
{
    struct eager *e = &b->e;
    struct tape *t = e->tape;
    const struct model *m = b->model;
    uint64_t vocab = (uint64_t)m->vocab, head_dim = (uint64_t)m->gqa.head_dim;
    struct weight embedding = eager_weight(e, vocab * b->hidden, true);
    struct weight last = eager_weight(e, b->hidden, true);
    struct weight head = m->tied ? embedding : eager_weight(e, vocab * b->hidden, true);
    for (int i = 0; i < m->layers; i++)
        make_weights(b, &w[i]);
    t->mark = -1;
    uint64_t angles = mul3_sat((uint64_t)b->run->seq_tokens, head_dim, b->element);
    struct tape_step *step = tape_run(t, "embedding", mul3_sat(b->tokens, b->hidden, b->element),
                                      embedding.parameter, -1);
    if (step)
        step->gradient[0] = GRADIENT_MADE;
    int x = tape_last(t);
    (void)tape_run(t, "cosines", angles, -1, -1);
    b->cosine = tape_last(t);
    (void)tape_run(t, "sines", angles, -1, -1);
    b->sine = tape_last(t);
    for (int i = 0; i < m->layers && !t->failed; i++) {
        t->mark = i;
        tape_segment(t, true);
        int next = layer(b, x, &w[i]);
        tape_segment(t, false);
        tape_release(t, x);
        x = next;
    }
    t->mark = -1;
    uint64_t element = b->element;
    int normed = eager_norm(e, x, b->tokens, b->hidden, &last, &element);
    tape_release(t, x);
    loss(b, normed, &head);
    tape_release(t, normed);
    tape_release(t, b->cosine);
    tape_release(t, b->sine);
    eager_end_autocast(e);
}

int torch_tape(const struct torch_run *run, struct tape *ret, struct diag_list *reterr)
{
    *ret = (struct tape){ .failed = false };
    if (torch_describes(run->model, (struct pos){ 0 }, reterr) != 0)
        return -1;
    struct layer_weights *weights = calloc((size_t)run->model->layers, sizeof *weights);
    struct builder *b = calloc(1, sizeof *b);
    if (weights && b) {
        *b = (struct builder){ .e = { .tape = ret, .autocast = run->autocast, .fp32 = run->fp32 },
                               .run = run,
                               .model = run->model,
                               .tokens = (uint64_t)(run->sequences * run->seq_tokens),
                               .hidden = (uint64_t)run->model->hidden };
        b->element = eager_width(&b->e);
        build(b, weights);
    }
    bool failed = !weights || !b || ret->failed;
    free(weights);
    free(b);
    return failed ? diag_no_memory(reterr) : 0;
}

/* Moments come in the first step, in the dtype of their parameter, with a step counter each. */
static bool take_moments(const struct tape *tape, struct allocator *allocator)
{
    for (int i = 0; i < tape->tensor_count; i++)
        if (tape->tensors[i].parameter) {
            uint64_t bytes = tape->tensors[i].bytes;
            if (allocator_take(allocator, FP32_BYTES) == -1 ||
                allocator_take(allocator, bytes) == -1 || allocator_take(allocator, bytes) == -1)
                return false;
        }
    return true;
}

static bool take_resident(const struct tape *tape, struct allocator *allocator)
{
    for (int i = 0; i < CUBLAS_WORKSPACES; i++)
        if (allocator_take(allocator, cublas_workspace_bytes) == -1)
            return false;
    for (int i = 0; i < tape->storage_count; i++)
        if (tape->storages[i].resident && allocator_take(allocator, tape->storages[i].bytes) == -1)
            return false;
    return true;
}

static uint64_t weight_bytes(const struct tape *tape)
{
    uint64_t sum = 0;
    for (int i = 0; i < tape->storage_count; i++)
        if (tape->storages[i].resident)
            sum = add_sat(sum, tape->storages[i].bytes);
    return sum;
}

static bool play(struct autograd *g, int micro_batches)
{
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < micro_batches; i++)
            if (autograd_forward(g) != 0 || autograd_backward(g) != 0)
                return false;
        if (step == 0 && !take_moments(g->tape, g->allocator))
            return false;
        autograd_zero(g);
        if (step == 0)
            g->allocator->allocated_peak_bytes = g->allocator->allocated_bytes;
    }
    return true;
}

int torch_memory(const struct torch_run *run, int micro_batches, struct torch_memory *ret,
                 struct diag_list *reterr)
{
    struct tape tape;
    struct allocator allocator;
    struct autograd g = { .free_object = -1 };
    if (torch_tape(run, &tape, reterr) != 0) {
        tape_done(&tape);
        return -1;
    }
    allocator_init(&allocator);
    bool played = take_resident(&tape, &allocator) &&
                  autograd_init(&g, &tape, &allocator, run->checkpoint) == 0 &&
                  play(&g, micro_batches);
    *ret = (struct torch_memory){ .allocated_bytes = allocator.allocated_peak_bytes,
                                  .reserved_bytes = allocator.reserved_peak_bytes,
                                  .resting_bytes = allocator.allocated_bytes,
                                  .weight_bytes = weight_bytes(&tape),
                                  .peak_in_backward = g.peak_in_backward,
                                  .peak_layer = g.peak_mark };
    autograd_done(&g);
    allocator_done(&allocator);
    tape_done(&tape);
    return played ? 0 : diag_no_memory(reterr);
}
