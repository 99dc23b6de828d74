/* setting.c - key=value of --set, one a line, as a choice, a field of a model and one of a machine;
 * and the value as a routing profile. */
#include "base/hardware/hardware.h"
#include "base/layout/key.h"
#include "base/model/model.h"
#include "base/routing/routing.h"

#include "tests/fuzz/target.h"

#include <stdlib.h>
#include <string.h>

static const char model_text[] =
    "{architecture: Qwen3MoeForCausalLM, name: m, title: M, source: none, layers: 4, hidden: 64,"
    " vocab: 256, tied: false, norm_eps: 1.0e-6, context_tokens: 4096,"
    " attention: {heads: 4, kv_heads: 2, head_dim: 16, qk_norm: true, rope_theta: 10000},"
    " moe: {experts: 8, top_k: 2, width: 64, normalize_top_k: true}}";

static void read_model(struct model *ret)
{
    struct diag_list errors = { 0 };
    struct tree tree;
    int status = tree_read_text(&tree, "model", model_text, sizeof model_text - 1, &errors);
    if (status == 0)
        status = model_from_node(tree.root, ret, &errors);
    fuzz_require(status == 0, "the model is a good one", &errors);
    tree_done(&tree);
}

struct settings {
    struct fixed_choices fixed;
    struct model model;
    struct hardware hardware;
    struct diag_list errors;
};

/* Clearing the whole list would be most of the work. */
static struct diag_list *no_errors(struct settings *settings)
{
    settings->errors.count = settings->errors.errors = settings->errors.dropped = 0;
    return &settings->errors;
}

static void apply(struct settings *settings, const char *key, const char *value)
{
    const struct pos at = { "--set", 0, 0 };
    struct diag_list *errors = no_errors(settings);
    struct routing routing;
    char text[64];
    fuzz_require_told(choice_set(&settings->fixed, key, value, at, errors), errors);
    errors = no_errors(settings);
    fuzz_require_told(model_set(&settings->model, key, value, at, errors), errors);
    errors = no_errors(settings);
    fuzz_require_told(hardware_set(&settings->hardware, key, value, at, errors), errors);
    errors = no_errors(settings);
    int status = routing_parse(value, at, &routing, errors);
    fuzz_require_told(status, errors);
    if (status < 0)
        return;
    routing_format(&routing, text, sizeof text);
    status = routing_parse(text, at, &routing, errors);
    fuzz_require(status == 0, "a written profile is read", errors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct settings *settings = calloc(1, sizeof *settings);
    char *text = calloc(1, bytes + 1);
    fuzz_require(settings && text, "memory", NULL);
    if (bytes > 0)
        memcpy(text, data, bytes);
    read_model(&settings->model);
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value = '\0';
        apply(settings, line, value + 1);
    }
    struct diag_list *errors = no_errors(settings);
    fuzz_require_told(model_check(&settings->model, (struct pos){ 0 }, errors), errors);
    free(text);
    free(settings);
    return 0;
}
