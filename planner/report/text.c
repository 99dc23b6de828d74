#include "planner/report/text.h"

#include "base/item.h"
#include "base/layout/trained.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/report/table.h"
#include "planner/report/workload.h"

#include <string.h>

enum { LINE_MAX_BYTES = 512 };

void format_degrees(const struct layout *layout, const char *gap, char *ret, size_t size)
{
    size_t used = 0;
    text_append(ret, size, &used, "tp %d%spp %d", layout->tp, gap, layout->pp);
    if (layout->vpp > 1)
        text_append(ret, size, &used, "%svpp %d", gap, layout->vpp);
    text_append(ret, size, &used, "%sep %d", gap, layout->ep);
    if (layout->etp > 1)
        text_append(ret, size, &used, "%setp %d", gap, layout->etp);
    text_append(ret, size, &used, "%scp %d%sdp %d", gap, layout->cp, gap, layout_dp(layout));
}

static void append_moe(const struct primitives *p, char *ret, size_t size, size_t *used)
{
    if (p->moe == MOE_CHUNKED)
        text_append(ret, size, used, ", %d expert chunks", p->moe_chunks);
    else if (p->moe == MOE_CAPPED)
        text_append(ret, size, used, ", capped experts");
}

/* Names of set bits, joined by `between`. */
static void append_names(unsigned bits, const char *const *names, int count, char *ret, size_t size,
                         size_t *used)
{
    const char *between = "";
    for (int i = 0; i < count; i++) {
        if (!(bits >> i & 1U))
            continue;
        text_append(ret, size, used, "%s%s", between, names[i]);
        between = " and ";
    }
}

static void append_trained(const struct model *model, const struct primitives *p, char *ret,
                           size_t size, size_t *used)
{
    unsigned targets = p->lora_targets & ~(unsigned)(model->moe.experts > 0 ? 0 : LORA_EXPERTS);
    if (p->optimizer == OPTIMIZER_MUON)
        text_append(ret, size, used, ", Muon");
    if (p->moments_dtype == DTYPE_BF16)
        text_append(ret, size, used, ", bf16 moments");
    if (p->master == MASTER_NONE)
        text_append(ret, size, used, ", no master weights");
    if (p->lora_rank > 0) {
        text_append(ret, size, used, ", adapters of rank %d for ", p->lora_rank);
        append_names(targets, lora_names, LORA_COUNT, ret, size, used);
    }
    if (p->frozen != 0) {
        text_append(ret, size, used, ", ");
        append_names(p->frozen, component_names, FREEZABLE_COMPONENTS, ret, size, used);
        text_append(ret, size, used, " frozen");
    }
}

void format_primitives(const struct model *model, const struct primitives *p, char *ret,
                       size_t size)
{
    static const char *const losses[LOSS_COUNT] = { "full logits", "linear CE", "ring DTP" };
    size_t used = 0;
    text_append(ret, size, &used, "%s, ", sharding_names[p->sharding]);
    bool attended = p->keep_attention && p->recompute == RECOMPUTE_FULL;
    if (!attended)
        text_append(ret, size, &used, "%s ",
                    p->recompute == RECOMPUTE_NONE ? "no" : recompute_names[p->recompute]);
    text_append(ret, size, &used, "recompute");
    if (p->recompute_layers > 0 && p->recompute != RECOMPUTE_NONE)
        text_append(ret, size, &used, " of %d", p->recompute_layers);
    text_append(ret, size, &used, "%s, %s", attended ? " but attention" : "", losses[p->loss]);
    if (model->moe.experts > 0)
        append_moe(p, ret, size, &used);
    for (int i = 0; i < OFFLOAD_COUNT; i++)
        if (p->offload & 1u << i)
            text_append(ret, size, &used, ", %s offloaded", offload_names[i]);
    append_trained(model, p, ret, size, &used);
}

void format_params(uint64_t params, char *ret, size_t size)
{
    if (params >= UINT64_C(1000000000))
        (void)snprintf(ret, size, "%.2f B", (double)params / 1e9);
    else
        (void)snprintf(ret, size, "%.2f M", (double)params / 1e6);
}

void report_head_text(const struct prediction *prediction, FILE *out)
{
    const struct plan *plan = &prediction->plan;
    char total[32], active[32], tokens[32], trained[64] = "";
    struct scale scale = scale_for(prediction->memory_bytes);
    uint64_t params = params_trained(&plan->model, &plan->choices.primitives);
    if (params != prediction->sizes.counts.trained) {
        format_params(params, tokens, sizeof tokens);
        (void)snprintf(trained, sizeof trained, ", %s trained", tokens);
    }
    format_params(prediction->sizes.counts.total, total, sizeof total);
    format_params(prediction->sizes.counts.active, active, sizeof active);
    units_format_count(tokens, sizeof tokens, plan->seq_tokens);
    bool own = strcmp(plan->engine, "rankfit") == 0;
    (void)fprintf(out, "%s, %s parameters (%s active%s), %s tokens, on %d x %s (%.1f %s)%s%s\n",
                  plan->model.title[0] ? plan->model.title : plan->model.name, total, active,
                  trained, tokens, plan->gpus,
                  plan->hardware.gpu[0] ? plan->hardware.gpu : plan->hardware.name,
                  scaled(scale, prediction->memory_bytes), scale.unit, own ? "" : ", engine ",
                  own ? "" : plan->engine);
}

