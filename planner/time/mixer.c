/* mixer.c - the operations of attention, a1 to a6 and c1 to c9 of ARCHITECTURE.md, and of the gated
 * delta net: products with their sizes, elementwise kernels with the bytes that they read and
 * write. */
#include "planner/time/cost.h"

#include "base/layout/trained.h"

/* Backward of flash attention and of the chunked delta rule, in forwards. 2.5: the scores and four
 * products of their gradients against two. 2.7: public GB200 timings, 4.74 - 1.27 over 1.27 ms. */
static const double attention_backward = 2.5, delta_backward = 2.7;

enum { QKV_MATRICES = 3 };

enum { DELTA_REFERENCE = 32 * 128 * 128 }; /* state of the hardware file's timing */

/* 2 x 2 x Q a query and key; causal: half of the keys. Zig-zag order gives all ranks of a context
 * group the same share. A window of w of S tokens: w (1 - w / 2S). */
static double attention_flops(const struct budget_input *in, const struct residency_shape *shape)
{
    double keys = causal_keys(in, in->model->gqa.window_tokens);
    return 4.0 * (double)shape->rows[ROWS_TOKENS] * (double)shape->width[WIDTH_QUERY] * keys;
}

void layer_shape_init(const struct budget_input *in, const struct machine *machine,
                      const struct residency_shape *shape, uint64_t received,
                      struct layer_shape *ret)
{
    const struct layout *l = &in->choices->layout;
    struct dispatch d;
    dispatch_init(in, received, &d);
    *ret = (struct layer_shape){
        .in = in,
        .machine = machine,
        .shape = shape,
        .hidden = (double)in->model->hidden,
        .tokens = (double)shape->rows[ROWS_TOKENS],
        .normed = (double)shape->rows[ROWS_NORM],
        .sent = (double)d.sent,
        .received = (double)received,
        .experts = (double)in->model->moe.experts / l->ep,
        .gradient_bytes = (double)dtype_bytes(in->choices->primitives.grad_dtype),
        .attention_flops = attention_flops(in, shape),
        .chunks = d.chunks,
        .when = shape->when,
        .trained = trained_components(&in->choices->primitives),
        .adapted = adapted_components(&in->choices->primitives),
        .rank = in->choices->primitives.lora_rank,
    };
}

/* a3, c4: queries and keys read and written; then keys and values packed to travel. */
static void rotate(struct walk *w, const struct layer_shape *s)
{
    double keys = 4 * s->tokens * width_of(s, WIDTH_KEY);
    walk_move(w, TIME_ELEMENTWISE, 4 * s->tokens * width_of(s, WIDTH_QUERY) + keys);
    if (s->when & WHEN_GATHER_KV) {
        walk_move(w, TIME_ELEMENTWISE, keys);
        walk_move(w, TIME_ELEMENTWISE, keys);
    }
}

/* Zig-zag order attends in two calls. */
static double attention_calls(const struct layer_shape *s)
{
    return s->when & WHEN_GATHER_KV ? 2 : 1;
}

static void attention_forward(struct walk *w, const struct layer_shape *s)
{
    double query = width_of(s, WIDTH_QUERY), qkv = width_of(s, WIDTH_QKV);
    walk_move(w, TIME_ELEMENTWISE, 4 * s->normed * s->hidden);
    walk_product(w, TIME_MATMUL, s->tokens, qkv, s->hidden, 2);
    adapter_forward(w, s, COMPONENT_ATTENTION, s->tokens, s->hidden, qkv, QKV_MATRICES);
    if (s->in->model->gqa.qkv_bias)
        walk_move(w, TIME_ELEMENTWISE, 4 * s->tokens * qkv);
    if (!s->attended) {
        rotate(w, s);
        walk_run(w, TIME_ATTENTION, attention_calls(s),
                 s->attention_flops * s->machine->attention_flop);
    }
    if (s->when & WHEN_GATE)
        walk_move(w, TIME_ELEMENTWISE, 6 * s->tokens * query);
    walk_move(w, TIME_ELEMENTWISE, 4 * s->normed * s->hidden);
    walk_product(w, TIME_MATMUL, s->tokens, s->hidden, query, 4);
    adapter_forward(w, s, COMPONENT_ATTENTION, s->tokens, query, s->hidden, 1);
}

