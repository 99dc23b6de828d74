#include "base/layout/rows.h"

#include "base/checked.h"

#include <string.h>

uint64_t rows_padded(uint64_t tokens, uint64_t multiple)
{
    return multiple > 1 ? round_up_to(tokens, multiple) : tokens;
}

/* Zig-zag order cuts a piece into 2 x cp equal chunks. Some stacks split each chunk over tp too:
 * cp x lcm(2, tp) (NVIDIA-NeMo/RL#2110). */
uint64_t rows_multiple(const struct choices *choices)
{
    uint64_t cp = (uint64_t)choices->layout.cp, tp = (uint64_t)choices->layout.tp;
    uint64_t parts = cp > 1 ? 2 : 1;
    if (choices->primitives.packing == PACKING_PIECE)
        parts = tp % parts == 0 ? tp : parts * tp;
    return cp * parts;
}

uint64_t rows_capacity(const struct choices *choices, uint64_t seq_tokens)
{
    uint64_t budget = choices->primitives.tokens_per_gpu;
    return budget > 0 ? mul_sat(budget, (uint64_t)choices->layout.cp) : seq_tokens;
}

static bool has_lengths(const struct rows_input *in)
{
    return in->lengths && in->lengths->distinct > 0;
}

bool rows_are_packed(const struct rows_input *in)
{
    return has_lengths(in) || in->choices->primitives.tokens_per_gpu > 0;
}

uint64_t rows_longest(const struct rows_input *in)
{
    if (!rows_are_packed(in))
        return in->seq_tokens;
    uint64_t tokens = has_lengths(in) ? in->lengths->items[0].tokens : in->seq_tokens;
    return rows_padded(tokens, rows_multiple(in->choices));
}

/* Sequences of a step, which under tokens_per_gpu are samples. */
static uint64_t samples(const struct choices *choices)
{
    const struct layout *l = &choices->layout;
    return mul3_sat((uint64_t)l->micro_batches, (uint64_t)l->micro_batch, (uint64_t)layout_dp(l));
}

/* Pieces still to be packed. */
struct pile {
    int distinct;
    struct length_count items[LENGTHS_MAX]; /* padded; longest first */
};

/* Rows filled alike. */
struct pattern {
    uint64_t rows, tokens, pieces;
    double squares; /* of one row's pieces */
};

static void pile_init(const struct rows_input *in, struct packed_rows *rows, struct pile *ret)
{
    const struct lengths one = { 1, { { in->seq_tokens, 1 } } };
    const struct lengths *mix = has_lengths(in) ? in->lengths : &one;
    uint64_t of_mix = 0, times = 1;
    for (int i = 0; i < mix->distinct; i++)
        of_mix += mix->items[i].count;
    if (in->choices->primitives.tokens_per_gpu > 0 && of_mix > 0)
        times = div_up(samples(in->choices), of_mix);
    ret->distinct = mix->distinct;
    for (int i = 0; i < mix->distinct; i++) {
        uint64_t tokens = mix->items[i].tokens, count = mul_sat(times, mix->items[i].count);
        uint64_t padded = rows_padded(tokens, rows->multiple);
        ret->items[i] = (struct length_count){ padded, count };
        rows->pieces = add_sat(rows->pieces, count);
        rows->tokens = add_sat(rows->tokens, mul_sat(count, tokens));
        rows->padded_tokens = add_sat(rows->padded_tokens, mul_sat(count, padded));
    }
}

/* The longest piece that is left, then the longest that still fits, until none does; so again for
 * as many rows as can be filled alike. First fit, longest first, but for ties. */
static bool next_pattern(struct pile *pile, uint64_t capacity, struct pattern *ret)
{
    uint64_t taken[LENGTHS_MAX] = { 0 };
    *ret = (struct pattern){ .rows = UINT64_MAX };
    for (int i = 0; i < pile->distinct; i++) {
        uint64_t length = pile->items[i].tokens, left = pile->items[i].count;
        uint64_t room = capacity > ret->tokens ? (capacity - ret->tokens) / length : 0;
        if (ret->tokens == 0 && room == 0)
            room = 1;
        taken[i] = left < room ? left : room;
        ret->tokens += taken[i] * length;
        ret->pieces += taken[i];
        ret->squares += (double)taken[i] * (double)length * (double)length;
        if (taken[i] > 0 && left / taken[i] < ret->rows)
            ret->rows = left / taken[i];
    }
    for (int i = 0; i < pile->distinct; i++)
        pile->items[i].count -= ret->rows == UINT64_MAX ? 0 : taken[i] * ret->rows;
    return ret->tokens > 0;
}

