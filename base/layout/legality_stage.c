/* Pipeline stages and the batches that fill them. */
#include "base/layout/legality_rules.h"
#include "base/layout/rows.h"
#include "base/text.h"

#include <inttypes.h>

static int named_stages(const struct layout *l)
{
    int count = 0;
    for (int stage = 0; stage < LAYOUT_MAX_STAGES; stage++)
        if (l->stage_layers[stage] != 0)
            count = stage + 1;
    return count;
}

/* "24,24": the even split of the model over pp stages; prediction layers that are trained stand on
 * the last stage and count as its layers. */
static void even_split(const struct legality_input *in, char *ret, size_t size)
{
    struct layout even = in->choices->layout;
    int more = in->model->mtp_trained ? in->model->mtp_layers : 0;
    size_t used = 0;

    ret[0] = '\0';
    layout_split_with_last(&even, in->model->layers, more);
    for (int stage = 0; stage < even.pp; stage++)
        text_append(ret, size, &used, "%s%d", stage ? "," : "", even.stage_layers[stage]);
}

int legality_stage_count(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    int named = named_stages(l);

    if (l->pp > in->model->layers) {
        if (!reterr)
            return 1;
        diag_error(reterr, choice_pos(in->fixed, "pp"), "pp %d is more than the model's %d layers",
                   l->pp, in->model->layers);
        diag_hint(reterr, "pp is at most %d", in->model->layers);
        return 1;
    }
    if (named == l->pp)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "stage_layers"),
               "stage_layers names %d stages, but pp is %d", named, l->pp);
    char split[280];
    even_split(in, split, sizeof split);
    if (named == l->pp * l->vpp)
        diag_hint(reterr,
                  "vpp %d cuts each stage evenly: stage_layers names stages, not their "
                  "chunks, as in stage_layers=%s",
                  l->vpp, split);
    else
        diag_hint(reterr, "an even split: stage_layers=%s", split);
    return 1;
}

int legality_stage_sum(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    int64_t sum = 0;
    char terms[200] = "", split[280];
    size_t used = 0;
    int named = named_stages(l);

    for (int stage = 0; stage < named; stage++)
        sum += l->stage_layers[stage];
    if (sum == in->model->layers)
        return 0;
    if (!reterr)
        return 1;
    for (int stage = 0; stage < named && named > 1; stage++)
        text_append(terms, sizeof terms, &used, "%s%d", stage ? " + " : "", l->stage_layers[stage]);
    diag_error(reterr, choice_pos(in->fixed, "stage_layers"),
               "stage_layers: %s%s%lld%s, but the model has %d layers", terms,
               named > 1 ? " = " : "", (long long)sum, named > 1 ? "" : " layers",
               in->model->layers);
    even_split(in, split, sizeof split);
    if (l->pp <= in->model->layers)
        diag_hint(reterr, "an even split: stage_layers=%s", split);
    return 1;
}

int legality_stage_empty(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;

    if (l->pp > in->model->layers || named_stages(l) < l->pp) /* reported by stage_count */
        return 0;
    for (int stage = 0; stage < l->pp; stage++) {
        if (l->stage_layers[stage] >= 1)
            continue;
        if (reterr) {
            diag_error(reterr, choice_pos(in->fixed, "stage_layers"),
                       "stage %d of %d holds %d layers", stage, l->pp, l->stage_layers[stage]);
            diag_hint(reterr, "every stage needs at least one layer");
        }
        return 1;
    }
    return 0;
}

int legality_virtual_stages(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    char near[64];

    if (l->vpp == 1)
        return 0;
    if (l->pp == 1) {
        if (reterr) {
            diag_error(reterr, choice_pos(in->fixed, "vpp"),
                       "vpp %d interleaves stages, but pp is 1", l->vpp);
            diag_hint(reterr, "vpp=1, or pp above 1");
        }
        return 1;
    }
    for (int stage = 0; stage < l->pp; stage++) {
        if (l->stage_layers[stage] % l->vpp == 0)
            continue;
        if (reterr) {
            diag_error(reterr, choice_pos(in->fixed, "vpp"),
                       "vpp %d does not divide the %d layers of stage %d", l->vpp,
                       l->stage_layers[stage], stage);
            diag_hint(reterr, "nearest legal vpp: %s",
                      nearest_divisors(l->stage_layers[stage], l->vpp, near, sizeof near));
        }
        return 1;
    }
    return 0;
}

