/* The predictor against budget_worst and step_time_compute, to the bit, over random layouts: asked
 * once, asked again, and with other layouts of the same question between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "planner/predict/parts.h"
#include "planner/predict/predictor.h"
#include "tests/support/asked.h"
#include "tests/support/random.h"

#include <stdio.h>

enum { QUESTIONS = 60, LAYOUTS = 120 };

static struct sample s;

static int pick(uint64_t *seed, int low, int high)
{
    return low + (int)random_below(seed, (uint64_t)high - (uint64_t)low + 1);
}

static void draw_model(uint64_t *seed, struct model *m)
{
    m->layers = pick(seed, 4, 40);
    m->tied = pick(seed, 0, 1);
    m->gqa.output_gate = pick(seed, 0, 1);
    m->gdn = (struct gdn){ 4, 8, 16, 16, 4 };
    m->moe = (struct moe){ .experts = 16, .top_k = 3, .width = 64, .shared_width = 32 };
    int period = pick(seed, 1, 4), dense_first = pick(seed, 0, 3);
    for (int i = 0; i < m->layers; i++) {
        m->layer_mixer[i] = i % period == period - 1 ? MIXER_GQA : MIXER_GDN;
        m->layer_ffn[i] = i < dense_first ? FFN_DENSE : FFN_MOE;
    }
    if (pick(seed, 0, 3) == 0) /* no pattern at all */
        for (int i = 0; i < m->layers; i++)
            m->layer_ffn[i] = (uint8_t)pick(seed, 0, 1);
}

/* Layers of every kind, and some of one half. */
static void draw_kinds(uint64_t *seed, struct model *m)
{
    static const uint8_t mixers[] = { MIXER_MLA,       MIXER_DSA,   MIXER_DSA_SHARED, MIXER_LOCAL,
                                      MIXER_LIGHTNING, MIXER_MAMBA, MIXER_NONE,       MIXER_GQA };
    m->gqa.kv_heads = m->gqa.heads;
    m->mla = (struct mla){ 24, 16, m->gqa.head_dim - 4, 4, 12 };
    m->indexer = (struct indexer){ 2, 8, 64 };
    m->lightning = (struct lightning){ 4, 16 };
    m->mamba = (struct mamba){ 8, 8, 16, 2, 4, 64 };
    m->gqa.local_tokens = 128;
    m->moe.latent = pick(seed, 0, 1) ? 24 : 0;
    int period = pick(seed, 1, 5), from = pick(seed, 0, 7), many = pick(seed, 1, 3);
    for (int i = 0; i < m->layers; i++) {
        m->layer_mixer[i] = mixers[(from + i % period % many) % 8];
        m->layer_ffn[i] = m->layer_mixer[i] == MIXER_NONE || i % 3 ? FFN_MOE : FFN_NONE;
    }
}

static const struct lengths mix = { 3, { { 500, 2 }, { 96, 7 }, { 33, 1 } } };

static void draw_question(uint64_t *seed)
{
    sample_init(&s);
    draw_model(seed, &s.model);
    if (pick(seed, 0, 1))
        draw_kinds(seed, &s.model);
    s.model.mtp_layers = pick(seed, 0, 3) ? 0 : pick(seed, 1, 2);
    s.model.mtp_trained = s.model.mtp_layers > 0;
    s.hardware.host = pick(seed, 0, 2) == 0;
    s.hardware.context_bytes = 1000;
    s.hardware.communicator_first_bytes = 77;
    s.hardware.communicator_next_bytes = 33;
    s.hardware.bf16_flops_per_second = 1e12;
    s.hardware.memory_bytes_per_second = 1e11;
    s.hardware.link_bytes_per_second = 1e10;
    s.hardware.network_bytes_per_second = 1e9;
    s.hardware.gemm_efficiency = s.hardware.expert_gemm_efficiency = 0.7;
    s.hardware.attention_forward_efficiency = s.hardware.attention_backward_efficiency = 0.5;
    s.hardware.memory_efficiency = 0.9;
    s.hardware.gather_efficiency = s.hardware.exchange_efficiency = 0.7;
    s.hardware.network_efficiency = 0.8;
    s.hardware.collective_latency_seconds = 1e-5;
    s.hardware.domain_gpus = s.hardware.gpus_per_node = 8;
    sample_input(&s, 1024U << pick(seed, 0, 4));
    s.in.lengths = pick(seed, 0, 3) ? NULL : &mix;
    if (pick(seed, 0, 2) == 0)
        s.in.routing =
            (struct routing){ .kind = ROUTING_HOT, .hot_fraction = 0.8, .hot_experts = 4 };
}

