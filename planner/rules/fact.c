#include "planner/rules/fact.h"

#include "base/text.h"

#include <stdbool.h>
#include <string.h>

enum { NAME_ROOM = 64 };

static const struct layout *layout_of(const struct prediction *p)
{
    return &p->plan.choices.layout;
}

/* What a prediction has as it is. */
#define FACT(name, value)                                                                          \
    static double name(const struct prediction *p)                                                 \
    {                                                                                              \
        return (double)(value);                                                                    \
    }
FACT(model_layers, p->plan.model.layers)
FACT(model_hidden, p->plan.model.hidden)
FACT(model_vocab, p->plan.model.vocab)
FACT(model_experts, p->plan.model.moe.experts)
FACT(model_top_k, p->plan.model.moe.top_k)
FACT(model_expert_width, p->plan.model.moe.width)
FACT(model_indexers, p->sizes.indexers_before[p->plan.model.layers])
FACT(model_index_top_k, p->plan.model.indexer.top_k)
FACT(model_index_dim, p->plan.model.indexer.dim)
FACT(model_kv_rank, p->plan.model.mla.kv_rank)
FACT(model_rope_dim, p->plan.model.mla.rope_dim)
FACT(params_total, p->sizes.counts.total)
FACT(params_trained, p->sizes.counts.trained)
FACT(gpus, p->plan.gpus)
FACT(seq_tokens, p->plan.seq_tokens)
FACT(degree_cp, layout_of(p)->cp)
FACT(degree_ep, layout_of(p)->ep)
FACT(degree_etp, layout_of(p)->etp)
FACT(degree_pp, layout_of(p)->pp)
FACT(micro_batches, layout_of(p)->micro_batches)
FACT(peak_bytes, prediction_worst(p)->peak_bytes)
FACT(upper_bytes, prediction_worst(p)->peak_upper_bytes)
FACT(routed_rows, prediction_worst(p)->routed_rows)
FACT(mfu, p->time.mfu)
FACT(hfu, p->time.hfu)
FACT(bubble_fraction, p->time.bubble_fraction)
FACT(gather_seconds_of, p->time.gather_seconds_per_unit)
FACT(tokens_to_hide, p->time.min_tokens_to_hide_gather)
FACT(step_seconds_of, p->time.seconds)

static double tokens_of(const struct prediction *p)
{
    return (double)layout_local_tokens(layout_of(p), p->plan.seq_tokens);
}

/* Of all that is trained, what belongs to experts of the trunk. */
static double expert_share(const struct prediction *p)
{
    return (double)p->sizes.counts.by_component[COMPONENT_EXPERTS] / params_trained(p);
}

static double dense_share(const struct prediction *p)
{
    return 1 - expert_share(p);
}

/* Of a layer with experts, the model's last. */
static double layer_expert_params(const struct prediction *p)
{
    return (double)p->sizes.layer_expert_params[p->plan.model.layers - 1];
}

static double layer_dense_params(const struct prediction *p)
{
    return (double)p->sizes.layer_dense_params[p->plan.model.layers - 1];
}

static double layer_params(const struct prediction *p)
{
    return layer_expert_params(p) + layer_dense_params(p);
}

static double layer_expert_share(const struct prediction *p)
{
    return layer_expert_params(p) / layer_params(p);
}

static double layer_dense_share(const struct prediction *p)
{
    return 1 - layer_expert_share(p);
}

static double dense_shards(const struct prediction *p)
{
    return layout_dense_shards(layout_of(p));
}

static double expert_shards(const struct prediction *p)
{
    return (double)layout_of(p)->ep * layout_of(p)->etp * layout_expert_shards(layout_of(p));
}

static double network_rate(const struct prediction *p)
{
    return p->plan.hardware.network_bytes_per_second * p->plan.hardware.network_efficiency;
}

static double category_sum(const struct prediction *p, enum category category)
{
    return (double)prediction_worst(p)->category_bytes[category];
}

static double static_bytes(const struct prediction *p)
{
    return category_sum(p, CATEGORY_STATIC);
}

static double dynamic_bytes(const struct prediction *p)
{
    return category_sum(p, CATEGORY_DYNAMIC);
}

/* Whole units of weights and gradients, of what every item has. */
static double gathered(const uint64_t *item_bytes)
{
    return (double)item_bytes[ITEM_GATHERED_WEIGHTS] + (double)item_bytes[ITEM_GATHERED_GRADIENTS];
}

static double token_bytes(const struct prediction *p)
{
    return dynamic_bytes(p) - gathered(prediction_worst(p)->item_bytes);
}

/* The layer at work, at the peak. */
static double layer_bytes(const struct prediction *p)
{
    const uint64_t *live = prediction_worst(p)->item_bytes;
    return (double)live[ITEM_LAYER_SAVED] + (double)live[ITEM_LAYER_WORKING] +
           (double)live[ITEM_EXPERT_WORKING];
}

