/* What the model's sizes allow: heads, widths, experts, vocabulary. */
#include "base/layout/legality_rules.h"
#include "base/text.h"
#include "base/units.h"

bool model_has_mixer(const struct model *model, enum mixer mixer)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (model->layer_mixer[layer] == mixer)
            return true;
    return false;
}

bool model_has_softmax(const struct model *model)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (mixer_is_softmax((enum mixer)model->layer_mixer[layer]))
            return true;
    return model_predicts(model);
}

bool model_has_linear(const struct model *model)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (mixer_is_linear((enum mixer)model->layer_mixer[layer]))
            return true;
    return false;
}

static bool has_ffn(const struct model *model, enum ffn ffn)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (model->layer_ffn[layer] == ffn)
            return true;
    return false;
}

int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

const char *nearest_divisors(int64_t amount, int64_t degree, char *ret, size_t size)
{
    int64_t below = degree < amount ? degree : amount;
    int64_t above = degree > 0 ? degree : 1;
    size_t used = 0;

    ret[0] = '\0';
    while (below > 0 && amount % below != 0)
        below--;
    while (above <= amount && amount % above != 0)
        above++;
    if (below > 0)
        text_append(ret, size, &used, "%lld", (long long)below);
    if (above <= amount && above != below)
        text_append(ret, size, &used, "%s%lld", used ? " or " : "", (long long)above);
    return ret;
}

const char *all_divisors(int64_t amount, char *ret, size_t size)
{
    size_t used = 0;

    ret[0] = '\0';
    for (int64_t d = 1; d <= amount; d++)
        if (amount % d == 0)
            text_append(ret, size, &used, "%s%lld", used ? ", " : "", (long long)d);
    return ret;
}

/* `key` at `degree` must divide `amount`, which is called `what`. A degree that is offered instead
 * divides the GPUs too. */
static int check_divides(const struct legality_input *in, const char *key, int degree,
                         int64_t amount, const char *what, struct diag_list *reterr)
{
    char near[64];

    if (amount % degree == 0)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, key), "%s %d does not divide %lld %s", key, degree,
               (long long)amount, what);
    diag_hint(reterr, "nearest legal %s on %d GPUs: %s", key, in->gpus,
              nearest_divisors(common_divisor(amount, in->gpus), degree, near, sizeof near));
    return 1;
}

int legality_experts(const struct legality_input *in, struct diag_list *reterr)
{
    if (in->model->moe.experts == 0)
        return 0;
    return check_divides(in, "ep", in->choices->layout.ep, in->model->moe.experts, "experts",
                         reterr);
}

int legality_expert_width(const struct legality_input *in, struct diag_list *reterr)
{
    if (in->model->moe.experts == 0)
        return 0;
    return check_divides(in, "etp", in->choices->layout.etp, in->model->moe.width,
                         "columns of an expert", reterr);
}

int legality_no_experts(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;

    if (in->model->moe.experts > 0 || (l->ep == 1 && l->etp == 1))
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, l->ep > 1 ? "ep" : "etp"),
               "ep %d and etp %d, but %s has no experts", l->ep, l->etp, in->model->name);
    diag_hint(reterr, "ep=1 etp=1");
    return 1;
}

/* What does not divide the fewer key/value heads that query heads share is told of those alone. */
int legality_heads(const struct legality_input *in, struct diag_list *reterr)
{
    const struct gqa *gqa = &in->model->gqa;
    int tp = in->choices->layout.tp;
    if (tp == 1 || !model_has_softmax(in->model))
        return 0;
    bool told = gqa->kv_heads < gqa->heads && gqa->kv_heads % tp != 0;
    return check_divides(in, "tp", tp, gqa->heads, "query heads", told ? NULL : reterr);
}

int legality_kv_heads(const struct legality_input *in, struct diag_list *reterr)
{
    const struct gqa *gqa = &in->model->gqa;
    int tp = in->choices->layout.tp;
    char legal[200];

    if (tp == 1 || !model_has_softmax(in->model) || gqa->kv_heads % tp == 0)
        return 0;
    if (!reterr || gqa->kv_heads == gqa->heads) /* the latter: told of the heads */
        return 1;
    diag_error(
        reterr, choice_pos(in->fixed, "tp"),
        "tp %d does not divide %d key/value heads, and engine rankfit does not replicate them", tp,
        gqa->kv_heads);
    int64_t common = common_divisor(common_divisor(gqa->heads, gqa->kv_heads), in->gpus);
    diag_hint(reterr, "tp is at most %lld for this model on %d GPUs; legal: %s", (long long)common,
              in->gpus, all_divisors(common, legal, sizeof legal));
    return 1;
}

/* Heads that any split of linear attention must leave whole: those common to keys and values of a
 * delta net, those of lightning attention, the groups of Mamba-2, whose heads follow them. */
int64_t linear_heads(const struct model *m)
{
    int64_t heads = 0;
    if (model_has_mixer(m, MIXER_GDN))
        heads = common_divisor(m->gdn.key_heads, m->gdn.value_heads);
    if (model_has_mixer(m, MIXER_LIGHTNING))
        heads = common_divisor(heads, m->lightning.heads);
    if (model_has_mixer(m, MIXER_MAMBA))
        heads = common_divisor(heads, common_divisor(m->mamba.heads, m->mamba.groups));
    return heads;
}

