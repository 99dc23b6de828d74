/* replay.c - runs a target, without libFuzzer, on every file of a corpus: whole, cut at up to 64
 * lengths, and with 128 single bytes changed. `replay DIRECTORY`; crashes are the target's. */
#include "tests/fuzz/target.h"
#include "tests/support/random.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUTS = 64, CHANGES = 128, INPUT_MAX = 1 << 20 };

/* In memory of its own exact size, so that AddressSanitizer sees a read behind the end. */
static void feed(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        abort();
    if (bytes > 0)
        memcpy(copy, data, bytes);
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static void feed_variants(uint8_t *data, size_t bytes)
{
    uint64_t state = bytes;
    size_t stride = bytes / CUTS + 1;
    feed(data, bytes);
    for (size_t cut = 0; cut < bytes; cut += stride)
        feed(data, cut);
    for (int i = 0; i < CHANGES && bytes > 0; i++) {
        size_t at = (size_t)random_below(&state, bytes);
        uint8_t kept = data[at];
        data[at] = (uint8_t)random_next(&state);
        feed(data, bytes);
        data[at] = kept;
    }
}

static int replay(const char *directory, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *in = fopen(path, "rb");
    uint8_t *data = malloc(INPUT_MAX);
    if (!in || !data) {
        perror(path);
        free(data);
        return -1;
    }
    size_t bytes = fread(data, 1, INPUT_MAX, in);
    (void)fclose(in);
    (void)printf("%s, %zu bytes\n", name, bytes);
    (void)fflush(stdout);
    feed_variants(data, bytes);
    free(data);
    return 0;
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    int status = 0;
    int count = argc == 2 ? scandir(argv[1], &entries, visible, alphasort) : -1;
    for (int i = 0; i < count; i++) {
        status |= replay(argv[1], entries[i]->d_name);
        free(entries[i]);
    }
    free((void *)entries);
    if (count <= 0)
        (void)fprintf(stderr, "usage: replay DIRECTORY, with files in it\n");
    return count > 0 && status == 0 ? 0 : 1;
}
