#include "planner/report/text.h"

#include "base/item.h"
#include "base/layout/trained.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/predict/range.h"
#include "planner/report/table.h"
#include "planner/report/workload.h"

#include <math.h>
#include <string.h>

enum {
    LINE_MAX_BYTES = 512,
    RANKS_SHOWN_MAX = 48,
    OTHERS_SHOWN = 4,
    CHOICE_WIDTH = 6,
    CHOICE_WIDTH_MAX = 16
};

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
    (void)fprintf(out, "%s, %s parameters, %s active%s    %d x %s (%.1f %s usable)    %s tokens\n",
                  plan->model.title[0] ? plan->model.title : plan->model.name, total, active,
                  trained, plan->gpus,
                  plan->hardware.gpu[0] ? plan->hardware.gpu : plan->hardware.name,
                  scaled(scale, prediction->memory_bytes), scale.unit, tokens);
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

/* Where saving or another moment beside the step takes the most. */
static void print_other_moment(const struct prediction *prediction, FILE *out)
{
    uint64_t bytes = prediction->binding_bytes, limit = prediction->limit_bytes;
    struct scale scale = scale_for(bytes);
    uint64_t spare = bytes > limit ? bytes - limit : limit - bytes;
    struct scale spare_scale = scale_for(spare);
    if (prediction->binding == MOMENT_STEADY)
        return;
    (void)fprintf(out, "%*s%s takes more than a step: %.*f %s, %.*f %s %s\n", TEXT_MARGIN, "",
                  moment_names[prediction->binding], scale.decimals, scaled(scale, bytes),
                  scale.unit, spare_scale.decimals, scaled(spare_scale, spare), spare_scale.unit,
                  bytes > limit ? "too much" : "spare");
}

/* The verdict in the margin, the layout beside it, the worst rank under it. */
void report_verdict_text(const struct prediction *prediction, struct text_style style)
{
    static const char *const words[] = { "fits", "tight", "" };
    const struct plan *plan = &prediction->plan;
    const struct rank_budget *worst = prediction_worst(prediction);
    char degrees[LINE_MAX_BYTES], primitives[LINE_MAX_BYTES], phase[64];
    format_degrees(&plan->choices.layout, "  ", degrees, sizeof degrees);
    format_primitives(&plan->model, &plan->choices.primitives, primitives, sizeof primitives);
    phase_format(&worst->peak_phase, phase, sizeof phase);
    const char *colour = style.colour ? colour_of(prediction->verdict) : "";
    const char *plain = style.colour ? "\033[0m" : "";
    if (prediction->verdict == VERDICT_DOES_NOT_FIT)
        (void)fprintf(style.out, "%sdoes not fit%s\n", colour, plain);
    (void)fprintf(style.out, "%s%-*s%s%s    %s\n", colour, TEXT_MARGIN, words[prediction->verdict],
                  plain, degrees, primitives);
    struct scale scale = scale_for(worst->peak_bytes);
    bool over = worst->peak_bytes > prediction->limit_bytes;
    uint64_t spare = over ? worst->peak_bytes - prediction->limit_bytes
                          : prediction->limit_bytes - worst->peak_bytes;
    struct scale spare_scale = scale_for(spare);
    (void)fprintf(style.out, "%*sworst rank %d: %.*f %s at %s, %.*f %s %s\n", TEXT_MARGIN, "",
                  worst->rank, scale.decimals, scaled(scale, worst->peak_bytes), scale.unit, phase,
                  spare_scale.decimals, scaled(spare_scale, spare), spare_scale.unit,
                  over ? "too much" : "spare");
    if (worst->peak_upper_bytes > worst->peak_bytes)
        (void)fprintf(style.out, "%*supper bound %.*f %s, limit %.*f %s\n", TEXT_MARGIN, "",
                      scale.decimals, scaled(scale, worst->peak_upper_bytes), scale.unit,
                      scale.decimals, scaled(scale, prediction->limit_bytes), scale.unit);
    print_other_moment(prediction, style.out);
    report_workload_text(prediction, style.out);
}

