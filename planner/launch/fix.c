/* fix.c - settings of a launch as choices that are all fixed: nothing is left to derivation that
 * the launch decides. */
#include "base/units.h"
#include "planner/launch/launch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int launch_number(const struct launch_settings *settings, const char *key, int otherwise)
{
    const char *text = launch_get(settings, key);
    int64_t value = otherwise;
    if (text)
        (void)units_parse_int(text, 0, INT_MAX, &value);
    return (int)value;
}

static bool model_has_linear(const struct model *model)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (mixer_is_linear(model->layer_mixer[layer]))
            return true;
    return false;
}

static bool model_has_softmax(const struct model *model)
{
    for (int layer = 0; layer < model->layers; layer++)
        if (mixer_is_softmax(model->layer_mixer[layer]))
            return true;
    return false;
}

/* Whether the model has the part that a key is about. */
static bool model_uses(const struct model *model, const char *key)
{
    static const char *const of_experts[] = {
        "ep", "etp", "moe", "moe_chunks", "moe_cap_tokens", "exchange", "wgrad_delay"
    };
    if (strcmp(key, "linear_context") == 0)
        return model_has_linear(model);
    if (strcmp(key, "context") == 0)
        return model_has_softmax(model);
    if (strcmp(key, "latent_head_block") == 0)
        return model->mla.kv_rank > 0;
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++)
        if (strcmp(of_experts[i], key) == 0)
            return model->moe.experts > 0;
    return true;
}

static const struct launch_setting *setting_of(const struct launch_settings *settings,
                                               const char *key)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, key) == 0)
            return &settings->items[i];
    return NULL;
}

/* Ranks that share one copy: those of the group over the number of copies. Left to derivation,
 * which takes the whole group, where the numbers do not divide: other rules say so. */
static int fix_width(const struct launch_settings *settings, const char *key, const char *copies,
                     int model_ranks, struct fixed_choices *ret, struct diag_list *reterr)
{
    const struct launch_setting *setting = setting_of(settings, copies);
    int gpus = launch_number(settings, "gpus", 1), n = launch_number(settings, copies, 1);
    char text[32];
    if (choice_is_fixed(ret, key) || n <= 1 || model_ranks < 1 || gpus % model_ranks != 0 ||
        gpus / model_ranks % n != 0)
        return 0;
    (void)snprintf(text, sizeof text, "%d", gpus / model_ranks / n);
    return choice_set(ret, key, text, setting->at, reterr);
}

static int fix_widths(const struct launch_settings *settings, const struct model *model,
                      struct fixed_choices *ret, struct diag_list *reterr)
{
    int pp = launch_number(settings, "pp", 1), tp = launch_number(settings, "tp", 1);
    int dense = pp * tp * launch_number(settings, "cp", 1);
    int experts = pp * launch_number(settings, "etp", 1) * launch_number(settings, "ep", 1);
    const char *sharding = launch_get(settings, "sharding");
    if (sharding && strcmp(sharding, "replicated") == 0)
        return 0;
    if (fix_width(settings, "fsdp", "d_rep", dense, ret, reterr) != 0)
        return -1;
    return model->moe.experts > 0 ? fix_width(settings, "e_fsdp", "e_rep", experts, ret, reterr)
                                  : 0;
}

int launch_fix(const struct launch_settings *settings, const struct model *model,
               struct fixed_choices *ret, struct diag_list *reterr)
{
    int before = reterr->errors;
    for (size_t i = 0; i < settings->count; i++) {
        const struct launch_setting *setting = &settings->items[i];
        if (choice_key_find(setting->key) < 0 || strcmp(setting->key, "fsdp") == 0 ||
            choice_is_fixed(ret, setting->key) || !launch_applies(settings, setting->key) ||
            !model_uses(model, setting->key))
            continue;
        (void)choice_set(ret, setting->key, setting->value, setting->at, reterr);
    }
    (void)fix_widths(settings, model, ret, reterr);
    return reterr->errors > before ? -1 : 0;
}
