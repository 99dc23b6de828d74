#include "base/layout/capability.h"
#include "base/text.h"

#include <string.h>

const char *const backend_names[BACKEND_COUNT] = {
    [BACKEND_HOST] = "host", [BACKEND_CUDA] = "cuda"
};

/* Values of one key that a backend runs, as --set writes them; keys without a row run as they are.
 */
struct key_capability {
    const char *key;
    const char *runs[4];
};

/* A property of the model that a backend does not run. */
struct model_limit {
    const char *what;
    bool (*present)(const struct model *model);
};

/* Limits of one backend, in addition to those of both. */
struct backend_capability {
    bool built;
    const struct model_limit *limits;
    size_t limit_count;
};

static bool has_mixer(const struct model *model, enum mixer mixer)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (model->layer_mixer[layer] == mixer)
            return true;
    return false;
}

static bool has_wide_delta_net(const struct model *model)
{
    const struct gdn *gdn = &model->gdn;
    return has_mixer(model, MIXER_GDN) &&
           (gdn->key_dim > DELTA_HEAD_MAX || gdn->value_dim > DELTA_HEAD_MAX ||
            gdn->conv_width > DELTA_CONV_MAX);
}

static bool has_lightning(const struct model *model)
{
    return has_mixer(model, MIXER_LIGHTNING);
}

static bool has_mamba(const struct model *model)
{
    return has_mixer(model, MIXER_MAMBA);
}

static bool has_local(const struct model *model)
{
    return has_mixer(model, MIXER_LOCAL);
}

static bool has_chunked_local(const struct model *model)
{
    return has_local(model) && model->gqa.local_chunked;
}

static bool has_latents(const struct model *model)
{
    return has_mixer(model, MIXER_MLA);
}

static bool has_sparse_latents(const struct model *model)
{
    return has_mixer(model, MIXER_DSA) || has_mixer(model, MIXER_DSA_SHARED);
}

static bool has_other_latents(const struct model *model)
{
    return has_latents(model) && (model->mla.q_rank == 0 || model->gqa.qkv_bias ||
                                  model->mla.value_dim > model->gqa.head_dim);
}

static bool has_half_layers(const struct model *model)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (model->layer_mixer[layer] == MIXER_NONE || model->layer_ffn[layer] == FFN_NONE)
            return true;
    return false;
}

static bool has_sinks(const struct model *model)
{
    return model->gqa.sinks;
}

static bool has_wide_norms(const struct model *model)
{
    return model->gqa.qk_norm_wide;
}

static bool has_other_biases(const struct model *model)
{
    return model->gqa.output_bias || model->moe.expert_bias;
}

static bool has_mlp_biases(const struct model *model)
{
    return model->mlp_bias;
}

static bool has_other_rope(const struct model *model)
{
    return model->gqa.rope.form == ROPE_OTHER;
}

static bool has_adjacent_rope(const struct model *model)
{
    return model->gqa.rope_adjacent;
}

static bool has_ungated_mlp(const struct model *model)
{
    return model->mlp_ungated;
}

static bool has_expert_latent(const struct model *model)
{
    return model->moe.latent > 0;
}

static bool trains_more_than_text(const struct model *model)
{
    return (model->mtp_layers > 0 && model->mtp_trained) ||
           (model->vision.depth > 0 && (model->vision_trained || model->vision_frozen));
}

static const struct key_capability keys[] = {
    { "tp", { "1" } },
    { "pp", { "1" } },
    { "vpp", { "1" } },
    { "etp", { "1" } },
    { "sharding", { "replicated", "fsdp", "zero1" } },
    { "recompute", { "none", "full" } },
    { "loss", { "full", "linear_ce" } },
    { "moe", { "plain", "chunked" } },
    { "moe_cap_tokens", { "0" } },
    { "context", { "none", "allgather_kv" } },
    { "linear_context", { "none", "head_split", "state_pass" } },
    { "prefetch_units", { "0", "1", "2" } },
    { "comm_streams", { "1", "2" } },
    { "offload", { "none" } },
    { "vocab_group", { "1" } },
    { "tokens_per_gpu", { "0" } },
    { "rl", { "none" } },
    { "reference_weights", { "resident" } },
    { "packing", { "none" } },
    { "optimizer", { "adamw" } },
    { "moments_dtype", { "fp32" } },
    { "master", { "fp32" } },
    { "lora_rank", { "0" } },
    { "frozen", { "none" } },
};

