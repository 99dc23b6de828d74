#include "planner/predict/layer_seconds.h"

#include "base/layout/trained.h"

/* One operation with what it is timed by. */
struct timed {
    const struct step_op *op, *of; /* of: the GEMM that op is a gradient of */
    const struct layer_rates *rates;
    struct clock *clock;
};

static double rows_of(const struct layer_rates *r, uint8_t rows)
{
    return (double)r->sizes->rows[rows];
}

static double width_of(const struct layer_rates *r, uint8_t width)
{
    return (double)r->sizes->width[width];
}

/* A GEMM [rows, k] x [k, n] as its forward has it. */
struct gemm {
    double rows, n, k, parts; /* parts: matrices with adapters of their own */
    bool grouped, trained, adapted, absorbed;
};

static struct gemm gemm_of(const struct step_op *op, const struct layer_rates *r)
{
    enum component component = (enum component)op->gemm.component;
    return (struct gemm){ .rows = rows_of(r, op->gemm.rows) * width_of(r, op->gemm.times),
                          .n = width_of(r, op->gemm.n),
                          .k = width_of(r, op->gemm.k),
                          .parts = op->gemm.adapters ? width_of(r, op->gemm.adapters) : 0,
                          .grouped = op->kind == OP_GROUPED,
                          .absorbed = op->gemm.absorbed,
                          .trained = has_component(r->trained, component),
                          .adapted = op->gemm.adapters && has_component(r->adapted, component) };
}

/* GEMMs of routed experts in a pass, one for each expert and chunk. */
static double expert_calls(const struct timed *t)
{
    return t->rates->experts * t->rates->sizes->chunks.count;
}

/* y = x W + (x A) B with A [k, r] and B [r, n]: one GEMM for the x A of all parts, and (x A) B of
 * each part, added to y. */
static void adapter_forward(const struct timed *t, const struct gemm *g)
{
    double r = (double)t->rates->sizes->adapter_rank, all = g->parts * r;
    if (!g->adapted)
        return;
    if (g->grouped) {
        clock_experts(t->clock, expert_calls(t), g->rows, all, g->k, 2);
        clock_experts(t->clock, g->parts * expert_calls(t), g->rows, g->n, r, 2);
        return;
    }
    clock_product(t->clock, TIME_MATMUL, g->rows, all, g->k, 2);
    clock_multiply(t->clock, TIME_MATMUL, g->parts, 2 * g->rows * r * g->n,
                   2 * (g->rows * all + r * g->n) + 4 * g->rows * g->n);
}

/* x A again, where x is there for the gradient of A; dB, d(x A); dA, and dx added to. */
static void adapter_backward(const struct timed *t, const struct gemm *g)
{
    double r = (double)t->rates->sizes->adapter_rank, all = g->parts * r;
    double rows = g->rows, added = 2 * t->rates->gradient_bytes, flops = 2 * rows * r * g->n;
    struct clock *c = t->clock;
    if (!g->adapted)
        return;
    if (g->grouped) {
        double calls = expert_calls(t);
        clock_experts(c, calls, rows, all, g->k, 2);
        clock_experts(c, g->parts * calls, rows, g->n, r, added);
        clock_experts(c, g->parts * calls, rows, g->n, r, 2);
        clock_experts(c, calls, rows, all, g->k, added);
        clock_experts(c, calls, rows, all, g->k, 2);
        return;
    }
    clock_product(c, TIME_MATMUL, rows, all, g->k, 2);
    clock_multiply(c, TIME_MATMUL, g->parts, flops, 2 * rows * (all + g->n) + added * r * g->n);
    clock_multiply(c, TIME_MATMUL, g->parts, flops, 2 * (rows * (g->n + all) + r * g->n));
    clock_product(c, TIME_MATMUL, all, g->k, rows, added);
    clock_product(c, TIME_MATMUL, rows, g->k, all, 4);
}

static void time_gemm(const struct timed *t)
{
    struct gemm g = gemm_of(t->op, t->rates);
    if (g.grouped)
        clock_experts(t->clock, expert_calls(t), g.rows, g.n, g.k, 2);
    else if (!g.absorbed)
        clock_product(t->clock, (enum time_item)t->op->time_item, g.rows, g.n, g.k,
                      t->op->gemm.result_bytes);
    adapter_forward(t, &g);
}