int legality_linear_heads(const struct legality_input *in, struct diag_list *reterr)
{
    if (in->choices->layout.tp == 1 || !model_has_linear(in->model))
        return 0;
    return check_divides(in, "tp", in->choices->layout.tp, linear_heads(in->model),
                         model_has_mixer(in->model, MIXER_GDN)
                             ? "heads common to keys and values of linear attention"
                             : "heads or groups of linear attention",
                         reterr);
}

int legality_mlp_width(const struct legality_input *in, struct diag_list *reterr)
{
    const struct model *m = in->model;
    int tp = in->choices->layout.tp;
    int violated = 0;

    if (tp == 1)
        return 0;
    if (has_ffn(m, FFN_DENSE) && m->dense_width > 0)
        violated |= check_divides(in, "tp", tp, m->dense_width, "columns of the dense MLP", reterr);
    if (m->moe.experts > 0 && m->moe.shared_width > 0)
        violated |= check_divides(in, "tp", tp, m->moe.shared_width, "columns of the shared expert",
                                  reterr);
    return violated;
}

int legality_latent_block(const struct legality_input *in, struct diag_list *reterr)
{
    const struct model *m = in->model;
    int block = in->choices->primitives.latent_head_block;
    int heads = m->mla.kv_rank > 0 ? m->gqa.heads / in->choices->layout.tp : 0;

    if (block == LATENT_HEAD_BLOCK || (heads > 0 && block <= heads))
        return 0;
    if (!reterr)
        return 1;
    if (heads == 0)
        diag_error(reterr, choice_pos(in->fixed, "latent_head_block"),
                   "latent_head_block=%d, but %s makes no keys from latents", block, m->name);
    else
        diag_error(reterr, choice_pos(in->fixed, "latent_head_block"),
                   "latent_head_block=%d, but a rank has %d heads", block, heads);
    diag_hint(reterr, heads == 0 ? "latent_head_block=%d" : "latent_head_block is at most %d, or 0",
              heads == 0 ? LATENT_HEAD_BLOCK : heads);
    return 1;
}

int legality_attention_order(const struct legality_input *in, struct diag_list *reterr)
{
    if (!in->choices->primitives.attention_deterministic || in->model->mla.kv_rank == 0)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "attention_deterministic"),
               "attention_deterministic=1, but %s attends through latents", in->model->name);
    diag_hint(reterr, "attention_deterministic=0");
    return 1;
}

int legality_vocab(const struct legality_input *in, struct diag_list *reterr)
{
    int64_t tp = in->choices->layout.tp, vocab = in->model->vocab;

    if (vocab % tp == 0)
        return 0;
    if (!reterr)
        return 1;
    int64_t padded = (int64_t)layout_padded_vocab((uint64_t)vocab, (int)tp);
    diag_warning(reterr, choice_pos(in->fixed, "tp"),
                 "tp %lld does not divide a vocabulary of %lld: padded to %lld, %lld rows more",
                 (long long)tp, (long long)vocab, (long long)padded, (long long)(padded - vocab));
    diag_hint(reterr, "sizes of embedding, head and logits follow the padded vocabulary");
    return 1;
}

int legality_tied_head(const struct legality_input *in, struct diag_list *reterr)
{
    const struct model *m = in->model;

    if (!m->tied || in->choices->layout.pp == 1)
        return 0;
    if (!reterr)
        return 1;
    diag_warning(reterr, choice_pos(in->fixed, "pp"),
                 "head and embedding are tied but sit on stages 0 and %d: the matrix of %lld x %d "
                 "exists twice and its gradients are summed across stages",
                 in->choices->layout.pp - 1, (long long)m->vocab, m->hidden);
    diag_hint(reterr, "pp=1 keeps one copy");
    return 1;
}

/* The first layer from `layer` on with an indexer of its own; the model's layers: none. */
static int next_indexer(const struct model *m, int layer)
{
    while (layer < m->layers && m->layer_mixer[layer] != MIXER_DSA)
        layer++;
    return layer;
}

int legality_shared_choices(const struct legality_input *in, struct diag_list *reterr)
{
    const struct model *m = in->model;
    const struct layout *l = &in->choices->layout;

    for (int stage = 1, first = l->stage_layers[0]; stage < l->pp && first < m->layers; stage++) {
        int own = next_indexer(m, first), chose = first - 1;
        bool shares = m->layer_mixer[first] == MIXER_DSA_SHARED;
        while (shares && chose > 0 && m->layer_mixer[chose] != MIXER_DSA)
            chose--;
        if (shares && reterr) {
            diag_warning(reterr, choice_pos(in->fixed, "stage_layers"),
                         "layer %d begins stage %d and attends to what the indexer of layer %d "
                         "chose: that these choices travel and are held there is not counted",
                         first, stage, chose);
            if (own < m->layers)
                diag_hint(reterr, "stage_layers: let the stage begin with layer %d, which chooses",
                          own);
        }
        if (shares)
            return 1;
        first += l->stage_layers[stage];
    }
    return 0;
}

int legality_context_length(const struct legality_input *in, struct diag_list *reterr)
{
    char asked[32], made[32];
    int64_t context = in->model->context_tokens;

    if (context <= 0 || in->seq_tokens <= (uint64_t)context)
        return 0;
    if (!reterr)
        return 1;
    diag_warning(reterr, (struct pos){ 0 },
                 "a sequence of %s tokens is beyond the %s that %s was made for",
                 units_format_count(asked, sizeof asked, in->seq_tokens),
                 units_format_count(made, sizeof made, (uint64_t)context), in->model->name);
    diag_hint(reterr, "memory and time are right; whether the positions mean anything is the "
                      "model's matter");
    return 1;
}
