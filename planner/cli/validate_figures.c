/* Sets of schema rankfit.figures/1: published figures and the questions that rankfit answers
 * itself. */
#include "planner/cli/validate.h"
#include "planner/report/validation_report.h"

#include <stdlib.h>

enum { MAX_QUESTIONS = 32 };

/* Everything that judging a file needs. */
struct work {
    struct posed *posed[MAX_QUESTIONS];
    struct answered answered[MAX_QUESTIONS];
    size_t count;
    struct figures figures;
};

static int answer_questions(const struct node *root, struct work *work, struct diag_list *reterr)
{
    const struct node *questions = NULL;
    int before = reterr->errors;
    if (node_map(root, "questions", &questions, reterr) < 0)
        return -1;
    for (const struct node *node = questions ? questions->child : NULL; node; node = node->next) {
        if (work->count == MAX_QUESTIONS)
            return diag_error(reterr, node->at, "more than %d questions", MAX_QUESTIONS);
        struct posed *posed = posed_open(node, reterr);
        if (!posed)
            continue;
        work->posed[work->count] = posed;
        work->answered[work->count++] = (struct answered){ node->key, &posed->subject->prediction };
    }
    return reterr->errors > before ? -1 : 0;
}

static int judge(const struct node *root, struct work *work, FILE *out, struct json *set,
                 struct diag_list *reterr)
{
    static const char *const known[] = { "schema", "title", "questions", "figures" };
    if (node_check_keys(root, known, sizeof known / sizeof *known, reterr) != 0 ||
        answer_questions(root, work, reterr) != 0 ||
        figures_judge(root, work->answered, work->count, &work->figures, reterr) != 0)
        return -1;
    json_put(set, "figures", figures_to_json(&work->figures));
    if (out)
        report_figures_text(&work->figures, out);
    return work->figures.hold;
}

int validate_figures(const struct node *root, FILE *out, struct json *set, struct diag_list *reterr)
{
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        return diag_no_memory(reterr);
    int ret = judge(root, work, out, set, reterr);
    for (size_t i = 0; i < work->count; i++)
        posed_free(work->posed[i]);
    free(work);
    return ret;
}
