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

/* The top_k largest in falling order; of equals the lower index comes first. */
static void choose_row(const float *probs, int experts, int top_k, int32_t *choices)
{
    int count = 0;
    for (int e = 0; e < experts; e++) {
        int at = count;
        while (at > 0 && probs[e] > probs[choices[at - 1]])
            at--;
        if (at == top_k)
            continue;
        int moved = (count < top_k ? count : top_k - 1) - at;
        memmove(choices + at + 1, choices + at, (size_t)moved * sizeof *choices);
        choices[at] = e;
        count += count < top_k;
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

int host_router(struct backend *b, enum stream s, const struct router *r, struct diag_list *reterr)
{
    (void)b, (void)s;
    if (r->top_k < 1 || r->top_k > r->experts)
        return diag_error(reterr, nowhere, "router: top %d of %d experts", r->top_k, r->experts);
    if (r->given && check_choices(r->rows * r->top_k, r->choices, r->experts, reterr))
        return -1;
    for (int64_t row = 0; row < r->rows; row++) {
        float *probs = r->probs + row * r->experts;
        int32_t *choices = r->choices + row * r->top_k;
        softmax_row(r->experts, probs);
        if (!r->given)
            choose_row(probs, r->experts, r->top_k, choices);
        float sum = r->normalize_top_k ? chosen_sum(probs, choices, r->top_k) : 1.0F;
        for (int j = 0; j < r->top_k; j++)
            r->weights[row * r->top_k + j] = probs[choices[j]] / sum;
    }
    return 0;
}

/* With w_j = p_j / S: dp_j = (dw_j - sum_i dw_i w_i) / S; not normalized, dp_j = dw_j. Then through
 * the softmax: dl_e = p_e (dp_e - sum_j p_j dp_j). */
static void router_row_backward(const struct router *r, const float *probs, const int32_t *choices,
                                const float *weights, const float *d_weights, float *d_logits)
{
    float sum = 1.0F, shared = 0, mean = 0;
    if (r->normalize_top_k) {
        sum = chosen_sum(probs, choices, r->top_k);
        for (int j = 0; j < r->top_k; j++)
            shared += d_weights[j] * weights[j];
    }
    memset(d_logits, 0, (size_t)r->experts * sizeof *d_logits);
    for (int j = 0; j < r->top_k; j++) {
        float d_prob = (d_weights[j] - shared) / sum;
        mean += probs[choices[j]] * d_prob;
        d_logits[choices[j]] += d_prob;
    }
    for (int e = 0; e < r->experts; e++)
        d_logits[e] = probs[e] * (d_logits[e] - mean);
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
