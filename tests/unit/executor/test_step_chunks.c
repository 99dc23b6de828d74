/* Experts in chunks against experts at once: the same ranks, tokens and routing. Final hidden
 * states are equal to the bit; gradients differ by the order of fp32 sums; between weight-gradient
 * delays nothing differs. Tokens, chunks, ep, routing and model are drawn from a printed seed,
 * small enough that chunks and experts without a row are common. */
#include "tests/unit/executor/step_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 24, SEED = 20261203 };

struct draw {
    struct model model;
    struct step_layout layout;
    const char *routing;
    int tokens;
    bool saves; /* nothing is recomputed */
};

static int pick(uint64_t *seed, int low, int high)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return low + (int)((*seed >> 33) % (uint64_t)(high - low + 1));
}

/* Some ep that divides the world. */
static int pick_ep(uint64_t *seed, int world)
{
    int ep = 1 << pick(seed, 0, 2);
    while (world % ep != 0)
        ep /= 2;
    return ep;
}

static struct draw draw_round(uint64_t *seed, int world)
{
    static const char *const routings[] = { "balanced", "natural", "80:4", "zipf:1.5" };
    struct draw ret;
    int ep = pick_ep(seed, world);

    step_moe_model(&ret.model);
    if (pick(seed, 0, 1))
        ret.model.moe.shared_width = 0;
    ret.model.moe.shared_gate = ret.model.moe.shared_width > 0 && pick(seed, 0, 1);
    ret.model.moe.top_k = pick(seed, 1, 4);
    ret.tokens = pick(seed, 0, 2) ? pick(seed, 2, 40) : pick(seed, 2, 5);
    ret.saves = pick(seed, 0, 1);
    ret.routing = routings[pick(seed, 0, 3)];
    ret.layout = (struct step_layout){ .fsdp = world,
                                       .ep = ep,
                                       .e_fsdp = world / ep,
                                       .micro_batch = pick(seed, 1, 2),
                                       .micro_batches = pick(seed, 1, 2),
                                       .sharding = SHARDING_FSDP,
                                       .prefetch_units = 1 };
    ret.layout.chunks = pick(seed, 2, 6);
    return ret;
}

/* The step of a draw with the experts in `chunks` and this delay. */
static void run(const struct draw *d, int chunks, int delay, struct step_run *ret)
{
    struct plan *plan = calloc(1, sizeof *plan);
    struct step_layout layout = d->layout;

    assert_non_null(plan);
    layout.chunks = chunks;
    layout.wgrad_delay = delay;
    step_plan(plan, &d->model, &layout, d->routing);
    plan->seq_tokens = (uint64_t)d->tokens;
    if (d->saves)
        plan->choices.primitives.recompute = RECOMPUTE_NONE;
    /* every source sends all it can to one rank */
    int local = d->model.moe.experts / layout.ep;
    int most = d->model.moe.top_k < local ? d->model.moe.top_k : local;
    plan->dispatch_bound_rows = (uint64_t)(trainer_batch_tokens(plan) * most * layout.ep);
    step_run(step_fabric, plan, 1, ret);
    free(plan);
}

/* RMS of the difference over RMS of `want`; 0 only where all bits agree. */
static double difference(const struct dump_tensor *got, const struct dump_tensor *want)
{
    double square = 0, size = 0;
    for (uint64_t i = 0; i < want->elements; i++) {
        double d = (double)got->values[i] - (double)want->values[i];
        square += d * d;
        size += (double)want->values[i] * (double)want->values[i];
    }
    return size > 0 ? sqrt(square / size) : sqrt(square);
}

static double compare(const struct step_run *got, const struct step_run *want, double tolerance,
                      int round, int delay)
{
    double worst = 0;
    assert_int_equal(got->dump.count, want->dump.count);
    for (size_t i = 0; i < want->dump.count; i++) {
        const struct dump_tensor *expected = &want->dump.tensors[i];
        const struct dump_tensor *tensor = dump_find(&got->dump, expected->name);
        assert_non_null(tensor);
        double error = difference(tensor, expected);
        bool exact = strcmp(expected->name, dump_hidden_name) == 0;
        worst = error > worst ? error : worst;
        if (!(error <= (exact ? 0 : tolerance)))
            fail_msg("round %d delay %d: %s differs by %g", round, delay, expected->name, error);
    }
    assert_true(got->loss[0] == want->loss[0]);
    return worst;
}

static void run_round(const struct draw *d, int round)
{
    struct step_run plain, first, other;
    double worst = 0;
    const int delays[] = { 1, WGRAD_DELAY_ALL };

    run(d, 1, 0, &plain);
    run(d, d->layout.chunks, 0, &first);
    if (step_fabric->rank == 0)
        worst = compare(&first, &plain, 2e-6, round, 0);
    for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
        run(d, d->layout.chunks, delays[i], &other);
        if (step_fabric->rank == 0)
            (void)compare(&other, &first, 0, round, delays[i]);
        dump_done(&other.dump);
    }
    print_message("round %d: %d x %d tokens, %d chunks, ep %d, top %d, %s%s: %.2g\n", round,
                  d->layout.micro_batch, d->tokens, d->layout.chunks, d->layout.ep,
                  d->model.moe.top_k, d->routing, d->saves ? ", nothing recomputed" : "", worst);
    dump_done(&plain.dump);
    dump_done(&first.dump);
}

static void chunks_are_plain(void **state)
{
    (void)state;
    uint64_t seed = SEED;
    print_message("seed %d\n", SEED);
    for (int round = 0; round < ROUNDS; round++) {
        const struct draw d = draw_round(&seed, step_fabric->world);
        run_round(&d, round);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(chunks_are_plain) };
    return step_main(argc, argv, "step_chunks", tests, sizeof tests / sizeof *tests);
}
