/* context_links.c - seconds of the collectives of context parallelism around a mixer. */
#include "planner/predict/layer_seconds.h"

#include "base/checked.h"

struct view {
    struct ranks ranks;
    double tokens, all;
    double gathered; /* elements a token of keys and values, or of latents */
    double queries;  /* elements a token of queries and outputs */
    double keys;     /* of keys and values that heads are exchanged with; of `heads` heads */
    double heads;
    double index;   /* of index keys, which every rank needs of all tokens */
    double choices; /* keys that a token chose, int32, which go with its queries */
};

static double gather_kv(const struct hardware *h, const struct view *v)
{
    return context_gather_seconds(h, v->ranks, 2 * v->gathered * v->all);
}

/* q, k, v and o to whole heads over `size` ranks; key heads repeat where they are fewer. */
static double heads_seconds(const struct hardware *h, const struct view *v, int size)
{
    double repeated = v->heads > 0 && size > v->heads ? size / v->heads : 1;
    struct ranks ranks = { size, v->ranks.stride };
    return exchange_seconds(h, ranks, 2 * v->tokens * (v->queries + repeated * v->keys));
}

/* The choices of all tokens of `size` ranks, in each pass. */
static double choices_seconds(const struct hardware *h, const struct view *v, int size)
{
    struct ranks ranks = { size, v->ranks.stride };
    return context_gather_seconds(h, ranks, 4 * v->choices * v->tokens * size);
}

/* Ulysses goes over the most ranks that divide both the group and the key heads. */
static int inner_ranks(int ranks, int heads)
{
    int inner = heads < ranks ? heads : ranks;
    while (inner > 1 && (ranks % inner || heads % inner))
        inner--;
    return inner > 1 ? inner : 1;
}

static double heads_of(const struct budget_input *in)
{
    return (double)div_up((uint64_t)in->model->gqa.kv_heads, (uint64_t)in->choices->layout.tp);
}

int ring_ranks(const struct budget_input *in)
{
    int cp = in->choices->layout.cp;
    enum context context = in->choices->primitives.context;
    if (context == CONTEXT_HIERARCHICAL)
        return cp / inner_ranks(cp, (int)heads_of(in));
    return context == CONTEXT_RING ? cp : 1;
}

/* Ulysses inside, a ring over as many ranks as that leaves, of blocks as large. */
static void hierarchical(const struct hardware *h, const struct view *v, double *ret)
{
    int inner = inner_ranks(v->ranks.size, (int)v->heads);
    struct view outer = *v;
    double split = heads_seconds(h, v, inner), chosen = choices_seconds(h, v, inner);
    outer.ranks = (struct ranks){ v->ranks.size / inner, v->ranks.stride * inner };
    outer.all = v->tokens * outer.ranks.size;
    ret[LINK_CONTEXT] = split + chosen;
    ret[LINK_CONTEXT_BACK] = 2 * split + chosen;
    ret[LINK_RING] = gather_kv(h, &outer);
    ret[LINK_RING_BACK] = 3 * ret[LINK_RING];
}

/* allgather_kv: bf16 keys and values in each pass, fp32 gradients reduce-scattered. ulysses: q, k,
 * v, o in each pass, and their gradients. ring: blocks circulate, backward with fp32 gradients. An
 * indexer scores the keys of all tokens; their gradients, fp32, come home. */
static void softmax_links(const struct budget_input *in, const struct view *v, double *ret)
{
    const struct hardware *h = in->hardware;
    double split = heads_seconds(h, v, v->ranks.size);
    double chosen = choices_seconds(h, v, v->ranks.size);
    switch (in->choices->primitives.context) {
    case CONTEXT_ALLGATHER_KV:
        ret[LINK_CONTEXT] = gather_kv(h, v);
        ret[LINK_CONTEXT_BACK] = context_scatter_seconds(h, v->ranks, 4 * v->gathered * v->all);
        break;
    case CONTEXT_ULYSSES:
        ret[LINK_CONTEXT] = split + chosen;
        ret[LINK_CONTEXT_BACK] = 2 * split + chosen;
        break;
    case CONTEXT_HIERARCHICAL:
        hierarchical(h, v, ret);
        break;
    case CONTEXT_RING:
        ret[LINK_RING] = gather_kv(h, v);
        ret[LINK_RING_BACK] = 3 * ret[LINK_RING];
        break;
    case CONTEXT_NONE:
    case CONTEXT_COUNT:
        break;
    }
    ret[LINK_INDEX_KEYS] = context_gather_seconds(h, v->ranks, 2 * v->index * v->all);
    ret[LINK_INDEX_HOME] = context_scatter_seconds(h, v->ranks, 4 * v->index * v->all);
}

/* What a token brings along, by kind: expanded or absorbed heads are exchanged, latents gathered.
 */
