#include "tests/property/budget_difference.h"

#include "planner/predict/peaks.h"
#include "planner/predict/walk.h"
#include "tests/support/asked.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

bool is_played(int item)
{
    return item != ITEM_COMMUNICATORS && item != ITEM_CONTEXT && item != ITEM_MODULES &&
           item != ITEM_SLACK;
}

uint64_t played_bytes(const struct rank_budget *r)
{
    uint64_t sum = 0;
    for (int i = 0; i < ITEM_COUNT; i++)
        sum += is_played(i) ? r->item_bytes[i] : 0;
    return sum;
}

static int differ(const char *what, const char *item, uint64_t got, uint64_t want, bool tell)
{
    if (got == want)
        return 0;
    if (tell)
        (void)fprintf(stderr, "  %s%s: %" PRIu64 " in the budget, %" PRIu64 " played\n", what, item,
                      got, want);
    return 1;
}

static int differ_in_phase(const struct phase *got, const struct sim_phase *want, bool tell)
{
    struct phase played = { (enum phase_kind)want->kind, want->stage, want->micro_batch,
                            want->layer };
    char a[96], b[96];
    if (got->kind == played.kind && got->stage == played.stage && got->layer == played.layer &&
        got->micro_batch == played.micro_batch)
        return 0;
    phase_format(got, a, sizeof a);
    phase_format(&played, b, sizeof b);
    if (tell)
        (void)fprintf(stderr, "  peak at %s in the budget, at %s played\n", a, b);
    return 1;
}

int budget_differences(const struct rank_budget *got, const struct sim_result *want, bool tell)
{
    int count = 0;
    for (int i = 0; i < ITEM_COUNT; i++) {
        if (!is_played(i))
            continue;
        const char *name = item_infos[i].name;
        count += differ("maximum of ", name, got->item_max_bytes[i], want->max[i], tell);
        count += differ("at the peak, ", name, got->item_bytes[i], want->at_peak[i], tell);
    }
    count += differ("peak", "", played_bytes(got), want->peak, tell);
    count += differ("host", "", got->host_bytes, want->host_bytes, tell);
    return count + differ_in_phase(&got->peak_phase, &want->phase, tell);
}

/* Item by item what budget_peaks tells the sum of. */
static int logprob_differences(const struct budget_input *in, const struct rank_budget *got,
                               const struct sim_result *want, bool tell)
{
    struct walk_result forward;
    struct measured_layers rows = { .fullest = got->routed_rows };
    struct walk_request request = {
        .predictor = asked(in), .stage = got->stage, .group = -1, .measured = &rows
    };
    for (int i = 0; i < MODEL_MAX_LAYERS; i++)
        rows.rows[i] = got->routed_rows;
    walk_forward_alone(&request, &forward);
    struct rank_budget pass = { .host_bytes = want->host_bytes, .peak_phase = forward.phase };
    for (int i = 0; i < ITEM_COUNT; i++) {
        pass.item_bytes[i] = forward.item[i];
        pass.item_max_bytes[i] = forward.max[i];
    }
    return budget_differences(&pass, want, tell);
}

int moment_differences(const struct budget_input *in, const struct rank_budget *got,
                       const struct sim_job *job, bool tell)
{
    struct sim_result first, rest, pass = { .peak = 0 };
    struct rank_peaks peaks;
    uint64_t beside = 0;
    bool passes = logprob_passes(&in->choices->primitives) > 0;
    for (int i = 0; i < ITEM_COUNT; i++)
        beside += is_played(i) ? 0 : got->item_bytes[i];
    budget_peaks(asked(in), got, job->rank, &peaks);
    simulate_first(job, &first);
    simulate_rest(job, &rest);
    int count = 0;
    count += differ("first step", "", peaks.bytes[MOMENT_FIRST_STEP], first.peak + beside, tell);
    bool host = in->hardware->host;
    uint64_t save = simulate_save(job), idle = rest.total + beside;
    count += differ("save", "", peaks.bytes[MOMENT_SAVE], idle + (host ? save : 0), tell);
    count += differ("save, host", "", peaks.host_bytes[MOMENT_SAVE], host ? 0 : save, tell);
    if (!host)
        count += differ("resume", "", peaks.bytes[MOMENT_RESUME], idle, tell);
    if (passes)
        simulate_log_probabilities(job, &pass);
    count += differ("log-probabilities", "", peaks.bytes[MOMENT_LOGPROB],
                    passes ? pass.peak + beside : 0, tell);
    return passes ? count + logprob_differences(in, got, &pass, tell) : count;
}

void phase_played(const struct sim_phase *phase, uint64_t bytes, void *phases)
{
    struct phases_played *all = phases;
    struct phase at = { (enum phase_kind)phase->kind, phase->stage, phase->micro_batch,
                        phase->layer };
    if (all->count < PHASES_MAX)
        all->items[all->count++] = (struct phase_bytes){ at, bytes };
}

static const struct phase_bytes *find_phase(const struct phases_played *all,
                                            const struct phase *wanted)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct phase *p = &all->items[i].phase;
        if (p->kind == wanted->kind && p->layer == wanted->layer &&
            p->micro_batch == wanted->micro_batch)
            return &all->items[i];
    }
    return NULL;
}

/* Whether no phase of the budget with the same work is as full as one that was played. */
static bool is_unforeseen(const struct phase_bytes *was, const struct phase_bytes *phases,
                          size_t count, uint64_t beside)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        const struct phase *p = &phases[i].phase;
        uint64_t bytes = phases[i].bytes - beside;
        if (p->kind == was->phase.kind && p->layer == was->phase.layer && bytes > most)
            most = bytes;
    }
    return was->bytes > most;
}

int phase_differences(const struct budget_input *in, int stage, uint64_t beside,
                      const struct phases_played *played, bool tell)
{
    static struct phase_bytes phases[PHASES_MAX];
    size_t count = budget_phases(asked(in), stage, phases, PHASES_MAX);
    int ret = 0;
    for (size_t i = 0; i < count; i++) {
        const struct phase_bytes *was = find_phase(played, &phases[i].phase);
        char text[96];
        phase_format(&phases[i].phase, text, sizeof text);
        ret += differ("", text, phases[i].bytes - beside, was ? was->bytes : 0, tell);
    }
    for (size_t i = 0; i < played->count; i++) {
        const struct phase_bytes *was = &played->items[i];
        char text[96];
        phase_format(&was->phase, text, sizeof text);
        if (is_unforeseen(was, phases, count, beside))
            ret += differ("fuller than any such phase, ", text, 0, was->bytes, tell);
    }
    return ret;
}
