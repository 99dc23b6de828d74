/* config.c - models: a Hugging Face config.json or the native form. */
#include "base/model/model.h"
#include "base/model/tensor.h"

#include "tests/fuzz/target.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* What was accepted is written and accepted again, as the same model. */
static void write_again(const struct model *model)
{
    struct diag_list errors = { 0 };
    struct tree tree;
    struct model again;
    struct json *document = model_to_json(model);
    char *text = json_dumps(json_view(document), JSON_COMPACT);
    fuzz_require(text != NULL, "a model can be written", NULL);
    int status = tree_read_text(&tree, "written", text, strlen(text), &errors);
    if (status == 0)
        status = model_from_node(tree.root, &again, &errors);
    fuzz_require(status == 0, "a written model is read", &errors);
    struct json *document_again = model_to_json(&again);
    fuzz_require(json_equal(json_view(document), json_view(document_again)),
                 "a model survives writing", NULL);
    json_free(document_again);
    json_free(document);
    free(text);
    tree_done(&tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    struct tree tree;
    struct model model;
    if (tree_read_text(&tree, "input", (const char *)data, bytes, &errors) == 0) {
        int status = model_from_node(tree.root, &model, &errors);
        fuzz_require_told(status, &errors);
        if (status == 0) {
            struct model_counts counts;
            struct model_flops flops;
            model_count(&model, &counts);
            model_flops_per_token(&model, 4096, 0, &flops);
            fuzz_require(counts.total < UINT64_MAX, "an accepted model has a size", NULL);
            write_again(&model);
        }
    }
    tree_done(&tree);
    return 0;
}
