/* check.h - the judgement of a launch: exactly its layout, and the layouts near to it. */
#ifndef RANKFIT_PLANNER_CLI_CHECK_H
#define RANKFIT_PLANNER_CLI_CHECK_H

#include "base/json.h"
#include "planner/cli/subject.h"
#include "planner/launch/read.h"
#include "planner/report/text.h"

enum { CHECK_SAVINGS = 8 };

/* A change of the launch that fits and shortens the step. */
struct saving {
    char change[160];
    double share; /* of the step's time, 0..1 */
    uint64_t peak_bytes;
};

struct check {
    const struct launch_file *file;
    struct subject *subject;
    struct diag_list illegal; /* errors of the layout's rules and of the engine's own */
    bool judged;              /* the layout is legal: subject has its prediction */
    int saving_count;
    struct saving savings[CHECK_SAVINGS];
    bool has_other; /* the best layout with every degree open fits */
    struct candidate other;
};

/* Exit status of a judgement. */
int check_status(const struct check *check);
void check_print(const struct check *check, struct text_style style);
struct json *check_json(const struct check *check);

#endif