/* c5 with gathered keys: fp32 sums zeroed, and rounded when they are home. */
static void gathered_gradients(struct walk *w, const struct layer_shape *s)
{
    double keys = width_of(s, WIDTH_KEY_VALUE);
    walk_move(w, TIME_ELEMENTWISE, 4 * (double)s->shape->rows[ROWS_ALL] * keys);
    walk_move(w, TIME_ELEMENTWISE, 6 * s->tokens * keys);
}

/* A device multiplies the whole of the square on which a run of queries meets its own keys: the
 * queries of 2 cp runs see 1 + 2 + ... + 2 cp runs of keys instead of half a run less each (26 to
 * 31 % more was measured at cp 2 on two H200, where this says 25). One run of a whole sequence
 * leaves the masked half out. */
static double backward_flops(const struct layer_shape *s)
{
    double runs = 2.0 * s->in->choices->layout.cp, flops = attention_backward * s->attention_flops;
    bool squares = (s->when & WHEN_GATHER_KV) && !s->in->hardware->host;
    return squares ? flops * (runs + 1) / runs : flops;
}

static void attention_back(struct walk *w, const struct layer_shape *s)
{
    double query = width_of(s, WIDTH_QUERY), qkv = width_of(s, WIDTH_QKV), t = s->tokens;
    bool reads = inputs_are_read(s, COMPONENT_ATTENTION);
    if ((s->when & WHEN_GATE) && reads)
        walk_move(w, TIME_ELEMENTWISE, 6 * t * query);
    weight_gradient(w, s, COMPONENT_ATTENTION, s->hidden, query, t);
    walk_product(w, TIME_MATMUL, t, query, s->hidden, 2);
    adapter_backward(w, s, COMPONENT_ATTENTION, t, query, s->hidden, 1);
    if (s->when & WHEN_GATE)
        walk_move(w, TIME_ELEMENTWISE, 10 * t * query);
    rotate(w, s);
    if (s->in->choices->primitives.attention_deterministic && !s->in->hardware->host)
        ordered_attention_backward(w, s);
    else
        walk_run(w, TIME_ATTENTION, attention_calls(s),
                 backward_flops(s) * s->machine->attention_back);
    if (s->when & WHEN_GATHER_KV)
        gathered_gradients(w, s);
    walk_move(w, TIME_ELEMENTWISE, 6 * t * (query + width_of(s, WIDTH_KEY)));
    if (reads)
        walk_move(w, TIME_ELEMENTWISE, 4 * s->normed * s->hidden);
    weight_gradient(w, s, COMPONENT_ATTENTION, qkv, s->hidden, t);
    if (s->in->model->gqa.qkv_bias && has_component(s->trained, COMPONENT_ATTENTION))
        walk_move(w, TIME_ELEMENTWISE, 2 * t * qkv);
    walk_product(w, TIME_MATMUL, t, s->hidden, qkv, 2);
    adapter_backward(w, s, COMPONENT_ATTENTION, t, s->hidden, qkv, QKV_MATRICES);
    walk_move(w, TIME_ELEMENTWISE, 8 * s->normed * s->hidden);
}

static double delta_seconds(const struct layer_shape *s)
{
    double scale = width_of(s, WIDTH_DELTA_STATE) / DELTA_REFERENCE;
    return s->in->hardware->delta_rule_seconds_per_token * scale * s->tokens;
}

