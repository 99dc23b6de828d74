/* attention.c - attention: t = flops / (peak * efficiency) * (1 + half / s + s / fade) for s keys
 * (in the last term of at most ATTENTION_FADE_MOST_TOKENS), with an efficiency for each direction
 * and head dim, one `half` for all and one `fade` for all forwards; no backward fades. */
#include "planner/calibrate/form.h"

#include <gsl/gsl_min.h>
#include <math.h>
#include <stdlib.h>

/* Less than this, a share of a forward of a token, is none. */
static const double LEAST_FADE = 1e-8;

enum { DIRECTIONS = 2, WIDTHS = 3, SETTLED_STEPS = 100, FADE_ROUNDS = 8 };

/* By direction and width; head dims up to 64 are narrow, and from 256 wide. */
static int width_of(int head_dim)
{
    return head_dim <= 64 ? 0 : head_dim < 256 ? 1 : 2;
}

static const char *const names[DIRECTIONS][WIDTHS] = {
    { "attention forward, dim 64", "attention forward", "attention forward, dim 256" },
    { "attention backward, dim 64", "attention backward", "attention backward, dim 256" },
};
static const char *const efficiencies[DIRECTIONS] = { "attention_forward_efficiency",
                                                      "attention_backward_efficiency" };
static const char *const factors[DIRECTIONS][WIDTHS] = {
    { "attention_head64_factor", NULL, "attention_head256_factor" },
    { "attention_backward_head64_factor", NULL, "attention_backward_head256_factor" },
};

struct group {
    struct fit_rows rows;
    struct fit fit;
    size_t index[FIT_MAX_ROWS];
};
struct groups {
    const struct form_input *in;
    struct group group[DIRECTIONS][WIDTHS];
    size_t points;
    double per_fade; /* 1 / fade */
};

static double fading_tokens(const struct point *p)
{
    return fmin((double)p->tokens, ATTENTION_FADE_MOST_TOKENS);
}

static void collect(struct groups *g, double half)
{
    const struct points *points = g->in->points;
    g->points = 0;
    for (int d = 0; d < DIRECTIONS; d++)
        for (int w = 0; w < WIDTHS; w++)
            g->group[d][w].rows = (struct fit_rows){ .columns = 1, .least = { g->in->host } };
    for (size_t i = 0; i < points->count; i++) {
        const struct point *p = &points->points[i];
        bool forward = p->kind == POINT_ATTENTION_FORWARD;
        if ((!forward && p->kind != POINT_ATTENTION_BACKWARD) || p->tokens <= 0)
            continue;
        struct group *group = &g->group[!forward][width_of(p->head_dim)];
        double faded = forward ? fading_tokens(p) * g->per_fade : 0;
        const double x = p->flops / g->in->flops * (1 + half / (double)p->tokens + faded);
        if (group->rows.count == FIT_MAX_ROWS)
            continue;
        group->index[group->rows.count] = i;
        fit_add(&group->rows, &x, p->seconds);
        g->points++;
    }
}

/* Sum of squared relative residuals when every group has its best efficiency. */
static double misfit(double half, void *context)
{
    struct groups *g = context;
    struct diag_list ignored = { 0 };
    double sum = 0;
    collect(g, half);
    for (int d = 0; d < DIRECTIONS; d++)
        for (int w = 0; w < WIDTHS; w++) {
            struct group *group = &g->group[d][w];
            if (group->rows.count == 0 || fit_solve(&group->rows, &group->fit, &ignored) != 0)
                continue;
            sum += group->fit.rms * group->fit.rms * (double)group->rows.count;
        }
    return sum;
}

/* The half with the least misfit: on a grid of doublings, then between its neighbours. */
static double best_half(struct groups *g)
{
    enum { GRID = 15 };
    double grid[GRID + 1] = { 0 }, value[GRID + 1];
    int best = 0;
    for (int i = 0; i <= GRID; i++) {
        grid[i] = i > 0 ? ldexp(2, i - 1) : 0;
        value[i] = misfit(grid[i], g);
        best = value[i] < value[best] ? i : best;
    }
    bool enclosed =
        best > 0 && best < GRID && value[best] < value[best - 1] && value[best] < value[best + 1];
    if (!enclosed)
        return grid[best];
    gsl_function function = { misfit, g };
    gsl_min_fminimizer *minimizer = gsl_min_fminimizer_alloc(gsl_min_fminimizer_brent);
    if (!minimizer)
        return grid[best];
    double ret = grid[best];
    if (gsl_min_fminimizer_set_with_values(minimizer, &function, grid[best], value[best],
                                           grid[best - 1], value[best - 1], grid[best + 1],
                                           value[best + 1]) == 0) {
        for (int i = 0; i < SETTLED_STEPS && gsl_min_fminimizer_iterate(minimizer) == 0; i++)
            if (gsl_min_test_interval(gsl_min_fminimizer_x_lower(minimizer),
                                      gsl_min_fminimizer_x_upper(minimizer), 0.1, 1e-4) == 0)
                break;
        ret = gsl_min_fminimizer_x_minimum(minimizer);
    }
    gsl_min_fminimizer_free(minimizer);
    return ret;
}

