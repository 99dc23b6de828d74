/* facts.c - a model from the architecture options of a launch: the native form is put together from
 * the rows "model.X" and read as a model file is. */
#include "base/text.h"
#include "base/units.h"
#include "planner/launch/read.h"

#include <stdlib.h>
#include <string.h>

static const char *fact(const struct launch_file *file, const char *key)
{
    return launch_get(&file->settings, key);
}

/* Whether the options give an architecture at all. */
static bool is_given(const struct launch_file *file)
{
    return fact(file, "model.layers") && fact(file, "model.hidden") &&
           fact(file, "model.attention.heads");
}

/* The native form's `architecture`, whose reader knows the same kinds of layers. */
static const char *architecture_of(const struct launch_file *file)
{
    const char *norm = fact(file, "model.attention.qk_norm");
    bool experts = fact(file, "model.moe.experts") != NULL;
    if (fact(file, "model.latent.kv_rank"))
        return "DeepseekV3ForCausalLM";
    if (fact(file, "model.full_attention_every"))
        return "Qwen3NextForCausalLM";
    if (norm && strcmp(norm, "true") == 0)
        return experts ? "Qwen3MoeForCausalLM" : "Qwen3ForCausalLM";
    return experts ? "MixtralForCausalLM" : "LlamaForCausalLM";
}

static void put_value(struct json *map, const char *key, const char *text)
{
    char *end;
    int64_t number;
    double real = strtod(text, &end);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        json_put_bool(map, key, text[0] == 't');
    else if (units_parse_int(text, INT64_MIN, INT64_MAX, &number) == 0)
        json_put_int(map, key, number);
    else if (end != text && !*end)
        json_put_number(map, key, real);
    else
        json_put_text(map, key, text);
}

