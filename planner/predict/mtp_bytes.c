/* predicted.c - trained prediction layers on the last stage (ARCHITECTURE.md, "Prediction layers"):
 * each joins the states below it with embeddings, is a layer, and passes the shared head and a loss
 * of its own. */
#include "planner/predict/parts.h"

#include "base/checked.h"

#include <string.h>

enum { NO_LAYER = -1 };

struct choices predicted_choices(const struct budget_input *in)
{
    struct choices ret = *in->choices;
    ret.primitives.frozen = 0;
    return ret;
}

/* Sizes of one prediction layer: states [T / tp, H]; e and the joined [T / tp, 2H]; its input, and
 * what waits beside it until its backward where the layer is recomputed. */
struct sizes {
    uint64_t state, join, input;
};

static void sizes_init(const struct budget_input *in, bool saves, struct sizes *ret)
{
    const struct model *m = in->model;
    uint64_t elements = mul_sat(norm_tokens(in), (uint64_t)m->hidden);
    ret->state = arena_bytes(elements, 2);
    ret->join = add_sat(ret->state, arena_bytes(mul_sat(2, elements), 2));
    ret->input = ret->state;
    if (saves)
        return;
    if (model_mtp_mixer(m) == MIXER_DSA)
        ret->input = add_sat(ret->input, chosen_bytes(in));
    if (model_mtp_ffn(m) == FFN_MOE)
        ret->input =
            add_sat(ret->input, arena_bytes(mul_sat(norm_tokens(in), (uint64_t)m->moe.latent), 2));
}

/* A moment of prediction layer `layer`: beside it are the states below, from the trunk's output on,
 * and the inputs and saved tensors of `inputs` prediction layers. */
static struct predicted_moment *add(struct predicted *ret, enum phase_kind kind, int layer,
                                    int inputs, const struct sizes *s)
{
    struct predicted_moment *m = &ret->moments[ret->count++];
    memset(m, 0, sizeof *m);
    m->kind = kind;
    m->layer = layer;
    m->mode = NO_LAYER;
    m->saved = inputs;
    m->checkpoints = mul_sat((uint64_t)inputs, s->input);
    m->loss_working = mul_sat((uint64_t)layer + 1, s->state);
    return m;
}

static void add_forward(struct predicted *ret, int layer, const struct sizes *s)
{
    struct predicted_moment *join = add(ret, PHASE_FORWARD, layer, layer, s);
    join->working = s->join;
    struct predicted_moment *work = add(ret, PHASE_FORWARD, layer, layer + 1, s);
    work->mode = ret->saves ? MODE_FORWARD_SAVED : MODE_FORWARD;
    work->saved = layer;
}

/* above: bytes of the gradient that comes from the join of the layer above. */
static void add_loss(struct predicted *ret, int layer, const struct loss_bytes *loss,
                     uint64_t above, uint64_t gradients, const struct sizes *s)
{
    uint64_t working = loss->tiles > loss->normed ? loss->tiles : loss->normed;
    for (int stream = 0; stream < 2; stream++) {
        struct predicted_moment *m = add(ret, PHASE_LOSS, layer, layer + 1, s);
        m->gather = PREDICTED_AND_HEAD;
        m->loss_working = add_sat(m->loss_working, stream ? loss->stream : working);
        m->logits = stream ? 0 : loss->logits;
        m->working = stream ? s->state : above;
        m->gradients = gradients;
    }
}

static void add_backward(struct predicted *ret, int layer, uint64_t gradients,
                         const struct sizes *s)
{
    static const int saved[] = { MODE_BACKWARD_SAVED };
    static const int replayed[] = { MODE_RECOMPUTE, MODE_BACKWARD };
    const int *modes = ret->saves ? saved : replayed;
    for (int i = 0; i < (ret->saves ? 1 : 2); i++) {
        struct predicted_moment *m = add(ret, PHASE_BACKWARD, layer, layer + 1, s);
        m->mode = modes[i];
        m->saved = layer;
        m->gather = PREDICTED_AND_HEAD;
        m->working = s->state;
        m->gradients = gradients;
    }
    struct predicted_moment *join = add(ret, PHASE_BACKWARD, layer, layer, s);
    join->gather = PREDICTED_AND_HEAD;
    join->working = add_sat(s->state, s->join);
    join->gradients = gradients;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t open_bytes(const struct predicted_gradients *g)
{
    return add_sat(add_sat(g->own.dense, g->own.expert), g->embedding.dense);
}

/* On one stream part by part (dense, experts, embedding), each into a receive buffer released with
 * it; on two all stay until the head's use has ended. */
static void add_reduction(struct predicted *ret, bool async, const struct predicted_gradients *g,
                          uint64_t head, const struct sizes *s)
{
    uint64_t all = open_bytes(g), third = add_sat(g->embedding.dense, g->embedding.dense_receive);
    uint64_t first = add_sat(all, g->own.dense_receive);
    uint64_t second = add_sat(add_sat(g->own.expert, g->embedding.dense), g->own.expert_receive);
    uint64_t receives = add_sat(g->own.expert_receive, g->embedding.dense_receive);
    if (all == 0)
        return;
    ret->pending = async ? add_sat(first, receives) : 0;
    struct predicted_moment *m = add(ret, PHASE_BACKWARD, 0, 0, s);
    m->gather = PREDICTED_GONE;
    m->working = s->state;
    m->gradients = add_sat(head, async ? ret->pending : larger(first, larger(second, third)));
}

void predicted_init(const struct budget_input *in, const struct loss_bytes *loss,
                    const struct predicted_gradients *gradients, struct predicted *ret)
{
    const struct primitives *p = &in->choices->primitives;
    uint64_t head = add_sat(gradients->head.dense, gradients->head.expert);
    uint64_t all = add_sat(head, open_bytes(gradients));
    int layers = in->model->mtp_layers;
    struct sizes s;
    ret->count = 0;
    ret->pending = 0;
    ret->saves = p->recompute != RECOMPUTE_FULL;
    sizes_init(in, ret->saves, &s);
    for (int i = 0; i < layers; i++)
        add_forward(ret, i, &s);
    for (int i = layers - 1; i >= 0; i--) {
        bool top = i == layers - 1;
        add_loss(ret, i, loss, top ? 0 : s.state, top ? head : all, &s);
        add_backward(ret, i, all, &s);
    }
    add_reduction(ret, p->comm_streams > 1, gradients, head, &s);
}
