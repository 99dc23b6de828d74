/* tree.c - YAML and JSON text. */
#include "base/tree.h"
#include "base/file.h"

#include "tests/fuzz/target.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static size_t count_nodes(const struct node *node)
{
    size_t ret = 1;
    size_t children = 0;
    fuzz_require(node->at.line > 0 && node->at.column > 0, "every value has a place", NULL);
    for (const struct node *child = node->child; child; child = child->next, children++)
        ret += count_nodes(child);
    fuzz_require(children == node->count, "count is the number of children", NULL);
    return ret;
}

/* A document as YAML text is read again. */
static void render_again(const json_t *document)
{
    struct diag_list errors = { 0 };
    struct tree tree;
    char *text = file_render_yaml(document);
    fuzz_require(text != NULL, "a document can be rendered", NULL);
    (void)tree_read_text(&tree, "rendered", text, strlen(text), &errors);
    fuzz_require(errors.errors == 0, "rendered YAML is read", &errors);
    tree_done(&tree);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    struct tree tree;
    int status = tree_read_text(&tree, "input", (const char *)data, bytes, &errors);
    fuzz_require_told(status, &errors);
    if (status == 0)
        (void)count_nodes(tree.root);
    json_t *document = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    if (document && status == 0)
        render_again(document);
    json_decref(document);
    tree_done(&tree);
    return 0;
}
