#include "planner/engine/megatron_layer.h"

#include "base/checked.h"

enum { BF16_BYTES = 2, FP32_BYTES = 4, INDEX_BYTES = 8 };

uint64_t megatron_bytes(const struct megatron_view *v, enum step_rows rows, enum step_width width)
{
    return mul3_sat(BF16_BYTES, v->shape.rows[rows], v->shape.width[width]);
}

/* An operation on one tensor whose gradient is a new tensor. */
static int run(struct megatron_view *v, const char *name, int x, uint64_t bytes)
{
    struct tape_step *step = tape_run(v->tape, name, bytes, x, -1);
    if (step)
        step->gradient[0] = GRADIENT_MADE;
    return tape_last(v->tape);
}

static uint64_t bytes_of(const struct megatron_view *v, int tensor)
{
    return v->tape->failed ? 0 : v->tape->tensors[tensor].bytes;
}

/* The full rows of a tensor that sequence parallelism splits: there while a matmul works. */
static uint64_t gathered(const struct megatron_view *v, uint64_t bytes)
{
    return v->tp > 1 ? mul_sat(bytes, (uint64_t)v->tp) : 0;
}

/* A linear whose input is split by sequence parallelism: gathers it forward and again backward,
 * where the full gradient is there until it is scattered; the split input is saved. The gradient of
 * its weight goes to the buffer of gradients. */
static int column_linear(struct megatron_view *v, int x, uint64_t out_bytes)
{
    uint64_t full = gathered(v, bytes_of(v, x));
    int ret = run(v, "column linear", x, out_bytes);
    if (v->tape->failed)
        return -1;
    struct tape_step *step = &v->tape->steps[v->tape->step_count - 1];
    step->scratch[0] = full;
    step->backward_scratch[0] = step->backward_scratch[1] = full;
    tape_save(v->tape, x);
    return ret;
}

/* A linear whose input is saved; with tp its product is there in full until it is scattered. */
static int row_linear(struct megatron_view *v, int x, uint64_t out_bytes)
{
    uint64_t full = gathered(v, out_bytes);
    int ret = run(v, "row linear", x, out_bytes);
    if (v->tape->failed)
        return -1;
    struct tape_step *step = &v->tape->steps[v->tape->step_count - 1];
    step->scratch[0] = step->backward_scratch[0] = full;
    tape_save(v->tape, x);
    return ret;
}

int megatron_norm(struct megatron_view *v, int x)
{
    int ret = run(v, "norm", x, bytes_of(v, x));
    tape_save(v->tape, x);
    return ret;
}

/* Queries or keys out of the projection: their norm keeps the projection, rotation makes a tensor.
 */
static int heads(struct megatron_view *v, int view)
{
    struct tape *t = v->tape;
    uint64_t bytes = bytes_of(v, view);
    if (!v->model->gqa.qk_norm)
        return run(v, "rotate", view, bytes);
    int normed = megatron_norm(v, view);
    int ret = run(v, "rotate", normed, bytes);
    tape_release(t, normed);
    return ret;
}

/* Heads for tokens over the context group; the tensor as it leaves is let go. */
static int exchange(struct megatron_view *v, int x)
{
    int ret = run(v, "exchange heads", x, bytes_of(v, x));
    if (!v->tape->failed) {
        struct tape_step *step = &v->tape->steps[v->tape->step_count - 1];
        step->scratch[0] = step->backward_scratch[0] = bytes_of(v, x);
    }
    return ret;
}

/* cuDNN's attention: log-sum-exp kept; gradients of queries summed in fp32, those of keys and
 * values by query head where several share one. */
static int attend(struct megatron_view *v, int q, int k, int value, enum step_width width)
{
    struct tape *t = v->tape;
    uint64_t out = megatron_bytes(v, ROWS_TOKENS, width), tokens = v->shape.rows[ROWS_TOKENS];
    (void)tape_run(t, "log-sum-exp", mul3_sat(FP32_BYTES, tokens, v->shape.width[WIDTH_HEADS]), -1,
                   -1);
    int sums = tape_last(t);
    struct tape_step *step = tape_run(t, "attention", out, q, k);
    if (!step)
        return -1;
    step->input[2] = value;
    step->gradient[0] = step->gradient[1] = step->gradient[2] = GRADIENT_MADE;
    step->backward_scratch[0] = mul_sat(2, bytes_of(v, q));
    if (v->model->gqa.kv_heads < v->model->gqa.heads)
        step->backward_scratch[1] = mul_sat(2, out);
    int ret = tape_last(t);
    const int kept[] = { q, k, value, ret, sums };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        tape_save(t, kept[i]);
    tape_release(t, sums);
    return ret;
}