/* Norm, projections, convolution and gates, the rule, the gated norm, output. */
static void delta_forward(struct walk *w, const struct layer_shape *s)
{
    double in = width_of(s, WIDTH_DELTA_IN) + 2 * width_of(s, WIDTH_DELTA_HEADS);
    double value = width_of(s, WIDTH_DELTA_VALUE), conv = width_of(s, WIDTH_DELTA_CONV);
    walk_move(w, TIME_ELEMENTWISE, 4 * s->normed * s->hidden);
    walk_product(w, TIME_MATMUL, s->tokens, in, s->hidden, 2);
    adapter_forward(w, s, COMPONENT_LINEAR_ATTENTION, s->tokens, s->hidden, in,
                    mixer_input_matrices(s->in, MIXER_GDN));
    walk_move(w, TIME_ELEMENTWISE, 4 * s->tokens * conv);
    walk_move(w, TIME_ELEMENTWISE, 12 * s->tokens * width_of(s, WIDTH_DELTA_HEADS));
    walk_run(w, TIME_LINEAR_ATTENTION, 1, delta_seconds(s));
    walk_move(w, TIME_ELEMENTWISE, 6 * s->tokens * value);
    walk_move(w, TIME_ELEMENTWISE, 4 * s->normed * s->hidden);
    walk_product(w, TIME_MATMUL, s->tokens, s->hidden, value, 4);
    adapter_forward(w, s, COMPONENT_LINEAR_ATTENTION, s->tokens, value, s->hidden, 1);
}

static void delta_back(struct walk *w, const struct layer_shape *s)
{
    double in = width_of(s, WIDTH_DELTA_IN) + 2 * width_of(s, WIDTH_DELTA_HEADS), t = s->tokens;
    double value = width_of(s, WIDTH_DELTA_VALUE), conv = width_of(s, WIDTH_DELTA_CONV);
    bool reads = inputs_are_read(s, COMPONENT_LINEAR_ATTENTION);
    if (reads)
        walk_move(w, TIME_ELEMENTWISE, 6 * t * value);
    weight_gradient(w, s, COMPONENT_LINEAR_ATTENTION, s->hidden, value, t);
    walk_product(w, TIME_MATMUL, t, value, s->hidden, 2);
    adapter_backward(w, s, COMPONENT_LINEAR_ATTENTION, t, value, s->hidden, 1);
    walk_move(w, TIME_ELEMENTWISE, 10 * t * value);
    walk_move(w, TIME_ELEMENTWISE, 4 * t * conv);
    walk_run(w, TIME_LINEAR_ATTENTION, 1, delta_backward * delta_seconds(s));
    walk_move(w, TIME_ELEMENTWISE, 6 * t * conv);
    if (reads)
        walk_move(w, TIME_ELEMENTWISE, 4 * s->normed * s->hidden);
    weight_gradient(w, s, COMPONENT_LINEAR_ATTENTION, in, s->hidden, t);
    walk_product(w, TIME_MATMUL, t, s->hidden, in, 2);
    adapter_backward(w, s, COMPONENT_LINEAR_ATTENTION, t, s->hidden, in,
                     mixer_input_matrices(s->in, MIXER_GDN));
    walk_move(w, TIME_ELEMENTWISE, 8 * s->normed * s->hidden);
}

/* A layer that sees a window or its chunk of the sequence; a query in a chunk sees half of it. */
static struct layer_shape local_shape(const struct layer_shape *s)
{
    const struct gqa *gqa = &s->in->model->gqa;
    struct layer_shape local = *s;
    double keys = gqa->local_chunked ? chunk_keys(s->in, gqa->local_tokens)
                                     : causal_keys(s->in, gqa->local_tokens);
    local.attention_flops = 4.0 * s->tokens * width_of(s, WIDTH_QUERY) * keys;
    local.local = true;
    return local;
}

void mixer_forward(struct walk *w, const struct layer_shape *s, enum mixer mixer)
{
    struct layer_shape local = mixer == MIXER_LOCAL ? local_shape(s) : *s;
    if (mixer == MIXER_GQA || mixer == MIXER_LOCAL)
        attention_forward(w, &local);
    else if (mixer == MIXER_GDN)
        delta_forward(w, s);
    else if (mixer_is_latent(mixer))
        latent_forward(w, s, mixer);
    else if (mixer_is_linear(mixer))
        state_space_forward(w, s, mixer);
}

void mixer_backward(struct walk *w, const struct layer_shape *s, enum mixer mixer)
{
    struct layer_shape local = mixer == MIXER_LOCAL ? local_shape(s) : *s;
    if (mixer == MIXER_GQA || mixer == MIXER_LOCAL)
        attention_back(w, &local);
    else if (mixer == MIXER_GDN)
        delta_back(w, s);
    else if (mixer_is_latent(mixer))
        latent_back(w, s, mixer);
    else if (mixer_is_linear(mixer))
        state_space_back(w, s, mixer);
}
