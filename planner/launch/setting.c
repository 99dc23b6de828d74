/* setting.c - keys with their values as text: those of a plan, and which of them have influence. */
#include "base/layout/stage_list.h"
#include "base/text.h"
#include "planner/launch/launch.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct launch_setting *find(struct launch_settings *settings, const char *key)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0)
            return &settings->items[i];
    return NULL;
}

const char *launch_get(const struct launch_settings *settings, const char *key)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0)
            return settings->items[i].value;
    return NULL;
}

int launch_put(struct launch_settings *settings, const char *key, const char *value, struct pos at,
               struct diag_list *reterr)
{
    struct launch_setting *setting = find(settings, key);
    char *copy = pool_copy_text(&settings->pool, value, strlen(value));
    if (!copy)
        return diag_no_memory(reterr);
    if (setting) {
        setting->value = copy;
        setting->at = at;
        return 0;
    }
    char *name = pool_copy_text(&settings->pool, key, strlen(key));
    if (!name)
        return diag_no_memory(reterr);
    if (settings->count == LAUNCH_SETTINGS_MAX)
        return diag_error(reterr, at, "more than %d settings", LAUNCH_SETTINGS_MAX);
    settings->items[settings->count++] = (struct launch_setting){ name, copy, at };
    return 0;
}

void launch_settings_done(struct launch_settings *settings)
{
    pool_done(&settings->pool);
    settings->count = 0;
}

static int put_number(struct launch_settings *settings, const char *key, int64_t value,
                      struct diag_list *reterr)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    return launch_put(settings, key, text, (struct pos){ 0 }, reterr);
}

/* Whether the value of a key, taken as absent where it is not there, is `value`. */
static bool is(const struct launch_settings *settings, const char *key, const char *value,
               const char *absent)
{
    const char *text = launch_get(settings, key);
    return strcmp(text ? text : absent, value) == 0;
}

static bool has_flag(const struct launch_settings *settings, const char *key, const char *flag)
{
    const char *text = launch_get(settings, key);
    return text && strstr(text, flag) != NULL;
}

bool launch_applies(const struct launch_settings *settings, const char *key)
{
    static const struct {
        const char *key, *of, *value, *absent;
        bool equal;
    } needs[] = {
        { "context", "cp", "1", "1", false },
        { "linear_context", "cp", "1", "1", false },
        { "latent_head_block", "cp", "1", "1", false },
        { "recompute_layers", "recompute", "full", "none", true },
        { "keep_attention", "recompute", "full", "none", true },
        { "moe_chunks", "moe", "plain", "plain", false },
        { "wgrad_delay", "moe", "plain", "plain", false },
        { "moe_cap_tokens", "moe", "capped", "plain", true },
        { "prefetch_units", "sharding", "fsdp", "fsdp", true },
        { "comm_streams", "sharding", "fsdp", "fsdp", true },
        { "vocab_group", "loss", "ring_dtp", "full", true },
        { "vocab_strip", "loss", "linear_ce", "full", true },
        { "loss_tile_tokens", "loss", "linear_ce", "full", true },
        { "logits_dtype", "loss", "full", "full", true },
        { "lora_targets", "lora_rank", "0", "0", false },
        { "vpp", "pp", "1", "1", false },
        { "exchange", "ep", "1", "1", false },
    };
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (strcmp(needs[i].key, key) == 0)
            return is(settings, needs[i].of, needs[i].value, needs[i].absent) == needs[i].equal;
    if (strcmp(key, "sco_host_bytes") == 0)
        return has_flag(settings, "offload", "checkpoints");
    if (strcmp(key, "bucket_params") == 0 || strcmp(key, "slots") == 0)
        return has_flag(settings, "offload", "optimizer");
    if (strcmp(key, "reference_weights") == 0)
        return has_flag(settings, "rl", "reference");
    return true;
}

