/* overlap.c - what of an exchange hides behind products of experts: both at once take what they
 * take one after the other, less a share of the shorter of the two. One share for all sizes, by the
 * seconds that could hide and the seconds that did. */
#include "planner/calibrate/form.h"

#include <math.h>
#include <string.h>

struct overlap_form {
    enum point_kind kind;
    const char *name, *key;
};

static const struct overlap_form forms[] = {
    { POINT_OVERLAP, "exchange beside experts", "exchange_overlap" },
    { POINT_COPY_OVERLAP, "copies beside experts", "copy_exchange_overlap" },
};

/* A point of "both" with those of its parts alone. */
struct beside {
    double products, exchange, both;
};

static double seconds_of(const struct points *points, const struct point *like, const char *name)
{
    for (size_t i = 0; i < points->count; i++) {
        const struct point *p = &points->points[i];
        if (p->kind == like->kind && p->m == like->m && strcmp(p->name, name) == 0)
            return p->seconds;
    }
    return 0;
}

static double shorter(const struct beside *x)
{
    return fmin(x->products, x->exchange);
}

static void judge(const struct beside *all, size_t count, double share, struct fit *ret)
{
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        double predicted = all[i].products + all[i].exchange - share * shorter(&all[i]);
        double error = fabs(predicted / all[i].both - 1);
        squares += error * error;
        if (error >= ret->worst) {
            ret->worst = error;
            ret->worst_row = i;
        }
    }
    ret->rms = sqrt(squares / (double)count);
}

static void fit_form(const struct points *points, const struct overlap_form *form,
                     struct calibration *ret, struct diag_list *reterr)
{
    struct beside all[FIT_MAX_ROWS];
    size_t index[FIT_MAX_ROWS], count = 0;
    double hidden = 0, most = 0;
    for (size_t i = 0; i < points->count && count < FIT_MAX_ROWS; i++) {
        const struct point *p = &points->points[i];
        if (p->kind != form->kind || strcmp(p->name, "both") != 0)
            continue;
        struct beside x = { seconds_of(points, p, "products"), seconds_of(points, p, "exchange"),
                            p->seconds };
        if (!(shorter(&x) > 0))
            continue;
        hidden += x.products + x.exchange - x.both;
        most += shorter(&x);
        index[count] = i;
        all[count++] = x;
    }
    if (count == 0)
        return;
    struct fit fit = { 0 };
    double share = fmax(0, fmin(1, hidden / most));
    judge(all, count, share, &fit);
    int at = form_note(ret, form->name, &fit, points, index, count);
    form_put(ret, form->key, share, at, count, reterr);
}

int form_overlap(const struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        fit_form(in->points, &forms[i], ret, reterr);
    return 0;
}
