/* log.c - logs of other engines. */
#include "planner/compare/log.h"

#include "tests/fuzz/target.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    struct log_figures *figures = calloc(1, sizeof *figures);
    fuzz_require(figures != NULL, "memory", NULL);
    int status = log_read("log", bytes > 0 ? (const char *)data : "", bytes, figures, &errors);
    fuzz_require_told(status, &errors);
    fuzz_require(!(log_seconds(figures) < 0), "a step takes time", NULL);
    free(figures);
    return 0;
}