/* "Et*12|t*12|t*11L", or nothing where layers are split evenly. */
static int put_stages(struct launch_settings *settings, const struct layout *layout, int mtp_layers,
                      struct diag_list *reterr)
{
    char text[2048] = "";
    size_t used = 0;
    bool even = true;
    for (int stage = 0; stage < layout->pp; stage++) {
        even = even && layout->stage_layers[stage] == layout->stage_layers[0];
        text_append(text, sizeof text, &used, "%s%st*%d", stage > 0 ? "|" : "",
                    stage == 0 ? "E" : "", layout->stage_layers[stage]);
    }
    if (mtp_layers > 0)
        text_append(text, sizeof text, &used, "m*%d", mtp_layers);
    text_append(text, sizeof text, &used, "L");
    return even ? 0 : launch_put(settings, "stage_layers", text, (struct pos){ 0 }, reterr);
}

static int put_choices(struct launch_settings *settings, const struct choices *choices,
                       int mtp_layers, struct diag_list *reterr)
{
    char text[2048];
    for (size_t row = 0; row < choice_key_count; row++) {
        const char *key = choice_keys[row].key;
        if (strcmp(key, "stage_layers") == 0 || strcmp(key, "e_fsdp") == 0 ||
            !launch_applies(settings, key))
            continue;
        choice_format(choices, (int)row, text, sizeof text);
        if (launch_put(settings, key, text, (struct pos){ 0 }, reterr) != 0)
            return -1;
    }
    return put_stages(settings, &choices->layout, mtp_layers, reterr);
}

/* Derived from the choices: copies of the state, launches, the engine's own switches. */
static int put_derived(struct launch_settings *settings, const struct plan *plan,
                       struct diag_list *reterr)
{
    const struct layout *l = &plan->choices.layout;
    bool whole = plan->choices.primitives.sharding == SHARDING_REPLICATED;
    int dp = layout_dp(l), node = plan->hardware.gpus_per_node;
    int64_t local = l->pp > 1 ? plan->global_batch / dp : l->micro_batch;
    node = node > 0 && node < plan->gpus ? node : plan->gpus;
    if (put_number(settings, "fsdp", whole ? 1 : l->fsdp, reterr) != 0 ||
        put_number(settings, "d_rep", whole ? 1 : l->d_rep, reterr) != 0 ||
        put_number(settings, "e_rep", whole ? 1 : l->e_rep, reterr) != 0 ||
        put_number(settings, "gpus", plan->gpus, reterr) != 0 ||
        put_number(settings, "node_gpus", node, reterr) != 0 ||
        put_number(settings, "nodes", (plan->gpus + node - 1) / node, reterr) != 0 ||
        put_number(settings, "seq", (int64_t)plan->seq_tokens, reterr) != 0 ||
        put_number(settings, "global_batch", plan->global_batch, reterr) != 0 ||
        put_number(settings, "local_batch", local, reterr) != 0 ||
        put_number(settings, "sequence_parallel", l->tp > 1, reterr) != 0)
        return -1;
    if (whole && put_number(settings, "replicas", dp, reterr) != 0)
        return -1;
    if (l->pp > 1 && put_number(settings, "stage_micro_batch", l->micro_batch, reterr) != 0)
        return -1;
    if (plan->model.moe.experts > 0 &&
        launch_put(settings, "moe_kernels", "grouped", (struct pos){ 0 }, reterr) != 0)
        return -1;
    if (l->e_rep == l->d_rep || plan->model.moe.experts == 0)
        (void)put_number(settings, "e_rep", whole ? 1 : l->d_rep, reterr);
    return launch_put(settings, "dtype", "bf16", (struct pos){ 0 }, reterr);
}

static void format_scalar(const json_t *value, char *ret, size_t size)
{
    ret[0] = '\0';
    if (json_is_string(value))
        (void)text_copy(ret, size, json_string_value(value));
    else if (json_is_boolean(value))
        (void)text_copy(ret, size, json_is_true(value) ? "true" : "false");
    else if (json_is_integer(value))
        (void)snprintf(ret, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(ret, size, "%.15g", json_real_value(value));
}

/* "model.attention.heads" and its like, for every scalar of the native form. */
static int put_scalars(struct launch_settings *settings, const char *prefix, json_t *map,
                       struct diag_list *reterr)
{
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        char name[96], text[256];
        (void)snprintf(name, sizeof name, "%s.%s", prefix, key);
        format_scalar(value, text, sizeof text);
        if (json_is_object(value)
                ? put_scalars(settings, name, value, reterr) != 0
                : text[0] && launch_put(settings, name, text, (struct pos){ 0 }, reterr) != 0)
            return -1;
    }
    return 0;
}

