/* latent.c - the operations of attention through latents, expanded and sparse, in the order of
 * planner/residency/latent.c. No executor runs them: products with their sizes, and attention at
 * the rates of the machine's other kernels. */
#include "planner/time/cost.h"

/* In forwards, as for other attention. */
static const double attention_backward = 2.5;

struct sizes {
    double heads, nope, rope, value, query, latent; /* latent: of keys and values */
    double query_latent;                            /* 0: none */
    double expanded;                                /* tokens whose latents are expanded */
};

static struct sizes sizes_of(const struct layer_shape *s)
{
    const struct mla *mla = &s->in->model->mla;
    bool gathers = (s->when & WHEN_GATHER_KV) != 0;
    return (struct sizes){ .heads = width_of(s, WIDTH_HEADS),
                           .nope = mla->nope_dim,
                           .rope = mla->rope_dim,
                           .value = mla->value_dim,
                           .query = width_of(s, WIDTH_QUERY),
                           .latent = mla->kv_rank,
                           .query_latent = mla->q_rank,
                           .expanded = gathers ? (double)s->shape->rows[ROWS_ALL] : s->tokens };
}

static void move(struct walk *w, double bytes)
{
    walk_move(w, TIME_ELEMENTWISE, bytes);
}

static void product(struct walk *w, double m, double n, double k, double c_bytes)
{
    walk_product(w, TIME_MATMUL, m, n, k, c_bytes);
}

/* dW, added to, and dx of x W with W [out, in]. */
static void product_backward(struct walk *w, const struct layer_shape *s, enum component component,
                             double tokens, double in, double out)
{
    weight_gradient(w, s, component, out, in, tokens);
    product(w, tokens, in, out, 2);
}

static void gradients(struct walk *w, const struct layer_shape *s, double tokens, double in,
                      double out)
{
    product_backward(w, s, COMPONENT_ATTENTION, tokens, in, out);
}

/* What queries are made of. */
static double query_input(const struct layer_shape *s, const struct sizes *z)
{
    return z->query_latent > 0 ? z->query_latent : s->hidden;
}

/* Adapters of the down projections, of queries, of the expansion (absorbed or not), of the output.
 */
static void adapters(struct walk *w, const struct layer_shape *s, const struct sizes *z,
                     double expanded, bool backward)
{
    void (*pass)(struct walk *, const struct layer_shape *, enum component, double, double, double,
                 int) = backward ? adapter_backward : adapter_forward;
    double down = z->query_latent + z->latent + z->rope;
    pass(w, s, COMPONENT_ATTENTION, s->normed, s->hidden, down, z->query_latent > 0 ? 2 : 1);
    pass(w, s, COMPONENT_ATTENTION, s->tokens, query_input(s, z), z->query, 1);
    pass(w, s, COMPONENT_ATTENTION, expanded, z->latent, width_of(s, WIDTH_EXPANDED), 1);
    pass(w, s, COMPONENT_ATTENTION, s->tokens, z->heads * z->value, s->hidden, 1);
}

/* Norm, down projections, norms of latents, queries. Down projections are whole on every rank of
 * tp, which projects its own tokens. */
static void down_and_queries(struct walk *w, const struct layer_shape *s, const struct sizes *z)
{
    move(w, 4 * s->normed * s->hidden);
    product(w, s->normed, z->query_latent + z->latent + z->rope, s->hidden, 2);
    move(w, 4 * s->tokens * (z->query_latent + z->latent));
    product(w, s->tokens, z->query, query_input(s, z), 2);
}

static void down_and_queries_back(struct walk *w, const struct layer_shape *s,
                                  const struct sizes *z)
{
    gradients(w, s, s->tokens, query_input(s, z), z->query);
    move(w, 10 * s->tokens * (z->query_latent + z->latent));
    move(w, 4 * s->normed * s->hidden);
    gradients(w, s, s->normed, s->hidden, z->query_latent + z->latent + z->rope);
    move(w, 8 * s->normed * s->hidden);
}

/* Queries rotated; keys put together of what latents expand to and the key that heads share, or
 * their gradients taken apart. */
static void rotate(struct walk *w, const struct layer_shape *s, const struct sizes *z)
{
    double apart = z->heads * z->nope + z->rope;
    move(w, 4 * s->tokens * z->query);
    move(w, 2 * z->expanded * (apart + z->query));
}

/* Keys and values of whole sequences are expanded on every rank that has gathered their latents. */
static void expanded_forward(struct walk *w, const struct layer_shape *s, const struct sizes *z)
{
    double flops = 2 * s->tokens * (z->query + z->heads * z->value) * causal_keys(s->in, 0);
    down_and_queries(w, s, z);
    if (!s->attended || !(s->when & WHEN_GATHER_KV))
        product(w, z->expanded, width_of(s, WIDTH_EXPANDED), z->latent, 2);
    if (!s->attended) {
        rotate(w, s, z);
        walk_run(w, TIME_ATTENTION, 1, flops * s->machine->attention_flop);
    }
    move(w, 4 * s->normed * s->hidden);
    product(w, s->tokens, s->hidden, z->heads * z->value, 4);
    adapters(w, s, z, z->expanded, false);
}

static void expanded_back(struct walk *w, const struct layer_shape *s, const struct sizes *z)
{
    double flops = 2 * s->tokens * (z->query + z->heads * z->value) * causal_keys(s->in, 0);
    gradients(w, s, s->tokens, z->heads * z->value, s->hidden);
    if (s->when & WHEN_GATHER_KV)
        product(w, z->expanded, width_of(s, WIDTH_EXPANDED), z->latent, 2);
    rotate(w, s, z);
    walk_run(w, TIME_ATTENTION, 1, attention_backward * flops * s->machine->attention_back);
    rotate(w, s, z);
    gradients(w, s, z->expanded, z->latent, width_of(s, WIDTH_EXPANDED));
    down_and_queries_back(w, s, z);
    adapters(w, s, z, z->expanded, true);
}

