/* Whether the facts of a model agree with one another. */
#include "base/model/model.h"
#include "base/model/tensor.h"

#include <inttypes.h>
#include <string.h>

/* No released model comes near; sixteen bytes a parameter stay far inside 64 bits. */
static const uint64_t params_max = UINT64_C(1000000000000000);
enum { WIDTH_MAX = 1 << 26, MTP_MAX = 16 };

static int count_kind(const uint8_t *kinds, int layers, uint8_t kind)
{
    int count = 0;
    for (int i = 0; i < layers; i++)
        count += kinds[i] == kind;
    return count;
}

static void check_width(const char *what, int64_t count, int64_t each, struct pos at,
                        struct diag_list *reterr)
{
    if (count * each > WIDTH_MAX)
        diag_error(reterr, at, "%s: %lld x %lld is wider than %d", what, (long long)count,
                   (long long)each, WIDTH_MAX);
}

/* Multiples of `unit` on both sides of a number that is none. */
static void hint_multiples(const char *what, int number, int unit, struct diag_list *reterr)
{
    int below = number / unit * unit;
    if (below > 0)
        diag_hint(reterr, "nearest legal: %s %d or %d", what, below, below + unit);
    else
        diag_hint(reterr, "nearest legal: %s %d", what, unit);
}

static void check_attention(const struct model *m, struct pos at, struct diag_list *reterr)
{
    const struct gqa *gqa = &m->gqa;
    if (gqa->heads < 1 || gqa->kv_heads < 1 || gqa->head_dim < 1) {
        diag_error(reterr, at, "attention needs heads, kv_heads and head_dim of at least 1");
        return;
    }
    if (gqa->heads % gqa->kv_heads != 0) {
        diag_error(reterr, at, "attention: heads %d is not a multiple of kv_heads %d", gqa->heads,
                   gqa->kv_heads);
        hint_multiples("heads", gqa->heads, gqa->kv_heads, reterr);
    }
    check_width("attention: heads x head_dim", gqa->heads, gqa->head_dim, at, reterr);
    if (gqa->local_tokens < 1 && count_kind(m->layer_mixer, m->layers, MIXER_LOCAL) > 0)
        diag_error(reterr, at, "%d layers are local, and attention.local_tokens is not given",
                   count_kind(m->layer_mixer, m->layers, MIXER_LOCAL));
    double rotary = gqa->rotary_fraction * gqa->head_dim;
    if (rotary < 0 || rotary > gqa->head_dim || rotary != 2.0 * (double)(int64_t)(rotary / 2))
        diag_error(reterr, at, "attention: rotary_fraction %g of head_dim %d is not an even width",
                   gqa->rotary_fraction, gqa->head_dim);
}

static void check_rope(const struct gqa *gqa, struct pos at, struct diag_list *reterr)
{
    const struct rope_scaling *rope = &gqa->rope;
    bool counts =
        rope->form == ROPE_DYNAMIC || rope->form == ROPE_LLAMA3 || rope->form == ROPE_YARN;
    if (rope->form == ROPE_PLAIN || rope->form == ROPE_OTHER)
        return;
    if (rope->factor <= 0)
        diag_error(reterr, at, "rope: factor %g is not above 0", rope->factor);
    if (counts && rope->original_tokens < 1)
        diag_error(reterr, at, "rope: original_tokens is not given, and %s rope needs it",
                   rope->form == ROPE_YARN     ? "yarn"
                   : rope->form == ROPE_LLAMA3 ? "llama3"
                                               : "dynamic");
    if (rope->form == ROPE_LLAMA3 && rope->high <= rope->low)
        diag_error(reterr, at, "rope: high %g is not above low %g", rope->high, rope->low);
    if (rope->form == ROPE_YARN && (rope->low <= 0 || rope->high < rope->low))
        diag_error(reterr, at, "rope: low %g and high %g are not two rising numbers above 0",
                   rope->low, rope->high);
}

