#include "executor/runtime/peers.h"
#include "executor/runtime/trainer.h"

#include <stdlib.h>
#include <string.h>

/* A table of a pass is [member, chunk, local expert]. */
struct known_peers {
    struct peers base;
    struct peers_question question;
    int ep, index, chunks, local, first_expert;
    int ranks[LAYOUT_MAX_RANKS]; /* the members */
    int *choices;                /* of one token */
    int64_t **tables;            /* of each micro-batch and layer; NULL: not asked for yet */
};

static int no_memory(struct diag_list *reterr)
{
    return diag_error(reterr, (struct pos){ 0 }, "no memory left for the rows of peers");
}

static int64_t *cell(const struct known_peers *p, int64_t *table, int member, int chunk)
{
    return table + ((size_t)member * (size_t)p->chunks + (size_t)chunk) * (size_t)p->local;
}

static void choose(const struct known_peers *p, int layer, uint64_t token, int *ret)
{
    const struct peers_question *q = &p->question;
    const struct moe *moe = &q->plan->model.moe;

    if (q->book)
        memcpy(ret, q->book->layers[layer] + token * (uint64_t)moe->top_k,
               (size_t)moe->top_k * sizeof *ret);
    else
        routing_draw(&q->plan->routing, q->seed, layer, token, moe->top_k, moe->experts, ret);
}

/* Adds the rows that tokens first..first+count-1 send here. Balanced draws repeat themselves: as
 * many tokens as there are experts send every expert top_k rows. */
static void add_run(const struct known_peers *p, int layer, uint64_t first, uint64_t count,
                    int64_t *ret)
{
    const struct moe *moe = &p->question.plan->model.moe;
    bool repeats = !p->question.book && p->question.plan->routing.kind == ROUTING_BALANCED;
    uint64_t rounds = repeats ? count / (uint64_t)moe->experts : 0;

    for (int e = 0; e < p->local; e++)
        ret[e] += (int64_t)rounds * moe->top_k;
    for (uint64_t i = rounds * (uint64_t)moe->experts; i < count; i++) {
        choose(p, layer, first + i, p->choices);
        for (int j = 0; j < moe->top_k; j++) {
            int here = p->choices[j] - p->first_expert;
            if (here >= 0 && here < p->local)
                ret[here]++;
        }
    }
}

/* Where the tokens of a rank's micro-batch are in the global batch. */
static struct micro_batch batch_of(const struct known_peers *p, int rank, int index)
{
    const struct plan *plan = p->question.plan;
    const struct layout *l = &plan->choices.layout;
    int data_rank =
        layout_coordinate(l, AXIS_FSDP, rank) + l->fsdp * layout_coordinate(l, AXIS_D_REP, rank);
    return (struct micro_batch){ .tokens = trainer_batch_tokens(plan),
                                 .first_token = trainer_first_sequence(plan, data_rank, index) *
                                                plan->seq_tokens,
                                 .order = trainer_order(plan, rank) };
}

/* One chunk of one member, run of neighbouring tokens by run. */
static void add_chunk(const struct known_peers *p, int layer, const struct micro_batch *batch,
                      int chunk, int64_t *ret)
{
    int64_t share = (batch->tokens + p->chunks - 1) / p->chunks;
    int64_t length = zigzag_run_tokens(&batch->order), row = share * chunk;
    int64_t end = row + share < batch->tokens ? row + share : batch->tokens;

    while (row < end) {
        int64_t count = length - row % length;
        count = count < end - row ? count : end - row;
        add_run(p, layer, batch_token(batch, row), (uint64_t)count, ret);
        row += count;
    }
}

static int64_t *new_table(const struct known_peers *p, int layer, int micro_batch)
{
    int64_t *table = calloc((size_t)p->ep * (size_t)p->chunks * (size_t)p->local, sizeof *table);

    for (int member = 0; table && member < p->ep; member++) {
        const struct micro_batch batch = batch_of(p, p->ranks[member], micro_batch);
        for (int chunk = 0; chunk < p->chunks && member != p->index; chunk++)
            add_chunk(p, layer, &batch, chunk, cell(p, table, member, chunk));
    }
    return table;
}

