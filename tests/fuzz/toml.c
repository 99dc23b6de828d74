/* toml.c - TOML configurations. */
#include "base/toml.h"

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    struct tree tree;
    fuzz_require_told(toml_read_text(&tree, "t", (const char *)data, bytes, &errors), &errors);
    tree_done(&tree);
    return 0;
}
