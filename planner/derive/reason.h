/* reason.h - decisions in words, with their prices against the alternative that was not taken. */
#ifndef RANKFIT_PLANNER_DERIVE_REASON_H
#define RANKFIT_PLANNER_DERIVE_REASON_H

#include "planner/derive/decide.h"

/* Fills reasons of *ret, in the order of decision. The third is of a search, else NULL. */
struct neighbours;
void reasons_write(struct space *space, const struct decision *decision,
                   const struct neighbours *neighbours, struct answer *ret);

/* What limits, or what comes closest to it. */
void binding_write(const struct space *space, const struct candidate *candidate, char *ret,
                   size_t size);

/* "32.5 GB", "0.143 GB". Returns buffer. */
char *size_text(char *buffer, size_t size, uint64_t bytes);

/* What choosing `chosen` costs against `other`, on the five pressures; pressures that do not move
 * are left out. Appends "; against cp=2: static +1.0 GB, ...". */
void price_append(const struct candidate *chosen, const struct candidate *other, const char *name,
                  char *text, size_t size, size_t *used);

/* The decision with other degrees or settings, judged and timed; false when illegal. */
bool alternative(struct space *space, const struct degrees *degrees,
                 const struct settings *settings, struct candidate *ret);

#endif
