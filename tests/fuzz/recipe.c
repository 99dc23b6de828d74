/* recipe.c - recipes, with the judgement of their values. */
#include "planner/cli/options.h"

#include "tests/fuzz/target.h"

#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    char path[FUZZ_PATH_BYTES];
    struct options options = { 0 };
    int handle = fuzz_file(data, bytes, path);
    int status = options_read_recipe(&options, path, &errors);
    fuzz_require_told(status, &errors);
    if (status == 0)
        options_check_values(&options, FOR_ALL, &errors);
    options_done(&options);
    (void)close(handle);
    return 0;
}
