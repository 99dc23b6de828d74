/* Sets of schema rankfit.stages/1: measured runs of other engines beside predictions. */
#include "planner/cli/validate.h"
#include "planner/report/stages_report.h"

#include <stdlib.h>

struct work {
    struct posed *posed[STAGES_MAX];
    struct stages stages;
};

static int answer(struct work *work, struct diag_list *reterr)
{
    int before = reterr->errors;
    for (int i = 0; i < work->stages.run_count; i++) {
        work->posed[i] = posed_open(work->stages.run[i].question, reterr);
        if (work->posed[i])
            work->stages.run[i].prediction = &work->posed[i]->subject->prediction;
    }
    return reterr->errors > before ? -1 : 0;
}

static int judge(const struct node *root, struct work *work, FILE *out, struct json *set,
                 struct diag_list *reterr)
{
    if (stages_read(root, &work->stages, reterr) != 0 || answer(work, reterr) != 0 ||
        stages_judge(&work->stages, reterr) != 0)
        return -1;
    stages_add_json(&work->stages, set);
    if (out)
        report_stages_text(&work->stages, out);
    return work->stages.hold;
}

int validate_stages(const struct node *root, FILE *out, struct json *set, struct diag_list *reterr)
{
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        return diag_no_memory(reterr);
    int ret = judge(root, work, out, set, reterr);
    for (int i = 0; i < STAGES_MAX; i++)
        posed_free(work->posed[i]);
    free(work);
    return ret;
}
