/* escape.h - JSON holds what YAML does not. In strings: characters beyond U+FFFF as two escapes
 * ("\ud83d\ude00" for "\U0001f600"), and as themselves a few characters that YAML forbids or takes
 * for line ends (U+007F to U+009F, U+2028, U+2029, U+FEFF). Around them: a colon on another line
 * than its key, and tabs before the first bracket and after the last. Rewrites them and remembers
 * where.
 */
#ifndef RANKFIT_BASE_ESCAPE_H
#define RANKFIT_BASE_ESCAPE_H

#include <stddef.h>

/* What YAML takes for a key, quotes included (YAML 1.1, section 9.2). */
enum { KEY_CHARACTERS_MAX = 1024 };

/* Line and column, from 0, in the new text, behind which a column of this line is `shift` greater
 * in the old text. */
struct escape_place {
    size_t line, column;
    int shift;
};

struct escapes {
    char *text;
    size_t bytes;
    struct escape_place *places;
    size_t count;
    struct escape_place long_key; /* line and column of the first key that YAML finds too long */
    size_t long_key_characters;   /* of its text as rewritten; 0: there is none */
};

/* Returns -1 when memory runs out. ret must be released with escapes_done in both cases. */
int escapes_rewrite(const char *text, size_t bytes, struct escapes *ret);
void escapes_done(struct escapes *escapes);

#endif
