/* legality.h - one table of rules that a layout must obey for a model, a world and a sequence.
 * Every violation of an input is reported at once, with the values, the arithmetic and the nearest
 * legal values. Errors: no engine can do it. Warnings: it runs but is unwise, with its cost. */
#ifndef RANKFIT_BASE_LAYOUT_LEGALITY_H
#define RANKFIT_BASE_LAYOUT_LEGALITY_H

#include "base/hardware/hardware.h"
#include "base/layout/key.h"
#include "base/layout/lengths.h"
#include "base/model/model.h"
#include "base/routing/routing.h"

struct legality_input {
    const struct model *model;
    const struct hardware *hardware;
    const struct choices *choices;
    int gpus;
    uint64_t seq_tokens;
    int64_t global_batch;
    const struct fixed_choices *fixed; /* may be NULL: positions for the messages */
    const struct routing *routing;     /* NULL: balanced */
    const struct lengths *lengths;     /* of packed pieces; NULL: none */
};

struct legality_rule {
    const char *name; /* "world", "ep_divides_experts", ... for explain and tests */
    enum severity severity;
    const char *meaning;
    /* Appends a diagnostic when violated; returns 1 when it did. reterr may be NULL: only judge. */
    int (*check)(const struct legality_input *in, struct diag_list *reterr);
};
extern const struct legality_rule legality_rules[];
extern const size_t legality_rule_count;

/* Number of errors (0: legal). With reterr NULL stops at the first error and skips warnings: the
 * form for search loops. */
int legality_check(const struct legality_input *in, struct diag_list *reterr);

#endif
