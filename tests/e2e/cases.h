/* cases.h - questions of people who lay out jobs, asked of the built program: one function a case
 * in test_cases_*.c, named after what was asked, with its source as owner/repo#number. */
#ifndef RANKFIT_TESTS_E2E_CASES_H
#define RANKFIT_TESTS_E2E_CASES_H

#include <jansson.h>
#include <stdbool.h>

/* The document of `rankfit plan --json ARGUMENTS`, whatever its verdict, which must be `verdict`.
 */
json_t *case_plan(const char *arguments, const char *verdict);
/* The same without a demand on the verdict: a budget's document. */
json_t *case_budget(const char *arguments);

/* Bytes of an item at the peak, and its own maximum, of the first group of ranks; 0 where the item
 * is named among those that there are none of. Either document. */
double case_item(json_t *document, const char *item);
double case_item_most(json_t *document, const char *item);
/* "ranks" of either document; a category of its group. */
json_t *case_ranks(json_t *document);
double case_rank_number(json_t *document, int group, const char *key);

/* The layout is refused with exit status 2, in the words of the golden file. */
void case_refused(const char *arguments);
/* It is legal, and standard error is that of the golden file. */
void case_warned(const char *arguments);
/* `rankfit explain NAME` as in the golden file. */
void case_explained(const char *name);

/* What would fit instead, by the key that changes: "gpus", or a text of "set". */
bool case_offers(json_t *plan, const char *what);
/* How many warnings the plan has; their sentences are those of the golden file. */
size_t case_warnings(const char *title, json_t *plan);
/* The reason of a choice is that of the golden file. */
void case_reason(const char *title, json_t *plan, const char *choice);
#endif