static void draw_primitives(uint64_t *seed, struct primitives *p)
{
    *p = primitives_default();
    p->sharding = (enum sharding)pick(seed, 0, 3);
    p->grad_dtype = (enum dtype)pick(seed, 0, 1);
    p->logits_dtype = (enum dtype)pick(seed, 0, 1);
    p->recompute = pick(seed, 0, 1) ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    p->recompute_layers = pick(seed, -1, 4);
    p->keep_attention = p->recompute == RECOMPUTE_FULL && pick(seed, 0, 2) == 0;
    p->loss = (enum loss)pick(seed, 0, 2);
    p->vocab_group = 2;
    p->vocab_strip = pick(seed, 0, 1) ? 100 : 0;
    p->moe = (enum moe_schedule)pick(seed, 0, 2);
    p->moe_chunks = pick(seed, 2, 4);
    p->moe_cap_tokens = 64;
    p->wgrad_delay = pick(seed, -1, 2);
    p->context = (enum context)pick(seed, 0, 4);
    p->linear_context = (enum linear_context)pick(seed, 0, 2);
    p->prefetch_units = pick(seed, 0, 3);
    p->comm_streams = pick(seed, 1, 2);
    p->offload = (unsigned)(pick(seed, 0, 3) ? 0 : pick(seed, 0, 3));
    p->sco_host_bytes = (uint64_t)pick(seed, 0, 40) << 14;
    p->bucket_params = 4096;
    p->slots = 2;
    p->packing = (enum packing)pick(seed, 0, 2);
    p->tokens_per_gpu = pick(seed, 0, 4) ? 0 : (uint64_t)pick(seed, 1, 8) * 64;
    p->rl = (unsigned)(pick(seed, 0, 2) ? 0 : pick(seed, 1, 7));
    p->reference_weights = (enum reference_weights)pick(seed, 0, 1);
}

/* Half of the layouts train plainly, as most of a search do. */
static void draw_trained(uint64_t *seed, struct primitives *p)
{
    if (pick(seed, 0, 1))
        return;
    p->optimizer = (enum optimizer)pick(seed, 0, 1);
    p->moments_dtype = (enum dtype)pick(seed, 0, 1);
    p->master = (enum master)pick(seed, 0, 1);
    p->lora_rank = pick(seed, 0, 2) ? 0 : pick(seed, 1, 9);
    p->lora_targets = (unsigned)pick(seed, 0, 7);
    p->frozen = pick(seed, 0, 1) ? 0 : (unsigned)pick(seed, 0, 1023);
}

static void draw_layout(uint64_t *seed, struct choices *c)
{
    struct layout *l = &c->layout;
    sample_layout(l);
    l->tp = 1 << pick(seed, 0, 1);
    l->pp = 1 << pick(seed, 0, 2);
    l->cp = 1 << pick(seed, 0, 1);
    l->fsdp = 1 << pick(seed, 1, 3);
    l->ep = 1 << pick(seed, 0, 2);
    l->e_fsdp = l->tp * l->cp * l->fsdp / l->ep;
    l->e_fsdp = l->e_fsdp > 0 ? l->e_fsdp : 1;
    l->micro_batch = pick(seed, 1, 2);
    l->micro_batches = pick(seed, 1, 6);
    l->vpp = l->pp > 1 && pick(seed, 0, 2) == 0 ? pick(seed, 2, 5) : 1;
    if (l->vpp > 1)
        l->micro_batches *= l->pp;
    if (l->vpp > 1) /* they come in groups of pp */
        l->micro_batches *= l->pp;
    layout_split_layers(l, s.model.layers);
    if (l->pp > 1 && l->stage_layers[0] > 1 && pick(seed, 0, 1)) {
        l->stage_layers[0]--;
        l->stage_layers[l->pp - 1]++;
    }
    draw_primitives(seed, &c->primitives);
    draw_trained(seed, &c->primitives);
}

