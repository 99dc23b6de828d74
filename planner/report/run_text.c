#include "planner/report/run_text.h"

#include "base/text.h"
#include "base/units.h"
#include "planner/report/table.h"

enum { STEPS_SHOWN = 8 };

static void print_layout(const struct prediction *prediction, FILE *out)
{
    char degrees[256], primitives[256];
    const struct plan *plan = &prediction->plan;
    format_degrees(&plan->choices.layout, "  ", degrees, sizeof degrees);
    format_primitives(&plan->model, &plan->choices.primitives, primitives, sizeof primitives);
    (void)fprintf(out, "%-*s%s    %s\n", TEXT_MARGIN, "layout", degrees, primitives);
}

/* The first and the last steps when there are many. */
static void print_steps(const struct prediction *prediction, const struct measured_rank *rank,
                        FILE *out)
{
    struct table table = { .columns = 4 };
    const struct plan *plan = &prediction->plan;
    double tokens = (double)plan->global_batch * (double)plan->seq_tokens;
    table_cell(&table, "number");
    table_cell(&table, "loss");
    table_cell(&table, "time");
    table_cell(&table, "tokens/s");
    for (size_t i = 0; i < rank->steps; i++) {
        char seconds[32], rate[32];
        if (i >= STEPS_SHOWN / 2 && i + STEPS_SHOWN / 2 < rank->steps)
            continue;
        table_cell(&table, "%zu", i + 1);
        table_cell(&table, "%.4f", rank->loss[i]);
        table_cell(&table, "%s",
                   units_format_seconds(seconds, sizeof seconds, rank->step_seconds[i]));
        double per_second = rank->step_seconds[i] > 0 ? tokens / rank->step_seconds[i] : 0;
        table_cell(&table, "%s", units_format_count(rate, sizeof rate, (uint64_t)per_second));
    }
    table_print(&table, "steps", out);
    table_done(&table);
}

static void print_who(const struct measurement *m, FILE *out)
{
    if (m->rehearsed_world == 0 || m->rank_count == 0)
        (void)fprintf(out, "%-*s%zu ranks on %s (%s)\n", TEXT_MARGIN, "ran", m->rank_count,
                      m->device, m->backend);
    else
        (void)fprintf(out, "%-*srank %d of %d on %s (%s); losses are no result\n", TEXT_MARGIN,
                      "played", m->ranks[0].rank, m->rehearsed_world, m->device, m->backend);
}

/* Under any other routing than the router's own, tokens go to experts that it did not choose. */
static void print_directed(const struct prediction *prediction, const struct measurement *m,
                           FILE *out)
{
    const struct plan *plan = &prediction->plan;
    char routing[64];
    if (plan->model.moe.experts == 0 || plan->routing.kind == ROUTING_NATURAL ||
        m->rehearsed_world > 0)
        return;
    routing_format(&plan->routing, routing, sizeof routing);
    (void)fprintf(out, "%-*slosses are no result: --routing %s directs tokens to experts\n",
                  TEXT_MARGIN, "", routing);
}

void report_run_text(const struct prediction *prediction, const struct measurement *measurement,
                     struct text_style style)
{
    report_head_text(prediction, style.out);
    (void)fputc('\n', style.out);
    print_who(measurement, style.out);
    print_layout(prediction, style.out);
    if (measurement->rank_count > 0)
        print_steps(prediction, &measurement->ranks[0], style.out);
    print_directed(prediction, measurement, style.out);
    (void)fputc('\n', style.out);
}
