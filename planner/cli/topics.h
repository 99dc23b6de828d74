/* topics.h - explain for names that other engines use and this one answers under others. */
#ifndef RANKFIT_PLANNER_CLI_TOPICS_H
#define RANKFIT_PLANNER_CLI_TOPICS_H

#include "base/json.h"
#include "planner/report/prediction.h"

#include <stddef.h>

/* Fills {kind: topic, name, meaning, here, see}, with a prediction in_this_plan where there is
 * something; false: there is no such topic. */
bool topic_explain(const char *name, const struct prediction *prediction, struct json *ret);
/* The i-th name, or NULL past the last. */
const char *topic_name(size_t i);

#endif