static void assert_same(struct predictor *e, const struct choices *choices, uint64_t round)
{
    struct budget_input in = s.in;
    struct rank_budget worst;
    struct layout_peaks peaks;
    in.choices = choices;
    budget_worst(asked(&in), &worst);
    predictor_peaks(e, choices, &peaks);
    assert_true(predictor_floor(e, choices) <= worst.peak_upper_bytes);
    if (peaks.peak_bytes != worst.peak_bytes || peaks.peak_upper_bytes != worst.peak_upper_bytes ||
        peaks.host_bytes != worst.host_bytes) {
        char phase[96];
        phase_format(&worst.peak_phase, phase, sizeof phase);
        fail_msg("round %ju: %ju and %ju, not %ju and %ju at %s of stage %d", (uintmax_t)round,
                 (uintmax_t)peaks.peak_bytes, (uintmax_t)peaks.peak_upper_bytes,
                 (uintmax_t)worst.peak_bytes, (uintmax_t)worst.peak_upper_bytes, phase,
                 worst.stage);
    }
}

static bool differ(double a, double b)
{
    return a < b || a > b;
}

static void assert_same_time(struct predictor *e, const struct choices *choices, uint64_t round)
{
    struct budget_input in = s.in;
    struct step_time slow, fast;
    in.choices = choices;
    step_time_compute(asked(&in), &slow);
    predictor_time(e, choices, &fast);
    bool other = differ(fast.seconds, slow.seconds) ||
                 differ(fast.bubble_fraction, slow.bubble_fraction) ||
                 differ(fast.tokens_per_second_per_gpu, slow.tokens_per_second_per_gpu) ||
                 differ(fast.exposed_communication_seconds, slow.exposed_communication_seconds);
    for (int i = 0; i < TIME_ITEM_COUNT; i++)
        other = other || differ(fast.item_seconds[i], slow.item_seconds[i]);
    if (other)
        fail_msg("round %ju: %.17g s, not %.17g", (uintmax_t)round, fast.seconds, slow.seconds);
    assert_true(predictor_least_seconds(e, choices) <= slow.seconds * (1 + 1e-12));
}

/* The same layers with the leanest state there is. */
static struct choices leanest_state(const struct choices *choices)
{
    struct choices ret = *choices;
    struct layout *l = &ret.layout;
    l->fsdp *= l->d_rep;
    l->e_fsdp *= l->e_rep;
    l->d_rep = l->e_rep = 1;
    ret.primitives.sharding = SHARDING_FSDP;
    ret.primitives.offload = OFFLOAD_CHECKPOINTS | OFFLOAD_OPTIMIZER;
    ret.primitives.sco_host_bytes = UINT64_C(1) << 50;
    return ret;
}

/* Bounds of the first stage alone hold, and are no less when it takes a layer from the last. */
static void assert_first(struct predictor *e, const struct choices *least,
                         const struct choices *plain, const struct choices *sharded,
                         const struct rank_budget *worst, const struct step_time *time)
{
    uint64_t bytes = 0;
    double seconds = 0;
    for (int moved = 0; moved < 2; moved++) {
        struct choices all[] = { *least, *plain, *sharded };
        for (int i = 0; i < 3; i++) {
            struct layout *l = &all[i].layout;
            if (moved && (l->pp == 1 || l->vpp > 1 || l->stage_layers[l->pp - 1] < 2))
                return;
            l->stage_layers[0] += moved;
            l->stage_layers[l->pp - 1] -= moved;
        }
        uint64_t floor = predictor_first_floor(e, &all[0]);
        const struct least_seconds end = { 0, predictor_update_seconds(e, &all[2], true) };
        double taken = predictor_first_seconds(e, &all[1], &end);
        assert_true(moved || floor <= worst->peak_upper_bytes);
        assert_true(moved || taken <= time->seconds * (1 + 1e-12));
        assert_true(floor >= bytes && taken >= seconds * (1 - 1e-12));
        bytes = floor;
        seconds = taken;
    }
}

