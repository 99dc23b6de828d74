/* hardware.c - hardware files. */
#include "base/hardware/hardware.h"

#include "tests/fuzz/target.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void write_again(const struct hardware *hardware)
{
    struct diag_list errors = { 0 };
    struct tree tree;
    struct hardware again;
    struct json *document = hardware_to_json(hardware);
    char *text = json_dumps(json_view(document), JSON_COMPACT);
    fuzz_require(text != NULL, "hardware can be written", NULL);
    int status = tree_read_text(&tree, "written", text, strlen(text), &errors);
    if (status == 0)
        status = hardware_from_node(tree.root, &again, &errors);
    fuzz_require(status == 0, "written hardware is read", &errors);
    json_free(document);
    free(text);
    tree_done(&tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    struct tree tree;
    struct hardware hardware;
    if (tree_read_text(&tree, "input", (const char *)data, bytes, &errors) == 0) {
        int status = hardware_from_node(tree.root, &hardware, &errors);
        fuzz_require_told(status, &errors);
        if (status == 0)
            write_again(&hardware);
    }
    tree_done(&tree);
    return 0;
}