/* Facts that belong in another place or form than the rows give them. */
static bool is_apart(const struct launch_file *file, const char *key)
{
    static const char *const keys[] = { "model.moe_layers", "model.full_attention_every",
                                        "model.mixers" };
    static const char *const of_latents[] = { "model.attention.kv_heads",
                                              "model.attention.head_dim" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    for (size_t i = 0; i < sizeof of_latents / sizeof *of_latents; i++)
        if (strcmp(of_latents[i], key) == 0 && fact(file, "model.latent.kv_rank"))
            return true;
    bool experts = fact(file, "model.moe.experts") != NULL;
    bool linear = fact(file, "model.full_attention_every") != NULL;
    return (strncmp(key, "model.moe.", 10) == 0 && !experts) ||
           (strncmp(key, "model.linear_attention.", 23) == 0 && !linear);
}

enum { SECTIONS = 5 };
struct sections {
    size_t count;
    const char *names[SECTIONS];
    struct json *maps[SECTIONS];
};

static struct json *section(struct sections *sections, const char *name)
{
    for (size_t i = 0; i < sections->count; i++)
        if (strcmp(sections->names[i], name) == 0)
            return sections->maps[i];
    if (sections->count == SECTIONS)
        return NULL;
    sections->names[sections->count] = name;
    return sections->maps[sections->count++] = json_map();
}

static void put_facts(const struct launch_file *file, struct json *root, struct sections *sections)
{
    static const char *const known[] = { "attention", "latent", "moe", "linear_attention" };
    for (size_t i = 0; i < file->settings.count; i++) {
        const struct launch_setting *setting = &file->settings.items[i];
        if (strncmp(setting->key, "model.", 6) != 0 || is_apart(file, setting->key))
            continue;
        const char *key = setting->key + 6, *dot = strchr(key, '.');
        struct json *map = root;
        for (size_t s = 0; dot && s < sizeof known / sizeof *known; s++)
            if (strncmp(known[s], key, (size_t)(dot - key)) == 0 && !known[s][dot - key])
                map = section(sections, known[s]);
        put_value(map, dot ? dot + 1 : key, setting->value);
    }
}

static int number(const struct launch_file *file, const char *key, int otherwise)
{
    return launch_number(&file->settings, key, otherwise);
}

/* kv-channels and ffn-hidden-size have defaults that follow from other options: hidden / heads, 4 x
 * hidden, and with a gate two thirds of that in multiples of 64. */
static void put_defaults(const struct launch_file *file, struct json *root,
                         struct sections *sections)
{
    int hidden = number(file, "model.hidden", 0), heads = number(file, "model.attention.heads", 0);
    const char *ungated = fact(file, "model.mlp_ungated");
    bool gated = !ungated || strcmp(ungated, "false") == 0;
    struct json *attention = section(sections, "attention");
    if (fact(file, "model.latent.kv_rank")) {
        json_put_int(attention, "kv_heads", heads);
        json_put_int(attention, "head_dim",
                     number(file, "model.latent.nope_dim", 0) +
                         number(file, "model.latent.rope_dim", 0));
    } else if (!json_has(attention, "head_dim")) {
        json_put_int(attention, "head_dim", heads > 0 ? hidden / heads : 0);
    }
    int64_t width = gated ? (int64_t)hidden * 8 / 3 / 64 * 64 : (int64_t)4 * hidden;
    /* Biases of MLPs without a gate are no part of the native form: 5 of 12 hidden per layer. */
    if (!gated)
        json_put_bool(root, "mlp_bias", false);
    if (number(file, "model.dense_width", 0) == 0 && !fact(file, "model.moe.experts"))
        json_put_int(root, "dense_width", width);
    if (fact(file, "model.moe.experts")) {
        struct json *moe = section(sections, "moe");
        json_put_bool(moe, "normalize_top_k", true);
        if (!json_has(moe, "width"))
            json_put_int(moe, "width",
                         number(file, "model.dense_width", 0) > 0
                             ? number(file, "model.dense_width", 0)
                             : width);
        if (!fact(file, "model.moe_layers"))
            json_put_int(root, "dense_width", 0);
    }
    if (number(file, "model.mtp_layers", 0) > 0)
        json_put_bool(root, "mtp_trained", true);
}

/* "([0]*3+[1]*58)", "[0, 1, 1]", or N: every N-th layer has experts. */
static int read_moe_layers(const char *text, int layers, struct json *kinds)
{
    int64_t every;
    int count = 0, from = 0;
    if (units_parse_int(text, 1, layers, &every) == 0) {
        for (int layer = 0; layer < layers; layer++)
            json_append_text(kinds, layer % every == 0 ? "moe" : "dense");
        return 0;
    }
    for (const char *at = text; *at;) {
        char *end;
        if (*at == '*') {
            long times = strtol(at + 1, &end, 10);
            int group = count - from;
            if (end == at + 1 || times < 1 || times > layers || group != 1)
                return -1;
            const char *kind = text;
            for (const char *back = at; back > text && strchr("01", *back) == NULL; back--)
                kind = back - 1;
            for (long i = 1; i < times && count < layers; i++, count++)
                json_append_text(kinds, *kind == '1' ? "moe" : "dense");
            at = end;
        } else if (*at == '[') {
            from = count;
            at++;
        } else if (*at == '0' || *at == '1') {
            if (count++ == layers)
                return -1;
            json_append_text(kinds, *at == '1' ? "moe" : "dense");
            at++;
        } else if (strchr("(), ]+", *at)) {
            at++;
        } else {
            return -1;
        }
    }
    return count == layers ? 0 : -1;
}

static struct pos place(const struct launch_file *file, const char *key)
{
    for (size_t i = 0; i < file->settings.count; i++)
        if (strcmp(file->settings.items[i].key, key) == 0)
            return file->settings.items[i].at;
    return file->at;
}

static int put_kinds(const struct launch_file *file, struct json *root, struct diag_list *reterr)
{
    int layers = number(file, "model.layers", 0);
    int every = number(file, "model.full_attention_every", 0);
    const char *moe_layers = fact(file, "model.moe_layers");
    struct json *ffns = json_list(), *mixers = json_list();
    if (!fact(file, "model.moe.experts")) {
        json_append_text(ffns, "dense");
    } else if (!moe_layers) {
        json_append_text(ffns, "moe");
    } else if (read_moe_layers(moe_layers, layers, ffns) != 0) {
        diag_error(reterr, place(file, "model.moe_layers"),
                   "moe-layer-freq '%s' is no pattern of %d layers", moe_layers, layers);
        diag_hint(reterr, "as in 2, or ([0]*3+[1]*58), one entry per layer");
        json_free(ffns);
        json_free(mixers);
        return -1;
    }
    for (int layer = 1; layer < every; layer++)
        json_append_text(mixers, "gdn");
    json_append_text(mixers, fact(file, "model.latent.kv_rank") ? "mla" : "gqa");
    json_put(root, "ffns", ffns);
    json_put(root, "mixers", mixers);
    return 0;
}

static int read_native(const struct launch_file *file, struct json *root, struct model *ret,
                       struct diag_list *reterr)
{
    struct tree tree = { 0 };
    char *text = json_render(root, JSON_FORM_BARE);
    int status = text ? tree_read_text(&tree, file->name, text, strlen(text), reterr)
                      : diag_no_memory(reterr);
    struct diag_list faults = { 0 };
    if (status == 0 && model_from_node(tree.root, ret, &faults) != 0) {
        status = -1;
        for (int i = 0; i < faults.count; i++)
            diag_error(reterr, file->at, "the architecture options make no model: %s",
                       faults.items[i].what);
        diag_keep_no_memory(reterr, &faults);
    }
    tree_done(&tree);
    free(text);
    return status;
}

int launch_model(const struct launch_file *file, struct model *ret, struct diag_list *reterr)
{
    if (!is_given(file))
        return 0;
    if (!fact(file, "model.vocab")) {
        diag_error(reterr, file->at,
                   "the architecture options give no vocabulary: the tokenizer "
                   "decides it");
        return diag_hint(reterr,
                         "--set model.vocab=N, or --model NAME in the place of the options");
    }
    struct json *root = json_document("rankfit.model/1");
    struct sections sections = { 0 };
    json_put_text(root, "name", "launch");
    json_put_text(root, "title", "model of the launch options");
    json_put_text(root, "architecture", architecture_of(file));
    put_facts(file, root, &sections);
    put_defaults(file, root, &sections);
    for (size_t i = 0; i < sections.count; i++)
        json_put(root, sections.names[i], sections.maps[i]);
    int status = put_kinds(file, root, reterr);
    if (status == 0)
        status = read_native(file, root, ret, reterr);
    json_free(root);
    return status == 0 ? 1 : -1;
}