/* Each bound of a search holds for whatever it leaves open. */
static void assert_bounds(struct predictor *e, const struct choices *choices)
{
    struct budget_input in = s.in;
    struct choices lean = leanest_state(choices), plain = lean, sharded = lean, floor;
    struct primitives *p = &plain.primitives;
    struct rank_budget worst;
    struct step_time time;
    in.choices = choices;
    budget_worst(asked(&in), &worst);
    step_time_compute(asked(&in), &time);
    p->moe = MOE_PLAIN;
    p->moe_chunks = 1;
    p->exchange = EXCHANGE_SM;
    floor = choices->primitives.moe == MOE_CAPPED ? lean : plain;
    sharded.primitives.offload = choices->primitives.offload;
    assert_true(predictor_state_floor(e, choices) <= worst.peak_upper_bytes);
    assert_true(predictor_body_floor(e, &lean) <= worst.peak_upper_bytes);
    assert_true(predictor_saved_floor(e, &floor) <= worst.peak_upper_bytes);
    struct least_seconds least = { predictor_loss_seconds(e, choices),
                                   predictor_update_seconds(e, &sharded, false) };
    assert_true(predictor_layer_seconds(e, choices, &least) <= time.seconds * (1 + 1e-12));
    assert_true(predictor_relaxed_seconds(e, &plain, &least) <= time.seconds * (1 + 1e-12));
    assert_first(e, &floor, &plain, &sharded, &worst, &time);
}

