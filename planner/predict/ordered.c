/* ordered.c - attention's backward with every sum in one order (attention_deterministic): head by
 * head, blocks of queries against the blocks of keys that they see, five products and one
 * elementwise kernel a pair of blocks, whose scores go through device memory. */
#include "planner/predict/layer_seconds.h"

#include <math.h>

enum { BLOCK_QUERIES = 2048, BLOCK_KEYS = 4096 };

/* Of an H200, where a trace showed which tiles the library takes. */
enum { MULTIPROCESSORS = 132 };

/* Pairs of blocks, and the scores in them, of one head. */
struct pairs {
    double count, scores;
};

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

/* Queries [first, first + tokens) of a sequence; window 0: all keys before them. A block counts
 * whole: the products do not know what is hidden. */
static void add_pairs(int64_t first, int64_t tokens, int64_t window, struct pairs *ret)
{
    for (int64_t query = 0; query < tokens; query += BLOCK_QUERIES) {
        int64_t queries = at_most(tokens - query, BLOCK_QUERIES), seen = first + query + queries;
        int64_t at = first + query, hidden = window > 0 && at + 1 > window ? at + 1 - window : 0;
        int64_t start = hidden / BLOCK_KEYS * BLOCK_KEYS;
        int64_t blocks = (seen - start + BLOCK_KEYS - 1) / BLOCK_KEYS;
        ret->count += (double)blocks;
        ret->scores += (double)queries * (double)(blocks * BLOCK_KEYS);
    }
}

/* Of one head of one sequence: the first and the last of 2 cp runs, as zig-zag order pairs them, or
 * the whole sequence. */
static struct pairs pairs_of(const struct budget_input *in, int64_t window)
{
    int64_t seq = (int64_t)in->seq_tokens, runs = 2 * (int64_t)in->choices->layout.cp;
    enum context context = in->choices->primitives.context;
    struct pairs ret = { 0, 0 };
    if (runs == 2 || context == CONTEXT_ULYSSES) {
        add_pairs(0, seq, window, &ret);
        return ret;
    }
    int64_t run = seq / runs;
    add_pairs(0, run, window, &ret);
    add_pairs((runs - 1) * run, run, window, &ret);
    return ret;
}

/* How many times longer a product takes than one that fills the device: its tiles of output, one a
 * multiprocessor, in rounds. */
static double rounds(double rows, double columns, double tile_rows, double tile_columns)
{
    double tiles = ceil(rows / tile_rows) * ceil(columns / tile_columns);
    return ceil(tiles / MULTIPROCESSORS) * MULTIPROCESSORS / tiles;
}

/* A pair's kernel reads 8 bytes a score and writes 4. Beside it five products: two over the head
 * dim write a score and its gradient in fp32; two over the queries sum into [keys, head_dim] and
 * one, over the keys, into [queries, head_dim], side by side on too few tiles for the device, and
 * beside the next pair's scores. The longest of them counts, with the bytes of all, 8 written and 6
 * read, and the two that follow each other; then the kernel waits for the lanes. */
void ordered_kernels(const struct budget_input *in, const struct machine *machine,
                     const struct step_sizes *sizes, enum mixer mixer, struct kernel_seconds *ret)
{
    const struct gqa *gqa = &in->model->gqa;
    const struct layout *l = &in->choices->layout;
    bool local = mixer == MIXER_LOCAL;
    struct pairs one = pairs_of(in, local ? gqa->local_tokens : gqa->window_tokens);
    double heads = (double)sizes->width[WIDTH_QUERY] / gqa->head_dim * l->micro_batch;
    if (in->choices->primitives.context == CONTEXT_ULYSSES)
        heads /= l->cp;
    double pairs = heads * one.count, scores = heads * one.scores, d = gqa->head_dim;
    double longest = fmax(rounds(BLOCK_KEYS, d, 256, 128), rounds(BLOCK_QUERIES, d, 64, 128));
    ret[WORK_ORDERED_SCORES] =
        (struct kernel_seconds){ pairs, pairs * machine->kernel + 12 * scores * machine->moved_byte,
                                 false };
    ret[WORK_ORDERED_GEMMS] = (struct kernel_seconds){
        2 * pairs, product_seconds(machine, 2 * pairs, 2 * scores * d * longest, (8 + 6) * scores),
        true
    };
    ret[WORK_ORDERED_WAITS] = (struct kernel_seconds){ pairs, pairs * machine->kernel, false };
}