/* 1 / fade of the usual forwards, at this half: the share of their FLOPs times s beside their
 * FLOPs. */
static double usual_fade(const struct groups *g, double half)
{
    struct fit_rows rows = { .columns = 2, .least = { g->in->host } };
    struct fit fit = { 0 };
    struct diag_list ignored = { 0 };
    for (size_t i = 0; i < g->in->points->count; i++) {
        const struct point *p = &g->in->points->points[i];
        double work = p->flops / g->in->flops, s = (double)p->tokens;
        if (p->kind != POINT_ATTENTION_FORWARD || width_of(p->head_dim) != 1 || s <= 0)
            continue;
        const double x[] = { work * (1 + half / s), work * fading_tokens(p) };
        fit_add(&rows, x, p->seconds);
    }
    bool told = rows.count > 3 && fit_solve(&rows, &fit, &ignored) == 0 && fit.coefficient[0] > 0;
    return told ? fit.coefficient[1] / fit.coefficient[0] : 0;
}

static void put_direction(struct groups *g, int d, struct calibration *ret,
                          struct diag_list *reterr)
{
    const struct group *usual = &g->group[d][1];
    for (int w = 0; w < WIDTHS; w++) {
        const struct group *group = &g->group[d][w];
        size_t count = group->rows.count;
        if (count == 0)
            continue;
        int at = form_note(ret, names[d][w], &group->fit, g->in->points, group->index, count);
        if (w == 1)
            form_put(ret, efficiencies[d], 1 / group->fit.coefficient[0], at, count, reterr);
        else if (usual->rows.count > 0)
            form_put(ret, factors[d][w], usual->fit.coefficient[0] / group->fit.coefficient[0], at,
                     count, reterr);
    }
}

/* The point of that kind and of the shape of `like`; NULL: none. */
static const struct point *alike(const struct points *points, enum point_kind kind,
                                 const struct point *like)
{
    for (size_t i = 0; i < points->count; i++) {
        const struct point *p = &points->points[i];
        if (p->kind == kind && p->tokens == like->tokens && p->head_dim == like->head_dim &&
            p->heads == like->heads && p->kv_heads == like->kv_heads)
            return p;
    }
    return NULL;
}

/* A forward and a backward by themselves over the two amid seconds of them. */
static void put_sustained(const struct form_input *in, struct calibration *ret,
                          struct diag_list *reterr)
{
    for (size_t i = 0; i < in->points->count; i++) {
        const struct point *p = &in->points->points[i];
        if (p->kind != POINT_SUSTAINED || !(p->seconds > 0))
            continue;
        const struct point *forward = alike(in->points, POINT_ATTENTION_FORWARD, p),
                           *backward = alike(in->points, POINT_ATTENTION_BACKWARD, p);
        if (!forward || !backward)
            continue;
        double share = (forward->seconds + backward->seconds) / p->seconds;
        form_put(ret, "sustained_share", share < 1 ? share : 1, -1, 3, reterr);
        return;
    }
}

int form_attention(const struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    struct groups *g = calloc(1, sizeof *g);
    if (!g)
        return diag_no_memory(reterr);
    g->in = in;
    collect(g, 0);
    if (g->points > 0) {
        double half = best_half(g);
        for (int i = 0; i < FADE_ROUNDS; i++) {
            g->per_fade = usual_fade(g, half);
            half = best_half(g);
        }
        (void)misfit(half, g);
        put_direction(g, 0, ret, reterr);
        put_direction(g, 1, ret, reterr);
        form_put(ret, "attention_half_tokens", half, -1, g->points, reterr);
        if (g->per_fade > LEAST_FADE)
            form_put(ret, "attention_fade_tokens", 1 / g->per_fade, -1, g->points, reterr);
        put_sustained(in, ret, reterr);
    }
    free(g);
    return 0;
}