/* Dense layers among those with experts, as a Python list: "([0]*3+[1]*58)". */
static int put_moe_layers(struct launch_settings *settings, const struct model *model,
                          struct diag_list *reterr)
{
    char text[1024] = "(";
    size_t used = 1;
    bool dense = false;
    for (int first = 0, next; first < model->layers; first = next) {
        bool moe = model->layer_ffn[first] == FFN_MOE;
        for (next = first; next < model->layers && (model->layer_ffn[next] == FFN_MOE) == moe;)
            next++;
        dense = dense || !moe;
        text_append(text, sizeof text, &used, "%s[%d]*%d", first > 0 ? "+" : "", moe, next - first);
    }
    text_append(text, sizeof text, &used, ")");
    if (!dense || model->moe.experts == 0)
        return 0;
    return launch_put(settings, "model.moe_layers", text, (struct pos){ 0 }, reterr);
}

/* Every n-th layer has softmax attention, the others a delta net: n; 0 for any other pattern. */
static int full_attention_every(const struct model *model)
{
    int every = 0;
    while (every < model->layers && model->layer_mixer[every] == MIXER_GDN)
        every++;
    every++;
    for (int layer = 0; layer < model->layers; layer++)
        if (model->layer_mixer[layer] != ((layer + 1) % every == 0 ? MIXER_GQA : MIXER_GDN))
            return 0;
    return every;
}

static bool mixers_are(const struct model *model, enum mixer kind)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (model->layer_mixer[layer] != kind)
            return false;
    return true;
}

static int put_model(struct launch_settings *settings, const struct model *model,
                     struct diag_list *reterr)
{
    const char *const plain[][2] = {
        { "norm", "rms" },
        { "position", "rope" },
        { "model.mlp_ungated", model->mlp_ungated ? "true" : "false" },
        { "model.mlp_bias", model->mlp_bias ? "true" : "false" },
    };
    struct json *document = model_to_json(model);
    const json_t *view = json_view(document);
    int status = view ? put_scalars(settings, "model", (json_t *)(uintptr_t)view, reterr)
                      : diag_no_memory(reterr);
    json_free(document);
    if (status != 0 || put_moe_layers(settings, model, reterr) != 0 ||
        launch_put(settings, "model_name", model->name, (struct pos){ 0 }, reterr) != 0 ||
        launch_put(settings, "checkpoint", model->title[0] ? model->title : model->name,
                   (struct pos){ 0 }, reterr) != 0)
        return -1;
    if (put_number(settings, "model.mtp_layers", model_predicts(model) ? model->mtp_layers : 0,
                   reterr) != 0)
        return -1;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (launch_put(settings, plain[i][0], plain[i][1], (struct pos){ 0 }, reterr) != 0)
            return -1;
    if (model->layer_mixer[0] == MIXER_GDN && full_attention_every(model) > 1)
        return put_number(settings, "model.full_attention_every", full_attention_every(model),
                          reterr);
    if (mixers_are(model, MIXER_GQA) || mixers_are(model, MIXER_MLA))
        return 0;
    return launch_put(settings, "model.mixers", "of several kinds", (struct pos){ 0 }, reterr);
}

int launch_settings_of_plan(const struct plan *plan, struct launch_settings *ret,
                            struct diag_list *reterr)
{
    *ret = (struct launch_settings){ 0 };
    int mtp_layers = model_predicts(&plan->model) ? plan->model.mtp_layers : 0;
    if (put_choices(ret, &plan->choices, mtp_layers, reterr) != 0 ||
        put_derived(ret, plan, reterr) != 0)
        return -1;
    return put_model(ret, &plan->model, reterr);
}
