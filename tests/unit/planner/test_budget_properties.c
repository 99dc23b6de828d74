/* What must hold of every budget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "tests/support/asked.h"
#include "tests/support/golden.h"
#include "tests/support/random.h"

static struct sample s;
static struct budget budget, other;

static int pick(uint64_t *seed, int low, int high)
{
    return low + (int)random_below(seed, (uint64_t)high - (uint64_t)low + 1);
}

/* A layout over all axes; the delta net and dense layers among the kinds. */
static struct budget_input *draw(uint64_t *seed)
{
    struct layout *l = &s.choices.layout;
    struct primitives *p = &s.choices.primitives;
    sample_init(&s);
    s.hardware.host = pick(seed, 0, 1);
    s.hardware.context_bytes = 1000;
    s.hardware.communicator_first_bytes = 77;
    s.model.layers = pick(seed, 4, 12);
    s.model.gqa.output_gate = pick(seed, 0, 1);
    s.model.gdn = (struct gdn){ 4, 8, 16, 16, 4 };
    s.model.moe = (struct moe){ .experts = 16, .top_k = 3, .width = 64, .shared_width = 32 };
    for (int i = 0; i < s.model.layers; i++) {
        s.model.layer_mixer[i] = (uint8_t)pick(seed, 0, 1);
        s.model.layer_ffn[i] = (uint8_t)pick(seed, 0, 1);
    }
    l->tp = 1 << pick(seed, 0, 1);
    l->pp = 1 << pick(seed, 0, 2);
    l->cp = 1 << pick(seed, 0, 1);
    l->fsdp = 1 << pick(seed, 1, 3);
    l->ep = 1 << pick(seed, 0, 2);
    l->e_fsdp = l->tp * l->cp * l->fsdp / l->ep;
    l->e_fsdp = l->e_fsdp > 0 ? l->e_fsdp : 1;
    l->micro_batches = pick(seed, 1, 6);
    p->sharding = (enum sharding)pick(seed, 0, 3);
    p->recompute = (enum recompute)pick(seed, 0, 2);
    p->recompute_layers = pick(seed, -1, 2);
    p->loss = (enum loss)pick(seed, 0, 2);
    p->vocab_group = 2;
    p->moe = (enum moe_schedule)pick(seed, 0, 2);
    p->moe_chunks = pick(seed, 2, 4);
    p->moe_cap_tokens = 64;
    p->wgrad_delay = pick(seed, -1, 2);
    p->context = (enum context)pick(seed, 0, 4);
    p->linear_context = (enum linear_context)pick(seed, 0, 2);
    p->comm_streams = pick(seed, 1, 2);
    return sample_input(&s, 1024);
}

static void parts_add_up(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 300; round++) {
        budget_compute(asked(draw(&seed)), &budget);
        for (int g = 0; g < budget.count; g++) {
            const struct rank_budget *r = &budget.groups[g];
            uint64_t items = 0, categories = 0, outside = 0;
            for (int i = 0; i < ITEM_COUNT; i++) {
                assert_true(r->item_bytes[i] <= r->item_max_bytes[i]);
                items += r->item_bytes[i];
                outside += item_in_arena((enum item)i) ? 0 : r->item_bytes[i];
            }
            for (int i = 0; i < CATEGORY_COUNT; i++)
                categories += r->category_bytes[i];
            assert_int_equal(items, r->peak_bytes);
            assert_int_equal(categories, r->peak_bytes);
            assert_int_equal(r->arena_bytes, r->peak_bytes - outside);
            assert_true(r->peak_upper_bytes >= r->peak_bytes);
        }
    }
}

/* The worst of a search is the worst group; no phase is above the peak, and one reaches it. */
static void worst_and_phases(void **state)
{
    (void)state;
    uint64_t seed = 4;
    static struct phase_bytes phases[2048];
    for (int round = 0; round < 200; round++) {
        struct budget_input *in = draw(&seed);
        struct rank_budget worst;
        budget_compute(asked(in), &budget);
        budget_worst(asked(in), &worst);
        const struct rank_budget *want = &budget.groups[budget.worst];
        assert_int_equal(worst.peak_upper_bytes, want->peak_upper_bytes);
        size_t n = budget_phases(asked(in), want->stage, phases, 2048);
        uint64_t most = 0;
        for (size_t i = 0; i < n; i++)
            most = phases[i].bytes > most ? phases[i].bytes : most;
        /* slack stands beside what is live in any phase */
        assert_int_equal(most + want->item_bytes[ITEM_SLACK], want->peak_bytes);
        assert_int_equal(phases[0].phase.kind, PHASE_START);
        assert_int_equal(phases[n - 1].phase.kind, PHASE_OPTIMIZER);
    }
}

