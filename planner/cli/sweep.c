/* rankfit sweep */
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/progress.h"
#include "planner/cli/subject.h"
#include "planner/report/search_report.h"

#include "base/text.h"
#include "base/units.h"

#include <stdlib.h>

enum { TEXT_BYTES = 64, CELLS_MAX = 256 };

struct sweeping {
    const struct options *options;
    struct subject *first; /* facts of the first pair */
    int count;
    struct sweep_cell cells[CELLS_MAX];
    struct diag_list faults; /* of the first pair that is not legal */
};

/* Whether this pair was asked before, perhaps in other words: 4K and 4096. */
static bool is_repeated(const struct sweeping *s, const struct question *q)
{
    for (int i = 0; i < s->count; i++)
        if (s->cells[i].gpus == q->gpus && s->cells[i].seq_tokens == q->seq_tokens)
            return true;
    return false;
}

/* The next cell; its own faults make it illegal, not the sweep. */
static int fill_cell(struct sweeping *s, const struct subject *subject, struct diag_list *reterr)
{
    struct sweep_cell *cell = &s->cells[s->count];
    struct diag_list faults = { .count = 0 };
    struct answer *answer = calloc(1, sizeof *answer);
    if (!answer)
        return diag_no_memory(reterr);
    cell->gpus = subject->question.gpus;
    cell->seq_tokens = subject->question.seq_tokens;
    cell->limit_bytes = subject->prediction.limit_bytes;
    cell->legal = derive(&subject->question, answer, &faults) == 0;
    cell->candidate = answer->recommended;
    if (!cell->legal)
        (void)text_copy(cell->fault, sizeof cell->fault, faults.items[0].what);
    if (!cell->legal && s->faults.count == 0)
        s->faults = faults;
    s->count++;
    free(answer);
    diag_keep_no_memory(reterr, &faults);
    return faults.no_memory ? -1 : 0;
}

static int sweep_pair(struct sweeping *s, const char *gpus, const char *seq,
                      struct diag_list *reterr)
{
    struct options options = *s->options;
    options.value[OPTION_GPUS] = gpus;
    options.value[OPTION_SEQ] = seq;
    struct subject *subject = subject_open_question(&options, reterr);
    int rc = subject ? 0 : -1;
    if (subject && !is_repeated(s, &subject->question))
        rc = fill_cell(s, subject, reterr);
    if (subject && !s->first)
        s->first = subject;
    else
        subject_free(subject);
    return rc;
}

static int sweep_all(struct sweeping *s, struct diag_list *reterr)
{
    char gpus[TEXT_BYTES], seq[TEXT_BYTES];
    int all = option_count(s->options, OPTION_GPUS) * option_count(s->options, OPTION_SEQ);
    struct progress progress;
    int rc = 0;
    if (all > CELLS_MAX && reterr->errors == 0) {
        diag_error(reterr, s->options->at[OPTION_GPUS], "%d x %d pairs; a sweep has at most %d",
                   option_count(s->options, OPTION_GPUS), option_count(s->options, OPTION_SEQ),
                   (int)CELLS_MAX);
        return diag_hint(reterr, "ask for fewer numbers of GPUs or lengths, or in several sweeps");
    }
    progress_start(&progress, "sweeping");
    for (int g = 0; rc == 0 && option_item(s->options, OPTION_GPUS, g, gpus, sizeof gpus); g++)
        for (int q = 0; rc == 0 && option_item(s->options, OPTION_SEQ, q, seq, sizeof seq); q++) {
            rc = sweep_pair(s, gpus, seq, reterr);
            progress_tell(&progress, (double)s->count / all);
        }
    progress_end(&progress);
    return rc;
}

static int show(const struct sweeping *s, struct diag_list *reterr)
{
    const struct sweep sweep = { &s->first->prediction, s->count, s->cells };
    int fitting = 0, written = 0;
    for (int i = 0; i < s->count; i++)
        fitting += s->cells[i].legal && s->cells[i].candidate.verdict != VERDICT_DOES_NOT_FIT;
    if (options_has(s->options, OPTION_JSON)) {
        struct json *document = report_sweep_json(&sweep);
        written = output_json(document, reterr);
        json_free(document);
    } else {
        report_sweep_text(&sweep, output_style());
    }
    return written != 0 ? EXIT_SYSTEM : fitting > 0 ? EXIT_ANSWERED : EXIT_NO;
}

/* The faults of one pair stand for all. */
static void tell_illegal(const struct sweeping *s, struct diag_list *reterr)
{
    char tokens[TEXT_BYTES];
    diag_append(reterr, &s->faults);
    if (s->count == 1)
        return;
    diag_error(reterr, (struct pos){ 0 }, "no pair of this sweep has a legal layout");
    diag_hint(reterr, "the faults above are those of %d GPUs and %s tokens", s->cells[0].gpus,
              units_format_count(tokens, sizeof tokens, s->cells[0].seq_tokens));
}

/* Without --gpus and --seq the question itself tells that they are missing. */
static int sweep_or_tell(struct sweeping *s, struct diag_list *reterr)
{
    const struct options *options = s->options;
    if (!options_has(options, OPTION_GPUS) || !options_has(options, OPTION_SEQ)) {
        subject_free(subject_open_question(options, reterr));
        return EXIT_QUESTION;
    }
    if (sweep_all(s, reterr) != 0)
        return EXIT_QUESTION;
    for (int i = 0; i < s->count; i++)
        if (s->cells[i].legal)
            return show(s, reterr);
    tell_illegal(s, reterr);
    return EXIT_QUESTION;
}

int command_sweep(const struct options *options, struct diag_list *reterr)
{
    struct sweeping *s = calloc(1, sizeof *s);
    if (!s) {
        diag_no_memory(reterr);
        return EXIT_SYSTEM;
    }
    s->options = options;
    int status = sweep_or_tell(s, reterr);
    subject_free(s->first);
    free(s);
    return status;
}
