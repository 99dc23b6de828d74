/* What is trained, and by what: optimizer, adapters and frozen parts against model and each other.
 */
#include "base/layout/legality_rules.h"
#include "base/layout/trained.h"
#include "base/text.h"

static bool has_ffn(const struct model *model, enum ffn ffn)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (model->layer_ffn[layer] == ffn)
            return true;
    return false;
}

/* Whether the text trunk has weights of a component that `frozen` names. */
static bool has_weights(const struct model *model, enum component component)
{
    bool moe = has_ffn(model, FFN_MOE);
    switch ((int)component) {
    case COMPONENT_HEAD:
        return !model->tied;
    case COMPONENT_ATTENTION:
        return model_has_softmax(model);
    case COMPONENT_LINEAR_ATTENTION:
        return model_has_linear(model);
    case COMPONENT_INDEXER:
        return model_has_mixer(model, MIXER_DSA);
    case COMPONENT_ROUTER:
    case COMPONENT_EXPERTS:
        return moe;
    case COMPONENT_SHARED_EXPERT:
        return moe && model->moe.shared_width > 0;
    case COMPONENT_DENSE_MLP:
        return has_ffn(model, FFN_DENSE);
    default:
        return true;
    }
}

/* Of these components, those that the model has. */
static unsigned present(const struct model *model, unsigned components)
{
    unsigned ret = 0;
    for (int c = 0; c < FREEZABLE_COMPONENTS; c++)
        if (has_component(components, (enum component)c) && has_weights(model, (enum component)c))
            ret |= 1U << c;
    return ret;
}

/* "embedding, head" */
static const char *component_list(unsigned components, char *ret, size_t size)
{
    size_t used = 0;
    ret[0] = '\0';
    for (int c = 0; c < FREEZABLE_COMPONENTS; c++)
        if (has_component(components, (enum component)c))
            text_append(ret, size, &used, "%s%s", used ? ", " : "", component_names[c]);
    return ret;
}

static unsigned matrix_components(void)
{
    unsigned ret = 0;
    for (int c = 0; c < FREEZABLE_COMPONENTS; c++)
        ret |= component_has_matrices((enum component)c) ? 1U << c : 0;
    return ret;
}

int legality_optimizer(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    if (p->optimizer != OPTIMIZER_MUON)
        return 0;
    bool offloads = (p->offload & OFFLOAD_OPTIMIZER) != 0, adapts = p->lora_rank > 0;
    bool idle = !adapts && present(in->model, trained_components(p) & matrix_components()) == 0;
    if (!offloads && !adapts && !idle)
        return 0;
    if (!reterr)
        return 1;
    struct pos at = choice_pos(in->fixed, "optimizer");
    if (offloads) {
        diag_error(reterr, at,
                   "optimizer=muon works on whole matrices, and offload=optimizer streams buckets "
                   "of %llu parameters",
                   (unsigned long long)p->bucket_params);
        diag_hint(reterr, "optimizer=adamw, or leave optimizer out of offload");
    }
    if (adapts) {
        diag_error(reterr, at,
                   "optimizer=muon updates matrices of the layers, and lora_rank=%d trains none",
                   p->lora_rank);
        diag_hint(reterr, "optimizer=adamw, which trains adapters; or lora_rank=0");
    }
    if (idle) {
        diag_error(reterr, at, "optimizer=muon, but no matrix of a layer is trained");
        diag_hint(reterr, "optimizer=adamw, or freeze less");
    }
    return 1;
}

int legality_lora(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    const struct model *m = in->model;
    bool parts =
        (m->mtp_layers > 0 && m->mtp_trained) || (m->vision.depth > 0 && m->vision_trained);
    if (p->lora_rank == 0)
        return 0;
    bool wide = p->lora_rank >= m->hidden, none = present(m, adapted_components(p)) == 0;
    if (!wide && !none && !parts && p->frozen == 0)
        return 0;
    if (!reterr)
        return 1;
    struct pos at = choice_pos(in->fixed, "lora_rank");
    if (wide) {
        diag_error(reterr, at, "lora_rank=%d is no low rank where hidden states have %d",
                   p->lora_rank, m->hidden);
        diag_hint(reterr, "lora_rank of 8 to 256; or lora_rank=0, which trains the weights");
    }
    if (none) {
        diag_error(reterr, choice_pos(in->fixed, "lora_targets"),
                   "lora_rank=%d, but lora_targets names no matrix that %s has", p->lora_rank,
                   m->name);
        diag_hint(reterr, "lora_targets=attention,mlp,experts");
    }
    if (p->frozen != 0) {
        diag_error(reterr, choice_pos(in->fixed, "frozen"),
                   "lora_rank=%d freezes all weights; frozen names some", p->lora_rank);
        diag_hint(reterr, "frozen=none; lora_targets says which matrices get adapters");
    }
    if (parts) {
        diag_error(reterr, at, "lora_rank=%d trains adapters alone, but %s", p->lora_rank,
                   m->vision_trained ? "model.vision=trained" : "model.mtp=1");
        diag_hint(reterr, m->vision_trained ? "model.vision=frozen" : "model.mtp=0");
    }
    return 1;
}

int legality_lora_idle(const struct legality_input *in, struct diag_list *reterr)
{
    if (in->choices->primitives.lora_rank > 0 || !choice_is_fixed(in->fixed, "lora_targets"))
        return 0;
    if (reterr) {
        diag_warning(reterr, choice_pos(in->fixed, "lora_targets"),
                     "lora_targets has no effect without lora_rank");
        diag_hint(reterr, "lora_rank=16, or leave lora_targets out");
    }
    return 1;
}

int legality_frozen(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    enum { ALL = (1 << FREEZABLE_COMPONENTS) - 1 };
    char names[200];
    if (p->frozen == 0)
        return 0;
    unsigned absent = p->frozen & ~present(in->model, p->frozen);
    bool all = present(in->model, ALL & ~p->frozen) == 0;
    if (absent == 0 && !all)
        return 0;
    if (!reterr)
        return 1;
    struct pos at = choice_pos(in->fixed, "frozen");
    if (absent != 0) {
        diag_error(reterr, at, "frozen=%s, which %s lacks",
                   component_list(absent, names, sizeof names), in->model->name);
        if (has_component(absent, COMPONENT_HEAD))
            diag_hint(reterr, "its head is the embedding: frozen=embedding");
        else
            diag_hint(reterr, "it has %s",
                      component_list(present(in->model, ALL), names, sizeof names));
    }
    if (all) {
        diag_error(reterr, at, "frozen names all that %s has: nothing is trained", in->model->name);
        diag_hint(reterr, "leave a component out, or lora_rank=16 for adapters");
    }
    return 1;
}
