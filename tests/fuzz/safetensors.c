/* safetensors.c - safetensors files. */
#include "base/safetensors/safetensors.h"

#include "tests/fuzz/target.h"

#include <stdlib.h>
#include <unistd.h>

/* What the header of an accepted file says can be read. Sparse inputs are not large. */
static void read_everything(const struct safetensors *checkpoint, size_t file_bytes)
{
    for (size_t i = 0; i < safetensors_count(checkpoint); i++) {
        struct diag_list errors = { 0 };
        const struct stored_tensor *tensor = safetensors_at(checkpoint, i);
        fuzz_require(tensor->bytes <= file_bytes, "a tensor is no larger than its file", NULL);
        fuzz_require(safetensors_find(checkpoint, tensor->name) == tensor, "names are unique",
                     NULL);
        void *raw = malloc((size_t)tensor->bytes + 1);
        float *wide = malloc((size_t)tensor->bytes * 2 + 1);
        fuzz_require(raw && wide, "memory", NULL);
        int status = safetensors_read_all(checkpoint, tensor, tensor->type, raw, &errors);
        fuzz_require(status == 0, "an accepted tensor is read", &errors);
        if (tensor->type == TENSOR_TYPE_BF16)
            status = safetensors_read_all(checkpoint, tensor, TENSOR_TYPE_F32, wide, &errors);
        if (tensor->type == TENSOR_TYPE_F32)
            status = safetensors_read_all(checkpoint, tensor, TENSOR_TYPE_BF16, wide, &errors);
        fuzz_require(status == 0, "bf16 and fp32 are converted", &errors);
        free(wide);
        free(raw);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    char path[FUZZ_PATH_BYTES];
    struct safetensors *checkpoint = NULL;
    int handle = fuzz_file(data, bytes, path);
    int status = safetensors_open(path, &checkpoint, &errors);
    fuzz_require_told(status, &errors);
    if (status == 0)
        read_everything(checkpoint, bytes);
    safetensors_close(checkpoint);
    (void)close(handle);
    return 0;
}