/* A rank of an etp group has every row of its group and 1 / etp of the width. */
static double fullest_load(const struct prediction *p)
{
    return routed_rows(p) / degree_etp(p);
}

static double least_load(const struct prediction *p)
{
    double least = routed_rows(p);
    for (int i = 0; i < p->budget.count; i++) {
        double rows = (double)p->budget.groups[i].routed_rows;
        least = rows < least ? rows : least;
    }
    return least / degree_etp(p);
}

static double mean_load(const struct prediction *p)
{
    return tokens_of(p) * model_top_k(p);
}

static double gathered_bytes(const struct prediction *p)
{
    return gathered(prediction_worst(p)->item_max_bytes);
}

static double hardware_over_model(const struct prediction *p)
{
    return p->time.hardware_flops_per_second_per_gpu / p->time.model_flops_per_second_per_gpu;
}

/* What keeps a device at work on a layer: products, attention, elementwise kernels. */
static double layer_compute_seconds(const struct prediction *p)
{
    static const enum time_item work[] = { TIME_MATMUL, TIME_EXPERTS, TIME_ATTENTION,
                                           TIME_LINEAR_ATTENTION, TIME_ELEMENTWISE };
    double ret = 0;
    for (size_t i = 0; i < sizeof work / sizeof *work; i++)
        ret += p->time.item_seconds[work[i]];
    return ret / (model_layers(p) * micro_batches(p));
}

static double attention_ratio(const struct prediction *p)
{
    const double *seconds = p->time.item_seconds;
    return seconds[TIME_ATTENTION] / (seconds[TIME_MATMUL] + seconds[TIME_EXPERTS]);
}

const struct fact facts[] = {
    { "layers", "layers", "layers of the model", model_layers },
    { "hidden", "elements", "hidden width", model_hidden },
    { "vocab", "elements", "entries of the vocabulary", model_vocab },
    { "experts", "experts", "routed experts of a layer", model_experts },
    { "top_k", "experts", "experts that a token is routed to", model_top_k },
    { "expert_width", "elements", "intermediate width of one expert", model_expert_width },
    { "indexers", "layers", "layers that choose keys by an indexer of their own", model_indexers },
    { "index_top_k", "keys", "keys that an indexer chooses for a token", model_index_top_k },
    { "index_dim", "elements", "width of an indexer's key", model_index_dim },
    { "kv_rank", "elements", "width of the latent that keys and values are made of",
      model_kv_rank },
    { "rope_dim", "elements", "rotary part of a latent key", model_rope_dim },
    { "params_total", "parameters", "every tensor of the checkpoint once", params_total },
    { "params_trained", "parameters", "what is trained: without layers of prediction and vision",
      params_trained },
    { "expert_share", "fraction", "routed experts' share of what is trained", expert_share },
    { "dense_share", "fraction", "the share of all else", dense_share },
    { "layer_params", "parameters", "one layer with experts", layer_params },
    { "layer_expert_params", "parameters", "routed experts of one layer", layer_expert_params },
    { "layer_dense_params", "parameters", "all else of one layer with experts",
      layer_dense_params },
    { "layer_expert_share", "fraction", "routed experts' share of one layer with experts",
      layer_expert_share },
    { "layer_dense_share", "fraction", "the share of all else there", layer_dense_share },
    { "gpus", "GPUs", "ranks of the world", gpus },
    { "seq_tokens", "tokens", "global sequence length", seq_tokens },
    { "local_tokens", "tokens", "tokens that a rank holds of a micro-batch", tokens_of },
    { "cp", "ranks", "context-parallel degree", degree_cp },
    { "ep", "ranks", "expert-parallel degree", degree_ep },
    { "etp", "ranks", "tensor-parallel degree of experts", degree_etp },
    { "pp", "stages", "pipeline stages", degree_pp },
    { "micro_batches", "micro-batches", "micro-batches of a step", micro_batches },
    { "dense_shards", "ranks", "ranks that share dense state: fsdp x cp", dense_shards },
    { "expert_shards", "ranks", "ranks that share experts: ep x etp x e_fsdp", expert_shards },
    { "network_rate", "bytes/s", "what collectives reach of a GPU's network, one direction",
      network_rate },
    { "static_bytes", "bytes", "weights, master weights, moments and gradients", static_bytes },
    { "dynamic_bytes", "bytes", "what comes and goes, at the peak", dynamic_bytes },
    { "token_bytes", "bytes", "of that, all but units gathered: what grows with tokens",
      token_bytes },
    { "layer_bytes", "bytes", "the layer at work, at the peak: its own tensors and its experts'",
      layer_bytes },
    { "peak_bytes", "bytes", "the worst rank's peak", peak_bytes },
    { "peak_upper_bytes", "bytes", "its upper bound", upper_bytes },
    { "routed_rows", "rows", "rows that the fullest rank receives in a layer", routed_rows },
    { "fullest_load", "rows", "of whole width, that the fullest rank computes in a layer",
      fullest_load },
    { "least_load", "rows", "the same of the rank with the fewest", least_load },
    { "mean_load", "rows", "the same of a rank on the mean", mean_load },
    { "gathered_bytes", "bytes", "units of weights and gradients that are whole, each at its most",
      gathered_bytes },
    { "mfu", "fraction", "model FLOP/s over the dense peak", mfu },
    { "hfu", "fraction", "hardware FLOP/s over the dense peak", hfu },
    { "hardware_over_model", "ratio", "hardware FLOPs over model FLOPs", hardware_over_model },
    { "bubble_fraction", "fraction", "the pipeline's idle share of the step", bubble_fraction },
    { "gather_seconds", "seconds", "gathering the unit that hides worst", gather_seconds_of },
    { "tokens_to_hide", "tokens", "local tokens whose forward is as long as that gather",
      tokens_to_hide },
    { "step_seconds", "seconds", "the step", step_seconds_of },
    { "attention_ratio", "ratio", "attention's time over that of products", attention_ratio },
    { "layer_compute_seconds", "seconds", "work of one layer and micro-batch, all passes",
      layer_compute_seconds },
};
const size_t fact_count = sizeof facts / sizeof *facts;

