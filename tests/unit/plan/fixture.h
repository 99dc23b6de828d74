/* fixture.h - a legal plan, a measurement, and files made of them with one thing changed. */
#ifndef RANKFIT_TESTS_UNIT_PLAN_FIXTURE_H
#define RANKFIT_TESTS_UNIT_PLAN_FIXTURE_H

#include "base/plan/plan.h"

/* tiny-moe on two ranks of the host, ep 2, zero1, routing 80:4; sealed. */
void fixture_plan(struct plan *ret);

/* cmocka's setup and teardown: an empty directory to work in. */
int fixture_enter(void **state);
int fixture_leave(void **state);

/* Writes `text` as NAME with every `from` replaced by `to`; fails the test when there is none. */
void fixture_write_changed(const char *name, const char *text, const char *from, const char *to);

/* What diag_list_print would print; to be freed. */
char *fixture_print(const struct diag_list *list);

#endif
