/* pieces.c - how many keys the queries of a row attend to, and how long its pieces are: of one
 * length, or of the mix that is packed. A piece attends to itself alone, so that attention grows
 * with the sum of the squares of lengths and not with the square of their sum. */
#include "planner/predict/collective.h"

/* Causal: half of a piece's keys; of at most `most` (0: any), a window, w (1 - w / 2 s). */
static double keys_of(double tokens, double most)
{
    return most > 0 && most < tokens ? most * (1 - most / (2 * tokens)) : tokens / 2;
}

static bool is_mixed(const struct budget_input *in)
{
    return in->lengths && in->lengths->distinct > 0;
}

/* Half of the chunk, or of a shorter piece. */
static double chunk_keys_of(double tokens, double chunk)
{
    return (chunk < tokens ? chunk : tokens) / 2;
}

static double mean_keys(const struct budget_input *in, double (*of)(double, double), double most)
{
    double keys = 0, tokens = 0;
    if (!is_mixed(in))
        return of((double)in->seq_tokens, most);
    uint64_t multiple = rows_multiple(in->choices);
    for (int i = 0; i < in->lengths->distinct; i++) {
        const struct length_count *item = &in->lengths->items[i];
        double padded = (double)rows_padded(item->tokens, multiple);
        double all = padded * (double)item->count;
        keys += all * of(padded, most);
        tokens += all;
    }
    return keys / tokens;
}

double causal_keys(const struct budget_input *in, double most)
{
    return mean_keys(in, keys_of, most);
}

double chunk_keys(const struct budget_input *in, double chunk)
{
    return mean_keys(in, chunk_keys_of, chunk);
}

double piece_tokens(const struct budget_input *in)
{
    double squares = 0, tokens = 0;
    if (!is_mixed(in))
        return (double)in->seq_tokens;
    for (int i = 0; i < in->lengths->distinct; i++) {
        const struct length_count *item = &in->lengths->items[i];
        double all = (double)item->tokens * (double)item->count;
        squares += all * (double)item->tokens;
        tokens += all;
    }
    return squares / tokens;
}
