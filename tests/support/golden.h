/* golden.h - comparing text with a file under tests/golden/. Files are rewritten only when the
 * environment says RANKFIT_UPDATE_GOLDEN=1; the change is then read in the diff. Needs
 * RANKFIT_SOURCE_ROOT in the environment, which meson sets for every test. */
#ifndef RANKFIT_TESTS_SUPPORT_GOLDEN_H
#define RANKFIT_TESTS_SUPPORT_GOLDEN_H

/* Fails the running test, printing the first line that differs, unless `text` is what
 * tests/golden/`name` holds. name: "core/tree_errors.txt". */
#define assert_golden(name, text) support_assert_golden((name), (text), __FILE__, __LINE__)

void support_assert_golden(const char *name, const char *text, const char *file, int line);

/* The text of a file in a malloc'd string, or NULL. */
char *support_read_file(const char *path);

#endif
