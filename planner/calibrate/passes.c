/* passes.c - what goes at a rate: elementwise passes, the optimizer, copies from and to the host. t
 * = call_seconds + bytes / rate; and what the host needs for a launch. */
#include "planner/calibrate/form.h"

#include <string.h>

/* One form: points of up to two kinds, and the key of their rate. */
struct pass_form {
    enum point_kind kinds[2];
    const char *name, *rate;
    bool of_memory; /* the key is a share of the memory's rate, else bytes a second */
};

static const struct pass_form forms[] = {
    { { POINT_OPTIMIZER, POINT_OPTIMIZER }, "optimizer", "optimizer_efficiency", true },
    { { POINT_TO_DEVICE, POINT_FROM_DEVICE },
      "host link, one way",
      "host_link_bytes_per_second",
      false },
    { { POINT_BOTH_WAYS, POINT_BOTH_WAYS },
      "host link, both ways",
      "host_link_both_bytes_per_second",
      false },
};

static int fit_form(const struct form_input *in, const struct pass_form *form,
                    struct calibration *ret, struct diag_list *reterr)
{
    struct fit_rows rows = { .columns = 2, .least = { 0, in->host && form->of_memory } };
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
    form_put(ret, form->rate, 1 / fit.coefficient[1], at, rows.count, reterr);
    return 0;
}

/* A layer runs each of the passes about once, some at the memory's rate and some at half of it:
 * what counts is their sum, one row a size. */
enum { MOST_SIZES = 16 };

static struct point *sum_of(struct point *sums, size_t *count, const struct point *p)
{
    for (size_t i = 0; i < *count; i++)
        if (sums[i].m == p->m && sums[i].n == p->n)
            return &sums[i];
    if (*count == MOST_SIZES)
        return NULL;
    sums[*count] = (struct point){ .kind = p->kind, .name = "passes of", .m = p->m, .n = p->n };
    return &sums[(*count)++];
}

static int fit_layers(const struct form_input *in, struct calibration *ret,
                      struct diag_list *reterr)
{
    struct fit_rows rows = { .columns = 2, .least = { 0, in->host } };
    struct fit fit = { 0 };
    struct point sum[MOST_SIZES];
    const struct points sums = { .points = sum };
    size_t index[MOST_SIZES], points = 0;
    for (size_t i = 0; i < in->points->count; i++) {
        const struct point *p = &in->points->points[i];
        struct point *to = p->kind == POINT_ELEMENTWISE ? sum_of(sum, &rows.count, p) : NULL;
        if (!to)
            continue;
        to->bytes += p->bytes;
        to->seconds += p->seconds;
        to->repeats++;
        points++;
    }
    size_t sizes = rows.count;
    rows.count = 0;
    for (size_t i = 0; i < sizes; i++) {
        const double x[] = { sum[i].repeats, sum[i].bytes / in->memory };
        index[i] = i;
        fit_add(&rows, x, sum[i].seconds);
    }
    if (sizes == 0)
        return 0;
    if (fit_solve(&rows, &fit, reterr) != 0)
        return -1;
    int at = form_note(ret, "elementwise passes, summed", &fit, &sums, index, sizes);
    form_put(ret, "elementwise_call_seconds", fit.coefficient[0], at, points, reterr);
    form_put(ret, "memory_efficiency", 1 / fit.coefficient[1], at, points, reterr);
    return 0;
}

/* The fastest of the points of that name. */
static void put_launch(const struct form_input *in, const char *name, const char *key,
                       struct calibration *ret, struct diag_list *reterr)
{
    double least = 0;
    size_t count = 0;
    for (size_t i = 0; i < in->points->count; i++) {
        const struct point *p = &in->points->points[i];
        if (p->kind != POINT_LAUNCH || strcmp(p->name, name) != 0)
            continue;
        least = count == 0 || p->seconds < least ? p->seconds : least;
        count++;
    }
    if (count > 0)
        form_put(ret, key, least, -1, count, reterr);
}

int form_passes(const struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (fit_form(in, &forms[i], ret, reterr) != 0)
            return -1;
    if (fit_layers(in, ret, reterr) != 0)
        return -1;
    put_launch(in, "rmsnorm", "launch_seconds", ret, reterr);
    put_launch(in, "gemm", "gemm_launch_seconds", ret, reterr);
    return 0;
}