static int attention(struct megatron_view *v, int x)
{
    struct tape *t = v->tape;
    uint64_t key = megatron_bytes(v, ROWS_TOKENS, WIDTH_KEY);
    const uint64_t parts[] = { megatron_bytes(v, ROWS_TOKENS, WIDTH_QUERY), key, key };
    int view[TAPE_ALSO + 1];
    bool exchanges = v->in->choices->layout.cp > 1;
    int normed = megatron_norm(v, x);
    int projected = column_linear(v, normed, megatron_bytes(v, ROWS_TOKENS, WIDTH_QKV));
    tape_release(t, normed);
    tape_split(t, projected, parts, view);
    int q = heads(v, view[0]), k = heads(v, view[1]), value = view[2];
    if (!exchanges) { /* no known layout joins it to the others: a contiguous copy */
        int copied = run(v, "copy", value, key);
        tape_release(t, projected);
        value = copied;
    } else {
        int all[] = { exchange(v, q), exchange(v, k), exchange(v, value) };
        tape_release(t, q);
        tape_release(t, k);
        tape_release(t, projected);
        q = all[0], k = all[1], value = all[2];
    }
    int o = attend(v, q, k, value, WIDTH_QUERY);
    tape_release(t, q);
    tape_release(t, k);
    tape_release(t, value);
    if (exchanges) {
        int back = exchange(v, o);
        tape_release(t, o);
        o = back;
    }
    int ret = row_linear(v, o, megatron_bytes(v, ROWS_NORM, WIDTH_HIDDEN));
    tape_release(t, o);
    return ret;
}

/* A linear whose input is saved; its weight's gradient goes to the buffer. */
static int linear(struct megatron_view *v, int x, enum step_width width)
{
    int ret = run(v, "linear", x, megatron_bytes(v, ROWS_TOKENS, width));
    tape_save(v->tape, x);
    return ret;
}

/* A latent's norm, then the linear that expands it; both keep their inputs. */
static int expand(struct megatron_view *v, int latent, enum step_width width, enum step_width out)
{
    int normed = run(v, "norm", latent, megatron_bytes(v, ROWS_TOKENS, width));
    tape_save(v->tape, latent);
    int ret = linear(v, normed, out);
    tape_release(v->tape, normed);
    return ret;
}

/* Latent attention: keys are joined from their parts, values copied, the expansion let go. */
static int latent_attention(struct megatron_view *v, int x)
{
    struct tape *t = v->tape;
    uint64_t query = megatron_bytes(v, ROWS_TOKENS, WIDTH_QUERY);
    bool compressed = v->shape.width[WIDTH_QUERY_LATENT] > 0;
    int normed = megatron_norm(v, x), latent = -1;
    if (compressed)
        latent = linear(v, normed, WIDTH_QUERY_LATENT);
    int projected = compressed ? expand(v, latent, WIDTH_QUERY_LATENT, WIDTH_QUERY)
                               : linear(v, normed, WIDTH_QUERY);
    tape_release(t, latent);
    int kv_latent = linear(v, normed, WIDTH_LATENT_KEY);
    tape_release(t, normed);
    int expanded = expand(v, kv_latent, WIDTH_LATENT, WIDTH_EXPANDED);
    int q = run(v, "join query", projected, query);
    tape_release(t, projected);
    struct tape_step *step = tape_run(t, "join key", query, expanded, kv_latent);
    if (!step)
        return -1;
    step->gradient[0] = step->gradient[1] = GRADIENT_MADE;
    int k = tape_last(t);
    int value = run(v, "copy", expanded, megatron_bytes(v, ROWS_TOKENS, WIDTH_VALUE));
    tape_release(t, expanded);
    tape_release(t, kv_latent);
    int o = attend(v, q, k, value, WIDTH_VALUE);
    tape_release(t, q);
    tape_release(t, k);
    tape_release(t, value);
    int ret = row_linear(v, o, megatron_bytes(v, ROWS_NORM, WIDTH_HIDDEN));
    tape_release(t, o);
    return ret;
}

/* Both up projections in one, SwiGLU in one operation whose input is saved. */
static int mlp(struct megatron_view *v, int normed, enum step_width two, enum step_width width)
{
    struct tape *t = v->tape;
    int up = column_linear(v, normed, megatron_bytes(v, ROWS_TOKENS, two));
    int active = run(v, "swiglu", up, megatron_bytes(v, ROWS_TOKENS, width));
    tape_save(t, up);
    tape_release(t, up);
    int ret = row_linear(v, active, megatron_bytes(v, ROWS_NORM, WIDTH_HIDDEN));
    tape_release(t, active);
    return ret;
}

