/* ffn.c - the operations of the feed-forward half: dense MLP, experts (m1 to m11, b1 to b13) and
 * the shared expert (m12 to m14, s1 to s4) of ARCHITECTURE.md. */
#include "planner/time/cost.h"

#include "base/layout/trained.h"

static void move(struct walk *w, double bytes)
{
    walk_move(w, TIME_ELEMENTWISE, bytes);
}

/* A kernel a chunk. */
static void moves(struct walk *w, const struct layer_shape *s, double bytes)
{
    walk_moves(w, TIME_ELEMENTWISE, s->chunks, bytes);
}

static void product(struct walk *w, double m, double n, double k, double c_bytes)
{
    walk_product(w, TIME_MATMUL, m, n, k, c_bytes);
}

static void norm(struct walk *w, const struct layer_shape *s)
{
    move(w, 4 * s->normed * s->hidden);
}

/* The gradients of x W: dW, added to, and dx. */
static void product_backward(struct walk *w, const struct layer_shape *s, enum component component,
                             double in, double out, double dx_bytes)
{
    weight_gradient(w, s, component, out, in, s->tokens);
    product(w, s->tokens, in, out, dx_bytes);
}

/* Gate and up, or up alone. */
static int up_matrices(const struct layer_shape *s)
{
    return s->in->model->mlp_ungated ? 1 : 2;
}

/* Gate and up of routed experts, which a checkpoint may store as one matrix: then they have one
 * adapter. */
static int expert_up_matrices(const struct layer_shape *s)
{
    for (int mixer = 0; mixer < MIXER_COUNT; mixer++) {
        const struct layer_tensors *tensors = &s->in->sizes->tensors[mixer][FFN_MOE];
        int count = 0;
        for (int i = 0; i < tensors->count; i++)
            count += tensors->items[i].expert && tensors->items[i].matrix;
        if (count > 1)
            return count - 1; /* the other is down */
    }
    return up_matrices(s);
}

/* A dense MLP's or a shared expert's adapters: gate and up; down. */
static void up_adapter(struct walk *w, const struct layer_shape *s, enum component component,
                       double width, bool backward)
{
    (backward ? adapter_backward : adapter_forward)(w, s, component, s->tokens, s->hidden, width,
                                                    up_matrices(s));
}

static void down_adapter(struct walk *w, const struct layer_shape *s, enum component component,
                         double width, bool backward)
{
    (backward ? adapter_backward : adapter_forward)(w, s, component, s->tokens, width, s->hidden,
                                                    1);
}

/* d1 to d4; a replay ends with d2. */
static void dense_forward(struct walk *w, const struct layer_shape *s, bool replay)
{
    double width = width_of(s, WIDTH_DENSE), two = width_of(s, WIDTH_DENSE_TWO);
    norm(w, s);
    product(w, s->tokens, two, s->hidden, 2);
    up_adapter(w, s, COMPONENT_DENSE_MLP, two, false);
    if (replay)
        return;
    move(w, 6 * s->tokens * width);
    norm(w, s); /* the residual is copied: as many bytes */
    product(w, s->tokens, s->hidden, width, 4);
    down_adapter(w, s, COMPONENT_DENSE_MLP, width, false);
}

static void dense_backward(struct walk *w, const struct layer_shape *s)
{
    double width = width_of(s, WIDTH_DENSE), two = width_of(s, WIDTH_DENSE_TWO);
    bool reads = inputs_are_read(s, COMPONENT_DENSE_MLP);
    if (reads)
        move(w, 6 * s->tokens * width);
    product_backward(w, s, COMPONENT_DENSE_MLP, width, s->hidden, 2);
    down_adapter(w, s, COMPONENT_DENSE_MLP, width, true);
    move(w, 10 * s->tokens * width);
    if (reads)
        norm(w, s);
    product_backward(w, s, COMPONENT_DENSE_MLP, s->hidden, two, 2);
    up_adapter(w, s, COMPONENT_DENSE_MLP, two, true);
    move(w, 8 * s->normed * s->hidden);
}

/* m12 to m14; a replay ends with m12 and the scalar gate. */
static void shared_forward(struct walk *w, const struct layer_shape *s, bool replay)
{
    double width = width_of(s, WIDTH_SHARED), two = width_of(s, WIDTH_SHARED_TWO);
    product(w, s->tokens, two, s->hidden, 2);
    up_adapter(w, s, COMPONENT_SHARED_EXPERT, two, false);
    if (s->when & WHEN_SHARED_GATE) {
        product(w, s->tokens, 1, s->hidden, 4);
        move(w, 8 * s->tokens);
    }
    if (replay)
        return;
    move(w, 6 * s->tokens * width);
    product(w, s->tokens, s->hidden, width, 4);
    down_adapter(w, s, COMPONENT_SHARED_EXPERT, width, false);
}

/* s1 to s4 */
static void shared_backward(struct walk *w, const struct layer_shape *s)
{
    double width = width_of(s, WIDTH_SHARED), two = width_of(s, WIDTH_SHARED_TWO);
    norm(w, s);
    if (inputs_are_read(s, COMPONENT_SHARED_EXPERT))
        move(w, 6 * s->tokens * width);
    product_backward(w, s, COMPONENT_SHARED_EXPERT, width, s->hidden, 2);
    down_adapter(w, s, COMPONENT_SHARED_EXPERT, width, true);
    move(w, 10 * s->tokens * width);
    product_backward(w, s, COMPONENT_SHARED_EXPERT, s->hidden, two, 2);
    up_adapter(w, s, COMPONENT_SHARED_EXPERT, two, true);
    if (s->when & WHEN_SHARED_GATE) {
        move(w, 12 * s->tokens);
        product_backward(w, s, COMPONENT_SHARED_EXPERT, s->hidden, 1, 4);
    }
}

