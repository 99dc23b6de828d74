/* passes.c - what goes at a rate: elementwise passes, the optimizer, copies from and to the host. t
 * = call_seconds + bytes / rate; and what the host needs for a launch. */
#include "planner/calibrate/form.h"

/* One form: points of up to two kinds, and what becomes of its two numbers. */
struct pass_form {
    enum point_kind kinds[2];
    const char *name, *call; /* key of the time of a call, NULL: kept in the fit only */
    const char *rate;
    bool of_memory; /* the key is a share of the memory's rate, else bytes a second */
};

static const struct pass_form forms[] = {
    { { POINT_ELEMENTWISE, POINT_ELEMENTWISE },
      "elementwise passes",
      "elementwise_call_seconds",
      "memory_efficiency",
      true },
    { { POINT_OPTIMIZER, POINT_OPTIMIZER }, "optimizer", NULL, "optimizer_efficiency", true },
    { { POINT_TO_DEVICE, POINT_FROM_DEVICE },
      "host link, one way",
      NULL,
      "host_link_bytes_per_second",
      false },
    { { POINT_BOTH_WAYS, POINT_BOTH_WAYS },
      "host link, both ways",
      NULL,
      "host_link_both_bytes_per_second",
      false },
};

static int fit_form(const struct form_input *in, const struct pass_form *form,
                    struct calibration *ret, struct diag_list *reterr)
{
    struct fit_rows rows = { .columns = 2 };
    struct fit fit = { 0 };
    size_t index[FIT_MAX_ROWS];
    for (size_t i = 0; i < in->points->count && rows.count < FIT_MAX_ROWS; i++) {
        const struct point *p = &in->points->points[i];
        const double x[] = { 1, form->of_memory ? p->bytes / in->memory : p->bytes };
        if (p->kind != form->kinds[0] && p->kind != form->kinds[1])
            continue;
        index[rows.count] = i;
        fit_add(&rows, x, p->seconds);
    }
    if (rows.count == 0)
        return 0;
    if (fit_solve(&rows, &fit, reterr) != 0)
        return -1;
    int at = form_note(ret, form->name, &fit, in->points, index, rows.count);
    if (form->call)
        form_put(ret, form->call, fit.coefficient[0], at, rows.count, reterr);
    form_put(ret, form->rate, 1 / fit.coefficient[1], at, rows.count, reterr);
    return 0;
}

static void put_launch(const struct form_input *in, struct calibration *ret,
                       struct diag_list *reterr)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < in->points->count; i++)
        if (in->points->points[i].kind == POINT_LAUNCH) {
            sum += in->points->points[i].seconds;
            count++;
        }
    if (count > 0)
        form_put(ret, "launch_seconds", sum / (double)count, -1, count, reterr);
}

int form_passes(const struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (fit_form(in, &forms[i], ret, reterr) != 0)
            return -1;
    put_launch(in, ret, reterr);
    return 0;
}
