#include "planner/calibrate/fit.h"

#include <gsl/gsl_multifit.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

void fit_add(struct fit_rows *rows, const double *x, double seconds)
{
    if (rows->count == FIT_MAX_ROWS)
        return;
    memcpy(rows->x[rows->count], x, (size_t)rows->columns * sizeof *x);
    rows->seconds[rows->count++] = seconds;
}

struct problem {
    gsl_matrix *x, *covariance;
    gsl_vector *y, *c;
    gsl_multifit_linear_workspace *work;
};

static void problem_close(struct problem *p)
{
    gsl_matrix_free(p->x);
    gsl_matrix_free(p->covariance);
    gsl_vector_free(p->y);
    gsl_vector_free(p->c);
    gsl_multifit_linear_free(p->work);
}

static int problem_open(struct problem *p, size_t rows, size_t columns)
{
    *p = (struct problem){ .x = gsl_matrix_alloc(rows, columns),
                           .covariance = gsl_matrix_alloc(columns, columns),
                           .y = gsl_vector_alloc(rows),
                           .c = gsl_vector_alloc(columns),
                           .work = gsl_multifit_linear_alloc(rows, columns) };
    return p->x && p->covariance && p->y && p->c && p->work ? 0 : -1;
}

/* Every column over its largest relative value, so that none is lost beside the others. */
static double scale_of(const struct fit_rows *rows, int column)
{
    double most = 0;
    for (size_t i = 0; i < rows->count; i++) {
        double value = fabs(rows->x[i][column]) / rows->seconds[i];
        most = value > most ? value : most;
    }
    return most;
}

/* The columns of `used`; the coefficients of the others are 0. Returns 0, or -1 where they cannot
 * be told apart. */
static int solve_some(const struct fit_rows *rows, const int *used, int count, struct fit *ret)
{
    struct problem p;
    double scale[FIT_MAX_COLUMNS], chi;
    size_t rank = 0;
    int status = problem_open(&p, rows->count, (size_t)count);
    for (int j = 0; j < count && status == 0; j++) {
        scale[j] = scale_of(rows, used[j]);
        status = scale[j] > 0 ? 0 : -1;
        for (size_t i = 0; i < rows->count && status == 0; i++)
            gsl_matrix_set(p.x, i, (size_t)j, rows->x[i][used[j]] / rows->seconds[i] / scale[j]);
    }
    if (status == 0) {
        gsl_vector_set_all(p.y, 1);
        status = gsl_multifit_linear_tsvd(p.x, p.y, 1e-9, p.c, p.covariance, &chi, &rank, p.work);
    }
    memset(ret->coefficient, 0, sizeof ret->coefficient);
    for (int j = 0; j < count && status == 0; j++)
        ret->coefficient[used[j]] = gsl_vector_get(p.c, (size_t)j) / scale[j];
    problem_close(&p);
    return status == 0 && rank == (size_t)count ? 0 : -1;
}

void fit_judge(const struct fit_rows *rows, struct fit *fit)
{
    double squares = 0;
    fit->worst = 0;
    fit->worst_row = 0;
    for (size_t i = 0; i < rows->count; i++) {
        double sum = 0;
        for (int j = 0; j < rows->columns; j++)
            sum += fit->coefficient[j] * rows->x[i][j];
        double error = fabs(sum - rows->seconds[i]) / rows->seconds[i];
        squares += error * error;
        if (error > fit->worst) {
            fit->worst = error;
            fit->worst_row = i;
        }
    }
    fit->rms = rows->count > 0 ? sqrt(squares / (double)rows->count) : 0;
}

/* Leaves the most negative coefficient out, judged by its share of the times; false: none is. */
static bool drop_negative(const struct fit_rows *rows, const struct fit *fit, int *used, int *count)
{
    double least = 0;
    int at = -1;
    for (int j = 0; j < *count; j++) {
        double share = fit->coefficient[used[j]] * scale_of(rows, used[j]);
        if (share < least) {
            least = share;
            at = j;
        }
    }
    for (int j = at; at >= 0 && j + 1 < *count; j++)
        used[j] = used[j + 1];
    *count -= at >= 0;
    return at >= 0;
}

int fit_solve(const struct fit_rows *rows, struct fit *ret, struct diag_list *reterr)
{
    int used[FIT_MAX_COLUMNS], count = rows->columns;
    for (int j = 0; j < count; j++)
        used[j] = j;
    do {
        if (count == 0 || rows->count < (size_t)count || solve_some(rows, used, count, ret) != 0)
            return diag_error(reterr, (struct pos){ 0 },
                              "%zu points do not settle the %d numbers of their form", rows->count,
                              rows->columns);
    } while (drop_negative(rows, ret, used, &count));
    fit_judge(rows, ret);
    return 0;
}
