/* measurement.c - measurement files. */
#include "base/plan/measurement.h"

#include "tests/fuzz/target.h"

#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    char path[FUZZ_PATH_BYTES];
    struct measurement measurement = { 0 };
    int handle = fuzz_file(data, bytes, path);
    int status = measurement_load(path, &measurement, &errors);
    fuzz_require_told(status, &errors);
    struct json *document = status == 0 ? measurement_to_json(&measurement) : NULL;
    fuzz_require(status != 0 || json_view(document), "an accepted measurement can be written",
                 NULL);
    json_free(document);
    measurement_done(&measurement);
    (void)close(handle);
    return 0;
}
