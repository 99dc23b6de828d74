/* delta.c - the gated delta rule: t = a constant, which is not kept, + tokens * (chain + rest *
 * state), forward and backward apart; state: elements of a token's states over those of 32 heads of
 * 128 x 128, to which the keys refer. The chain over chunks takes as long for few heads as
 * for many. */
#include "planner/calibrate/form.h"

enum { REFERENCE_STATE = 32 * 128 * 128, COLUMNS = 3 };

/* Seconds of a token of 32 heads, and the chain's share of them. */
struct rule {
    double seconds, chain;
    size_t points;
    int fit;
};

static int fit_rule(const struct form_input *in, enum point_kind kind, const char *name,
                    struct rule *rule, struct calibration *ret, struct diag_list *reterr)
{
    struct fit_rows rows = { .columns = COLUMNS };
    struct fit fit = { 0 };
    size_t index[FIT_MAX_ROWS];
    *rule = (struct rule){ 0 };
    for (size_t i = 0; i < in->points->count && rows.count < FIT_MAX_ROWS; i++) {
        const struct point *p = &in->points->points[i];
        double t = (double)p->tokens, dim = p->head_dim;
        const double x[COLUMNS] = { 1, t, t * p->heads * dim * dim / REFERENCE_STATE };
        if (p->kind != kind || p->tokens <= 0)
            continue;
        index[rows.count] = i;
        fit_add(&rows, x, p->seconds);
    }
    if (rows.count <= COLUMNS)
        return 0;
    if (fit_solve(&rows, &fit, reterr) != 0)
        return -1;
    rule->seconds = fit.coefficient[1] + fit.coefficient[2];
    rule->chain = rule->seconds > 0 ? fit.coefficient[1] / rule->seconds : 0;
    rule->points = rows.count;
    rule->fit = form_note(ret, name, &fit, in->points, index, rows.count);
    return 0;
}

int form_delta(const struct form_input *in, struct calibration *ret, struct diag_list *reterr)
{
    struct rule forward, backward;
    if (fit_rule(in, POINT_DELTA_FORWARD, "delta rule forward", &forward, ret, reterr) != 0 ||
        fit_rule(in, POINT_DELTA_BACKWARD, "delta rule backward", &backward, ret, reterr) != 0)
        return -1;
    if (forward.points > 0) {
        form_put(ret, "delta_rule_seconds_per_token", forward.seconds, forward.fit, forward.points,
                 reterr);
        form_put(ret, "delta_chain_share", forward.chain, forward.fit, forward.points, reterr);
    }
    if (forward.seconds > 0 && backward.points > 0) {
        form_put(ret, "delta_backward_factor", backward.seconds / forward.seconds, backward.fit,
                 backward.points, reterr);
        form_put(ret, "delta_backward_chain_share", backward.chain, backward.fit, backward.points,
                 reterr);
    }
    return 0;
}
