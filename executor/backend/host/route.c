#include "base/model/model.h"
#include "executor/backend/host/bf16.h"
#include "executor/backend/host/host.h"

#include <math.h>
#include <string.h>

static const struct pos nowhere = { NULL, 0, 0 };

static void softmax_row(int experts, float *row)
{
    float largest = row[0], sum = 0;
    for (int e = 1; e < experts; e++)
        largest = row[e] > largest ? row[e] : largest;
    for (int e = 0; e < experts; e++) {
        row[e] = expf(row[e] - largest);
        sum += row[e];
    }
    for (int e = 0; e < experts; e++)
        row[e] /= sum;
}

static void sigmoid_row(int experts, float *row)
{
    for (int e = 0; e < experts; e++)
        row[e] = 1.0F / (1.0F + expf(-row[e]));
}

/* From d_scores in d_logits to d_logits: dl_e = p_e (dp_e - sum_j p_j dp_j). */
static void softmax_row_backward(int experts, const float *probs, float *d_logits)
{
    float mean = 0;
    for (int e = 0; e < experts; e++)
        mean += probs[e] * d_logits[e];
    for (int e = 0; e < experts; e++)
        d_logits[e] = probs[e] * (d_logits[e] - mean);
}

static void sigmoid_row_backward(int experts, const float *probs, float *d_logits)
{
    for (int e = 0; e < experts; e++)
        d_logits[e] *= probs[e] * (1.0F - probs[e]);
}

/* How logits become scores, in place, and gradients of scores those of logits. */
static const struct scoring {
    void (*forward)(int experts, float *row);
    void (*backward)(int experts, const float *scores, float *d_row);
} scorings[] = { { softmax_row, softmax_row_backward }, { sigmoid_row, sigmoid_row_backward } };

/* The number by which expert e is chosen. */
static float merit(const struct router *r, const float *probs, int e)
{
    return probs[e] + (r->correction ? bf16_to_float(r->correction[e]) : 0.0F);
}

static float group_merit(const struct router *r, const float *probs, int group)
{
    int size = r->experts / r->groups;
    float best = -INFINITY, second = -INFINITY;
    for (int e = group * size; e < (group + 1) * size; e++) {
        float value = merit(r, probs, e);
        if (value > best) {
            second = best;
            best = value;
        } else if (value > second) {
            second = value;
        }
    }
    return r->correction && size > 1 ? best + second : best;
}

/* One bit a group whose experts can be chosen; of equals the lower index comes first. */
static uint64_t open_groups(const struct router *r, const float *probs)
{
    uint64_t ret = 0;
    if (r->groups <= 1)
        return 1;
    for (int chosen = 0; chosen < r->group_limit; chosen++) {
        int best = -1;
        float most = 0;
        for (int group = 0; group < r->groups; group++) {
            float value = ret >> group & 1 ? -INFINITY : group_merit(r, probs, group);
            if (!(ret >> group & 1) && (best < 0 || value > most)) {
                best = group;
                most = value;
            }
        }
        ret |= UINT64_C(1) << best;
    }
    return ret;
}

/* The top_k of most merit in falling order; of equals the lower index comes first. */
static void choose_row(const struct router *r, const float *probs, int32_t *choices)
{
    uint64_t open = open_groups(r, probs);
    int count = 0, size = r->groups > 1 ? r->experts / r->groups : r->experts;
    for (int e = 0; e < r->experts; e++) {
        float value = merit(r, probs, e);
        int at = count;
        if (!(open >> (e / size) & 1))
            continue;
        while (at > 0 && value > merit(r, probs, choices[at - 1]))
            at--;
        if (at == r->top_k)
            continue;
        int moved = (count < r->top_k ? count : r->top_k - 1) - at;
        memmove(choices + at + 1, choices + at, (size_t)moved * sizeof *choices);
        choices[at] = e;
        count += count < r->top_k;
    }
}

static float chosen_sum(const float *probs, const int32_t *choices, int top_k)
{
    float sum = 0;
    for (int j = 0; j < top_k; j++)
        sum += probs[choices[j]];
    return sum;
}

static int check_choices(int64_t count, const int32_t *choices, int experts,
                         struct diag_list *reterr)
{
    for (int64_t i = 0; i < count; i++)
        if (choices[i] < 0 || choices[i] >= experts)
            return diag_error(reterr, nowhere, "choice %lld is expert %d of %d", (long long)i,
                              choices[i], experts);
    return 0;
}

