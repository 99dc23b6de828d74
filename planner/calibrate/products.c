/* products.c - matmuls, from calls * call_seconds, flops / (peak * efficiency) and traffic_share *
 * bytes / memory rate: the third root of the sum of their cubes, near the largest of the three. A
 * dense matmul is one call, experts' are one each. */
#include "planner/calibrate/form.h"

enum { CUBES = 3 };

struct product_form {
    enum point_kind kind;
    const char *name, *call, *efficiency, *traffic;
};

static const struct product_form forms[] = {
    { POINT_GEMM, "dense matmuls", "gemm_call_seconds", "gemm_efficiency", "gemm_traffic_share" },
    { POINT_EXPERT_GEMM, "expert matmuls", "expert_gemm_call_seconds", "expert_gemm_efficiency",
      "expert_gemm_traffic_share" },
};

static int fit_form(const struct form_input *in, const struct product_form *form,
                    struct calibration *ret, struct diag_list *reterr)
{
    struct fit_rows rows = { .columns = 3, .power = CUBES, .least = { 0, in->host, 0 } };
    struct fit fit = { 0 };
    size_t index[FIT_MAX_ROWS];
    for (size_t i = 0; i < in->points->count && rows.count < FIT_MAX_ROWS; i++) {
        const struct point *p = &in->points->points[i];
        const double x[] = { p->experts > 0 ? p->experts : 1, p->flops / in->flops,
                             p->bytes / in->memory };
        if (p->kind != form->kind)
            continue;
        index[rows.count] = i;
        fit_add(&rows, x, p->seconds);
    }
    if (rows.count == 0)
        return 0;
    if (fit_solve(&rows, &fit, reterr) != 0)
        return -1;
    int at = form_note(ret, form->name, &fit, in->points, index, rows.count);
    form_put(ret, form->call, fit.coefficient[0], at, rows.count, reterr);
    form_put(ret, form->efficiency, 1 / fit.coefficient[1], at, rows.count, reterr);
    form_put(ret, form->traffic, fit.coefficient[2], at, rows.count, reterr);
    return 0;
}

int form_products(const struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (fit_form(in, &forms[i], ret, reterr) != 0)
            return -1;
    return 0;
}
