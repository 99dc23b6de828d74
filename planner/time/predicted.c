/* predicted.c - trained prediction layers, on the head's stage (DeepSeek-AI, DeepSeek-V3, section
 * 2.2): each joins hidden states and embeddings, 2 H to H, is a layer of the model's full kind, and
 * goes through the head and its loss once more. */
#include "planner/time/stage.h"

#include "base/layout/trained.h"

/* Rows of the table read and written; on ranks of tp each looks up its own part of the vocabulary,
 * and they sum. */
static void look_up(struct walk *w, const struct budget_input *in, double elements)
{
    walk_move(w, TIME_ELEMENTWISE, 4 * elements);
    w->pass->item[TIME_EXPOSED_TENSOR] += embedding_tensor_seconds(in);
}

/* e and the state below normed into joined, N x 2 H. */
static void join(struct walk *w, const struct budget_input *in, double elements)
{
    look_up(w, in, elements);
    walk_moves(w, TIME_ELEMENTWISE, 2, 8 * elements);
}

/* Its projection, whole on every rank of tp, of N tokens. */
static void join_forward(struct walk *w, const struct budget_input *in)
{
    double tokens = (double)norm_tokens(in), hidden = in->model->hidden;
    join(w, in, tokens * hidden);
    walk_product(w, TIME_MATMUL, tokens, hidden, 2 * hidden, 2);
}

/* joined again, the projection's gradient, d joined; both norms back, the one into the gradient of
 * the state below, to which that state's loss adds; d e added to rows of the embedding's gradient,
 * where that is trained. */
static void join_backward(struct walk *w, const struct budget_input *in)
{
    double tokens = (double)norm_tokens(in), hidden = in->model->hidden, all = tokens * hidden;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    unsigned trained = trained_components(&in->choices->primitives);
    join(w, in, all);
    walk_product(w, TIME_MATMUL, hidden, 2 * hidden, tokens, 2 * grad);
    walk_product(w, TIME_MATMUL, tokens, 2 * hidden, hidden, 2);
    walk_moves(w, TIME_ELEMENTWISE, 2, (6 + 6 + 2) * all);
    if (!has_component(trained, COMPONENT_EMBEDDING))
        return;
    walk_move(w, TIME_ELEMENTWISE, (2 + 2 * grad) * all);
    w->pass->item[TIME_EXPOSED_TENSOR] += embedding_tensor_seconds(in);
}

static void add_join(struct pass *to, const struct pass *forward, const struct pass *backward)
{
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        to->item[i] += forward->item[i] + backward->item[i];
}

/* `frozen` names parts of the trunk: all that a prediction layer has is trained. */
void predicted_seconds_init(const struct budget_input *in, const struct machine *machine,
                            uint64_t received, struct kind_seconds *ret)
{
    const struct model *m = in->model;
    struct choices choices = *in->choices;
    struct budget_input whole = *in;
    struct pass forward = { { 0 } }, backward = { { 0 } };
    struct walk w;
    choices.primitives.frozen = 0;
    whole.choices = &choices;
    kind_seconds_init(&whole, machine, received, model_mtp_mixer(m), model_mtp_ffn(m), ret);
    walk_begin(&w, machine, &forward);
    join_forward(&w, in);
    walk_end(&w);
    walk_begin(&w, machine, &backward);
    join_backward(&w, in);
    walk_end(&w);
    add_join(&ret->layer[0], &forward, &backward);
    add_join(&ret->layer[1], &forward, &backward);
    ret->forward += compute_seconds(&forward);
    ret->hiding[0] += compute_seconds(&backward);
    ret->hiding[1] += compute_seconds(&backward);
}

/* All of them, in one micro-batch. */
void predictions_add(const struct step_terms *t, struct pass *ret)
{
    const struct primitives *p = &t->in->choices->primitives;
    const struct pass *layer = &t->predicted->layer[p->recompute == RECOMPUTE_FULL];
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        ret->item[i] += t->in->model->mtp_layers * (t->loss->item[i] + layer->item[i]);
}