/* Queries, key and weights of the indexer, the first two rotated. */
static void index_projections(struct walk *w, const struct layer_shape *s)
{
    const struct indexer *x = &s->in->model->indexer;
    double query = (double)x->heads * x->dim;
    double input = s->in->model->mla.q_rank > 0 ? s->in->model->mla.q_rank : s->hidden;
    product(w, s->tokens, query, input, 2);
    product(w, s->normed, x->dim + x->heads, s->hidden, 2);
    move(w, 4 * s->tokens * (query + x->dim));
}

/* Scores of every key, a head at a time in the width of its key; then the largest are chosen from
 * fp32 scores read once. Public H100 tables of GLM-5 at 16K queries: scores 20.5 ms in fp8 at 147K
 * keys, 0.96e15 FLOP/s, the rate of bf16 attention within a factor of two. */
static void index_forward(struct walk *w, const struct layer_shape *s)
{
    const struct indexer *x = &s->in->model->indexer;
    double query = (double)x->heads * x->dim, keys = causal_keys(s->in, 0);
    index_projections(w, s);
    walk_run(w, TIME_ATTENTION, 1, 2 * s->tokens * query * keys * s->machine->attention_flop);
    move(w, s->tokens * (8 * keys + 4 * x->top_k));
}

/* The indexer learns from the chosen keys alone. */
static void index_back(struct walk *w, const struct layer_shape *s)
{
    const struct indexer *x = &s->in->model->indexer;
    double query = (double)x->heads * x->dim;
    double keys = causal_keys(s->in, x->top_k);
    double input = s->in->model->mla.q_rank > 0 ? s->in->model->mla.q_rank : s->hidden;
    walk_run(w, TIME_ATTENTION, 1,
             attention_backward * 2 * s->tokens * query * keys * s->machine->attention_back);
    move(w, 16 * s->tokens * x->top_k); /* scores and their gradients, fp32, written and read */
    move(w, s->tokens * (8 * query + 10 * x->dim)); /* rotated again and back; the key normed too */
    product_backward(w, s, COMPONENT_INDEXER, s->tokens, input, query);
    product_backward(w, s, COMPONENT_INDEXER, s->normed, s->hidden, x->dim + x->heads);
}

/* Absorbed queries against chosen latents: 2 x heads x (2 latent + rope) a key. */
static double sparse_flops(const struct layer_shape *s, const struct sizes *z)
{
    double keys = causal_keys(s->in, s->in->model->indexer.top_k);
    return 2 * s->tokens * z->heads * (2 * z->latent + z->rope) * keys;
}

/* The rotated part of queries goes to or comes from the absorbed ones, that of keys is beside
 * latents.
 */
static void rotate_absorbed(struct walk *w, const struct layer_shape *s, const struct sizes *z)
{
    move(w, 4 * s->tokens * (z->heads + 1) * z->rope);
}

static void sparse_forward(struct walk *w, const struct layer_shape *s, const struct sizes *z,
                           bool own)
{
    down_and_queries(w, s, z);
    if (own)
        index_forward(w, s);
    if (!s->attended) {
        rotate_absorbed(w, s, z);
        product(w, s->tokens * z->heads, z->latent, z->nope, 2);
        walk_run(w, TIME_ATTENTION, 1, sparse_flops(s, z) * s->machine->attention_flop);
    }
    product(w, s->tokens * z->heads, z->value, z->latent, 2);
    move(w, 4 * s->normed * s->hidden);
    product(w, s->tokens, s->hidden, z->heads * z->value, 4);
    adapters(w, s, z, s->tokens, false);
}

static void sparse_back(struct walk *w, const struct layer_shape *s, const struct sizes *z,
                        bool own)
{
    product(w, s->tokens * z->heads, z->value, z->latent, 2);
    gradients(w, s, s->tokens, z->heads * z->value, s->hidden);
    gradients(w, s, s->tokens * z->heads, z->latent, z->value);
    rotate_absorbed(w, s, z);
    product(w, s->tokens * z->heads, z->latent, z->nope, 2);
    move(w, 4 * z->expanded * (z->latent + z->rope)); /* fp32 sums zeroed */
    walk_run(w, TIME_ATTENTION, 1,
             attention_backward * sparse_flops(s, z) * s->machine->attention_back);
    move(w, 6 * s->tokens * (z->latent + z->rope)); /* rounded */
    rotate_absorbed(w, s, z);
    gradients(w, s, s->tokens * z->heads, z->nope, z->latent);
    if (own)
        index_back(w, s);
    down_and_queries_back(w, s, z);
    adapters(w, s, z, s->tokens, true);
}

void latent_forward(struct walk *w, const struct layer_shape *s, enum mixer mixer)
{
    struct sizes z = sizes_of(s);
    if (mixer == MIXER_MLA)
        expanded_forward(w, s, &z);
    else
        sparse_forward(w, s, &z, mixer == MIXER_DSA);
}

void latent_back(struct walk *w, const struct layer_shape *s, enum mixer mixer)
{
    struct sizes z = sizes_of(s);
    if (mixer == MIXER_MLA)
        expanded_back(w, s, &z);
    else
        sparse_back(w, s, &z, mixer == MIXER_DSA);
}

void chosen_replay(struct walk *w, const struct layer_shape *s, enum mixer mixer)
{
    struct sizes z = sizes_of(s);
    sparse_forward(w, s, &z, false);
    if (mixer == MIXER_DSA)
        index_projections(w, s);
}