/* A frozen weight has no gradient. */
static void time_weight(const struct timed *t)
{
    struct gemm g = gemm_of(t->of, t->rates);
    double added = 2 * t->rates->gradient_bytes;
    if (!g.trained || g.absorbed)
        return;
    if (g.grouped)
        clock_experts(t->clock, expert_calls(t), g.rows, g.n, g.k, added);
    else
        clock_product(t->clock, (enum time_item)t->op->time_item, g.n, g.k, g.rows, added);
}

static void time_input(const struct timed *t)
{
    struct gemm g = gemm_of(t->of, t->rates);
    if (g.grouped)
        clock_experts(t->clock, expert_calls(t), g.rows, g.k, g.n, 2);
    else if (!g.absorbed)
        clock_product(t->clock, (enum time_item)t->op->time_item, g.rows, g.k, g.n,
                      t->op->gemm.result_bytes);
    adapter_backward(t, &g);
}

static void time_elementwise(const struct timed *t)
{
    double bytes = 0, calls = 1;
    for (int i = 0; i < OP_TRAFFIC; i++) {
        const struct step_traffic *traffic = &t->op->traffic[i];
        bytes += traffic->coefficient * rows_of(t->rates, traffic->rows) *
                 width_of(t->rates, traffic->width);
    }
    if (t->op->calls == CALLS_CHUNKS)
        calls = t->rates->sizes->chunks.count;
    clock_move(t->clock, (enum time_item)t->op->time_item, calls, bytes);
}

static void time_kernel(const struct timed *t)
{
    const struct kernel_seconds *work = &t->rates->work[t->op->work];
    enum time_item item = (enum time_item)t->op->time_item;
    if (work->product)
        clock_run_products(t->clock, item, work->calls, work->seconds);
    else
        clock_run(t->clock, item, work->calls, work->seconds);
}

static void time_op(const struct timed *t)
{
    switch ((enum step_op_kind)t->op->kind) {
    case OP_GEMM:
    case OP_GROUPED:
        time_gemm(t);
        break;
    case OP_WGRAD:
        time_weight(t);
        break;
    case OP_DGRAD:
        time_input(t);
        break;
    case OP_ELEMENTWISE:
        time_elementwise(t);
        break;
    case OP_KERNEL:
        time_kernel(t);
        break;
    case OP_READ:
        clock_read(t->clock, t->rates->sizes->chunks.count);
        break;
    case OP_MARK:
    case OP_LINK:
        break;
    }
}

static double positive(double value)
{
    return value > 0 ? value : 0;
}

/* Collectives of the pass, beyond what they hide behind: blocks that circulate behind attention, of
 * chunks a share of the shorter of exchange and experts. */
static void add_links(const struct step_sequence *s, const struct layer_rates *r, struct pass *ret)
{
    double exchange = 0;
    for (int i = 0; i < s->count; i++) {
        const struct step_op *op = s->ops[i].op;
        if (op->kind != OP_LINK)
            continue;
        double seconds = r->link[op->link];
        if (op->link == LINK_RING || op->link == LINK_RING_BACK)
            seconds = positive(seconds - ret->item[TIME_ATTENTION]);
        if (op->time_item == TIME_EXPOSED_EXCHANGE)
            exchange += seconds;
        else
            ret->item[op->time_item] += seconds;
    }
    double experts = ret->item[TIME_EXPERTS];
    ret->item[TIME_EXPOSED_EXCHANGE] +=
        exchange - r->exchange_overlap * (exchange < experts ? exchange : experts);
}

void layer_seconds_fold(const struct step_sequence *sequence, const struct layer_rates *rates,
                        struct pass *ret)
{
    struct clock clock;
    clock_begin(&clock, rates->machine, ret);
    for (int i = 0; i < sequence->count; i++) {
        const struct timed t = { sequence->ops[i].op, sequence->ops[i].of, rates, &clock };
        time_op(&t);
    }
    clock_end(&clock);
    add_links(sequence, rates, ret);
}
