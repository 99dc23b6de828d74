#include "tests/unit/safetensors/fixture.h"

#include "base/safetensors/safetensors.h"
#include "base/text.h"

#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

int fixture_enter(void **state)
{
    char *path = strdup("/tmp/rankfit-test-XXXXXX");
    *state = path;
    return path && mkdtemp(path) && chdir(path) == 0 ? 0 : -1;
}

static void empty_directory(const char *path)
{
    DIR *listing = opendir(path);
    for (struct dirent *entry = listing ? readdir(listing) : NULL; entry;
         entry = readdir(listing)) {
        char child[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        (void)snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR)
            empty_directory(child);
        (void)remove(child);
    }
    if (listing)
        (void)closedir(listing);
}

int fixture_leave(void **state)
{
    empty_directory(*state);
    int ret = chdir("/") == 0 && rmdir(*state) == 0 ? 0 : -1;
    free(*state);
    return ret;
}

int fixture_count_names(void)
{
    int count = -2;
    DIR *listing = opendir(".");
    assert_non_null(listing);
    while (readdir(listing))
        count++;
    assert_int_equal(closedir(listing), 0);
    return count;
}

void fixture_put(const char *path, const void *data, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

void fixture_put_tensors(const char *path, const char *header, size_t data_bytes)
{
    uint64_t length = strlen(header);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (int i = 0; i < 8; i++)
        (void)fputc((int)(length >> (8 * i) & 0xff), out);
    (void)fputs(header, out);
    for (size_t i = 0; i < data_bytes; i++)
        (void)fputc((int)(i & 0xff), out);
    assert_int_equal(fclose(out), 0);
}

void fixture_note(struct transcript *transcript, const char *title, const struct diag_list *errors)
{
    char *printed = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&printed, &bytes);
    assert_non_null(out);
    diag_list_print(out, errors);
    assert_int_equal(fclose(out), 0);
    text_append(transcript->text, sizeof transcript->text, &transcript->used, "== %s\n%s", title,
                printed);
    free(printed);
}

void fixture_refuse(struct transcript *transcript, const char *title, const char *path)
{
    struct diag_list errors = { 0 };
    struct safetensors *checkpoint = NULL;
    if (safetensors_open(path, &checkpoint, &errors) == 0)
        print_error("accepted: %s\n", title);
    assert_null(checkpoint);
    assert_true(errors.errors > 0);
    fixture_note(transcript, title, &errors);
}
