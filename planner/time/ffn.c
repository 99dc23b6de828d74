/* ffn.c - the operations of the feed-forward half: dense MLP, experts (m1 to m11, b1 to b13) and
 * the shared expert (m12 to m14, s1 to s4) of ARCHITECTURE.md. */
#include "planner/time/cost.h"

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
static void product_backward(struct walk *w, const struct layer_shape *s, double in, double out,
                             double dx_bytes)
{
    product(w, out, in, s->tokens, 2 * s->gradient_bytes);
    product(w, s->tokens, in, out, dx_bytes);
}

/* d1 to d4; a replay ends with d2. */
static void dense_forward(struct walk *w, const struct layer_shape *s, bool replay)
{
    double width = width_of(s, WIDTH_DENSE);
    norm(w, s);
    product(w, s->tokens, width_of(s, WIDTH_DENSE_TWO), s->hidden, 2);
    if (replay)
        return;
    move(w, 6 * s->tokens * width);
    norm(w, s); /* the residual is copied: as many bytes */
    product(w, s->tokens, s->hidden, width, 4);
}

static void dense_backward(struct walk *w, const struct layer_shape *s)
{
    double width = width_of(s, WIDTH_DENSE);
    move(w, 6 * s->tokens * width);
    product_backward(w, s, width, s->hidden, 2);
    move(w, 10 * s->tokens * width);
    norm(w, s);
    product_backward(w, s, s->hidden, width_of(s, WIDTH_DENSE_TWO), 2);
    move(w, 8 * s->normed * s->hidden);
}

/* m12 to m14; a replay ends with m12 and the scalar gate. */
static void shared_forward(struct walk *w, const struct layer_shape *s, bool replay)
{
    double width = width_of(s, WIDTH_SHARED);
    product(w, s->tokens, width_of(s, WIDTH_SHARED_TWO), s->hidden, 2);
    if (s->when & WHEN_SHARED_GATE) {
        product(w, s->tokens, 1, s->hidden, 4);
        move(w, 8 * s->tokens);
    }
    if (replay)
        return;
    move(w, 6 * s->tokens * width);
    product(w, s->tokens, s->hidden, width, 4);
}

/* s1 to s4 */
static void shared_backward(struct walk *w, const struct layer_shape *s)
{
    double width = width_of(s, WIDTH_SHARED);
    norm(w, s);
    move(w, 6 * s->tokens * width);
    product_backward(w, s, width, s->hidden, 2);
    move(w, 10 * s->tokens * width);
    product_backward(w, s, s->hidden, width_of(s, WIDTH_SHARED_TWO), 2);
    if (s->when & WHEN_SHARED_GATE) {
        move(w, 12 * s->tokens);
        product_backward(w, s, s->hidden, 1, 4);
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
    norm(w, s);
    route(w, s);
    to_experts(w, s);
    walk_experts(w, calls, s->received, width_of(s, WIDTH_GATE_UP), width_of(s, WIDTH_ROUTED), 2);
    if (replay)
        return;
    moves(w, s, 6 * s->received * width);
    walk_experts(w, calls, s->received, width_of(s, WIDTH_ROUTED), width, 2);
    from_experts(w, s, 2);
}

/* b11 to b13 */
static void router_backward(struct walk *w, const struct layer_shape *s)
{
    double experts = width_of(s, WIDTH_EXPERTS);
    if (!(s->when & WHEN_SHARED))
        norm(w, s);
    move(w, 8 * s->normed * experts);
    product(w, experts, s->hidden, s->normed, 2 * s->gradient_bytes);
    product(w, s->normed, s->hidden, experts, 4);
    move(w, 8 * s->normed * s->hidden);
}

static void experts_backward(struct walk *w, const struct layer_shape *s)
{
    double width = width_of(s, WIDTH_EXPERT), calls = s->experts * s->chunks;
    double rows = s->received, added = 2 * s->gradient_bytes;
    to_experts(w, s);
    moves(w, s, 6 * rows * width);
    walk_experts(w, calls, rows, width_of(s, WIDTH_ROUTED), width, added);
    walk_experts(w, calls, rows, width_of(s, WIDTH_ROUTED), width, 2);
    moves(w, s, 10 * rows * width);
    walk_experts(w, calls, rows, width_of(s, WIDTH_GATE_UP), width_of(s, WIDTH_ROUTED), added);
    walk_experts(w, calls, rows, width_of(s, WIDTH_GATE_UP), width_of(s, WIDTH_ROUTED), 2);
    from_experts(w, s, s->when & WHEN_SHARED ? 2 : 1);
    router_backward(w, s);
}

/* Into the experts' latent and out of it, where they have one; backward twice as much. */
static void latent_products(struct walk *w, const struct layer_shape *s, int times)
{
    double latent = width_of(s, WIDTH_EXPERT_LATENT);
    for (int i = 0; i < 2 * times && latent > 0; i++)
        product(w, s->normed, latent, s->hidden, 2);
}

void ffn_forward(struct walk *w, const struct layer_shape *s, enum ffn ffn, bool replay)
{
    if (ffn == FFN_DENSE)
        dense_forward(w, s, replay);
    if (ffn != FFN_MOE)
        return;
    latent_products(w, s, 1);
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
    latent_products(w, s, 2);
    if (s->when & WHEN_SHARED)
        shared_backward(w, s);
    experts_backward(w, s);
}
