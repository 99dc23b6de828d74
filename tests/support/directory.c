#include "tests/support/directory.h"

#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

int directory_enter(void **state)
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

int directory_leave(void **state)
{
    empty_directory(*state);
    int ret = chdir("/") == 0 && rmdir(*state) == 0 ? 0 : -1;
    free(*state);
    return ret;
}

int directory_count(const char *path)
{
    int count = -2;
    DIR *listing = opendir(path);
    assert_non_null(listing);
    while (readdir(listing))
        count++;
    assert_int_equal(closedir(listing), 0);
    return count;
}

void directory_put(const char *path, const void *data, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}