/* Squares of the ranks that rows are dealt to in turn, and their sum. */
enum { DEALT_MAX = 1024 };
struct deal {
    uint64_t ranks, next, rows;
    double all, whole; /* whole: what every rank has of patterns with many rows */
    double fullest;    /* row */
    double own[DEALT_MAX];
};

static void deal_rows(struct deal *deal, const struct pattern *pattern)
{
    uint64_t rounds = pattern->rows / deal->ranks, rest = pattern->rows % deal->ranks;
    deal->rows += pattern->rows;
    deal->all += (double)pattern->rows * pattern->squares;
    deal->fullest = pattern->squares > deal->fullest ? pattern->squares : deal->fullest;
    deal->whole += (double)rounds * pattern->squares;
    for (uint64_t i = 0; i < rest; i++) {
        deal->own[deal->next] += pattern->squares;
        deal->next = (deal->next + 1) % deal->ranks;
    }
}

/* Of fewer rows than ranks, which are a sample of them: the fullest over their mean. */
static double most_over_mean(const struct deal *deal)
{
    double most = 0;
    if (deal->rows > 0 && deal->rows < deal->ranks)
        return deal->fullest * (double)deal->rows / deal->all;
    for (uint64_t i = 0; i < deal->ranks; i++)
        most = deal->own[i] > most ? deal->own[i] : most;
    return deal->all > 0 ? (most + deal->whole) * (double)deal->ranks / deal->all : 1;
}

void rows_init(const struct rows_input *in, struct packed_rows *ret)
{
    struct pile pile;
    struct pattern pattern;
    int ranks = layout_dp(&in->choices->layout);
    struct deal deal = { .ranks = 1 };
    if (ranks > 1)
        deal.ranks = ranks < DEALT_MAX ? (uint64_t)ranks : DEALT_MAX;
    memset(ret, 0, sizeof *ret);
    ret->row_tokens = rows_capacity(in->choices, in->seq_tokens);
    ret->multiple = rows_multiple(in->choices);
    pile_init(in, ret, &pile);
    while (next_pattern(&pile, ret->row_tokens, &pattern)) {
        ret->rows = add_sat(ret->rows, pattern.rows);
        ret->most_pieces = pattern.pieces > ret->most_pieces ? pattern.pieces : ret->most_pieces;
        deal_rows(&deal, &pattern);
    }
    ret->imbalance = most_over_mean(&deal);
}

int rows_micro_batches(const struct rows_input *in)
{
    struct packed_rows rows;
    if (in->choices->primitives.tokens_per_gpu == 0)
        return in->choices->layout.micro_batches;
    rows_init(in, &rows);
    if (rows.pieces == 0)
        return 0; /* of a world that is not filled */
    double share = (double)samples(in->choices) / (double)rows.pieces;
    double needed = share * (double)rows.rows / layout_dp(&in->choices->layout);
    int whole = needed < INT32_MAX ? (int)needed : INT32_MAX - 1;
    return (double)whole < needed ? whole + 1 : whole;
}

double rows_step_tokens(const struct rows_input *in)
{
    const struct layout *l = &in->choices->layout;
    struct packed_rows rows;
    double sequences = (double)l->micro_batch * layout_dp(l) * l->micro_batches;
    if (!rows_are_packed(in))
        return (double)in->seq_tokens * l->micro_batch * layout_dp(l) * l->micro_batches;
    rows_init(in, &rows);
    bool counts_samples = in->choices->primitives.tokens_per_gpu > 0;
    return sequences * (double)rows.tokens / (double)(counts_samples ? rows.pieces : rows.rows);
}
