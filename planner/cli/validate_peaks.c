/* Sets of schema rankfit.peaks/1: public peaks of another engine's runs beside predictions. */
#include "planner/cli/validate.h"
#include "planner/report/peaks_report.h"

#include <stdlib.h>

struct work {
    struct posed *posed[PEAKS_MAX];
    struct peaks peaks;
};

static int answer(struct work *work, struct diag_list *reterr)
{
    int before = reterr->errors;
    for (int i = 0; i < work->peaks.count; i++) {
        work->posed[i] = posed_open(work->peaks.run[i].question, reterr);
        if (work->posed[i])
            work->peaks.run[i].prediction = &work->posed[i]->subject->prediction;
    }
    return reterr->errors > before ? -1 : 0;
}

static int judge(const struct node *root, struct work *work, FILE *out, struct json *set,
                 struct diag_list *reterr)
{
    if (peaks_read(root, &work->peaks, reterr) != 0 || answer(work, reterr) != 0 ||
        peaks_judge(&work->peaks, reterr) != 0)
        return -1;
    peaks_add_json(&work->peaks, set);
    if (out)
        report_peaks_text(&work->peaks, out);
    return work->peaks.hold;
}

int validate_peaks(const struct node *root, FILE *out, struct json *set, struct diag_list *reterr)
{
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        return diag_no_memory(reterr);
    int ret = judge(root, work, out, set, reterr);
    for (int i = 0; i < PEAKS_MAX; i++)
        posed_free(work->posed[i]);
    free(work);
    return ret;
}
