/* directory.h - an empty working directory for one test, so that paths in messages are short. */
#ifndef RANKFIT_TESTS_SUPPORT_DIRECTORY_H
#define RANKFIT_TESTS_SUPPORT_DIRECTORY_H

#include <stddef.h>

/* cmocka's set-up and tear-down: the test runs inside a directory of its own. */
int directory_enter(void **state);
int directory_leave(void **state);
#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, directory_enter, directory_leave)

/* How many names a directory has: a forgotten temporary file would show. */
int directory_count(const char *path);

void directory_put(const char *path, const void *data, size_t bytes);

#endif
