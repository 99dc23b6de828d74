#include "planner/report/workload.h"

#include "base/text.h"
#include "base/units.h"
#include "planner/report/json.h"
#include "planner/report/table.h"

#include <string.h>

enum { LINE = 400, NUMBER = 32 };

static bool rows_of(const struct prediction *prediction, struct packed_rows *ret, int *ret_batches)
{
    const struct budget_input *in = &prediction->input;
    const struct rows_input rows = { in->choices, in->seq_tokens, in->lengths };
    if (!rows_are_packed(&rows))
        return false;
    rows_init(&rows, ret);
    *ret_batches = rows_micro_batches(&rows);
    return true;
}

/* Share of the tokens computed that nothing is learned from. */
static double lost_share(const struct packed_rows *rows)
{
    return 1 - (double)rows->tokens / ((double)rows->rows * (double)rows->row_tokens);
}

static void print_rows(const struct prediction *prediction, FILE *out)
{
    const struct choices *c = &prediction->plan.choices;
    struct packed_rows rows;
    char line[LINE], row[NUMBER], pieces[NUMBER], all[NUMBER], pad[NUMBER], own[NUMBER];
    size_t used = 0;
    int batches;
    if (!rows_of(prediction, &rows, &batches))
        return;
    text_append(line, sizeof line, &used, "%s tokens",
                units_format_count(row, sizeof row, rows.row_tokens));
    if (c->primitives.tokens_per_gpu > 0)
        text_append(line, sizeof line, &used, " (%s a GPU x cp %d)",
                    units_format_count(own, sizeof own, c->primitives.tokens_per_gpu),
                    c->layout.cp);
    text_append(line, sizeof line, &used,
                ", %d micro-batches a step; %s pieces in %s rows, %s pad tokens to multiples of "
                "%llu, %.2f %% of the throughput lost to padding and to ends of rows",
                batches, units_format_count(pieces, sizeof pieces, rows.pieces),
                units_format_count(all, sizeof all, rows.rows),
                units_format_count(pad, sizeof pad, rows.padded_tokens - rows.tokens),
                (unsigned long long)rows.multiple, 100 * lost_share(&rows));
    if (rows.imbalance > 1)
        text_append(line, sizeof line, &used,
                    "; attention of the fullest data-parallel rank %.2f times the mean, not in the "
                    "step time",
                    rows.imbalance);
    text_wrap("rows", line, 0, out);
}

static void print_passes(const struct prediction *prediction, FILE *out)
{
    const struct primitives *p = &prediction->plan.choices.primitives;
    char line[LINE], seconds[NUMBER];
    size_t used = 0;
    if (p->rl == 0)
        return;
    units_format_seconds(seconds, sizeof seconds, prediction->time.item_seconds[TIME_LOGPROBS]);
    if (p->rl & (RL_OLD | RL_REFERENCE))
        text_append(line, sizeof line, &used, "log-probabilities by %s%s%s: %s of the step%s",
                    p->rl & RL_OLD ? "the policy as it was" : "",
                    (p->rl & RL_OLD) && (p->rl & RL_REFERENCE) ? " and by " : "",
                    !(p->rl & RL_REFERENCE) ? ""
                    : p->reference_weights == REFERENCE_RESIDENT
                        ? "the reference model, resident"
                        : "the reference model, on the host",
                    seconds, p->rl & RL_ENTROPY ? "; " : "");
    if (p->rl & RL_ENTROPY)
        text_append(line, sizeof line, &used, "entropy over the whole vocabulary");
    text_wrap("rl", line, 0, out);
}

static void print_reserve(const struct prediction *prediction, FILE *out)
{
    const struct plan *plan = &prediction->plan;
    char line[LINE], reserved[NUMBER], headroom[NUMBER], memory[NUMBER];
    if (plan->reserve_bytes == 0)
        return;
    (void)snprintf(line, sizeof line, "%s of %s for %s (--reserve), beside %s of headroom",
                   units_format_gb(reserved, sizeof reserved, plan->reserve_bytes, 2),
                   units_format_gb(memory, sizeof memory, prediction->memory_bytes, 2),
                   plan->choices.primitives.rl ? "rollout" : "something else",
                   units_format_gb(headroom, sizeof headroom, plan->headroom_bytes, 2));
    text_wrap("reserve", line, 0, out);
}

void report_workload_text(const struct prediction *prediction, FILE *out)
{
    print_rows(prediction, out);
    print_passes(prediction, out);
    print_reserve(prediction, out);
}

void report_add_rows(struct json *object, const struct prediction *prediction)
{
    struct packed_rows rows;
    int batches;
    if (!rows_of(prediction, &rows, &batches))
        return;
    struct json *ret = json_map();
    json_put_u64(ret, "tokens_per_micro_batch", rows.row_tokens);
    json_put_int(ret, "micro_batches", batches);
    json_put_u64(ret, "piece_multiple", rows.multiple);
    json_put_u64(ret, "pieces", rows.pieces);
    json_put_u64(ret, "rows", rows.rows);
    json_put_u64(ret, "tokens", rows.tokens);
    json_put_u64(ret, "padded_tokens", rows.padded_tokens);
    json_put_u64(ret, "pad_tokens", rows.padded_tokens - rows.tokens);
    json_put_number(ret, "lost_fraction", lost_share(&rows));
    json_put_number(ret, "attention_imbalance", rows.imbalance);
    json_put(object, "rows", ret);
}