static void softmax_view(const struct budget_input *in, const struct step_sizes *s,
                         enum mixer mixer, struct view *ret)
{
    const uint64_t *w = s->width;
    ret->gathered = (double)w[WIDTH_KEY_VALUE];
    ret->queries = 2 * (double)w[WIDTH_QUERY];
    ret->keys = 2 * (double)w[WIDTH_KEY];
    ret->heads = heads_of(in);
    if (!mixer_is_latent(mixer))
        return;
    ret->gathered = (double)w[WIDTH_LATENT_KEY];
    ret->queries = (double)(w[WIDTH_QUERY] + w[WIDTH_VALUE]);
    ret->keys = ret->queries;
    if (mixer == MIXER_MLA)
        return;
    ret->index = mixer == MIXER_DSA ? (double)w[WIDTH_INDEX_KEY] : 0;
    ret->choices = (double)in->model->indexer.top_k;
    ret->queries = (double)(w[WIDTH_ABSORBED] + w[WIDTH_ABSORBED_OUT]);
    ret->keys = (double)(w[WIDTH_LATENT_KEY] + w[WIDTH_LATENT]);
    ret->heads = 1;
}

/* Elements a token in and out, bf16, with what enters once a head; fp32 elements of the state and
 * of what one rank hands on beside it; bf16 ones of the tokens before that a convolution sees. */
struct recurrence {
    double split, state, transition, halo;
};

static struct recurrence recurrence_of(const struct budget_input *in, const struct step_sizes *s,
                                       enum mixer mixer)
{
    const uint64_t *w = s->width;
    const struct model *m = in->model;
    if (mixer == MIXER_LIGHTNING) {
        double width = (double)w[WIDTH_LIGHTNING], dim = m->lightning.head_dim;
        return (struct recurrence){ 4 * width, width * dim, over(width, dim), 0 };
    }
    double channels = (double)w[WIDTH_MAMBA_CHANNELS], inner = (double)w[WIDTH_MAMBA_INNER];
    double heads = (double)w[WIDTH_MAMBA_HEADS]; /* dt is fp32 */
    return (struct recurrence){ channels + inner + 2 * heads, inner * m->mamba.state, heads,
                                m->mamba.conv_width * channels };
}

/* head_split: what enters and leaves the recurrence exchanged. state_pass: states go from rank to
 * rank in turn, a convolution's halo at once, and hidden states are reordered from zig-zag to
 * sequence order and back. */
static void linear_links(const struct budget_input *in, const struct step_sizes *s,
                         enum mixer mixer, const struct view *v, double *ret)
{
    const struct hardware *h = in->hardware;
    struct recurrence r = recurrence_of(in, s, mixer);
    double seconds = 0, sequences = in->choices->layout.micro_batch;
    if (in->choices->primitives.linear_context == LINEAR_CONTEXT_HEAD_SPLIT) {
        seconds = exchange_seconds(h, v->ranks, 2 * v->tokens * r.split);
    } else if (in->choices->primitives.linear_context == LINEAR_CONTEXT_STATE_PASS) {
        double state = 4 * (r.state + r.transition) * sequences, halo = 2 * r.halo * sequences;
        double hidden = 2.0 * (double)s->rows[ROWS_NORM] * in->model->hidden;
        seconds = (v->ranks.size - 1) * send_seconds(h, v->ranks, state) +
                  (halo > 0 ? send_seconds(h, v->ranks, halo) : 0) +
                  2 * exchange_seconds(h, v->ranks, hidden);
    }
    ret[LINK_STATE] = seconds;
    ret[LINK_STATE_BACK] = 2 * seconds;
}

/* Delta nets: heads exchanged for tokens and back, or of every run its tail, the state that it ends
 * with and what it makes of the state before it, gathered; gradients of tails summed. */
static void delta_links(const struct budget_input *in, const struct step_sizes *s,
                        const struct view *v, double *ret)
{
    const struct hardware *h = in->hardware;
    double runs = (double)s->rows[ROWS_DELTA_ALL_RUNS], halo = (double)s->width[WIDTH_DELTA_HALO];
    double all = (double)s->rows[ROWS_ALL];
    if (in->choices->primitives.linear_context == LINEAR_CONTEXT_HEAD_SPLIT) {
        ret[LINK_STATE] =
            exchange_seconds(h, v->ranks, 2 * all * (double)s->width[WIDTH_DELTA_SPLIT]);
        ret[LINK_STATE_HOME] =
            exchange_seconds(h, v->ranks, 2 * all * (double)s->width[WIDTH_DELTA_SPLIT_VALUE]);
        return;
    }
    ret[LINK_STATE] =
        context_gather_seconds(h, v->ranks, 4 * runs * (double)s->width[WIDTH_DELTA_STATE]);
    ret[LINK_TRANSITION] =
        context_gather_seconds(h, v->ranks, 4 * runs * (double)s->width[WIDTH_DELTA_SQUARE]);
    ret[LINK_HALO] = context_gather_seconds(h, v->ranks, 2 * runs * halo);
    ret[LINK_HALO_BACK] = context_scatter_seconds(h, v->ranks, 4 * runs * halo);
}

void context_links(const struct budget_input *in, const struct step_sizes *sizes, enum mixer mixer,
                   double *ret)
{
    const struct layout *l = &in->choices->layout;
    double tokens = (double)sizes->rows[ROWS_TOKENS];
    struct view v = { .ranks = { l->cp, l->tp }, .tokens = tokens, .all = tokens * l->cp };
    softmax_view(in, sizes, mixer, &v);
    if (mixer_is_softmax(mixer))
        softmax_links(in, &v, ret);
    else if (mixer == MIXER_GDN)
        delta_links(in, sizes, &v, ret);
    else if (mixer_is_linear(mixer))
        linear_links(in, sizes, mixer, &v, ret);
}
