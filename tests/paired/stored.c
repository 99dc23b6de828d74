#include "tests/paired/stored.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The readers take files. */
static void write_part(const json_t *part, char *ret_path, size_t size)
{
    (void)snprintf(ret_path, size, "/tmp/rankfit-row-XXXXXX");
    int file = mkstemp(ret_path);
    assert_true(file >= 0);
    assert_int_equal(json_dumpfd(part, file, JSON_COMPACT), 0);
    assert_int_equal(close(file), 0);
}

void stored_plan(const json_t *part, struct plan *ret)
{
    struct diag_list errors = { 0 };
    char path[64];
    write_part(part, path, sizeof path);
    int status = plan_load(path, ret, &errors);
    (void)unlink(path);
    status |= hardware_load(ret->hardware.name, &ret->hardware, &errors);
    diag_list_print(stderr, &errors);
    assert_int_equal(status, 0);
}

void stored_measurement(const json_t *part, struct measurement *ret)
{
    struct diag_list errors = { 0 };
    char path[64];
    write_part(part, path, sizeof path);
    int status = measurement_load(path, ret, &errors);
    (void)unlink(path);
    diag_list_print(stderr, &errors);
    assert_int_equal(status, 0);
}

int stored_each(const char *folder,
                void (*row)(const char *name, const json_t *stored, void *context), void *context)
{
    char directory[900], path[1200];
    struct dirent **names;
    const char *root = getenv("RANKFIT_DATA");
    assert_non_null(root);
    (void)snprintf(directory, sizeof directory, "%s/tests/data/measured/%s", root, folder);
    int rows = 0, count = scandir(directory, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (strstr(names[i]->d_name, ".json")) {
            (void)snprintf(path, sizeof path, "%s/%s", directory, names[i]->d_name);
            json_t *stored = json_load_file(path, 0, NULL);
            assert_non_null(stored);
            row(names[i]->d_name, stored, context);
            json_decref(stored);
            rows++;
        }
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    return rows;
}
