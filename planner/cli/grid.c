/* rankfit grid */
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/progress.h"
#include "planner/cli/subject.h"
#include "planner/report/search_report.h"
#include "planner/search/space.h"

#include <stdio.h>
#include <stdlib.h>

enum { CELLS_MAX = 4096 };

struct gridding {
    const struct options *options;
    struct subject *subject;
    struct space space;
    struct search_result result;
    int count;
    struct grid_cell *cells;
};

/* The question with these degrees, and with or without recompute, as if the user had said so. */
static void narrow(const struct question *q, const struct grid_cell *cell, const char *recompute,
                   struct question *ret)
{
    const struct {
        const char *key;
        int value;
    } degrees[] = {
        { "tp", cell->tp }, { "cp", cell->cp }, { "pp", cell->pp }, { "ep", cell->ep }
    };
    struct diag_list ignored = { .count = 0 };
    *ret = *q;
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", degrees[i].value);
        if (!choice_is_fixed(&ret->fixed, degrees[i].key))
            (void)choice_set(&ret->fixed, degrees[i].key, text, (struct pos){ 0 }, &ignored);
    }
    if (!choice_is_fixed(&ret->fixed, "recompute"))
        (void)choice_set(&ret->fixed, "recompute", recompute, (struct pos){ 0 }, &ignored);
}

/* The best that fits, or, where nothing does, the smallest. */
static int fill(struct gridding *g, struct grid_cell *cell, const char *recompute,
                struct candidate *ret, bool *ret_fits, struct diag_list *reterr)
{
    struct search_options options = { .threads = 1, .fits_only = true, .fastest = true };
    struct question q;
    narrow(&g->subject->question, cell, recompute, &q);
    int rc = search_run(&q, &options, &g->result, reterr);
    *ret_fits = g->result.any && g->result.best.verdict == VERDICT_FITS;
    if (rc == 0 && !g->result.any) {
        options = (struct search_options){ .threads = 1, .fastest = true };
        rc = search_run(&q, &options, &g->result, reterr);
    }
    cell->legal = cell->legal || g->result.any;
    *ret = g->result.best;
    return rc;
}

static int fill_cell(struct gridding *g, const struct degrees *degrees, struct diag_list *reterr)
{
    struct grid_cell *cell = &g->cells[g->count];
    *cell = (struct grid_cell){
        .tp = degrees->tp, .cp = degrees->cp, .pp = degrees->pp, .ep = degrees->ep
    };
    if (fill(g, cell, "none", &cell->kept, &cell->keeps, reterr) != 0 ||
        fill(g, cell, "full", &cell->recomputed, &cell->recomputes, reterr) != 0)
        return -1;
    g->count++;
    return 0;
}

/* Every ep and pp of one tp and cp. */
static int fill_row(struct gridding *g, struct degrees degrees, struct diag_list *reterr)
{
    int pps[SPACE_MAX_DIVISORS], eps[SPACE_MAX_DIVISORS];
    const int gpus = g->space.q->gpus, cp = degrees.cp;
    int pp_count = space_degree_values(&g->space, DEGREE_PP, &degrees, pps);
    for (int p = 0; p < pp_count; p++) {
        degrees.pp = pps[p];
        int ep_count = space_degree_values(&g->space, DEGREE_EP, &degrees, eps);
        for (int e = 0; e < ep_count && g->count < CELLS_MAX; e++) {
            degrees.ep = eps[e];
            if (gpus % (degrees.tp * degrees.pp * cp) == 0 && fill_cell(g, &degrees, reterr) != 0)
                return -1;
        }
    }
    return 0;
}

static int fill_all(struct gridding *g, struct diag_list *reterr)
{
    struct degrees degrees = space_fixed_degrees(&g->space), outer;
    int tps[SPACE_MAX_DIVISORS], cps[SPACE_MAX_DIVISORS];
    int tp_count = space_degree_values(&g->space, DEGREE_TP, &degrees, tps), rc = 0;
    struct progress progress;
    progress_start(&progress, "filling the grid");
    for (int t = 0; t < tp_count && rc == 0; t++) {
        degrees.tp = tps[t];
        outer = degrees;
        outer.pp = g->space.open_pp ? 1 : degrees.pp;
        int cp_count = space_degree_values(&g->space, DEGREE_CP, &outer, cps);
        for (int c = 0; c < cp_count && rc == 0; c++) {
            degrees.cp = cps[c];
            rc = fill_row(g, degrees, reterr);
            progress_tell(&progress, (t + (double)(c + 1) / cp_count) / tp_count);
        }
    }
    progress_end(&progress);
    return rc;
}

static int show(const struct gridding *g, struct diag_list *reterr)
{
    const struct grid grid = { &g->subject->prediction, g->count, g->cells };
    bool fits = false, legal = false;
    for (int i = 0; i < g->count; i++) {
        fits = fits || g->cells[i].keeps || g->cells[i].recomputes;
        legal = legal || g->cells[i].legal;
    }
    if (!legal) {
        struct answer *answer = calloc(1, sizeof *answer);
        if (answer)
            (void)derive(&g->subject->question, answer, reterr);
        free(answer);
        return EXIT_QUESTION;
    }
    if (options_has(g->options, OPTION_JSON)) {
        struct json *document = report_grid_json(&grid);
        int written = output_json(document, reterr);
        json_free(document);
        if (written != 0)
            return EXIT_SYSTEM;
    } else {
        report_grid_text(&grid, output_style());
    }
    return fits ? EXIT_ANSWERED : EXIT_NO;
}

int command_grid(const struct options *options, struct diag_list *reterr)
{
    struct gridding *g = calloc(1, sizeof *g);
    int status = EXIT_SYSTEM;
    if (g)
        g->cells = calloc(CELLS_MAX, sizeof *g->cells);
    if (!g || !g->cells) {
        diag_no_memory(reterr);
        free(g);
        return status;
    }
    g->options = options;
    g->subject = subject_open_question(options, reterr);
    status = EXIT_QUESTION;
    if (g->subject) {
        space_init(&g->space, &g->subject->question);
        status = fill_all(g, reterr) == 0 ? show(g, reterr) : EXIT_SYSTEM;
    }
    subject_free(g->subject);
    free(g->cells);
    free(g);
    return status;
}