/* One row a backend, beside what both run: copy engines are a GPU's. */
static const struct key_capability own_keys[BACKEND_COUNT] = {
    [BACKEND_HOST] = { "exchange", { "sm" } },
    [BACKEND_CUDA] = { "exchange", { "sm", "copy" } },
};

static const struct model_limit limits[] = {
    { "a gated delta net with heads above 512 or a convolution of more than 8 tokens",
      has_wide_delta_net },
    { "linear attention (lightning)", has_lightning },
    { "Mamba-2", has_mamba },
    { "sparse attention through MLA's compressed keys and values", has_sparse_latents },
    { "MLA with uncompressed queries, biases or values wider than keys", has_other_latents },
    { "attention within chunks of the sequence", has_chunked_local },
    { "layers that are attention or an MLP alone", has_half_layers },
    { "attention sinks", has_sinks },
    { "norms over all heads together", has_wide_norms },
    { "biases of output or experts", has_other_biases },
    { "biases of dense MLPs", has_mlp_biases },
    { "rope scaled otherwise than linear, dynamic, llama3 or yarn", has_other_rope },
    { "MLPs without a gate", has_ungated_mlp },
    { "experts at a latent width", has_expert_latent },
    { "experts stored as one tensor with its inputs first", model_experts_in_out },
    { "training of MTP or vision parts", trains_more_than_text },
};

/* The host alone runs these so far. */
static const struct model_limit cuda_limits[] = {
    { "attention through MLA's compressed keys and values", has_latents },
    { "rope of adjacent dimensions", has_adjacent_rope },
};

/* Both backends fill one table of operations, and the step is the same. */
static const struct backend_capability backends[BACKEND_COUNT] = {
    [BACKEND_HOST] = { .built = true },
    [BACKEND_CUDA] = { true, cuda_limits, sizeof cuda_limits / sizeof *cuda_limits },
};

static int check_key(enum backend backend, const struct key_capability *row,
                     const struct choices *choices, struct diag_list *reterr)
{
    enum { RUNS = sizeof row->runs / sizeof *row->runs };
    char value[1024], runs[120];
    size_t used = 0;
    int i = 0;

    choice_format(choices, choice_key_find(row->key), value, sizeof value);
    runs[0] = '\0';
    for (; i < RUNS && row->runs[i]; i++) {
        if (!strcmp(row->runs[i], value))
            return 0;
        text_append(runs, sizeof runs, &used, "%s%s", i ? ", " : "", row->runs[i]);
    }
    diag_error(reterr, (struct pos){ 0 }, "the %s backend does not run %s=%s",
               backend_names[backend], row->key, value);
    return diag_hint(reterr, "it runs %s=%s", row->key, runs);
}

static int check_limits(enum backend backend, const struct model *model,
                        const struct model_limit *limits_of, size_t count, struct diag_list *reterr)
{
    int rc = 0;
    for (size_t i = 0; i < count; i++) {
        if (!limits_of[i].present(model))
            continue;
        diag_error(reterr, (struct pos){ 0 }, "the %s backend does not run %s, which %s has",
                   backend_names[backend], limits_of[i].what, model->name);
        rc = diag_hint(reterr, "`rankfit plan` and `rankfit budget` cover it");
    }
    return rc;
}

int capability_check(enum backend backend, const struct model *model, const struct choices *choices,
                     struct diag_list *reterr)
{
    const struct backend_capability *runs = &backends[backend];
    int rc = 0;

    if (!runs->built) {
        diag_error(reterr, (struct pos){ 0 }, "the %s backend is not built into this version",
                   backend_names[backend]);
        return diag_hint(reterr, "--backend host runs small models on local processes");
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (check_key(backend, &keys[i], choices, reterr))
            rc = -1;
    if (check_key(backend, &own_keys[backend], choices, reterr))
        rc = -1;
    if (check_limits(backend, model, limits, sizeof limits / sizeof *limits, reterr))
        rc = -1;
    if (check_limits(backend, model, runs->limits, runs->limit_count, reterr))
        rc = -1;
    return rc;
}

void capability_warn(const struct model *model, struct diag_list *reterr)
{
    if (model->unrun[0] == '\0')
        return;
    diag_warning(reterr, (struct pos){ 0 }, "%s has %s, which no backend runs", model->title,
                 model->unrun);
    diag_hint(reterr, "it runs without: memory and time are the model's, losses are not");
}
