/* mtp_seconds.c - trained MTP layers, on the head's stage (DeepSeek-AI, DeepSeek-V3, section
 * 2.2): each joins hidden states and embeddings, 2 H to H, is a layer of the model's full kind, and
 * goes through the head and its loss once more. */
#include "planner/predict/stage_time.h"

#include "base/layout/trained.h"

/* Rows of the table read and written; on ranks of tp each looks up its own part of the vocabulary,
 * and they sum. */
static void look_up(struct clock *c, const struct budget_input *in, double elements)
{
    clock_move(c, TIME_ELEMENTWISE, 1, 4 * elements);
    c->pass->item[TIME_EXPOSED_TENSOR] += hidden_tensor_seconds(in);
}

/* e and the state below normed into joined, N x 2 H. */
static void join(struct clock *c, const struct budget_input *in, double elements)
{
    look_up(c, in, elements);
    clock_move(c, TIME_ELEMENTWISE, 2, 8 * elements);
}

/* Its projection, whole on every rank of tp, of N tokens. */
static void join_forward(struct clock *c, const struct budget_input *in)
{
    double tokens = (double)norm_tokens(in), hidden = in->model->hidden;
    join(c, in, tokens * hidden);
    clock_product(c, TIME_MATMUL, tokens, hidden, 2 * hidden, 2);
}

/* joined again, the projection's gradient, d joined; both norms back, the one into the gradient of
 * the state below, to which that state's loss adds; d e added to rows of the embedding's gradient,
 * where that is trained. */
static void join_backward(struct clock *c, const struct budget_input *in)
{
    double tokens = (double)norm_tokens(in), hidden = in->model->hidden, all = tokens * hidden;
    double grad = (double)dtype_bytes(in->choices->primitives.grad_dtype);
    unsigned trained = trained_components(&in->choices->primitives);
    join(c, in, all);
    clock_product(c, TIME_MATMUL, hidden, 2 * hidden, tokens, 2 * grad);
    clock_product(c, TIME_MATMUL, tokens, 2 * hidden, hidden, 2);
    clock_move(c, TIME_ELEMENTWISE, 2, (6 + 6 + 2) * all);
    if (!has_component(trained, COMPONENT_EMBEDDING))
        return;
    clock_move(c, TIME_ELEMENTWISE, 1, (2 + 2 * grad) * all);
    c->pass->item[TIME_EXPOSED_TENSOR] += hidden_tensor_seconds(in);
}

static void add_join(struct pass *to, const struct pass *forward, const struct pass *backward)
{
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        to->item[i] += forward->item[i] + backward->item[i];
}

void add_joins(const struct budget_input *in, const struct machine *machine,
               struct kind_seconds *ret)
{
    struct pass forward = { { 0 } }, backward = { { 0 } };
    struct clock c;
    clock_begin(&c, machine, &forward);
    join_forward(&c, in);
    clock_end(&c);
    clock_begin(&c, machine, &backward);
    join_backward(&c, in);
    clock_end(&c);
    add_join(&ret->layer[0], &forward, &backward);
    add_join(&ret->layer[1], &forward, &backward);
    ret->forward += compute_seconds(&forward);
    ret->hiding[0] += compute_seconds(&backward);
    ret->hiding[1] += compute_seconds(&backward);
}
