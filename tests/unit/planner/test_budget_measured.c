/* Budgets judged at the routed rows that a run measured, against a step played with those rows, to
 * the byte, on random small configurations. What profiles give is tests/property's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "tests/simulator/simulator.h"
#include "tests/support/asked.h"
#include "tests/support/random.h"

static int pick(uint64_t *seed, int low, int high)
{
    return low + (int)random_below(seed, (uint64_t)high - (uint64_t)low + 1);
}

static void random_model(uint64_t *seed, struct model *m)
{
    sample_model(m);
    m->layers = pick(seed, 1, 6);
    m->hidden = 32 * pick(seed, 1, 5);
    m->vocab = pick(seed, 50, 5000);
    m->tied = pick(seed, 0, 1);
    m->gqa.kv_heads = 1 << pick(seed, 0, 2);
    m->gqa.heads = m->gqa.kv_heads * pick(seed, 1, 4);
    m->gqa.head_dim = 8 * pick(seed, 1, 4);
    m->gqa.qk_norm = pick(seed, 0, 1);
    m->gqa.output_gate = pick(seed, 0, 1);
    m->dense_width = 16 * pick(seed, 1, 20);
    m->moe.experts = 8;
    m->moe.top_k = pick(seed, 1, 4);
    m->moe.width = 8 * pick(seed, 1, 12);
    m->moe.shared_width = pick(seed, 0, 1) * 8 * pick(seed, 1, 12);
    m->moe.shared_gate = m->moe.shared_width && pick(seed, 0, 1);
    for (int i = 0; i < m->layers; i++)
        m->layer_ffn[i] = pick(seed, 0, 3) ? FFN_MOE : FFN_DENSE;
}

static void random_layout(uint64_t *seed, int vocab, struct choices *c)
{
    static const enum sharding modes[] = { SHARDING_REPLICATED, SHARDING_ZERO1, SHARDING_FSDP,
                                           SHARDING_FSDP };
    struct layout *l = &c->layout;
    struct primitives *p = &c->primitives;
    int world = 1 << pick(seed, 0, 3);
    l->d_rep = world > 1 && pick(seed, 0, 3) == 0 ? 2 : 1;
    l->fsdp = world / l->d_rep;
    l->ep = 1 << pick(seed, 0, world > 4 ? 3 : world / 2);
    l->ep = l->ep > world ? world : l->ep;
    l->e_fsdp = world / l->ep;
    l->micro_batch = pick(seed, 1, 2);
    l->micro_batches = pick(seed, 1, 3);
    p->sharding = modes[pick(seed, 0, 3)];
    p->grad_dtype = pick(seed, 0, 1) ? DTYPE_FP32 : DTYPE_BF16;
    p->logits_dtype = pick(seed, 0, 1) ? DTYPE_FP32 : DTYPE_BF16;
    p->loss = pick(seed, 0, 1) ? LOSS_FULL : LOSS_LINEAR_CE;
    p->vocab_strip = p->loss == LOSS_LINEAR_CE && pick(seed, 0, 1) ? pick(seed, 1, vocab) : 0;
    p->loss_tile_tokens = 1 << pick(seed, 0, 12);
    p->recompute = pick(seed, 0, 3) ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    p->recompute_layers = pick(seed, -1, 3);
    p->prefetch_units = pick(seed, 0, 3);
    p->comm_streams = pick(seed, 1, 2);
    p->attention_deterministic = pick(seed, 0, 1);
    p->keep_attention = pick(seed, 0, 1);
}

/* received, chunks: one entry a layer; chunks may be NULL. */
static void play(const struct budget_input *in, const uint64_t *received,
                 const uint64_t *const *chunks, struct sim_result *ret)
{
    struct sim_job job = { .model = in->model,
                           .hardware = in->hardware,
                           .choices = in->choices,
                           .seq_tokens = in->seq_tokens,
                           .received = received,
                           .chunks = chunks,
                           .routing = in->routing };
    simulate(&job, ret);
}

static void expect_same(const struct rank_budget *got, const struct sim_result *want, int round)
{
    for (int i = 0; i < ITEM_COUNT; i++)
        if (i != ITEM_SLACK && got->item_max_bytes[i] != want->max[i])
            fail_msg("round %d: maximum of %s: %llu computed, %llu played", round,
                     item_infos[i].name, (unsigned long long)got->item_max_bytes[i],
                     (unsigned long long)want->max[i]);
    uint64_t live = got->peak_bytes - got->item_bytes[ITEM_SLACK];
    if (live != want->peak)
        fail_msg("round %d: peak: %llu computed, %llu played", round, (unsigned long long)live,
                 (unsigned long long)want->peak);
}

