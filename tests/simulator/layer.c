/* layer.c - one layer: its mixer and its feed-forward half, forward, replayed, backward; the dense
 * half; what mixers have in common. */
#include "tests/simulator/rank.h"

#include <string.h>

typedef void half_function(struct layer *y);

static half_function *const mixers_forward[MIXER_COUNT] = {
    [MIXER_GQA] = attention_forward,       [MIXER_LOCAL] = attention_forward,
    [MIXER_GDN] = delta_forward,           [MIXER_MLA] = latent_forward,
    [MIXER_DSA] = sparse_forward,          [MIXER_DSA_SHARED] = sparse_forward,
    [MIXER_LIGHTNING] = lightning_forward, [MIXER_MAMBA] = mamba_forward,
};
static half_function *const mixers_backward[MIXER_COUNT] = {
    [MIXER_GQA] = attention_backward,       [MIXER_LOCAL] = attention_backward,
    [MIXER_GDN] = delta_backward,           [MIXER_MLA] = latent_backward,
    [MIXER_DSA] = sparse_backward,          [MIXER_DSA_SHARED] = sparse_backward,
    [MIXER_LIGHTNING] = lightning_backward, [MIXER_MAMBA] = mamba_backward,
};

enum mixer mixer_of(const struct rank *s, int local)
{
    return local >= s->layers ? model_mtp_mixer(s->m)
                              : (enum mixer)s->m->layer_mixer[s->first + local];
}

enum ffn ffn_of(const struct rank *s, int local)
{
    return local >= s->layers ? model_mtp_ffn(s->m) : (enum ffn)s->m->layer_ffn[s->first + local];
}

/* The next layer's checkpoint, what a transfer to the next stage holds, or a state that a loss
 * reads: the trunk's, or a prediction layer's. */
void make_output(struct layer *y)
{
    struct rank *s = y->s;
    int run = s->layers / s->l->vpp, state = y->local + 1 - s->layers;
    if (s->has_head && state >= 0)
        y->pass->state[state] = make(s, ITEM_LOSS_WORKING, 2 * s->N * s->H);
    else if ((y->local + 1) % run != 0)
        make_checkpoint(s);
}

bool ends_early(const struct layer *y)
{
    return y->mode == REPLAY && y->ffn == FFN_NONE;
}

void mixer_output(struct layer *y)
{
    struct rank *s = y->s;
    struct held sum = whole_hidden(y), adapter = output_adapter(y);
    bool alone = y->ffn == FFN_NONE; /* x1 goes on as the output */
    y->k->x1 = alone ? working(y, 2 * s->N * s->H) : keep(y, ITEM_LAYER_WORKING, 2 * s->N * s->H);
    drop(s, &adapter);
    drop(s, &sum);
}

void mixer_input_backward(struct layer *y, struct held *const *after, size_t count, bool gathers)
{
    struct rank *s = y->s;
    bool reads = mixer_reads(y);
    struct held n1 = { 0 }, all = { 0 }, sum = { 0 };
    if (reads)
        n1 = working(y, 2 * s->N * s->H);
    if (reads && gathers)
        all = whole_hidden(y);
    struct held adapter = input_adapter(y), d_adapter = input_adapter(y);
    drop(s, &adapter);
    drop(s, &n1);
    drop(s, &all);
    if (gathers)
        sum = whole_hidden(y);
    struct held dn1 = working(y, 2 * s->N * s->H);
    drop(s, &d_adapter);
    drop(s, &sum);
    drop_all(s, after, count);
    drop(s, &dn1);
}

uint64_t gate_up_width(const struct rank *s, uint64_t width)
{
    return s->m->mlp_ungated ? width : 2 * width;
}

