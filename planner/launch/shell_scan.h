/* shell_scan.h - the state of reading a script, shared by its words (shell.c) and their expansions
 * (shell_expand.c). Private to planner/launch. */
#ifndef RANKFIT_PLANNER_LAUNCH_SHELL_SCAN_H
#define RANKFIT_PLANNER_LAUNCH_SHELL_SCAN_H

#include "planner/launch/shell.h"

#include <stdbool.h>

enum { WORD_BYTES = 1 << 16, NAME_BYTES = 128, DEPTH_MAX = 16, WORDS_MAX = 1 << 16 };

struct scan {
    struct shell_script *script;
    const char *name;
    const char *at, *end, *line_start;
    int line;
    int depth;     /* of conditions */
    int nesting;   /* of expansions in defaults */
    size_t words;  /* made so far: an array that doubles itself ends here */
    bool assigned; /* the word that is read is the value of an assignment: it is not split */
    struct diag_list *reterr;
    bool failed;
};

/* A word that is being put together. */
struct text {
    char *bytes;
    size_t used;
    bool quoted;  /* it is a word even when it is empty */
    bool nothing; /* "$@" of no arguments is no word */
};

/* Words that an expansion adds: the first joins the text, the last is left open in it. */
struct fields {
    struct shell_word **first, **last;
    struct pos at;
};

struct pos scan_here(const struct scan *scan);
/* One error; nothing is read after it. */
void scan_fail(struct scan *scan, struct pos at, const char *problem, const char *hint);
void scan_no_memory(struct scan *scan);
/* The character so far on; 0 behind the end. */
char scan_peek(const struct scan *scan, size_t ahead);
void scan_step(struct scan *scan);
void scan_put(struct scan *scan, struct text *text, char c);
/* Bytes of a variable's name here; 0: none begins. */
size_t scan_name_length(const struct scan *scan);
bool is_name_start(char c);
bool is_name(char c);
struct shell_variable *shell_find_variable(const struct shell_script *script, const char *name);
/* The word that was put together, if it is one. */
void scan_end_field(struct scan *scan, struct text *text, const struct fields *fields);

/* At a dollar sign: its expansion, in quotes or without. */
void scan_expand(struct scan *scan, struct text *text, const struct fields *fields, bool quoted);

#endif
