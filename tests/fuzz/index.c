/* index.c - model.safetensors.index.json, beside one good shard that it may name: "100". */
#include "base/safetensors/checkpoint.h"

#include "tests/fuzz/target.h"

#include <stdlib.h>
#include <unistd.h>

enum { SHARD_HANDLE = 100 };

/* Two bytes under the names a and b; lives as long as the program. */
static void keep_shard(void)
{
    static const char shard[] = "\x70\0\0\0\0\0\0\0"
                                "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}"
                                "       "
                                "yz";
    _Static_assert(sizeof shard - 1 == 8 + 0x70 + 2, "length, header, data");
    char path[FUZZ_PATH_BYTES];
    if (access("/proc/self/fd/100", F_OK) == 0)
        return;
    int handle = fuzz_file((const uint8_t *)shard, sizeof shard - 1, path);
    fuzz_require(dup2(handle, SHARD_HANDLE) == SHARD_HANDLE, "a handle of our choice", NULL);
    (void)close(handle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    char path[FUZZ_PATH_BYTES];
    struct safetensors *checkpoint = calloc(1, sizeof *checkpoint);
    fuzz_require(checkpoint != NULL, "memory", NULL);
    keep_shard();
    int handle = fuzz_file(data, bytes, path);
    int status = index_open(path, checkpoint, &errors);
    fuzz_require_told(status, &errors);
    for (size_t i = 0; status == 0 && i < safetensors_count(checkpoint); i++) {
        const struct stored_tensor *tensor = safetensors_at(checkpoint, i);
        uint8_t byte = 0;
        status = safetensors_read_all(checkpoint, tensor, TENSOR_TYPE_U8, &byte, &errors);
        fuzz_require(status == 0 && (byte == 'y' || byte == 'z'), "a tensor is read", &errors);
    }
    safetensors_close(checkpoint);
    (void)close(handle);
    return 0;
}
