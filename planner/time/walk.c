/* walk.c - the operations of a pass on the clocks of host and device. */
#include "planner/time/cost.h"

#include <math.h>

void walk_begin(struct walk *w, const struct machine *machine, struct pass *pass)
{
    *w = (struct walk){ .machine = machine, .pass = pass };
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* Of n equal operations the last ends at the latest of: all of them from now, all of them from the
 * first launch, the last one from its launch. */
static void run(struct walk *w, enum time_item item, double calls, double launch, double seconds)
{
    double all = later(w->device, w->host + launch) + seconds;
    w->host += calls * launch;
    w->device = later(all, w->host + seconds / calls);
    w->busy += seconds;
    w->pass->item[item] += seconds;
}

void walk_run(struct walk *w, enum time_item item, double calls, double seconds)
{
    run(w, item, calls, w->machine->launch, seconds);
}

/* Latency, operands and FLOPs of matmuls hide behind each other: the longest of the three, more
 * where they are close. On an H200 8.3 % RMS over 45 dense shapes, where their sum is 9.8 % off,
 * and 5.9 % over 27 of experts with 1,024 rows and more each, where it is 15. */
static double beside(double calls, double flops, double bytes)
{
    return cbrt(calls * calls * calls + flops * flops * flops + bytes * bytes * bytes);
}

void walk_multiply(struct walk *w, enum time_item item, double calls, double flops, double bytes)
{
    const struct machine *at = w->machine;
    run(w, item, calls, at->product_launch,
        beside(calls * at->call, flops * at->flop, bytes * at->operand_byte));
}

void walk_product(struct walk *w, enum time_item item, double m, double n, double k, double c_bytes)
{
    walk_multiply(w, item, 1, 2 * m * n * k, 2 * (m * k + n * k) + c_bytes * m * n);
}

/* Operands: rows of n and of k elements, bf16, and the weights. */
void walk_experts(struct walk *w, double experts, double rows, double n, double k,
                  double weight_bytes)
{
    const struct machine *at = w->machine;
    double bytes = 2 * rows * (n + k) + weight_bytes * experts * n * k;
    double flop = at->expert_flop, filled = over(rows, experts * at->plateau);
    if (at->plateau > 0 && filled < 1)
        flop = over(flop, filled);
    run(w, TIME_EXPERTS, experts, at->product_launch,
        beside(experts * at->expert_call, 2 * rows * n * k * flop,
               bytes * at->expert_operand_byte));
}

void walk_moves(struct walk *w, enum time_item item, double calls, double bytes)
{
    walk_run(w, item, calls, calls * w->machine->kernel + bytes * w->machine->moved_byte);
}

void walk_move(struct walk *w, enum time_item item, double bytes)
{
    walk_moves(w, item, 1, bytes);
}

/* One more launch brings the value, and the host goes on when it is there. */
void walk_read(struct walk *w, int times)
{
    double launch = w->machine->launch;
    w->device = later(w->device, w->host + launch) + 2 * (times - 1) * launch;
    w->host = w->device + launch;
}

void walk_end(struct walk *w)
{
    w->pass->item[TIME_HOST] += later(w->device - w->busy, 0);
}

double pass_seconds(const struct pass *pass)
{
    double sum = 0;
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        sum += pass->item[i];
    return sum;
}

double compute_seconds(const struct pass *pass)
{
    double sum = pass->item[TIME_HOST];
    for (int i = TIME_MATMUL; i <= TIME_ELEMENTWISE; i++)
        sum += pass->item[i];
    return sum;
}
