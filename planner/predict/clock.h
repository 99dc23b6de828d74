/* clock.h - seconds of single operations, and of operations in a row: the host puts them on the
 * device's queue, the device works through it. Two clocks, so that what the host adds shows where
 * it does. */
#ifndef RANKFIT_PLANNER_PREDICT_CLOCK_H
#define RANKFIT_PLANNER_PREDICT_CLOCK_H

#include "planner/predict/step_time.h"

/* What one unit of work takes on this machine for this model and sequence, taken once for a step.
 */
struct machine {
    double flop, expert_flop;                 /* seconds per FLOP of GEMMs */
    double attention_flop, attention_back;    /* of attention over very many keys, each direction */
    double operand_byte, expert_operand_byte; /* seconds per byte of a GEMM's operands */
    double moved_byte;                        /* of elementwise kernels */
    double call, expert_call, kernel;         /* seconds of one call, in addition to its work */
    double launch, product_launch;            /* host's seconds for one operation, one GEMM */
    double plateau;                           /* rows an expert of full efficiency; 0: any */
};
void machine_init(const struct budget_input *in, struct machine *ret);
/* Seconds per FLOP of attention over as many keys as one call of this layout sees. */
void attention_rates(const struct budget_input *in, const struct machine *machine,
                     double *ret_forward, double *ret_backward);

/* One pass: seconds of each time item that the pass itself knows. */
struct pass {
    double item[TIME_ITEM_COUNT];
};
double pass_seconds(const struct pass *pass);
/* Sum of the items that keep the device at work or waiting for its host. */
double compute_seconds(const struct pass *pass);

struct clock {
    const struct machine *machine;
    struct pass *pass;
    double device, host, busy;
};
void clock_begin(struct clock *c, const struct machine *machine, struct pass *pass);
/* `calls` operations that take `seconds` together. */
void clock_run(struct clock *c, enum time_item item, double calls, double seconds);
/* The same, launched as GEMMs are. */
void clock_run_products(struct clock *c, enum time_item item, double calls, double seconds);
/* Seconds of `calls` GEMMs of `flops` and `bytes` of operands in all. */
double product_seconds(const struct machine *machine, double calls, double flops, double bytes);
void clock_multiply(struct clock *c, enum time_item item, double calls, double flops, double bytes);
/* A GEMM of c[m, n] over k; c_bytes: of one element of c, counted twice where it is added to. */
void clock_product(struct clock *c, enum time_item item, double m, double n, double k,
                   double c_bytes);
/* One GEMM for each expert and chunk, `experts` of them over `rows` rows in all, each with a weight
 * of n x k; weight_bytes: read or written for an element of it. */
void clock_experts(struct clock *c, double experts, double rows, double n, double k,
                   double weight_bytes);
/* `calls` elementwise kernels that read and write `bytes` together. */
void clock_move(struct clock *c, enum time_item item, double calls, double bytes);
/* The host waits for the device `times` times: it reads what was just computed. */
void clock_read(struct clock *c, double times);
/* Writes down what the host added. */
void clock_end(struct clock *c);

#endif
