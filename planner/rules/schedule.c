/* schedule.c - formulas of what waits for whom. */
#include "planner/rules/formula.h"

/* One forward, one backward: of m + P - 1 slots P - 1 are idle. A share of the step. */
double formula_bubble(const double *in)
{
    double stages = in[0], micro_batches = in[1];
    return (stages - 1) / (micro_batches + stages - 1);
}

/* The same against the work of m slots. */
double formula_bubble_over_work(const double *in)
{
    double stages = in[0], micro_batches = in[1];
    return (stages - 1) / micro_batches;
}

/* The bubble solved for m. */
double formula_micro_batches_for(const double *in)
{
    double stages = in[0], share = in[1];
    return (stages - 1) * (1 - share) / share;
}

/* Of L layers the first gather and the last reduction have nothing before or behind them. */
double formula_edge(const double *in)
{
    double layers = in[0];
    return 1 / layers;
}

/* Of n chunks' exchanges all but one hide: n / (n + 1) of ramp, chunks and drain. */
double formula_chunk_overlap(const double *in)
{
    double chunks = in[0];
    return chunks / (chunks + 1);
}

/* Expert tensor parallelism gives each of etp ranks their mean load: the fullest rank's load A and
 * that of the etp - 1 beside it become (A + beside) / etp, over A. Every load beside is at most A,
 * so it is at most 1; skews compare alike, since the mean over all ranks stays. */
double formula_tensor_skew(const double *in)
{
    double fullest = in[0], beside = in[1], etp = in[2];
    return (fullest + beside) / etp / fullest;
}

/* The price: a routed row goes to all etp ranks of its group. */
double formula_tensor_copies(const double *in)
{
    double etp = in[0];
    return etp;
}

/* And products become narrower. */
double formula_tensor_width(const double *in)
{
    double width = in[0], etp = in[1];
    return width / etp;
}

/* A figure that somebody measured: no formula leads to it. */
double formula_as_measured(const double *in)
{
    return in[0];
}
