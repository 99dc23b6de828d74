/* validate.h - kinds of validation sets: one row each, found by the schema that a set's file
 * begins with. A further set of a kind is a further file under validation/. */
#ifndef RANKFIT_PLANNER_CLI_VALIDATE_H
#define RANKFIT_PLANNER_CLI_VALIDATE_H

#include "base/json.h"
#include "base/tree.h"
#include "planner/cli/options.h"
#include "planner/cli/subject.h"

struct validation_kind {
    const char *schema; /* "rankfit.figures/1" */
    /* Judges a file. 1: all of it holds, 0: not all; -1: faults, in reterr. out: where text goes,
     * NULL: none is wanted. set: the set's object of the document, which has name and title; the
     * kind adds its rows. */
    int (*judge)(const struct node *root, FILE *out, struct json *set, struct diag_list *reterr);
};

int validate_figures(const struct node *root, FILE *out, struct json *set,
                     struct diag_list *reterr);
int validate_stages(const struct node *root, FILE *out, struct json *set, struct diag_list *reterr);
int validate_peaks(const struct node *root, FILE *out, struct json *set, struct diag_list *reterr);

/* A question of a file and its answer: a map in the form of a recipe, which may name one by the key
 * `recipe` and then wins over it. NULL on errors. */
struct posed {
    struct options options;
    struct subject *subject;
};
struct posed *posed_open(const struct node *map, struct diag_list *reterr);
void posed_free(struct posed *posed);

#endif
