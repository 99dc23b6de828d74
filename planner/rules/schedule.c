/* schedule.c - formulas of what waits for whom. */
#include "planner/rules/formula.h"

/* One forward, one backward: of m + P - 1 slots P - 1 are idle. A share of the step. */
double formula_pipeline_bubble(const double *in)
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

/* The fullest rank's load over that of a rank on the mean. */
double formula_load_skew(const double *in)
{
    double fullest = in[0], mean = in[1];
    return fullest / mean;
}

/* Experts cut over etp ranks give each of them the mean of their loads: the fullest rank's A, and
 * the load of the etp - 1 that join it, become (A + (etp - 1) beside) / etp. As no load beside is
 * above A, this is at most A; the mean over all ranks stays, so skews compare alike. */
double formula_tensor_skew(const double *in)
{
    double fullest = in[0], beside = in[1], etp = in[2];
    return (fullest + (etp - 1) * beside) / etp / fullest;
}

/* An expert that is cut over etp ranks has products so wide. */
double formula_tensor_width(const double *in)
{
    double width = in[0], etp = in[1];
    return width / etp;
}

/* Sequences over GPUs. */
double formula_rank_tokens(const double *in)
{
    double seq = in[0], sequences = in[1], gpus = in[2];
    return seq * sequences / gpus;
}

/* A figure that somebody measured: no formula leads to it. */
double formula_as_measured(const double *in)
{
    return in[0];
}