static int check_groups(const struct router *r, struct diag_list *reterr)
{
    if (r->groups <= 1)
        return 0;
    bool fits = r->groups <= ROUTER_MAX_GROUPS && r->experts % r->groups == 0 &&
                r->group_limit >= 1 && r->group_limit <= r->groups &&
                r->top_k <= r->group_limit * (r->experts / r->groups);
    if (fits)
        return 0;
    return diag_error(reterr, nowhere, "router: top %d of %d experts in %d of %d groups", r->top_k,
                      r->experts, r->group_limit, r->groups);
}

static float scale_of(const struct router *r)
{
    return r->scaling > 0 ? r->scaling : 1.0F;
}

int host_router(struct backend *b, enum stream s, const struct router *r, struct diag_list *reterr)
{
    (void)b, (void)s;
    if (r->top_k < 1 || r->top_k > r->experts)
        return diag_error(reterr, nowhere, "router: top %d of %d experts", r->top_k, r->experts);
    if (check_groups(r, reterr))
        return -1;
    if (r->given && check_choices(r->rows * r->top_k, r->choices, r->experts, reterr))
        return -1;
    for (int64_t row = 0; row < r->rows; row++) {
        float *probs = r->probs + row * r->experts;
        int32_t *choices = r->choices + row * r->top_k;
        scorings[r->sigmoid].forward(r->experts, probs);
        if (!r->given)
            choose_row(r, probs, choices);
        float sum = r->normalize_top_k ? chosen_sum(probs, choices, r->top_k) : 1.0F;
        for (int j = 0; j < r->top_k; j++)
            r->weights[row * r->top_k + j] = scale_of(r) * probs[choices[j]] / sum;
    }
    return 0;
}

/* With w_j = c p_j / S: dp_j = (c dw_j - sum_i dw_i w_i) / S; not normalized, dp_j = c dw_j. Then
 * through the scores. */
static void router_row_backward(const struct router *r, const float *probs, const int32_t *choices,
                                const float *weights, const float *d_weights, float *d_logits)
{
    float sum = 1.0F, shared = 0;
    if (r->normalize_top_k) {
        sum = chosen_sum(probs, choices, r->top_k);
        for (int j = 0; j < r->top_k; j++)
            shared += d_weights[j] * weights[j];
    }
    memset(d_logits, 0, (size_t)r->experts * sizeof *d_logits);
    for (int j = 0; j < r->top_k; j++)
        d_logits[choices[j]] += (scale_of(r) * d_weights[j] - shared) / sum;
    scorings[r->sigmoid].backward(r->experts, probs, d_logits);
}

int host_router_backward(struct backend *b, enum stream s, const struct router *r,
                         const float *d_weights, float *d_logits, struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t row = 0; row < r->rows; row++) {
        int64_t chosen = row * r->top_k, all = row * r->experts;
        router_row_backward(r, r->probs + all, r->choices + chosen, r->weights + chosen,
                            d_weights + chosen, d_logits + all);
    }
    return 0;
}

int host_sort_choices(struct backend *b, enum stream s, int64_t rows, int top_k, int experts,
                      const int32_t *choices, int32_t *slots, int64_t *counts,
                      struct diag_list *reterr)
{
    (void)b, (void)s;
    int64_t total = rows * top_k;
    if (total > INT32_MAX)
        return diag_error(reterr, nowhere, "%lld routed rows do not fit 32-bit slots",
                          (long long)total);
    if (check_choices(total, choices, experts, reterr))
        return -1;
    memset(counts, 0, (size_t)experts * sizeof *counts);
    for (int64_t i = 0; i < total; i++)
        counts[choices[i]]++;
    /* counts serve as running places for a moment: starts before, ends after the pass. */
    int64_t start = 0;
    for (int e = 0; e < experts; e++) {
        int64_t load = counts[e];
        counts[e] = start;
        start += load;
    }
    for (int64_t i = 0; i < total; i++)
        slots[i] = (int32_t)counts[choices[i]]++;
    for (int e = experts - 1; e > 0; e--)
        counts[e] -= counts[e - 1];
    return 0;
}
