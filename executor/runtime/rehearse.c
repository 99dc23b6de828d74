#include "executor/runtime/rehearse.h"

#include <string.h>

static const struct pos nowhere = { NULL, 0, 0 };

static int check_files(const struct run_options *options, struct diag_list *reterr)
{
    int errors = reterr->errors;

    if (options->save)
        diag_error(reterr, nowhere, "--save: of a rehearsal there are no weights to save");
    if (options->dump)
        diag_error(reterr, nowhere, "--dump: of a rehearsal there are no results to keep");
    return reterr->errors == errors ? 0 : -1;
}

int rehearse_open(struct rehearse *rehearse, const struct run_options *options,
                  const struct plan *plan, int started, struct diag_list *reterr)
{
    int world = layout_world(&plan->choices.layout), errors = reterr->errors;

    *rehearse = (struct rehearse){ 0 };
    if (options->rank < 0) {
        if (options->replay_rows)
            return diag_error(reterr, nowhere, "--replay-rows is for a rehearsal: --rank N");
        return 0;
    }
    if (started != 1)
        diag_error(reterr, nowhere, "a rehearsal is one process, %d were started", started);
    if (options->rank >= world) {
        diag_error(reterr, (struct pos){ .file = options->plan },
                   "the plan has no rank %d to rehearse", (int)options->rank);
        return diag_hint(reterr, "its ranks are 0 to %d", world - 1);
    }
    (void)check_files(options, reterr);
    rehearse->world = (struct rehearsal_world){ .hardware = &plan->hardware,
                                                .rank = (int)options->rank,
                                                .world = world };
    if (options->replay_rows)
        (void)peers_read_rows(options->replay_rows, plan, (int)options->rank,
                              &rehearse->measurement, &rehearse->rows, reterr);
    return reterr->errors == errors ? 0 : -1;
}

int rehearse_cast(struct rehearse *rehearse, const struct run_options *options,
                  const struct plan *plan, const struct choice_book *book, struct diag_list *reterr)
{
    const struct peers_question question = { .plan = plan,
                                             .rank = rehearse->world.rank,
                                             .seed = (uint64_t)options->seed,
                                             .book = book,
                                             .replay = rehearse->rows };
    return peers_open(&question, &rehearse->peers, reterr);
}

void rehearse_close(struct rehearse *rehearse)
{
    peers_close(rehearse->peers);
    measurement_done(&rehearse->measurement);
    memset(rehearse, 0, sizeof *rehearse);
}