static void at_measured_rows(void **state)
{
    (void)state;
    uint64_t seed = 7;
    static struct sample s;
    static struct budget budget;
    static struct sim_result played;
    for (int round = 0; round < 100; round++) {
        uint64_t rows[MODEL_MAX_LAYERS];
        struct routed_rows routed[2 * 8];
        struct measured_rank measured = { .rank = 0, .routed = routed };
        sample_init(&s);
        random_model(&seed, &s.model);
        random_layout(&seed, (int)s.model.vocab, &s.choices);
        struct budget_input *in = sample_input(&s, (uint64_t)pick(&seed, 16, 400));
        for (int i = 0; i < s.model.layers; i++) {
            rows[i] = (uint64_t)pick(&seed, 1, 4000);
            routed[measured.routed_count++] = (struct routed_rows){ i, 0, 1, rows[i] / 2, 0, NULL };
            routed[measured.routed_count++] = (struct routed_rows){ i, 1, 1, rows[i], 0, NULL };
        }
        in->measured = &measured;
        budget_compute(asked(in), &budget);
        play(in, rows, NULL, &played);
        assert_int_equal(budget.count, 1);
        expect_same(&budget.groups[0], &played, round);
    }
}

enum { BATCHES = 3, MOST_CHUNKS = 6 };

/* Rows of one micro-batch in every layer, spread unevenly over the chunks. */
static void draw_chunks(uint64_t *seed, int layers, int micro_batch, int chunks,
                        uint64_t (*spread)[MOST_CHUNKS], struct routed_rows *ret)
{
    for (int layer = 0; layer < layers; layer++) {
        ret[layer] =
            (struct routed_rows){ layer, micro_batch, 1, 0, (size_t)chunks, spread[layer] };
        for (int c = 0; c < chunks; c++) {
            spread[layer][c] = (uint64_t)pick(seed, 0, 900) * (uint64_t)pick(seed, 0, 1);
            ret[layer].rows_received += spread[layer][c];
        }
    }
}

/* The larger of what two micro-batches hold. */
static void raise_played(const struct sim_result *one, struct sim_result *ret)
{
    for (int i = 0; i < ITEM_COUNT; i++)
        ret->max[i] = one->max[i] > ret->max[i] ? one->max[i] : ret->max[i];
    ret->peak = one->peak > ret->peak ? one->peak : ret->peak;
}

/* What each chunk received is told: every micro-batch is played with its own. */
static void at_measured_chunks(void **state)
{
    (void)state;
    uint64_t seed = 31;
    static struct sample s;
    static struct budget budget;
    for (int round = 0; round < 200; round++) {
        struct routed_rows routed[BATCHES][MODEL_MAX_LAYERS], all[BATCHES * MODEL_MAX_LAYERS];
        uint64_t spread[BATCHES][MODEL_MAX_LAYERS][MOST_CHUNKS], rows[MODEL_MAX_LAYERS];
        const uint64_t *chunks[MODEL_MAX_LAYERS];
        struct measured_rank measured = { .rank = 0 };
        struct sim_result played, most = { .peak = 0 };
        sample_init(&s);
        random_model(&seed, &s.model);
        random_layout(&seed, (int)s.model.vocab, &s.choices);
        struct primitives *p = &s.choices.primitives;
        p->moe = MOE_CHUNKED;
        p->moe_chunks = pick(&seed, 2, MOST_CHUNKS);
        p->wgrad_delay = pick(&seed, -1, p->moe_chunks - 1);
        struct budget_input *in = sample_input(&s, (uint64_t)pick(&seed, 4, 300));
        size_t layers = (size_t)s.model.layers;
        in->measured = &measured;
        for (int b = 0; b < BATCHES; b++) {
            draw_chunks(&seed, s.model.layers, b, p->moe_chunks, spread[b], routed[b]);
            memcpy(all + (size_t)b * layers, routed[b], layers * sizeof all[0]);
            measured.routed = routed[b];
            measured.routed_count = layers;
            for (size_t i = 0; i < layers; i++) {
                rows[i] = routed[b][i].rows_received;
                chunks[i] = spread[b][i];
            }
            play(in, rows, chunks, &played);
            raise_played(&played, &most);
        }
        measured.routed = all;
        measured.routed_count = BATCHES * layers;
        budget_compute(asked(in), &budget);
        expect_same(&budget.groups[0], &most, round);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_measured_rows),
        cmocka_unit_test(at_measured_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