/* Floors fall with every layer recomputed, so that searches may halve. */
static void assert_falling(struct predictor *e, struct choices c)
{
    uint64_t before[4] = { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
    c.primitives.recompute = RECOMPUTE_FULL;
    for (int layers = 0; layers <= s.model.layers; layers += 3) {
        c.primitives.recompute_layers = layers;
        const uint64_t now[] = { predictor_floor(e, &c), predictor_state_floor(e, &c),
                                 predictor_body_floor(e, &c), predictor_saved_floor(e, &c) };
        for (int i = 0; i < 4; i++) {
            assert_true(now[i] <= before[i]);
            before[i] = now[i];
        }
    }
}

static void bounds_hold_for_what_they_leave_open(void **state)
{
    struct choices c;
    uint64_t seed = 29;
    (void)state;
    for (int round = 0; round < 40; round++) {
        draw_question(&seed);
        s.hardware.exchange_overlap = pick(&seed, 0, 9) / 10.0;
        s.hardware.copy_exchange_overlap = pick(&seed, 0, 9) / 10.0;
        s.hardware.copy_exchange_efficiency = pick(&seed, 0, 9) / 10.0;
        s.hardware.launch_seconds = pick(&seed, 0, 1) * 1e-5;
        s.hardware.expert_gemm_call_seconds = pick(&seed, 0, 1) * 1e-5;
        struct predictor *e = predictor_open(&s.in, PREDICTOR_MANY_LAYOUTS);
        assert_non_null(e);
        for (int i = 0; i < 60; i++) {
            draw_layout(&seed, &c);
            c.primitives.exchange = (enum exchange)pick(&seed, 0, 1);
            c.primitives.moe_cap_tokens = (uint64_t)pick(&seed, 1, 8) * 32;
            assert_bounds(e, &c);
            if (i % 4 == 0)
                assert_falling(e, c);
        }
        predictor_close(e);
    }
}

/* Values that a search leaves out since another takes no more of anything. */
static void assert_no_better(const struct choices *left_out, const struct choices *taken,
                             const char *what)
{
    const struct choices *both[] = { left_out, taken };
    struct rank_budget worst[2];
    struct step_time time[2];
    for (int i = 0; i < 2; i++) {
        struct budget_input in = s.in;
        in.choices = both[i];
        budget_worst(asked(&in), &worst[i]);
        step_time_compute(asked(&in), &time[i]);
    }
    if (worst[0].peak_upper_bytes < worst[1].peak_upper_bytes ||
        worst[0].peak_bytes < worst[1].peak_bytes ||
        time[0].seconds < time[1].seconds * (1 - 1e-12))
        fail_msg("%s: %ju bytes and %.17g s against %ju and %.17g", what,
                 (uintmax_t)worst[0].peak_upper_bytes, time[0].seconds,
                 (uintmax_t)worst[1].peak_upper_bytes, time[1].seconds);
}

static void what_a_search_leaves_out_is_no_better(void **state)
{
    struct choices c, other;
    uint64_t seed = 31;
    (void)state;
    for (int round = 0; round < 1500; round++) {
        if (round % 10 == 0)
            draw_question(&seed);
        draw_layout(&seed, &c);
        c.primitives.wgrad_delay = 0;
        other = c;
        other.primitives.recompute = RECOMPUTE_SELECTIVE;
        c.primitives.recompute = RECOMPUTE_NONE;
        assert_no_better(&other, &c, "recompute=selective");
        other = c;
        c.primitives.prefetch_units = 1;
        other.primitives.prefetch_units = pick(&seed, 2, 3);
        assert_no_better(&other, &c, "prefetch_units above 1");
        other = c;
        other.primitives.wgrad_delay = pick(&seed, 0, 1) ? 1 : WGRAD_DELAY_ALL;
        if (c.primitives.moe == MOE_CHUNKED)
            assert_no_better(&other, &c, "wgrad_delay");
        other = c;
        if (c.primitives.moe == MOE_CAPPED) {
            const struct budget_input in = { .model = s.in.model,
                                             .choices = &c,
                                             .seq_tokens = s.in.seq_tokens };
            uint64_t tokens = norm_tokens(&in);
            uint64_t n = (uint64_t)pick(&seed, 2, 6), least = (tokens + n - 1) / n;
            uint64_t most = (tokens - 1) / (n - 1); /* makes n chunks too */
            c.primitives.moe_cap_tokens = least;
            other.primitives.moe_cap_tokens = most > least ? most : least;
            assert_no_better(&other, &c, "a larger cap");
        }
    }
}

static void peaks_and_seconds_are_those_of_the_whole_walk(void **state)
{
    static struct choices drawn[LAYOUTS];
    uint64_t seed = 17, round = 0;
    (void)state;
    for (int q = 0; q < QUESTIONS; q++) {
        draw_question(&seed);
        struct predictor *e = predictor_open(&s.in, PREDICTOR_MANY_LAYOUTS);
        assert_non_null(e);
        for (int i = 0; i < LAYOUTS; i++, round++) {
            draw_layout(&seed, &drawn[i]);
            assert_same(e, &drawn[i], round);
            assert_same_time(e, &drawn[i], round);
            const struct choices *again = &drawn[pick(&seed, 0, i)];
            assert_same(e, again, round);
            assert_same_time(e, again, round);
        }
        predictor_close(e);
    }
}

static double seconds_of(const struct choices *choices)
{
    struct budget_input in = s.in;
    struct step_time time;
    in.choices = choices;
    step_time_compute(asked(&in), &time);
    return time.seconds;
}

/* Rounding apart. */
static void assert_no_less(double longer, double shorter, const char *what)
{
    if (longer < shorter * (1 - 1e-12))
        fail_msg("%s: %.17g s is less than %.17g s", what, longer, shorter);
}

/* What searches skip rests on these orders of step times. */
static void recompute_and_tiles_take_time_in_order(void **state)
{
    struct choices c;
    struct primitives *p = &c.primitives;
    uint64_t seed = 23;
    (void)state;
    for (int round = 0; round < 600; round++) {
        draw_question(&seed);
        s.hardware.gather_contention = pick(&seed, 0, 3) / 10.0;
        draw_layout(&seed, &c);
        double before = 0;
        p->recompute = RECOMPUTE_FULL;
        p->offload = 0;
        for (p->recompute_layers = 0; p->recompute_layers <= s.model.layers;
             p->recompute_layers++) {
            double now = seconds_of(&c);
            assert_no_less(now, before, "one more layer recomputed");
            before = now;
        }
        p->recompute_layers = RECOMPUTE_ALL_LAYERS;
        p->loss_tile_tokens = 4096;
        before = seconds_of(&c);
        for (; p->loss_tile_tokens >= 256; p->loss_tile_tokens /= 2)
            assert_no_less(seconds_of(&c), before, "a smaller tile");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recompute_and_tiles_take_time_in_order),
        cmocka_unit_test(bounds_hold_for_what_they_leave_open),
        cmocka_unit_test(what_a_search_leaves_out_is_no_better),
        cmocka_unit_test(peaks_and_seconds_are_those_of_the_whole_walk),
    };
    return cmocka_run_group_tests_name("predictor", tests, NULL, NULL);
}
