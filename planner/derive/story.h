/* story.h - one reason after another, as text; inside planner/derive only. */
#ifndef RANKFIT_PLANNER_DERIVE_STORY_H
#define RANKFIT_PLANNER_DERIVE_STORY_H

#include "base/text.h"
#include "base/units.h"
#include "planner/derive/reason.h"

/* What one reason is written from; `text` is the `because` of the reason being written. */
struct story {
    struct space *space;
    const struct decision *decision;
    const struct candidate *chosen;
    struct degrees degrees;
    struct settings settings;
    struct answer *answer;
    const struct neighbours *neighbours; /* of a search; NULL: of the ordered decisions */
    char against[120];                   /* the price in short, where `text` has it at length */
    bool given;  /* by the user or by what the backend runs: nothing was decided */
    bool priced; /* there is another value to compare with */
    char *text;
    size_t used;
};

enum { BECAUSE = sizeof((struct reason *)0)->because };

/* "; ep 4 would take 3.1 % longer, 2.0 GB less": the upper end of the step, and the peak, of
 * another layout against the chosen one. */
void story_tell_against(struct story *s, const struct candidate *other, const char *name);
/* The reason being written is complete. */
void story_end(struct story *s);

/* A faster layout that the policy leaves aside is told from this gain on. */
#define WORTH_TELLING 0.02

#define SAY(story, ...) text_append((story)->text, BECAUSE, &(story)->used, __VA_ARGS__)
/* A reason only where there was a decision. */
#define TELL(story, ...) ((story)->given ? (void)0 : SAY(story, __VA_ARGS__))

/* Starts the reason of a key; false when there is no room for it. */
bool story_begin(struct story *s, const char *key, const char *value);
bool story_begin_number(struct story *s, const char *key, int value);

/* The price against other degrees or settings; nothing when they are illegal. */
void story_price_degrees(struct story *s, const struct degrees *degrees, const char *key,
                         int value);
void story_price_settings(struct story *s, const struct settings *settings, const char *key,
                          const char *value);

/* A group of `size` ranks, `stride` apart, over domains of linked GPUs: members in each, domains.
 */
struct spread {
    int near, far;
};
struct spread story_spread(const struct story *s, int size, int stride);
/* ", of which 64 take part": groups of so many consecutive ranks lie in a domain that they do not
 * divide, such as 64 in 72, only while the others of it are left out. */
void story_tell_used(struct story *s, int ranks);
/* "; all 64 in one domain of 72", "; over 8 domains, 8 in each"; nothing where all ranks share one
 * domain. */
void story_tell_spread(struct story *s, int size, int stride);

/* Reasons of degrees, and of primitives, in the order of decision. */
void reasons_of_degrees(struct story *s);
void reasons_of_search(struct story *s);
void reasons_of_stages(struct story *s);
void reasons_of_primitives(struct story *s);

#endif