static const struct routed_rows *rows_of(const struct measured_rank *rank, int layer,
                                         int micro_batch)
{
    for (size_t i = 0; i < rank->routed_count; i++)
        if (rank->routed[i].layer == layer && rank->routed[i].micro_batch == micro_batch)
            return &rank->routed[i];
    return NULL;
}

static int64_t replayed_rows(const struct known_peers *p, int layer, int micro_batch, int chunk)
{
    const struct routed_rows *rows = rows_of(p->question.replay, layer, micro_batch);
    uint64_t ret = p->chunks > 1 ? rows->chunk_rows_received[chunk] : rows->rows_received;
    return (int64_t)ret;
}

/* Of the rows that a chunk received every member's tokens sent an even share; this one's also. */
static int64_t own_share(const struct known_peers *p, int layer, int micro_batch, int chunk)
{
    return replayed_rows(p, layer, micro_batch, chunk) / p->ep;
}

/* A token's experts: `here` of this rank's own, the rest of the others', each in turn. */
static void direct_token(const struct known_peers *p, int64_t row, int here, int32_t *ret)
{
    const struct moe *moe = &p->question.plan->model.moe;
    int others = moe->experts - p->local;

    for (int j = 0; j < here; j++)
        ret[j] = p->first_expert + (int)((row * moe->top_k + j) % p->local);
    for (int j = here; j < moe->top_k; j++) {
        int expert = (int)((row * moe->top_k + j) % others);
        ret[j] = expert < p->first_expert ? expert : expert + p->local;
    }
}

/* This rank's tokens send themselves their share of what was received, evenly over the tokens. */
static void direct(struct peers *peers, int layer, int micro_batch, int32_t *ret)
{
    const struct known_peers *p = (const struct known_peers *)peers;
    const struct moe *moe = &p->question.plan->model.moe;
    const struct micro_batch batch = batch_of(p, p->question.rank, micro_batch);
    int64_t run = (batch.tokens + p->chunks - 1) / p->chunks;
    int least = moe->top_k - (moe->experts - p->local), most = moe->top_k;

    least = least > 0 ? least : 0;
    most = most < p->local ? most : p->local;
    for (int64_t row = 0; row < batch.tokens; row++) {
        int chunk = (int)(row / run);
        int64_t place = row % run, rest = batch.tokens - chunk * run;
        int64_t tokens = run < rest ? run : rest;
        int64_t share = own_share(p, layer, micro_batch, chunk);
        int64_t here = share * (place + 1) / tokens - share * place / tokens;
        here = here < least ? least : here > most ? most : here;
        direct_token(p, row, (int)here, ret + row * moe->top_k);
    }
}

/* What was received less this rank's own, one row after another to each peer and expert in turn. */
static void replay_chunk(const struct known_peers *p, int64_t rows, int chunk, int64_t *incoming)
{
    int64_t left = rows, cells = (int64_t)(p->ep - 1) * p->local, place = 0;
    const int64_t *own = cell(p, incoming, p->index, chunk);

    for (int e = 0; e < p->local; e++)
        left -= own[e];
    left = left > 0 ? left : 0;
    for (int member = 0; member < p->ep; member++)
        for (int e = 0; e < p->local && member != p->index; e++, place++)
            cell(p, incoming, member, chunk)[e] = left / cells + (place < left % cells);
}

static int arrivals(struct peers *peers, int layer, int micro_batch, const int64_t *outgoing,
                    int64_t *incoming, struct diag_list *reterr)
{
    struct known_peers *p = (struct known_peers *)peers;
    size_t own = (size_t)p->index * (size_t)p->chunks * (size_t)p->local;
    size_t each = (size_t)p->chunks * (size_t)p->local * sizeof *incoming;
    int64_t **table = &p->tables[micro_batch * p->question.plan->model.layers + layer];

    if (!p->question.replay) {
        if (!*table && !(*table = new_table(p, layer, micro_batch)))
            return no_memory(reterr);
        memcpy(incoming, *table, (size_t)p->ep * each);
    }
    memcpy(incoming + own, outgoing + own, each);
    for (int chunk = 0; p->question.replay && p->ep > 1 && chunk < p->chunks; chunk++)
        replay_chunk(p, replayed_rows(p, layer, micro_batch, chunk), chunk, incoming);
    return 0;
}