/* More ranks in a shard group hold no more state, up to the padding of 64 elements a shard. */
static void sharding_shrinks(void **state)
{
    (void)state;
    uint64_t seed = 5, last = UINT64_MAX;
    draw(&seed);
    s.choices.primitives.sharding = SHARDING_FSDP;
    sample_layout(&s.choices.layout);
    for (int shards = 1; shards <= 64; shards *= 2) {
        s.choices.layout.fsdp = s.choices.layout.e_fsdp = shards;
        budget_compute(asked(sample_input(&s, 256)), &budget);
        uint64_t now = budget.groups[0].category_bytes[CATEGORY_STATIC];
        assert_true(now < last);
        last = now;
    }
}

static void micro_batches_do_not_add_up(void **state)
{
    (void)state;
    sample_init(&s);
    budget_compute(asked(sample_input(&s, 256)), &budget);
    s.choices.layout.micro_batches = 7;
    budget_compute(asked(sample_input(&s, 256)), &other);
    assert_memory_equal(budget.groups[0].item_max_bytes, other.groups[0].item_max_bytes,
                        sizeof budget.groups[0].item_max_bytes);
}

/* 80:4 on 16 experts over 4 ranks: the hot rank apart from the others; all ranks once. */
static void groups_cover_the_ranks(void **state)
{
    (void)state;
    char text[256];
    int seen[16] = { 0 };
    sample_init(&s);
    sample_moe(&s.model, 16, 4);
    s.choices.layout.pp = 2;
    s.choices.layout.fsdp = 8;
    s.choices.layout.ep = 4;
    s.choices.layout.e_fsdp = 2;
    struct budget_input *in = sample_input(&s, 256);
    in->routing = (struct routing){ .kind = ROUTING_HOT, .hot_fraction = 0.8, .hot_experts = 4 };
    budget_compute(asked(in), &budget);
    assert_int_equal(budget.count, 4);
    for (int rank = 0; rank < 16; rank++) {
        int group = budget_group_of(in, &budget, rank);
        assert_int_equal(budget.groups[group].stage, rank / 8);
        assert_int_equal(group % 2, rank % 4 == 0 ? 0 : 1);
        seen[group]++;
    }
    assert_int_equal(seen[0] + seen[1] + seen[2] + seen[3], 16);
    budget_group_ranks(in, &budget, 0, text, sizeof text);
    assert_string_equal(text, "0,4");
    budget_group_ranks(in, &budget, 3, text, sizeof text);
    assert_string_equal(text, "9-11,13-15");
    assert_true(budget.groups[0].routed_rows > budget.groups[1].routed_rows);
    assert_int_equal(budget.groups[budget.worst].ep_coordinate, 0);
}

static void sizes_saturate(void **state)
{
    (void)state;
    sample_init(&s);
    s.choices.primitives.loss = LOSS_FULL;
    budget_compute(asked(sample_input(&s, UINT64_C(1) << 60)), &budget);
    assert_true(budget.groups[0].peak_bytes == UINT64_MAX);
    assert_true(budget.groups[0].item_max_bytes[ITEM_LOGITS] == UINT64_MAX);
}

static void every_item_has_a_formula(void **state)
{
    (void)state;
    uint64_t seed = 6;
    char text[400], small[4];
    for (int round = 0; round < 50; round++) {
        struct budget_input *in = draw(&seed);
        budget_compute(asked(in), &budget);
        for (int i = 0; i < ITEM_COUNT; i++) {
            budget_formula(asked(in), &budget.groups[0], (enum item)i, text, sizeof text);
            assert_true(text[0] != '\0');
            budget_formula(asked(in), &budget.groups[0], (enum item)i, small, sizeof small);
            assert_true(strlen(small) < sizeof small);
        }
    }
    struct phase phase = { PHASE_BACKWARD, 0, 0, 39 };
    phase_format(&phase, text, sizeof text);
    assert_golden("a phase", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(worst_and_phases),
        cmocka_unit_test(sharding_shrinks),
        cmocka_unit_test(micro_batches_do_not_add_up),
        cmocka_unit_test(groups_cover_the_ranks),
        cmocka_unit_test(sizes_saturate),
        cmocka_unit_test(every_item_has_a_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
