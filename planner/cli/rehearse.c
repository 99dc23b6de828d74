/* rankfit rehearse: one process plays one rank of a plan, whatever its world. */
#include "planner/cli/command.h"
#include "planner/cli/run.h"

/* The rank asked for; else the one with the highest predicted peak. */
static int choose_rank(const struct options *options, const struct prediction *prediction,
                       struct diag_list *reterr)
{
    int worst = prediction_worst(prediction)->rank;
    int rank = (int)option_number(options, OPTION_RANK, worst);

    if (rank < prediction->plan.gpus)
        return rank;
    diag_error(reterr, options->at[OPTION_RANK], "there is no rank %d: the ranks are 0 to %d", rank,
               prediction->plan.gpus - 1);
    return diag_hint(reterr, "without --rank it is the one with the highest peak, %d", worst);
}

int command_rehearse(const struct options *options, struct diag_list *reterr)
{
    return run_once(options, choose_rank, reterr);
}