/* Latents, and the heads that attention sees behind them. */
static void check_latents(const struct model *m, struct pos at, struct diag_list *reterr)
{
    const struct mla *mla = &m->mla;
    int layers = 0, sparse = count_kind(m->layer_mixer, m->layers, MIXER_DSA) +
                             count_kind(m->layer_mixer, m->layers, MIXER_DSA_SHARED);
    for (int i = 0; i < m->layers; i++)
        layers += mixer_is_latent((enum mixer)m->layer_mixer[i]);
    if (layers == 0 && mla->kv_rank == 0)
        return;
    if (mla->kv_rank < 1 || mla->nope_dim < 1 || mla->rope_dim < 1 || mla->value_dim < 1) {
        diag_error(reterr, at, "%d layers attend through latents, and latent lacks sizes", layers);
        return;
    }
    if (m->gqa.kv_heads != m->gqa.heads) {
        diag_error(reterr, at, "attention through latents has as many kv_heads as heads, %d",
                   m->gqa.heads);
        diag_hint(reterr, "heads and kv_heads change together: kv_heads %d is not %d",
                  m->gqa.kv_heads, m->gqa.heads);
    }
    if ((int64_t)mla->nope_dim + mla->rope_dim != m->gqa.head_dim) {
        diag_error(reterr, at, "attention: head_dim %d is not nope_dim %d + rope_dim %d",
                   m->gqa.head_dim, mla->nope_dim, mla->rope_dim);
        diag_hint(reterr, "head_dim %" PRId64, (int64_t)mla->nope_dim + mla->rope_dim);
    }
    check_width("latent: heads x value_dim", m->gqa.heads, mla->value_dim, at, reterr);
    if (sparse > 0 && (m->indexer.heads < 1 || m->indexer.dim < 1 || m->indexer.top_k < 1))
        diag_error(reterr, at, "%d layers attend sparsely, and indexer lacks sizes", sparse);
    if (sparse > 0 && m->layer_mixer[0] == MIXER_DSA_SHARED)
        diag_error(reterr, at, "layer 0 shares the choice of an earlier layer, and there is none");
    check_width("indexer: heads x dim", m->indexer.heads, m->indexer.dim, at, reterr);
}

static void check_states(const struct model *m, struct pos at, struct diag_list *reterr)
{
    const struct lightning *lightning = &m->lightning;
    const struct mamba *mamba = &m->mamba;
    if (count_kind(m->layer_mixer, m->layers, MIXER_LIGHTNING) > 0 &&
        (lightning->heads < 1 || lightning->head_dim < 1))
        diag_error(reterr, at, "%d layers have lightning attention, and lightning lacks sizes",
                   count_kind(m->layer_mixer, m->layers, MIXER_LIGHTNING));
    check_width("lightning: heads x head_dim", lightning->heads, lightning->head_dim, at, reterr);
    if (count_kind(m->layer_mixer, m->layers, MIXER_MAMBA) == 0 && mamba->heads == 0)
        return;
    if (mamba->heads < 1 || mamba->head_dim < 1 || mamba->state < 1 || mamba->groups < 1 ||
        mamba->conv_width < 1 || mamba->chunk_tokens < 1) {
        diag_error(reterr, at, "%d layers are Mamba-2, and mamba lacks sizes",
                   count_kind(m->layer_mixer, m->layers, MIXER_MAMBA));
        return;
    }
    if (mamba->heads % mamba->groups != 0)
        diag_error(reterr, at, "mamba: heads %d is not a multiple of groups %d", mamba->heads,
                   mamba->groups);
    check_width("mamba: heads x head_dim", mamba->heads, mamba->head_dim, at, reterr);
    check_width("mamba: groups x state", mamba->groups, mamba->state, at, reterr);
}

