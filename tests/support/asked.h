/* asked.h - a predictor for one question of a test. */
#ifndef RANKFIT_TESTS_SUPPORT_ASKED_H
#define RANKFIT_TESTS_SUPPORT_ASKED_H

#include "planner/predict/predictor.h"

/* A fresh predictor that was told this input's choices and measurement. Valid until the next call;
 * the process ends when there is no memory. */
struct predictor *asked(const struct budget_input *in);

#endif