/* Scores of every expert in fp32, the map of choices and the probabilities; kept. */
static int router(struct megatron_view *v, int normed)
{
    struct tape *t = v->tape;
    uint64_t scores = mul3_sat(FP32_BYTES, v->shape.rows[ROWS_NORM], v->shape.width[WIDTH_EXPERTS]);
    int logits = run(v, "router", normed, scores);
    tape_save(t, normed);
    int chosen = run(v, "choose", logits, add_sat(scores, scores / 2));
    tape_save(t, logits);
    tape_save(t, chosen);
    tape_release(t, logits);
    return chosen;
}

/* A grouped linear of the rank's experts: its input is saved; weight gradients go to the buffer. */
static int experts_linear(struct megatron_view *v, int x, uint64_t bytes)
{
    int ret = run(v, "experts", x, bytes);
    tape_save(v->tape, x);
    return ret;
}

/* Rows in another order, or on other ranks; an order keeps its index. */
static int move_rows(struct megatron_view *v, const char *name, int x, enum step_rows rows,
                     bool ordered)
{
    struct tape *t = v->tape;
    if (!ordered)
        return run(v, name, x, megatron_bytes(v, rows, WIDTH_HIDDEN));
    (void)tape_run(t, "order", mul_sat(INDEX_BYTES, v->shape.rows[rows]), -1, -1);
    int order = tape_last(t);
    int ret = run(v, name, x, megatron_bytes(v, rows, WIDTH_HIDDEN));
    tape_save(t, order);
    tape_release(t, order);
    return ret;
}

/* The all-to-all dispatcher: permute, exchange, sort by expert; experts; and back. */
static int routed(struct megatron_view *v, int normed)
{
    struct tape *t = v->tape;
    const struct layout *l = &v->in->choices->layout;
    bool sorts = l->ep > 1 && v->model->moe.experts > l->ep;
    int chosen = router(v, normed);
    int rows = move_rows(v, "permute", normed, ROWS_SENT, true);
    if (l->ep > 1) {
        int received = move_rows(v, "dispatch", rows, ROWS_RECV, false);
        tape_release(t, rows);
        rows = received;
    }
    if (sorts) {
        int sorted = move_rows(v, "sort", rows, ROWS_RECV, true);
        tape_release(t, rows);
        rows = sorted;
    }
    int up = experts_linear(v, rows, megatron_bytes(v, ROWS_RECV, WIDTH_GATE_UP));
    tape_release(t, rows);
    int active = run(v, "weighted swiglu", up, megatron_bytes(v, ROWS_RECV, WIDTH_EXPERT));
    tape_save(t, up);
    tape_release(t, up);
    int out = experts_linear(v, active, megatron_bytes(v, ROWS_RECV, WIDTH_HIDDEN));
    tape_release(t, active);
    if (sorts) {
        int unsorted = move_rows(v, "unsort", out, ROWS_RECV, true);
        tape_release(t, out);
        out = unsorted;
    }
    if (l->ep > 1) {
        int returned = move_rows(v, "combine", out, ROWS_SENT, false);
        tape_release(t, out);
        out = returned;
    }
    int ret = move_rows(v, "unpermute", out, ROWS_NORM, true);
    tape_release(t, out);
    tape_release(t, chosen);
    return ret;
}

static int add(struct megatron_view *v, int a, int b)
{
    struct tape_step *step = tape_run(v->tape, "add", bytes_of(v, a), a, b);
    if (step)
        step->gradient[0] = step->gradient[1] = GRADIENT_PASSED;
    return tape_last(v->tape);
}

static int feed_forward(struct megatron_view *v, int x, int layer)
{
    struct tape *t = v->tape;
    int normed = megatron_norm(v, x), ret;
    if (v->model->layer_ffn[layer] == FFN_DENSE) {
        ret = mlp(v, normed, WIDTH_DENSE_TWO, WIDTH_DENSE);
    } else {
        ret = routed(v, normed);
        if (v->model->moe.shared_width > 0) {
            int shared = mlp(v, normed, WIDTH_SHARED_TWO, WIDTH_SHARED);
            int sum = add(v, ret, shared);
            tape_release(t, ret);
            tape_release(t, shared);
            ret = sum;
        }
    }
    tape_release(t, normed);
    return ret;
}

int megatron_layer(struct megatron_view *v, int x, int layer)
{
    struct tape *t = v->tape;
    int mixed =
        v->model->layer_mixer[layer] == MIXER_MLA ? latent_attention(v, x) : attention(v, x);
    int middle = add(v, x, mixed);
    tape_release(t, mixed);
    int out = feed_forward(v, middle, layer);
    int ret = add(v, middle, out);
    tape_release(t, out);
    tape_release(t, middle);
    return ret;
}