/* "ep=8" becomes "ep 8", padded so that the reasons line up. */
static void print_reasons(const struct answer *answer, FILE *out)
{
    int width = CHOICE_WIDTH;
    for (int i = 0; i < answer->reason_count; i++) {
        int length = (int)strlen(answer->reasons[i].choice);
        width = length > width && length <= CHOICE_WIDTH_MAX ? length : width;
    }
    for (int i = 0; i < answer->reason_count; i++) {
        char choice[64], line[LINE_MAX_BYTES];
        (void)text_copy(choice, sizeof choice, answer->reasons[i].choice);
        char *equals = strchr(choice, '=');
        if (equals)
            *equals = ' ';
        (void)snprintf(line, sizeof line, "%-*s %s", width, choice, answer->reasons[i].because);
        text_wrap(i == 0 ? "why" : "", line, width + 1, out);
    }
}

static void print_nearest(const struct answer *answer, FILE *out)
{
    for (int i = 0; i < answer->nearest_count; i++) {
        const struct nearest *nearest = &answer->nearest[i];
        char line[LINE_MAX_BYTES], size[32];
        units_format_gb(size, sizeof size, nearest->peak_bytes, 1);
        (void)snprintf(line, sizeof line, "%s (%s)", nearest->change, size);
        text_wrap(i == 0 ? "nearest" : "", line, 4, out);
    }
}

/* A list of ranks too long for a line says how many there are instead. */
static void format_ranks(const struct prediction *prediction, int group, char *ret, size_t size)
{
    char ranks[4096];
    budget_group_ranks(&prediction->input, &prediction->budget, group, ranks, sizeof ranks);
    if (strlen(ranks) <= RANKS_SHOWN_MAX)
        (void)snprintf(ret, size, "rank%s %s", strpbrk(ranks, "-,") ? "s" : "", ranks);
    else
        (void)snprintf(ret, size, "ranks %.*s...", RANKS_SHOWN_MAX - 8, ranks);
}

static void print_memory(const struct prediction *prediction, FILE *out)
{
    struct scale scale = scale_for(prediction_worst(prediction)->peak_bytes);
    struct table table = { .columns = CATEGORY_COUNT + 2, .left = 1u };
    table_cell(&table, "%-18s", scale.unit);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        table_cell(&table, "%s", category_names[i]);
    table_cell(&table, "%7s", "peak");
    for (int group = 0; group < prediction->budget.count; group++) {
        const struct rank_budget *rank = &prediction->budget.groups[group];
        char ranks[64];
        format_ranks(prediction, group, ranks, sizeof ranks);
        table_cell(&table, "%s", ranks);
        for (int i = 0; i < CATEGORY_COUNT; i++)
            table_cell(&table, "%.*f", scale.decimals, scaled(scale, rank->category_bytes[i]));
        table_cell(&table, "%.*f", scale.decimals, scaled(scale, rank->peak_bytes));
    }
    table_print(&table, "memory", out);
    table_done(&table);
}