/* m2: the router, each chunk's sorting, and the loads read by the host, which ranks exchange. */
static void route(struct walk *w, const struct layer_shape *s)
{
    double experts = width_of(s, WIDTH_EXPERTS), chosen = width_of(s, WIDTH_TOP_K);
    product(w, s->normed, experts, s->hidden, 4);
    move(w, 8 * s->normed * (experts + chosen));
    moves(w, s, 12 * s->normed * chosen);
    walk_read(w, s->chunks);
}

/* m3 to m5, b1 to b3: rows of all tokens to their experts; with an exchange into its buffer and,
 * arrived, into expert order. */
static void to_experts(struct walk *w, const struct layer_shape *s)
{
    moves(w, s, 2 * width_of(s, WIDTH_ROUTED) * (s->normed + s->sent));
    if (s->when & WHEN_EXCHANGE)
        moves(w, s, 4 * width_of(s, WIDTH_ROUTED) * s->received);
}

/* m9 to m11, b9 to b11: and back, summed over a token's choices. */
static void from_experts(struct walk *w, const struct layer_shape *s, double base)
{
    if (s->when & WHEN_EXCHANGE)
        moves(w, s, 4 * width_of(s, WIDTH_ROUTED) * s->received);
    moves(w, s, 2 * width_of(s, WIDTH_ROUTED) * (s->sent + base * s->normed));
}

/* m1 to m11; a replay ends with m6. */
static void experts_forward(struct walk *w, const struct layer_shape *s, bool replay)
{
    double width = width_of(s, WIDTH_EXPERT), calls = s->experts * s->chunks;
    double two = width_of(s, WIDTH_GATE_UP), routed = width_of(s, WIDTH_ROUTED);
    norm(w, s);
    route(w, s);
    to_experts(w, s);
    walk_experts(w, calls, s->received, two, routed, 2);
    expert_adapter_forward(w, s, routed, two, expert_up_matrices(s));
    if (replay)
        return;
    moves(w, s, 6 * s->received * width);
    walk_experts(w, calls, s->received, routed, width, 2);
    expert_adapter_forward(w, s, width, routed, 1);
    from_experts(w, s, 2);
}

/* b11 to b13 */
static void router_backward(struct walk *w, const struct layer_shape *s)
{
    double experts = width_of(s, WIDTH_EXPERTS);
    if (!(s->when & WHEN_SHARED) && inputs_are_read(s, COMPONENT_ROUTER))
        norm(w, s);
    move(w, 8 * s->normed * experts);
    weight_gradient(w, s, COMPONENT_ROUTER, experts, s->hidden, s->normed);
    product(w, s->normed, s->hidden, experts, 4);
    move(w, 8 * s->normed * s->hidden);
}

static void experts_backward(struct walk *w, const struct layer_shape *s)
{
    double width = width_of(s, WIDTH_EXPERT), calls = s->experts * s->chunks, rows = s->received;
    double two = width_of(s, WIDTH_GATE_UP), routed = width_of(s, WIDTH_ROUTED);
    to_experts(w, s);
    if (inputs_are_read(s, COMPONENT_EXPERTS))
        moves(w, s, 6 * rows * width);
    expert_gradient(w, s, routed, width);
    walk_experts(w, calls, rows, routed, width, 2);
    expert_adapter_backward(w, s, width, routed, 1);
    moves(w, s, 10 * rows * width);
    expert_gradient(w, s, two, routed);
    walk_experts(w, calls, rows, two, routed, 2);
    expert_adapter_backward(w, s, routed, two, expert_up_matrices(s));
    from_experts(w, s, s->when & WHEN_SHARED ? 2 : 1);
    router_backward(w, s);
}

/* Into the experts' latent and out of it, where they have one. */
static void latents_forward(struct walk *w, const struct layer_shape *s)
{
    double latent = width_of(s, WIDTH_EXPERT_LATENT);
    if (latent <= 0)
        return;
    product(w, s->normed, latent, s->hidden, 2);
    product(w, s->normed, latent, s->hidden, 2);
    adapter_forward(w, s, COMPONENT_EXPERTS, s->normed, s->hidden, latent, 1);
    adapter_forward(w, s, COMPONENT_EXPERTS, s->normed, latent, s->hidden, 1);
}

static void latents_backward(struct walk *w, const struct layer_shape *s)
{
    double latent = width_of(s, WIDTH_EXPERT_LATENT);
    int products = has_component(s->trained, COMPONENT_EXPERTS) ? 4 : 2;
    for (int i = 0; i < products && latent > 0; i++)
        product(w, s->normed, latent, s->hidden, 2);
    if (latent <= 0)
        return;
    adapter_backward(w, s, COMPONENT_EXPERTS, s->normed, s->hidden, latent, 1);
    adapter_backward(w, s, COMPONENT_EXPERTS, s->normed, latent, s->hidden, 1);
}

void ffn_forward(struct walk *w, const struct layer_shape *s, enum ffn ffn, bool replay)
{
    if (ffn == FFN_DENSE)
        dense_forward(w, s, replay);
    if (ffn != FFN_MOE)
        return;
    latents_forward(w, s);
    experts_forward(w, s, replay);
    if (s->when & WHEN_SHARED)
        shared_forward(w, s, replay);
}

void ffn_backward(struct walk *w, const struct layer_shape *s, enum ffn ffn)
{
    if (ffn == FFN_DENSE)
        dense_backward(w, s);
    if (ffn != FFN_MOE)
        return;
    latents_backward(w, s);
    if (s->when & WHEN_SHARED)
        shared_backward(w, s);
    experts_backward(w, s);
}
