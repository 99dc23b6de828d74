/* predicted.c - trained prediction layers of the last stage: each joins a state with the embedding
 * of a token further on and is a layer whose output is the next state, with a loss of its own. */
#include "tests/simulator/rank.h"

static int layer_number(const struct rank *s, int prediction)
{
    return s->m->layers + prediction;
}

/* The embedding of the token that the state before foretells, beside that state, both normed. */
struct join {
    struct held e, joined;
};

static struct join make_join(struct rank *s)
{
    struct join j = { .e = make(s, ITEM_LAYER_WORKING, 2 * s->N * s->H) };
    j.joined = make(s, ITEM_LAYER_WORKING, 2 * s->N * 2 * s->H);
    return j;
}

static void join_forward(struct rank *s, struct pass *pass, int prediction)
{
    struct join j = make_join(s);
    drop(s, &j.e);
    pass->input[prediction] = make(s, ITEM_CHECKPOINTS, 2 * s->N * s->H);
    drop(s, &j.joined);
}

void predictions_forward(struct rank *s, struct pass *pass, int use)
{
    for (int k = 0; k < s->predictions; k++) {
        int local = s->layers + k;
        enter(s, SIM_FORWARD, pass->micro_batch, layer_number(s, k));
        if (k == 0)
            begin_use(s, use);
        join_forward(s, pass, k);
        make_extras(s, pass, local);
        layer_forward(s, pass, local, forward_mode(s, local));
    }
}

/* The gradient of what was joined takes its place; the norms' backward ends in dx and in the
 * embedding's gradient. */
static void join_backward(struct rank *s)
{
    struct join j = make_join(s);
    drop(s, &j.joined);
    drop(s, &j.e);
}

/* The gradients of the prediction layers and of the embedding are there for all of them. */
void predictions_backward(struct rank *s, struct pass *pass, int use)
{
    struct unit_gradients gradients = { 0 };
    for (int k = s->predictions - 1; k >= 0; k--) {
        int local = s->layers + k;
        enter(s, SIM_LOSS, pass->micro_batch, layer_number(s, k));
        play_loss(s, pass, &pass->state[k + 1]);
        enter(s, SIM_BACKWARD, pass->micro_batch, layer_number(s, k));
        if (k == s->predictions - 1)
            gradients = open_gradients(s, &s->prediction, &s->embedding);
        if (is_recomputed(s, local))
            layer_forward(s, pass, local, REPLAY);
        layer_backward(s, pass, local);
        join_backward(s);
    }
    end_use(s, use);
    close_gradients(s, &gradients);
}
