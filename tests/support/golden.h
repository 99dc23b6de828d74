/* golden.h - texts that a person reads, compared with golden files. Each test program has one file,
 * tests/golden/NAME.txt for the program test_NAME, with one section per assertion. `./check
 * --update` rewrites all files; the change is then read in the diff. Needs RANKFIT_SOURCE_ROOT in
 * the environment, which meson sets for every test. */
#ifndef RANKFIT_TESTS_SUPPORT_GOLDEN_H
#define RANKFIT_TESTS_SUPPORT_GOLDEN_H

#include <stdio.h>

struct diag_list;

/* Fails the running test, printing the first line that differs, unless the section `title` holds
 * `text`. Titles are unique in a program. */
#define assert_golden(title, text) support_assert_golden((title), (text), __FILE__, __LINE__)
/* The same for the text that diag_list_print makes. */
#define assert_golden_diags(title, list)                                                           \
    support_assert_golden_diags((title), (list), __FILE__, __LINE__)

/* Starts a text that is written in pieces to golden_out(), which golden_begin returns too;
 * assert_golden_end compares all of it. The pieces of an earlier test that failed are dropped. */
FILE *golden_begin(void);
FILE *golden_out(void);
#define assert_golden_end(title) support_assert_golden_end((title), __FILE__, __LINE__)

void support_assert_golden(const char *title, const char *text, const char *file, int line);
void support_assert_golden_diags(const char *title, const struct diag_list *list, const char *file,
                                 int line);
void support_assert_golden_end(const char *title, const char *file, int line);

#endif
