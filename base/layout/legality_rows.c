/* Rows of tokens: budgets of tokens, pieces of several lengths and their padding; passes of
 * reinforcement learning. */
#include "base/layout/legality_rules.h"
#include "base/layout/rows.h"
#include "base/text.h"
#include "base/units.h"

#include <inttypes.h>

enum { TEXT = 32 };

static struct rows_input rows_of(const struct legality_input *in)
{
    return (struct rows_input){ in->choices, in->seq_tokens, in->lengths };
}

static uint64_t longest_piece(const struct legality_input *in)
{
    bool mixed = in->lengths && in->lengths->distinct > 0;
    return mixed ? in->lengths->items[0].tokens : in->seq_tokens;
}

static int one_row_a_micro_batch(const struct legality_input *in, struct diag_list *reterr)
{
    int micro_batch = in->choices->layout.micro_batch;
    if (micro_batch == 1)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "tokens_per_gpu"),
               "tokens_per_gpu and micro_batch %d both say how many tokens a micro-batch has",
               micro_batch);
    diag_hint(reterr,
              "leave micro_batch at 1: a micro-batch is then one row of tokens_per_gpu x cp "
              "tokens");
    return 1;
}

/* Tokens of a rank that hold the longest piece, up to a multiple that a row splits by. */
static uint64_t least_budget(const struct legality_input *in)
{
    const struct layout *l = &in->choices->layout;
    uint64_t cp = (uint64_t)l->cp, parts = 2 * (uint64_t)l->tp;
    uint64_t padded = rows_padded(longest_piece(in), rows_multiple(in->choices));
    return rows_padded((padded + cp - 1) / cp, parts);
}

/* The smallest cp from `least` on that the GPUs allow beside tp and pp; 0: none. */
static int64_t next_cp(const struct legality_input *in, uint64_t least)
{
    const struct layout *l = &in->choices->layout;
    int64_t rest = in->gpus / (l->tp * l->pp);
    for (int64_t cp = (int64_t)least; cp <= rest; cp++)
        if (in->gpus % (cp * l->tp * l->pp) == 0)
            return cp;
    return 0;
}

int legality_token_budget(const struct legality_input *in, struct diag_list *reterr)
{
    uint64_t budget = in->choices->primitives.tokens_per_gpu, cp = (uint64_t)in->choices->layout.cp;
    uint64_t row = rows_capacity(in->choices, in->seq_tokens);
    uint64_t need = rows_padded(longest_piece(in), rows_multiple(in->choices));
    char have[TEXT], needed[TEXT];

    if (budget == 0)
        return 0;
    if (row >= need)
        return one_row_a_micro_batch(in, reterr);
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "tokens_per_gpu"),
               "tokens_per_gpu %" PRIu64 " x cp %" PRIu64 " = %s tokens of a micro-batch, which is "
               "below %s, the longest prompt and response",
               budget, cp, units_format_count(have, sizeof have, row),
               units_format_count(needed, sizeof needed, need));
    int64_t wider = next_cp(in, (need + budget - 1) / budget);
    if (wider > 0)
        diag_hint(reterr, "tokens_per_gpu=%" PRIu64 " holds it, or cp=%" PRId64, least_budget(in),
                  wider);
    else
        diag_hint(reterr, "tokens_per_gpu=%" PRIu64 " holds it", least_budget(in));
    return 1;
}

int legality_reference(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;

    if (p->reference_weights == REFERENCE_RESIDENT || (p->rl & RL_REFERENCE))
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "reference_weights"),
               "reference_weights=host, but there is no reference model");
    diag_hint(reterr, "rl=reference has one; or leave reference_weights at resident");
    return 1;
}

int legality_packing(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    bool mixed = in->lengths && in->lengths->distinct > 0;
    uint64_t need = rows_padded(longest_piece(in), rows_multiple(in->choices));
    char longest[TEXT], row[TEXT];

    if (mixed == (p->packing != PACKING_NONE) &&
        (!mixed || p->tokens_per_gpu > 0 || need <= in->seq_tokens))
        return 0;
    if (!reterr)
        return 1;
    if (mixed && p->packing != PACKING_NONE) {
        diag_error(reterr, choice_pos(in->fixed, "packing"),
                   "the longest piece has %s tokens with its padding, a row %s",
                   units_format_count(longest, sizeof longest, need),
                   units_format_count(row, sizeof row, in->seq_tokens));
        diag_hint(reterr, "--seq is the length of a row: at least %" PRIu64, need);
        return 1;
    }
    diag_error(reterr, choice_pos(in->fixed, "packing"), "packing=%s, but %s",
               packing_names[p->packing],
               mixed ? "pieces of several lengths are given" : "no lengths of pieces are given");
    diag_hint(reterr, mixed ? "packing=row pads each piece to 2 x cp, packing=piece to cp x lcm(2, "
                              "tp)"
                            : "--lengths gives them, as in --lengths 1000,513");
    return 1;
}

/* "1000 -> 1000, 513 -> 520": the first of the lengths. */
static void list_padded(const struct lengths *lengths, uint64_t multiple, char *ret, size_t size)
{
    enum { SHOWN = 4 };
    size_t used = 0;
    ret[0] = '\0';
    for (int i = 0; i < lengths->distinct && i < SHOWN; i++)
        text_append(ret, size, &used, "%s%" PRIu64 " -> %" PRIu64, i ? ", " : "",
                    lengths->items[i].tokens, rows_padded(lengths->items[i].tokens, multiple));
    if (lengths->distinct > SHOWN)
        text_append(ret, size, &used, ", ...");
}

int legality_padding(const struct legality_input *in, struct diag_list *reterr)
{
    struct rows_input input = rows_of(in);
    struct packed_rows rows;
    char padded[200], pad[TEXT], all[TEXT], empty[TEXT];

    if (!in->lengths || in->lengths->distinct == 0 ||
        in->choices->primitives.packing == PACKING_NONE)
        return 0;
    rows_init(&input, &rows);
    uint64_t room = rows.rows * rows.row_tokens;
    if (rows.tokens >= room)
        return 0;
    if (!reterr)
        return 1;
    list_padded(in->lengths, rows.multiple, padded, sizeof padded);
    diag_warning(reterr, choice_pos(in->fixed, "packing"),
                 "%s pad tokens (pieces to a multiple of %" PRIu64 ": %s) and %s at the ends of "
                 "rows: %.2f %% of the throughput is lost on %s tokens",
                 units_format_count(pad, sizeof pad, rows.padded_tokens - rows.tokens),
                 rows.multiple, padded,
                 units_format_count(empty, sizeof empty,
                                    room > rows.padded_tokens ? room - rows.padded_tokens : 0),
                 100 * (1 - (double)rows.tokens / (double)room),
                 units_format_count(all, sizeof all, room));
    if (room > rows.padded_tokens)
        diag_hint(reterr,
                  "pieces are packed as given, 1000*4 are four of them; --seq that they fill "
                  "leaves nothing");
    else
        diag_hint(reterr, "fewer ranks of cp pad less");
    return 1;
}
