/* rows.c - what a micro-batch is cut of: sequences of one length, or rows that pieces are packed
 * into one by one, longest first. */
#include "tests/simulator/rank.h"

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t ret = a;
    while (ret % b != 0)
        ret += a;
    return ret;
}

/* What a piece's tokens are padded to a multiple of: two equal parts for each rank of a context
 * group; under packing=piece, parts that tensor parallelism splits too. */
static uint64_t piece_multiple(const struct sim_job *job)
{
    const struct layout *l = &job->choices->layout;
    uint64_t cp = (uint64_t)l->cp, tp = (uint64_t)l->tp, parts = cp > 1 ? 2 : 1;
    if (job->choices->primitives.packing == PACKING_PIECE)
        parts = common_multiple(parts, tp);
    return cp * parts;
}

static uint64_t padded(const struct sim_job *job, uint64_t tokens)
{
    uint64_t multiple = piece_multiple(job);
    while (tokens % multiple != 0)
        tokens++;
    return tokens;
}

uint64_t sim_row(const struct sim_job *job)
{
    uint64_t tokens = job->choices->primitives.tokens_per_gpu;
    return tokens > 0 ? tokens * (uint64_t)job->choices->layout.cp : job->seq_tokens;
}

static bool has_lengths(const struct sim_job *job)
{
    return job->lengths && job->lengths->distinct > 0;
}

static bool is_packed(const struct sim_job *job)
{
    return has_lengths(job) || job->choices->primitives.tokens_per_gpu > 0;
}

uint64_t sim_longest(const struct sim_job *job)
{
    if (!is_packed(job))
        return job->seq_tokens;
    return padded(job, has_lengths(job) ? job->lengths->items[0].tokens : job->seq_tokens);
}

/* Pieces still to be packed: the mix, as often as a budget's samples need it. */
static struct lengths pile_of(const struct sim_job *job)
{
    const struct layout *l = &job->choices->layout;
    struct lengths ret = { 1, { { job->seq_tokens, 1 } } };
    uint64_t samples = (uint64_t)l->micro_batches * (uint64_t)l->micro_batch;
    uint64_t dp = (uint64_t)l->fsdp * (uint64_t)l->d_rep, pieces = 0, times = 1;
    if (has_lengths(job))
        ret = *job->lengths;
    for (int i = 0; i < ret.distinct; i++)
        pieces += ret.items[i].count;
    if (job->choices->primitives.tokens_per_gpu > 0)
        while (times * pieces < samples * dp)
            times++;
    for (int i = 0; i < ret.distinct; i++) {
        ret.items[i].tokens = padded(job, ret.items[i].tokens);
        ret.items[i].count *= times;
    }
    return ret;
}

/* Fills one row, piece by piece; returns how many there were. */
static uint64_t fill(struct lengths *pile, uint64_t room)
{
    uint64_t pieces = 0;
    for (int i = 0; i < pile->distinct; i++)
        while (pile->items[i].count > 0 && pile->items[i].tokens <= room) {
            pile->items[i].count--;
            room -= pile->items[i].tokens;
            pieces++;
        }
    return pieces;
}

uint64_t sim_pieces(const struct sim_job *job)
{
    uint64_t most = 0, pieces;
    if (!is_packed(job))
        return 0;
    struct lengths pile = pile_of(job);
    while ((pieces = fill(&pile, sim_row(job))) > 0)
        most = pieces > most ? pieces : most;
    return most * (uint64_t)job->choices->layout.micro_batch;
}
