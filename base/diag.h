/* diag.h - what is wrong with an input: where, what, and what would be right. Data, never printing
 * or exiting; only the programs print. One list collects every fault of an input. */
#ifndef RANKFIT_BASE_DIAG_H
#define RANKFIT_BASE_DIAG_H

#include <stdbool.h>
#include <stdio.h>

enum { DIAG_MAX = 32 };

/* A place in an input; line and column from 1. line 0: the whole file. file NULL: no place. */
struct pos {
    const char *file;
    int line, column;
};

enum severity { SEVERITY_ERROR, SEVERITY_WARNING };

struct diag {
    enum severity severity;
    char file[256];
    int line, column;
    char what[400];
    char hint[320];
};

/* A zeroed list is empty and valid. Beyond DIAG_MAX entries only the count of dropped ones grows.
 */
struct diag_list {
    int count, errors, dropped;
    bool no_memory;
    struct diag items[DIAG_MAX];
};

/* Appends an error and returns -1, so that callers can `return diag_error(...)`. */
int diag_error(struct diag_list *list, struct pos at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Notes that memory ran out, and returns -1: an error that is printed once, and alone, since every
 * other fault may follow from it. Programs then exit with 3. */
int diag_no_memory(struct diag_list *list);

/* Appends a warning. */
void diag_warning(struct diag_list *list, struct pos at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the hint of the newest entry; returns -1 for the same reason. */
int diag_hint(struct diag_list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Copies missing memory, and nothing else, out of a list that is otherwise discarded: it is no
 * answer to what was tried. */
void diag_keep_no_memory(struct diag_list *list, const struct diag_list *discarded);

/* Appends to `list` everything that `more` holds. */
void diag_append(struct diag_list *list, const struct diag_list *more);

/* Writes `file:line:col: error: what` and, on a line of its own, `  hint: ...`. */
void diag_print(FILE *out, const struct diag *diag);
void diag_list_print(FILE *out, const struct diag_list *list);

#endif
