/* texts.h - texts of the built program compared with the golden file of the test. */
#ifndef RANKFIT_TESTS_E2E_TEXTS_H
#define RANKFIT_TESTS_E2E_TEXTS_H

#include <stddef.h>
#include <stdio.h>

struct CMUnitTest;

/* A command as program_run takes it; `title` is its section of the golden file. */
struct told {
    const char *title;
    int status;
    const char *command;
};

/* Runs the command, which must exit with the status, and compares standard output followed by
 * standard error. From status 2 on nothing may be on standard output. */
void assert_told(const char *title, int status, const char *command);

/* The same of the errors and warnings alone, with their hints: what a run says of its progress, and
 * what a launcher adds, differs from time to time. */
void assert_told_diagnostics(const char *title, int status, const char *command);

/* Writes the lines of errors and warnings with their hints; returns how many errors there are. */
int print_diagnostics(FILE *out, const char *text);

/* One test for each row, written to `ret`. */
void told_tests(const struct told *rows, size_t count, struct CMUnitTest *ret);

#endif
