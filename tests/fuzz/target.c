#include "tests/fuzz/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int fuzz_file(const uint8_t *data, size_t bytes, char *ret)
{
    int handle = memfd_create("input", MFD_CLOEXEC);
    if (handle < 0 || (bytes > 0 && pwrite(handle, data, bytes, 0) != (ssize_t)bytes)) {
        perror("memfd");
        abort();
    }
    (void)snprintf(ret, FUZZ_PATH_BYTES, "/proc/self/fd/%d", handle);
    return handle;
}

void fuzz_broken(const char *promise, const struct diag_list *errors)
{
    (void)fprintf(stderr, "broken promise: %s\n", promise);
    if (errors)
        diag_list_print(stderr, errors);
    abort();
}

void fuzz_require_told(int status, const struct diag_list *errors)
{
    fuzz_require(status == 0 || errors->errors > 0, "a refusal says why", errors);
    fuzz_require(status != 0 || errors->errors == 0, "an input with errors is refused", errors);
}
