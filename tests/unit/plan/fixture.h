/* fixture.h - a legal plan, a measurement, and files made of them with one thing changed. */
#ifndef RANKFIT_TESTS_UNIT_PLAN_FIXTURE_H
#define RANKFIT_TESTS_UNIT_PLAN_FIXTURE_H

#include "base/plan/plan.h"

/* tiny-moe on two ranks of the host, ep 2, zero1, routing 80:4; sealed. */
void fixture_plan(struct plan *ret);

/* Writes `text` as NAME with every `from` replaced by `to`; fails the test when there is none. */
void fixture_write_changed(const char *name, const char *text, const char *from, const char *to);

#endif