static void check_linear(const struct model *m, struct pos at, struct diag_list *reterr)
{
    const struct gdn *gdn = &m->gdn;
    if (count_kind(m->layer_mixer, m->layers, MIXER_GDN) == 0 && gdn->key_heads == 0)
        return;
    if (gdn->key_heads < 1 || gdn->value_heads < 1 || gdn->key_dim < 1 || gdn->value_dim < 1 ||
        gdn->conv_width < 1) {
        diag_error(reterr, at, "%d layers are gated delta nets, and linear_attention lacks sizes",
                   count_kind(m->layer_mixer, m->layers, MIXER_GDN));
        return;
    }
    if (gdn->value_heads % gdn->key_heads != 0) {
        diag_error(reterr, at, "linear_attention: value_heads %d is not a multiple of key_heads %d",
                   gdn->value_heads, gdn->key_heads);
        hint_multiples("value_heads", gdn->value_heads, gdn->key_heads, reterr);
    }
    check_width("linear_attention: key_heads x key_dim", gdn->key_heads, gdn->key_dim, at, reterr);
    check_width("linear_attention: value_heads x value_dim", gdn->value_heads, gdn->value_dim, at,
                reterr);
}

/* A token's experts come from group_limit groups of adjacent experts. */
static void check_groups(const struct moe *moe, struct pos at, struct diag_list *reterr)
{
    if (moe->groups <= 1)
        return;
    if (moe->groups > ROUTER_MAX_GROUPS)
        diag_error(reterr, at, "moe: %d groups of experts; at most %d are read", moe->groups,
                   ROUTER_MAX_GROUPS);
    if (moe->experts % moe->groups != 0) {
        diag_error(reterr, at,
                   "moe: experts %d do not divide into groups of equal size (groups %d)",
                   moe->experts, moe->groups);
        hint_multiples("experts", moe->experts, moe->groups, reterr);
        return;
    }
    if (moe->group_limit < 1 || moe->group_limit > moe->groups)
        diag_error(reterr, at, "moe: group_limit %d is not from 1 to groups %d", moe->group_limit,
                   moe->groups);
    else if (moe->top_k > moe->group_limit * (moe->experts / moe->groups))
        diag_error(reterr, at, "moe: top_k %d is more than the %d experts of %d groups", moe->top_k,
                   moe->group_limit * (moe->experts / moe->groups), moe->group_limit);
}

static void check_ffn(const struct model *m, struct pos at, struct diag_list *reterr)
{
    const struct moe *moe = &m->moe;
    int sparse = count_kind(m->layer_ffn, m->layers, FFN_MOE);
    int dense = count_kind(m->layer_ffn, m->layers, FFN_DENSE);
    if (dense > 0 && m->dense_width < 1)
        diag_error(reterr, at, "%d layers have a dense MLP, and dense_width is not given", dense);
    for (int i = 0; i < m->layers; i++)
        if (m->layer_mixer[i] == MIXER_NONE && m->layer_ffn[i] == FFN_NONE)
            diag_error(reterr, at, "layer %d has neither a mixer nor a feed-forward half", i);
    if (m->mlp_bias && m->mlp_ungated)
        diag_error(reterr, at, "mlp_bias of MLPs without a gate is not read");
    if (sparse == 0 && moe->experts == 0)
        return;
    if (moe->experts < 1 || moe->top_k < 1 || moe->width < 1) {
        diag_error(reterr, at, "%d layers have experts; moe needs experts, top_k and width",
                   sparse);
        return;
    }
    if (moe->top_k > moe->experts) {
        diag_error(reterr, at, "moe: top_k %d is more than experts %d", moe->top_k, moe->experts);
        diag_hint(reterr, "top_k at most %d", moe->experts);
    }
    if (moe->shared_gate && moe->shared_width == 0)
        diag_error(reterr, at, "moe: shared_gate without a shared expert (shared_width 0)");
    check_groups(moe, at, reterr);
}