static const char *colour_of(enum verdict verdict)
{
    switch (verdict) {
    case VERDICT_FITS:
        return "\033[32m";
    case VERDICT_TIGHT:
        return "\033[33m";
    case VERDICT_DOES_NOT_FIT:
        return "\033[31m";
    }
    return "";
}

/* Of an engine under PyTorch, the figures that its own tools print. */
static void print_metrics(const struct prediction *prediction, const struct rank_budget *worst,
                          FILE *out)
{
    uint64_t reserved = worst->arena_bytes + worst->item_bytes[ITEM_SLACK];
    struct scale scale = scale_for(worst->peak_bytes);
    (void)fprintf(out, "%*sallocated %.*f %s, reserved %.*f %s, device %.*f %s\n", TEXT_MARGIN, "",
                  scale.decimals, scaled(scale, worst->arena_bytes), scale.unit, scale.decimals,
                  scaled(scale, reserved), scale.unit, scale.decimals,
                  scaled(scale, worst->peak_bytes), scale.unit);
    (void)fprintf(out, "%*sthe step time and its parts are those of engine rankfit, not of %s\n",
                  TEXT_MARGIN, "", prediction->plan.engine);
}

/* Where saving or another moment beside the step takes the most. */
static void print_other_moment(const struct prediction *prediction, struct scale scale, FILE *out)
{
    uint64_t bytes = prediction->binding_bytes, limit = prediction->limit_bytes;
    uint64_t spare = bytes > limit ? bytes - limit : limit - bytes;
    if (prediction->binding == MOMENT_STEADY)
        return;
    (void)fprintf(out, "%*s%s takes more than a step: %.*f %s; %.*f %s %s\n", TEXT_MARGIN, "",
                  moment_names[prediction->binding], scale.decimals, scaled(scale, bytes),
                  scale.unit, scale.decimals, scaled(scale, spare), scale.unit,
                  bytes > limit ? "too much" : "spare");
}

/* "peak 74.76 GB per rank (upper bound 75.29) at backward of layer 38; 7.94 GB spare of 83.23".
 * Spare bytes are those at the upper bound, where that fits; reserve and headroom are off. */
static void print_peak(const struct prediction *prediction, const struct rank_budget *worst,
                       FILE *out)
{
    char phase[64], line[LINE_MAX_BYTES];
    struct scale scale = scale_for(worst->peak_upper_bytes);
    uint64_t limit = prediction->limit_bytes, point = worst->peak_bytes;
    uint64_t upper = worst->peak_upper_bytes, own = upper <= limit ? upper : point;
    uint64_t left = own > limit ? own - limit : limit - own;
    size_t used = 0;
    phase_format(&worst->peak_phase, phase, sizeof phase);
    text_append(line, sizeof line, &used, "peak %.*f %s per rank", scale.decimals,
                scaled(scale, point), scale.unit);
    if (upper > point)
        text_append(line, sizeof line, &used, " (upper bound %.*f)", scale.decimals,
                    scaled(scale, upper));
    text_append(line, sizeof line, &used, " at %s; %.*f %s %s %.*f", phase, scale.decimals,
                scaled(scale, left), scale.unit,
                own > limit ? "more than the limit of" : "spare of", scale.decimals,
                scaled(scale, limit));
    text_wrap("", line, 0, out);
    print_other_moment(prediction, scale, out);
}

/* The verdict in the margin, the layout beside it, the worst rank under it. */
void report_verdict_text(const struct prediction *prediction, struct text_style style)
{
    static const char *const words[] = { "fits", "tight", "" };
    const struct plan *plan = &prediction->plan;
    const struct rank_budget *worst = prediction_worst(prediction);
    char degrees[LINE_MAX_BYTES], primitives[LINE_MAX_BYTES];
    format_degrees(&plan->choices.layout, "  ", degrees, sizeof degrees);
    format_primitives(&plan->model, &plan->choices.primitives, primitives, sizeof primitives);
    const char *colour = style.colour ? colour_of(prediction->verdict) : "";
    const char *plain = style.colour ? "\033[0m" : "";
    if (prediction->verdict == VERDICT_DOES_NOT_FIT)
        (void)fprintf(style.out, "%sdoes not fit%s\n", colour, plain);
    (void)fprintf(style.out, "%s%-*s%s%s   %s\n", colour, TEXT_MARGIN, words[prediction->verdict],
                  plain, degrees, primitives);
    print_peak(prediction, worst, style.out);
    if (prediction->input.engine)
        print_metrics(prediction, worst, style.out);
    report_workload_text(prediction, style.out);
}
