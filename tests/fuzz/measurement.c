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
    json_t *document = status == 0 ? measurement_to_json(&measurement) : NULL;
    fuzz_require(status != 0 || document, "an accepted measurement can be written", NULL);
    json_decref(document);
    measurement_done(&measurement);
    (void)close(handle);
    return 0;
}
