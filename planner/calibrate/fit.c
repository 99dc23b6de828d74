#include "planner/calibrate/fit.h"

#include <gsl/gsl_multifit.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Weights follow the predictions, which follow the weights: they settle within a few rounds. */
enum { ROUNDS = 20 };

static double power_of(const struct fit_rows *rows)
{
    return rows->power > 0 ? rows->power : 1;
}

void fit_add(struct fit_rows *rows, const double *x, double seconds)
{
    fit_add_important(rows, x, seconds, 1);
}

void fit_add_important(struct fit_rows *rows, const double *x, double seconds, double importance)
{
    if (rows->count == FIT_MAX_ROWS)
        return;
    for (int j = 0; j < rows->columns; j++)
        rows->x[rows->count][j] = pow(x[j], power_of(rows));
    rows->importance[rows->count] = importance;
    rows->seconds[rows->count++] = pow(seconds, power_of(rows));
}

/* What is fitted above the bounds: rows times weights, columns over their largest value. */
struct problem {
    const struct fit_rows *rows;
    double weight[FIT_MAX_ROWS], scale[FIT_MAX_COLUMNS];
    double bound[FIT_MAX_COLUMNS]; /* raised to the power, as coefficients are until the end */
    int used[FIT_MAX_COLUMNS], used_count;
    gsl_matrix *x, *covariance;
    gsl_vector *y, *c;
    gsl_multifit_linear_workspace *work;
};

static void solver_close(struct problem *p)
{
    gsl_matrix_free(p->x);
    gsl_matrix_free(p->covariance);
    gsl_vector_free(p->y);
    gsl_vector_free(p->c);
    gsl_multifit_linear_free(p->work);
}

static int solver_open(struct problem *p)
{
    size_t rows = p->rows->count, columns = (size_t)p->used_count;
    p->x = gsl_matrix_alloc(rows, columns);
    p->covariance = gsl_matrix_alloc(columns, columns);
    p->y = gsl_vector_alloc(rows);
    p->c = gsl_vector_alloc(columns);
    p->work = gsl_multifit_linear_alloc(rows, columns);
    return p->x && p->covariance && p->y && p->c && p->work ? 0 : -1;
}

static double predicted(const struct fit_rows *rows, const double *coefficient, size_t row)
{
    double sum = 0;
    for (int j = 0; j < rows->columns; j++)
        sum += coefficient[j] * rows->x[row][j];
    return sum;
}

/* The largest of a column, so that none is lost beside the others. */
static double scale_of(const struct problem *p, int column)
{
    double most = 0;
    for (size_t i = 0; i < p->rows->count; i++) {
        double value = fabs(p->rows->x[i][column]) * p->weight[i];
        most = value > most ? value : most;
    }
    return most;
}

static void fill(struct problem *p)
{
    const struct fit_rows *rows = p->rows;
    for (size_t i = 0; i < rows->count; i++) {
        double above = rows->seconds[i] - predicted(rows, p->bound, i);
        gsl_vector_set(p->y, i, above * p->weight[i]);
        for (int j = 0; j < p->used_count; j++)
            gsl_matrix_set(p->x, i, (size_t)j, rows->x[i][p->used[j]] * p->weight[i] / p->scale[j]);
    }
}

/* The used columns; the coefficients of the others are at their bounds. -1 where they cannot be
 * told apart. */
static int solve_used(struct problem *p, struct fit *ret)
{
    double chi;
    size_t rank = 0, columns = (size_t)p->used_count;
    for (int j = 0; j < p->used_count; j++) {
        p->scale[j] = scale_of(p, p->used[j]);
        if (!(p->scale[j] > 0))
            return -1;
    }
    int status = solver_open(p);
    if (status == 0) {
        fill(p);
        status =
            gsl_multifit_linear_tsvd(p->x, p->y, 1e-9, p->c, p->covariance, &chi, &rank, p->work);
    }
    memcpy(ret->coefficient, p->bound, sizeof ret->coefficient);
    for (int j = 0; j < p->used_count && status == 0; j++)
        ret->coefficient[p->used[j]] += gsl_vector_get(p->c, (size_t)j) / p->scale[j];
    solver_close(p);
    return status == 0 && rank == columns ? 0 : -1;
}

/* Leaves the coefficient out that is the furthest below its bound, judged by its share of the
 * times; false: none is. */
static bool drop_lowest(struct problem *p, const struct fit *fit)
{
    double least = 0;
    int at = -1;
    for (int j = 0; j < p->used_count; j++) {
        double above = fit->coefficient[p->used[j]] - p->bound[p->used[j]];
        if (above * p->scale[j] < least) {
            least = above * p->scale[j];
            at = j;
        }
    }
    if (at < 0)
        return false;
    p->used_count--;
    memmove(p->used + at, p->used + at + 1, (size_t)(p->used_count - at) * sizeof *p->used);
    return true;
}

static int solve_weighted(struct problem *p, struct fit *ret)
{
    p->used_count = p->rows->columns;
    for (int j = 0; j < p->used_count; j++)
        p->used[j] = j;
    do {
        memcpy(ret->coefficient, p->bound, sizeof ret->coefficient);
        if (p->used_count > 0 && solve_used(p, ret) != 0)
            return -1;
    } while (drop_lowest(p, ret));
    return 0;
}

void fit_judge(const struct fit_rows *rows, struct fit *fit)
{
    double squares = 0, raised[FIT_MAX_COLUMNS], root = 1 / power_of(rows);
    fit->worst = 0;
    fit->worst_row = 0;
    for (int j = 0; j < FIT_MAX_COLUMNS; j++)
        raised[j] = pow(fit->coefficient[j], power_of(rows));
    for (size_t i = 0; i < rows->count; i++) {
        double ratio = pow(predicted(rows, raised, i) / rows->seconds[i], root);
        double error = fabs(ratio - 1);
        squares += error * error;
        if (error > fit->worst) {
            fit->worst = error;
            fit->worst_row = i;
        }
    }
    fit->rms = rows->count > 0 ? sqrt(squares / (double)rows->count) : 0;
}

/* With which a linear residual pulls as hard as the logarithm of s / t does: the square root of
 * log(s / t) / (s (s - t)), near 1 / t where the two are close. */
static double weight_of(double t, double s)
{
    double ratio = s / t;
    if (!(ratio > 0.01))
        ratio = 0.01;
    double off = ratio - 1;
    return fabs(off) < 1e-4 ? 1 / t : sqrt(log1p(off) / (ratio * off)) / t;
}

int fit_solve(const struct fit_rows *rows, struct fit *ret, struct diag_list *reterr)
{
    struct problem p = { .rows = rows };
    bool enough = rows->count >= (size_t)rows->columns;
    for (int j = 0; j < FIT_MAX_COLUMNS; j++)
        p.bound[j] = pow(rows->least[j], power_of(rows));
    for (size_t i = 0; i < rows->count; i++)
        p.weight[i] = rows->importance[i] / rows->seconds[i];
    for (int round = 0; round < ROUNDS; round++) {
        if (!enough || solve_weighted(&p, ret) != 0)
            return diag_error(reterr, (struct pos){ 0 },
                              "%zu points do not settle the %d numbers of their form", rows->count,
                              rows->columns);
        for (size_t i = 0; i < rows->count; i++)
            p.weight[i] = rows->importance[i] *
                          weight_of(rows->seconds[i], predicted(rows, ret->coefficient, i));
    }
    for (int j = 0; j < FIT_MAX_COLUMNS; j++)
        ret->coefficient[j] = pow(ret->coefficient[j], 1 / power_of(rows));
    fit_judge(rows, ret);
    return 0;
}