static bool begins(const char *name, const char *prefix, const char **ret_rest)
{
    size_t length = strlen(prefix);
    *ret_rest = name + length;
    return strncmp(name, prefix, length) == 0;
}

static int budget_item(const struct prediction *prediction, const char *name, double *ret)
{
    const char *rest;
    bool live = begins(name, "live.", &rest);
    if (!live && !begins(name, "item.", &rest))
        return -1;
    enum item item = item_find(rest);
    if (item == ITEM_COUNT)
        return -1;
    const struct rank_budget *rank = prediction_worst(prediction);
    *ret = (double)(live ? rank->item_bytes : rank->item_max_bytes)[item];
    return 0;
}

static int time_item_value(const struct prediction *prediction, const char *name, double *ret)
{
    const char *rest;
    if (!begins(name, "seconds.", &rest))
        return -1;
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        if (strcmp(time_item_names[i], rest) == 0) {
            *ret = prediction->time.item_seconds[i];
            return 0;
        }
    return -1;
}

static int hardware_value(const struct prediction *prediction, const char *name, double *ret,
                          const char **ret_unit)
{
    const char *rest;
    if (!begins(name, "hardware.", &rest))
        return -1;
    for (size_t i = 0; i < hardware_key_count; i++) {
        const struct hardware_key *key = &hardware_keys[i];
        if (strcmp(key->key, rest) != 0)
            continue;
        *ret_unit = key->unit ? key->unit : "";
        return hardware_number(&prediction->plan.hardware, key, ret) ? 0 : -1;
    }
    return -1;
}

static int whole_value(const struct prediction *prediction, const char *name, double *ret,
                       const char **ret_unit)
{
    for (size_t i = 0; i < fact_count; i++)
        if (strcmp(facts[i].name, name) == 0) {
            *ret = facts[i].value(prediction);
            *ret_unit = facts[i].unit;
            return 0;
        }
    *ret_unit = "bytes";
    if (budget_item(prediction, name, ret) == 0)
        return 0;
    *ret_unit = "seconds";
    if (time_item_value(prediction, name, ret) == 0)
        return 0;
    return hardware_value(prediction, name, ret, ret_unit);
}

int fact_value(const struct prediction *prediction, const char *name, double *ret,
               const char **ret_unit)
{
    static const char per_token[] = "/token";
    char whole[NAME_ROOM];
    size_t length = strlen(name), ending = sizeof per_token - 1;
    if (length <= ending || length - ending >= sizeof whole ||
        strcmp(name + length - ending, per_token) != 0)
        return whole_value(prediction, name, ret, ret_unit);
    memcpy(whole, name, length - ending);
    whole[length - ending] = '\0';
    if (whole_value(prediction, whole, ret, ret_unit) != 0 || strcmp(*ret_unit, "bytes") != 0)
        return -1;
    *ret /= tokens_of(prediction);
    *ret_unit = "bytes/token";
    return 0;
}

const char *fact_nearest(const char *name)
{
    const char *names[sizeof facts / sizeof *facts + ITEM_COUNT];
    const char *rest = strchr(name, '.');
    size_t count = 0;
    for (size_t i = 0; i < fact_count; i++)
        names[count++] = facts[i].name;
    for (int i = 0; i < ITEM_COUNT; i++)
        names[count++] = item_infos[i].name;
    return text_nearest(rest ? rest + 1 : name, names, count);
}