static double percent_of(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void print_step(const struct step_time *time, FILE *out)
{
    char seconds[32], tokens[32];
    double bubble = time->item_seconds[TIME_BUBBLE];
    double optimizer = time->item_seconds[TIME_OPTIMIZER];
    double exposed = time->exposed_communication_seconds;
    units_format_seconds(seconds, sizeof seconds, time->seconds);
    units_format_count(tokens, sizeof tokens, (uint64_t)llround(time->tokens_per_second_per_gpu));
    (void)fprintf(
        out,
        "%-*s%s   %.3g model TFLOP/s per GPU (MFU %.1f %%, HFU %.1f %%)   %s tokens/s per "
        "GPU\n",
        TEXT_MARGIN, "step", seconds, time->model_flops_per_second_per_gpu / 1e12, 100 * time->mfu,
        100 * time->hfu, tokens);
    (void)fprintf(out,
                  "%*scompute %.0f %%, exposed communication %.0f %%, bubble %.0f %%, optimizer "
                  "%.0f %%\n",
                  TEXT_MARGIN, "",
                  percent_of(time->seconds - exposed - bubble - optimizer, time->seconds),
                  percent_of(exposed, time->seconds), percent_of(bubble, time->seconds),
                  percent_of(optimizer, time->seconds));
}

/* "between 310 ms and 640 ms: expert exchanges hidden -210 ms, ..." */
static void print_range(const struct prediction *prediction, FILE *out)
{
    const struct time_range *range = &prediction->range;
    char line[512], text[2][32];
    size_t used = 0;
    if (range->count == 0)
        return;
    text_append(line, sizeof line, &used,
                "between %s and %s:", units_format_seconds(text[0], sizeof text[0], range->fastest),
                units_format_seconds(text[1], sizeof text[1], range->slowest));
    for (int i = 0; i < range->count; i++) {
        double seconds = range->causes[i].seconds;
        text_append(line, sizeof line, &used, "%s %s %s%s", i > 0 ? "," : "", range->causes[i].what,
                    seconds < 0 ? "-" : "+",
                    units_format_seconds(text[0], sizeof text[0], fabs(seconds)));
    }
    text_wrap("", line, 0, out);
}

/* Two runners-up a line: layout, peak, and how much slower than the recommended. */
static void print_others(const struct prediction *prediction, const struct answer *answer,
                         FILE *out)
{
    struct table table = { .columns = 4, .left = 1u };
    for (int i = 0; i < answer->candidate_count && i < OTHERS_SHOWN; i++) {
        const struct candidate *other = &answer->candidates[i];
        char degrees[LINE_MAX_BYTES], size[32], primitives[LINE_MAX_BYTES];
        double speed = other->time.tokens_per_second_per_gpu;
        double best = prediction->time.tokens_per_second_per_gpu;
        format_degrees(&other->choices.layout, " ", degrees, sizeof degrees);
        format_primitives(&prediction->plan.model, &other->choices.primitives, primitives,
                          sizeof primitives);
        table_cell(&table, "%s", degrees);
        table_cell(&table, "%s", units_format_gb(size, sizeof size, other->worst.peak_bytes, 1));
        table_cell(&table, "%+.0f %%", percent_of(speed - best, best));
        table_cell(&table, "%s", primitives);
    }
    table.left |= 1u << 3;
    if (table.cell_count > 0)
        table_print(&table, "others", out);
    table_done(&table);
}

static void print_judged(const struct answer *answer, FILE *out)
{
    char layouts[32];
    if (answer->derived_over_best < 0)
        return;
    units_format_count(layouts, sizeof layouts, (uint64_t)answer->layouts);
    (void)fprintf(out, "%-*s%.1f %% of the speed of the best of %s layouts under the policy %s\n",
                  TEXT_MARGIN, "judged", 100 * answer->derived_over_best, layouts, answer->policy);
}

void report_plan_text(const struct prediction *prediction, const struct answer *answer,
                      struct text_style style)
{
    FILE *out = style.out;
    char binding[BINDING_TEXT];
    report_head_text(prediction, out);
    (void)fputc('\n', out);
    report_verdict_text(prediction, style);
    print_reasons(answer, out);
    prediction_binding(prediction, answer->binding, binding, sizeof binding);
    if (answer->binding[0] && prediction->verdict != VERDICT_FITS)
        text_wrap("limit", binding, 0, out);
    print_nearest(answer, out);
    print_memory(prediction, out);
    print_step(&prediction->time, out);
    print_range(prediction, out);
    print_others(prediction, answer, out);
    print_judged(answer, out);
    (void)fprintf(out,
                  "%-*srankfit plan ... -o plan.yaml; rankfit budget plan.yaml; rankfit run "
                  "plan.yaml\n",
                  TEXT_MARGIN, "next");
}