int peers_open(const struct peers_question *question, struct peers **ret, struct diag_list *reterr)
{
    const struct plan *plan = question->plan;
    const struct layout *l = &plan->choices.layout;
    struct known_peers *p = calloc(1, sizeof *p);

    *ret = NULL;
    if (!p)
        return no_memory(reterr);
    p->question = *question;
    p->ep = layout_group(l, 1U << AXIS_EP, question->rank, p->ranks);
    p->base.arrivals = arrivals;
    p->base.choices = question->replay && p->ep > 1 ? direct : NULL;
    p->index = layout_coordinate(l, AXIS_EP, question->rank);
    p->chunks =
        plan->choices.primitives.moe == MOE_CHUNKED ? plan->choices.primitives.moe_chunks : 1;
    p->local = plan->model.moe.experts / p->ep;
    p->first_expert = p->index * p->local;
    p->choices = calloc((size_t)plan->model.moe.top_k + 1, sizeof *p->choices);
    p->tables = calloc((size_t)l->micro_batches * (size_t)plan->model.layers, sizeof *p->tables);
    *ret = &p->base;
    return p->choices && p->tables ? 0 : no_memory(reterr);
}

void peers_close(struct peers *peers)
{
    struct known_peers *p = (struct known_peers *)peers;

    if (!p)
        return;
    const struct plan *plan = p->question.plan;
    for (int i = 0; p->tables && i < plan->choices.layout.micro_batches * plan->model.layers; i++)
        free(p->tables[i]);
    free(p->tables);
    free(p->choices);
    free(p);
}

/* Every pass that the plan has, with as many chunks. */
static int check_rows(const struct measured_rank *rank, const struct plan *plan, struct pos at,
                      struct diag_list *reterr)
{
    const struct primitives *p = &plan->choices.primitives;
    size_t chunks = p->moe == MOE_CHUNKED ? (size_t)p->moe_chunks : 0;

    for (int batch = 0; batch < plan->choices.layout.micro_batches; batch++)
        for (int layer = 0; layer < plan->model.layers; layer++) {
            const struct routed_rows *rows = rows_of(rank, layer, batch);
            if (plan->model.layer_ffn[layer] != FFN_MOE)
                continue;
            if (!rows)
                return diag_error(reterr, at, "no routed rows of layer %d in micro-batch %d", layer,
                                  batch);
            if (chunks > 1 && rows->chunk_count != chunks)
                return diag_error(reterr, at, "layer %d has rows of %zu chunks, the plan has %zu",
                                  layer, rows->chunk_count, chunks);
        }
    return 0;
}

int peers_read_rows(const char *path, const struct plan *plan, int rank, struct measurement *ret,
                    const struct measured_rank **ret_rank, struct diag_list *reterr)
{
    const struct pos at = { .file = path };

    *ret_rank = NULL;
    if (measurement_load(path, ret, reterr) != 0)
        return -1;
    if (strcmp(ret->plan_digest, plan->digest) != 0) {
        diag_error(reterr, at, "the measurement is of another plan: digest %s, the plan has %s",
                   ret->plan_digest, plan->digest);
        return diag_hint(reterr, "run this plan: rankfit run PLAN -o MEASUREMENT");
    }
    for (size_t i = 0; i < ret->rank_count; i++)
        if (ret->ranks[i].rank == rank)
            *ret_rank = &ret->ranks[i];
    if (!*ret_rank)
        return diag_error(reterr, at, "the measurement has no rank %d", rank);
    return check_rows(*ret_rank, plan, at, reterr);
}
