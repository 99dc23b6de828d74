/* logprob.c - a forward for log-probabilities, of the policy as it was or of a reference model, one
 * micro-batch after another: no layer keeps anything, and its input, with
 * what is beside it, is gone when its output is there.
 */
#include "tests/simulator/rank.h"

/* Whether a layer of the run behind this one attends to what an earlier indexer chose. */
static bool is_shared_later(const struct rank *s, const struct run *run, int local)
{
    for (int i = local + 1; i < run->to && mixer_of(s, i) != MIXER_DSA; i++)
        if (mixer_of(s, i) == MIXER_DSA_SHARED)
            return true;
    return false;
}

static void drop_input(struct rank *s)
{
    struct held one = { ITEM_CHECKPOINTS, make_size(2 * s->N * s->H) };
    s->alive--;
    drop(s, &one);
}

static void layer_alone(struct rank *s, struct pass *pass, const struct run *run, int i,
                        struct held *choices)
{
    if (mixer_of(s, i) == MIXER_DSA)
        *choices = make(s, ITEM_CHECKPOINTS, 4 * s->T * (uint64_t)s->m->indexer.top_k);
    struct held sum = { ITEM_CHECKPOINTS, 0 };
    if (ffn_of(s, i) == FFN_MOE)
        sum = make(s, ITEM_CHECKPOINTS, latent_bytes(s));
    layer_forward(s, pass, i, PLAIN);
    drop_input(s);
    drop(s, &sum);
    if (!is_shared_later(s, run, i))
        drop(s, choices);
}

static void run_alone(struct rank *s, struct pass *pass, const struct run *run)
{
    bool embeds = s->has_embedding && run->first, heads = s->has_head && run->last;
    struct held choices = { ITEM_CHECKPOINTS, 0 };
    int use = 0;
    enter(s, SIM_FORWARD, pass->micro_batch, embeds ? -1 : s->first + run->from);
    begin_order(s, run, heads);
    if (embeds) {
        begin_use(s, use);
        make_checkpoint(s);
        end_use(s, use++);
    }
    for (int i = run->from; i < run->to; i++) {
        enter(s, SIM_FORWARD, pass->micro_batch, s->first + i);
        begin_use(s, use);
        if (i == run->from && !embeds)
            make_checkpoint(s);
        layer_alone(s, pass, run, i, &choices);
        end_use(s, use++);
    }
    if (!heads)
        return;
    enter(s, SIM_LOSS, pass->micro_batch, -1);
    begin_use(s, use);
    play_log_probabilities(s, &pass->state[0]);
    end_use(s, use);
}

void play_forward_alone(struct rank *s)
{
    struct held slots = make_reference_slots(s);
    s->forward_only = true;
    for (int m = 0; m < s->micro_batches; m++) {
        struct pass *pass = begin_pass(s, m);
        for (int i = 0; i < s->l->vpp; i++) {
            struct run run = run_of(s, i);
            run_alone(s, pass, &run);
        }
        end_pass(s, pass);
    }
    drop(s, &slots);
    end_phase(s);
}
