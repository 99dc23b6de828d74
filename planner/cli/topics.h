/* topics.h - explain for names that other engines use and this one answers under others. */
#ifndef RANKFIT_PLANNER_CLI_TOPICS_H
#define RANKFIT_PLANNER_CLI_TOPICS_H

#include "planner/report/prediction.h"

#include <jansson.h>
#include <stddef.h>

/* {kind: topic, name, meaning, here, see}, with a prediction in_this_plan where there is something;
 * or NULL. */
json_t *topic_explain(const char *name, const struct prediction *prediction);
/* The i-th name, or NULL past the last. */
const char *topic_name(size_t i);

#endif
