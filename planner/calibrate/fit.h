/* fit.h - least squares of times: t = sum of c_j x_j, or t^p = sum of (c_j x_j)^p, with c_j >=
 * least_j, of the logarithms of prediction over time, so that twice as long and half as long count
 * alike. Knows nothing of what the columns mean. */
#ifndef RANKFIT_PLANNER_CALIBRATE_FIT_H
#define RANKFIT_PLANNER_CALIBRATE_FIT_H

#include "base/diag.h"

#include <stddef.h>

enum { FIT_MAX_COLUMNS = 4, FIT_MAX_ROWS = 512 };

/* Zeroed: empty. */
struct fit_rows {
    size_t count;
    int columns;
    int power;                     /* p; 0 is 1. Set before rows are added */
    double least[FIT_MAX_COLUMNS]; /* lower bounds of the coefficients */
    /* Raised to the power. */
    double x[FIT_MAX_ROWS][FIT_MAX_COLUMNS], seconds[FIT_MAX_ROWS];
    double importance[FIT_MAX_ROWS]; /* of a row's residual; 1 unless said */
};

struct fit {
    double coefficient[FIT_MAX_COLUMNS];
    double rms, worst; /* |predicted - measured| / measured */
    size_t worst_row;
};

/* Rows beyond the room are left out. */
void fit_add(struct fit_rows *rows, const double *x, double seconds);
void fit_add_important(struct fit_rows *rows, const double *x, double seconds, double importance);

/* A coefficient that would be below its bound is at it and the others are fitted beside it. -1 with
 * a diagnostic: fewer rows than columns, or rows that do not tell the columns apart. */
int fit_solve(const struct fit_rows *rows, struct fit *ret, struct diag_list *reterr);

/* Residuals of coefficients that are given. */
void fit_judge(const struct fit_rows *rows, struct fit *fit);

#endif
