/* text.h - texts of files, and texts without what varies between machines and runs. */
#ifndef RANKFIT_TESTS_SUPPORT_TEXT_H
#define RANKFIT_TESTS_SUPPORT_TEXT_H

/* The text of a file in a malloc'd string, or NULL. */
char *text_of_file(const char *path);

/* A malloc'd copy with all that matches an extended regular expression replaced. */
char *text_replaced(const char *text, const char *expression, const char *by);

/* A malloc'd copy without what varies between machines and runs: the path of the source tree,
 * temporary directories and names, digests of plans, and durations. */
char *text_normalised(const char *text);

#endif