static void check_extras(const struct model *m, struct pos at, struct diag_list *reterr)
{
    const struct vision *vision = &m->vision;
    if (m->mtp_layers > MTP_MAX)
        diag_error(reterr, at, "%d multi-token-prediction layers; at most %d are read",
                   m->mtp_layers, MTP_MAX);
    if (vision->depth > MODEL_MAX_LAYERS)
        diag_error(reterr, at, "the vision tower is %d blocks deep; at most %d are read",
                   vision->depth, MODEL_MAX_LAYERS);
    if (m->mtp_trained && m->mtp_layers == 0)
        diag_error(reterr, at, "mtp_trained, and the model has no multi-token-prediction layer");
    if (m->vision_trained && vision->depth == 0)
        diag_error(reterr, at, "vision_trained, and the model has no vision tower");
    if (m->vision_frozen && (vision->depth == 0 || m->vision_trained))
        diag_error(reterr, at, "vision_frozen, and the model %s",
                   vision->depth == 0 ? "has no vision tower" : "trains its vision tower");
    if (vision->listed && (m->vision_trained || m->vision_frozen)) {
        diag_error(reterr, at, "the vision tower of %s is counted, not planned", m->title);
        diag_hint(reterr, "without model.vision the plan is of the text model alone");
    }
    if (vision->depth > 0 && (vision->heads < 1 || vision->width % vision->heads != 0)) {
        diag_error(reterr, at, "vision: width %d is not a multiple of heads %d", vision->width,
                   vision->heads);
        hint_multiples("width", vision->width, vision->heads > 0 ? vision->heads : 1, reterr);
    }
}

/* Layers and tensors that only model.parts counts have no list of operations, and are named. */
static void check_parts(const struct model *m, struct pos at, struct diag_list *reterr)
{
    int others = count_kind(m->layer_mixer, m->layers, MIXER_OTHER) +
                 count_kind(m->layer_ffn, m->layers, FFN_OTHER);
    for (int i = 0; i < m->part_count; i++)
        others += m->parts[i].component != COMPONENT_VISION;
    if (others > 0 && m->unplanned[0] == '\0')
        diag_error(reterr, at,
                   "layers of another kind, or parts of the trunk, and 'unplanned' "
                   "does not name them");
}

int model_check(const struct model *model, struct pos at, struct diag_list *reterr)
{
    int before = reterr->errors;
    if (model_family_find(model->architecture) == NULL)
        diag_error(reterr, at, "architecture '%s' is not read", model->architecture);
    if (model->layers < 1 || model->layers > MODEL_MAX_LAYERS)
        return diag_error(reterr, at, "layers %d; 1 to %d are possible", model->layers,
                          MODEL_MAX_LAYERS);
    if (model->hidden < 1 || model->vocab < 1)
        diag_error(reterr, at, "hidden %d and vocab %lld must be at least 1", model->hidden,
                   (long long)model->vocab);
    check_attention(model, at, reterr);
    check_rope(&model->gqa, at, reterr);
    check_latents(model, at, reterr);
    check_linear(model, at, reterr);
    check_states(model, at, reterr);
    check_ffn(model, at, reterr);
    check_extras(model, at, reterr);
    check_parts(model, at, reterr);
    if (reterr->errors != before)
        return -1;
    struct model_counts counts;
    model_count(model, &counts);
    if (counts.total > params_max) {
        diag_error(reterr, at, "the sizes make more than 10^15 parameters");
        return diag_hint(reterr, "look for a misplaced digit in vocab, hidden, experts or a width");
    }
    return 0;
}

int model_check_planned(const struct model *model, struct pos at, struct diag_list *reterr)
{
    if (model->unplanned[0] == '\0')
        return 0;
    diag_error(reterr, at, "%s has %s, whose step is not described: it is counted, not planned",
               model->title, model->unplanned);
    return diag_hint(reterr, "`rankfit explain` prints its parameters");
}
