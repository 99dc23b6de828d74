/* escape.h - JSON writes characters beyond U+FFFF as two escapes ("\ud83d\ude00"), YAML as one
 * ("\U0001f600") and libyaml takes only that. Rewrites the pairs and remembers where. */
#ifndef RANKFIT_BASE_ESCAPE_H
#define RANKFIT_BASE_ESCAPE_H

#include <stddef.h>

/* After a rewritten pair a column of the new text is ESCAPE_SHORTER too small. */
enum { ESCAPE_SHORTER = 2 };

/* Line and column, from 0, where a rewritten pair ends in the new text. */
struct escape_place {
    size_t line, column;
};

struct escapes {
    char *text; /* NULL: nothing to rewrite */
    size_t bytes;
    struct escape_place *places;
    size_t count;
};

/* Returns -1 when memory runs out. ret must be released with escapes_done. */
int escapes_rewrite(const char *text, size_t bytes, struct escapes *ret);
void escapes_done(struct escapes *escapes);

#endif