void dense_forward(struct layer *y)
{
    struct rank *s = y->s;
    uint64_t F = split(s->m->dense_width, s->tp), r = adapter_rank(s, COMPONENT_DENSE_MLP);
    struct held n2 = working(y, 2 * s->N * s->H), all = whole_hidden(y);
    y->k->hd = keep(y, ITEM_LAYER_WORKING, 2 * s->T * gate_up_width(s, F));
    struct held adapter = working(y, 2 * s->T * gate_up_width(s, r));
    drop(s, &adapter);
    drop(s, &n2);
    drop(s, &all);
    if (y->mode == REPLAY)
        return;
    struct held ad = working(y, 2 * s->T * F);
    unless_kept(y, &y->k->hd);
    struct held sum = whole_hidden(y);
    adapter = working(y, 2 * s->T * r);
    make_output(y);
    drop(s, &adapter);
    drop(s, &sum);
    drop(s, &ad);
    unless_kept(y, &y->k->x1);
}

void dense_backward(struct layer *y)
{
    struct rank *s = y->s;
    uint64_t F = split(s->m->dense_width, s->tp), r = adapter_rank(s, COMPONENT_DENSE_MLP);
    bool reads = reads_inputs(y, COMPONENT_DENSE_MLP);
    struct held dx_all = whole_hidden(y), ad = { 0 }, n2 = { 0 }, all = { 0 };
    if (reads)
        ad = working(y, 2 * s->T * F);
    struct held adapter = working(y, 2 * s->T * r), d_adapter = working(y, 2 * s->T * r);
    drop(s, &adapter);
    struct held dad = working(y, 2 * s->T * F);
    drop(s, &d_adapter);
    drop(s, &dx_all);
    drop(s, &ad);
    drop(s, &dad); /* dhd over hd */
    if (reads) {
        n2 = working(y, 2 * s->N * s->H);
        all = whole_hidden(y);
    }
    adapter = working(y, 2 * s->T * gate_up_width(s, r));
    d_adapter = working(y, adapter.bytes);
    drop(s, &adapter);
    drop(s, &n2);
    drop(s, &all);
    struct held sum = whole_hidden(y), dn2 = working(y, 2 * s->N * s->H);
    drop(s, &d_adapter);
    drop(s, &sum);
    drop(s, &y->k->hd);
    drop(s, &dn2);
    drop(s, &y->k->x1);
}

static struct layer layer_of(struct rank *s, struct pass *pass, int local, enum mode mode)
{
    int index = s->first + local;
    const uint64_t *received = s->job->received;
    struct layer y = { .s = s, .pass = pass, .local = local, .index = index, .mode = mode };
    y.predicted = local >= s->layers;
    y.mixer = mixer_of(s, local);
    y.ffn = ffn_of(s, local);
    y.k = &pass->kept[local];
    y.S = s->N * (uint64_t)s->m->moe.top_k;
    y.R = received && !y.predicted ? received[index] : s->rows;
    return y;
}

static bool is_chunked(const struct rank *s)
{
    return s->p->moe != MOE_PLAIN;
}

void layer_forward(struct rank *s, struct pass *pass, int local, enum mode mode)
{
    struct layer y = layer_of(s, pass, local, mode);
    struct held o = y.k->o, lse = y.k->lse;
    memset(y.k, 0, sizeof *y.k);
    if (!attends(&y)) {
        y.k->o = o;
        y.k->lse = lse;
    }
    if (mixers_forward[y.mixer])
        mixers_forward[y.mixer](&y);
    switch (y.ffn) {
    case FFN_DENSE:
        dense_forward(&y);
        break;
    case FFN_MOE:
        (is_chunked(s) ? chunked_forward : moe_forward)(&y);
        break;
    case FFN_NONE:
    case FFN_OTHER:
    case FFN_COUNT:
        drop(s, &y.k->x1);
        if (mode != REPLAY)
            make_output(&y);
        break;
    }
}

void layer_backward(struct rank *s, struct pass *pass, int local)
{
    struct layer y = layer_of(s, pass, local, is_recomputed(s, local) ? REPLAY : SAVE);
    if (y.ffn == FFN_DENSE)
        dense_backward(&y);
    else if (y.ffn == FFN_MOE)
        (is_chunked(s) ? chunked_backward : moe_backward)(&y);
    if (mixers_backward[y.mixer])
        mixers_backward[y.mixer](&y);
    drop_checkpoint(s, pass, local);
}
