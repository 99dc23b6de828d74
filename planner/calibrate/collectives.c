/* collectives.c - collectives of the domain: t = latency + bytes over the wire / (link *
 * efficiency), all-gather and reduce-scatter with one latency. Rates rise with size in ways that
 * two numbers do not hold, and a step's seconds go where transfers are large: those count for more,
 * and what a GPU sends by other protocols, below a megabyte, for nothing. */
#include "planner/calibrate/form.h"

#include <math.h>

static bool counts(const struct form_input *in, const struct point *point)
{
    return in->host || point->bytes >= 1e6;
}

/* Sixteen times the size, twice as much. */
static double importance(const struct point *point)
{
    return pow(point->bytes, 0.25);
}

static int fit_rings(const struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    struct fit_rows rows = { .columns = 3, .least = { 0, in->host, in->host } };
    struct fit fit = { 0 };
    size_t index[FIT_MAX_ROWS];
    for (size_t i = 0; i < in->points->count && rows.count < FIT_MAX_ROWS; i++) {
        const struct point *p = &in->points->points[i];
        bool gather = p->kind == POINT_ALL_GATHER, scatter = p->kind == POINT_REDUCE_SCATTER;
        const double wire = p->bytes / in->link;
        const double x[] = { 1, gather ? wire : 0, scatter ? wire : 0 };
        if ((!gather && !scatter) || !counts(in, p))
            continue;
        index[rows.count] = i;
        fit_add_important(&rows, x, p->seconds, importance(p));
    }
    if (rows.count == 0)
        return 0;
    if (fit_solve(&rows, &fit, reterr) != 0)
        return -1;
    int at = form_note(ret, "all-gather, reduce-scatter", &fit, in->points, index, rows.count);
    form_put(ret, "collective_latency_seconds", fit.coefficient[0], at, rows.count, reterr);
    form_put(ret, "gather_efficiency", 1 / fit.coefficient[1], at, rows.count, reterr);
    form_put(ret, "scatter_efficiency", 1 / fit.coefficient[2], at, rows.count, reterr);
    return 0;
}

/* Exchanges of one kind; the copy engines' have no latency of their own in the hardware file. */
struct exchange_form {
    enum point_kind kind;
    const char *name, *latency, *efficiency;
};

static const struct exchange_form exchanges[] = {
    { POINT_EXCHANGE, "all-to-all", "exchange_latency_seconds", "exchange_efficiency" },
    { POINT_COPY_EXCHANGE, "all-to-all by copies", NULL, "copy_exchange_efficiency" },
};

static int fit_exchange(const struct form_input *in, const struct exchange_form *form,
                        struct calibration *ret, struct diag_list *reterr)
{
    struct fit_rows rows = { .columns = 2, .least = { 0, in->host } };
    struct fit fit = { 0 };
    size_t index[FIT_MAX_ROWS];
    for (size_t i = 0; i < in->points->count && rows.count < FIT_MAX_ROWS; i++) {
        const struct point *p = &in->points->points[i];
        const double x[] = { 1, p->bytes / in->link };
        if (p->kind != form->kind || !counts(in, p))
            continue;
        index[rows.count] = i;
        fit_add_important(&rows, x, p->seconds, importance(p));
    }
    if (rows.count == 0)
        return 0;
    if (fit_solve(&rows, &fit, reterr) != 0)
        return -1;
    int at = form_note(ret, form->name, &fit, in->points, index, rows.count);
    if (form->latency)
        form_put(ret, form->latency, fit.coefficient[0], at, rows.count, reterr);
    form_put(ret, form->efficiency, 1 / fit.coefficient[1], at, rows.count, reterr);
    return 0;
}

int form_collectives(const struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    if (fit_rings(in, ret, reterr) != 0)
        return -1;
    for (size_t i = 0; i < sizeof exchanges / sizeof *exchanges; i++)
        if (fit_exchange(in, &exchanges[i], ret, reterr) != 0)
            return -1;
    return 0;
}