int legality_batch(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    int64_t unit = (int64_t)l->fsdp * l->d_rep * l->micro_batch;

    if (!world_is_filled(in))
        return 0;
    bool divides = in->global_batch >= unit && in->global_batch % unit == 0;
    if (divides && in->global_batch / unit == l->micro_batches)
        return 0;
    if (!reterr)
        return 1;
    int64_t count = in->global_batch > 0 ? in->global_batch / unit : 0;
    if (divides) {
        diag_error(reterr, choice_pos(in->fixed, "micro_batch"),
                   "micro_batches %d, but global batch %lld / (dp %d x micro_batch %d) = %lld",
                   l->micro_batches, (long long)in->global_batch, l->fsdp * l->d_rep,
                   l->micro_batch, (long long)count);
        diag_hint(reterr, "micro_batches %lld", (long long)count);
        return 1;
    }
    diag_error(reterr, choice_pos(in->fixed, "micro_batch"),
               "global batch %lld is not a multiple of dp %d x micro_batch %d = %lld",
               (long long)in->global_batch, l->fsdp * l->d_rep, l->micro_batch, (long long)unit);
    if (count > 0)
        diag_hint(reterr,
                  "nearest legal batches: %" PRId64 " (%" PRId64 " micro-batches) or %" PRId64
                  " (%" PRId64 " micro-batches)",
                  count * unit, count, (count + 1) * unit, count + 1);
    else
        diag_hint(reterr, "nearest legal batch: %lld (1 micro-batch)", (long long)unit);
    return 1;
}

/* Under tokens_per_gpu micro-batches are the rows that samples fill, not a multiple of anything. */
static void hint_groups(const struct legality_input *in, int micro_batches,
                        struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    int64_t unit = (int64_t)l->fsdp * l->d_rep * l->micro_batch;
    int64_t less = micro_batches - micro_batches % l->pp, more = less + l->pp;

    if (in->choices->primitives.tokens_per_gpu > 0)
        diag_hint(reterr, "vpp=1, or samples that fill a multiple of %d rows a data-parallel rank",
                  l->pp);
    else if (less > 0)
        diag_hint(reterr,
                  "vpp=1, or a global batch of %" PRId64 " (%" PRId64 " micro-batches) or %" PRId64
                  " (%" PRId64 " micro-batches)",
                  less * unit, less, more * unit, more);
    else
        diag_hint(reterr, "vpp=1, or a global batch of %" PRId64 " (%" PRId64 " micro-batches)",
                  more * unit, more);
}

/* The order of interleaved passes goes by groups of as many micro-batches as there are stages; with
 * fewer in the last one a pass would wait for the one before it (Megatron-LM refuses that too). */
int legality_virtual_groups(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    const struct rows_input rows = { in->choices, in->seq_tokens, in->lengths };

    if (l->vpp <= 1 || l->pp <= 1 || !world_is_filled(in) || legality_batch(in, NULL))
        return 0;
    int micro_batches = rows_micro_batches(&rows);
    if (micro_batches % l->pp == 0)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "vpp"),
               "vpp %d takes micro-batches in groups of pp %d, which does not divide %d of them",
               l->vpp, l->pp, micro_batches);
    hint_groups(in, micro_batches, reterr);
    return 1;
}

/* Share of the step that a 1F1B pipeline idles: (P - 1) / (m + P - 1). */
int legality_bubble(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    const struct rows_input rows = { in->choices, in->seq_tokens, in->lengths };
    int pp = l->pp, m = rows_micro_batches(&rows);

    if (m < 1 || m >= pp)
        return 0;
    if (!reterr)
        return 1;
    diag_warning(reterr, choice_pos(in->fixed, "pp"),
                 "%d micro-batches for %d stages: the bubble is (%d - 1) / (%d + %d - 1) = %.0f %% "
                 "of the step",
                 m, pp, pp, m, pp, 100.0 * (pp - 1) / (m + pp - 1));
    diag_hint(reterr, "a global batch of %lld gives each stage as many micro-batches as stages",
              (long long)l->fsdp * l->d_rep * l->micro_batch * pp);
    return 1;
}
