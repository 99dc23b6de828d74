/* Budgets of random legal layouts against steps that are played tensor by tensor, to the byte: what
 * is live at the peak and in every phase, every item's own maximum, the peak and its phase, what
 * the host holds. The seed is printed; RANKFIT_SEED and RANKFIT_DRAWS set it and the number of
 * draws, RANKFIT_ALL=1 makes many. */
#include "tests/property/budget_difference.h"
#include "tests/simulator/draw.h"
#include "tests/support/asked.h"
#include "tests/support/random.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { DRAWS = 150, MANY = 1500, RANKS = 3 };

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static struct phases_played phases;

static int compare_rank(const struct budget_input *in, const struct budget *budget, int rank)
{
    struct sim_job job = { .model = in->model,
                           .hardware = in->hardware,
                           .choices = in->choices,
                           .seq_tokens = in->seq_tokens,
                           .rank = rank,
                           .routing = in->routing,
                           .lengths = in->lengths,
                           .phase_ended = phase_played,
                           .context = &phases };
    struct sim_result played;
    phases.count = 0;
    const struct rank_budget *group = &budget->groups[budget_group_of(in, budget, rank)];
    simulate(&job, &played);
    job.phase_ended = NULL;
    int count = moment_differences(in, group, &job, true);
    count += budget_differences(group, &played, true);
    if (in->routing.kind != ROUTING_BALANCED) /* phases are told of the fullest ranks */
        return count;
    uint64_t beside = group->item_bytes[ITEM_COMMUNICATORS] + group->item_bytes[ITEM_CONTEXT] +
                      group->item_bytes[ITEM_MODULES];
    return count + phase_differences(in, group->stage, beside, &phases, true);
}

/* runs: only stages that interleave. */
static void draw(uint64_t *seed, unsigned features, bool runs, struct drawn *ret)
{
    do
        draw_step(seed, features, ret);
    while (runs && ret->choices.layout.vpp == 1);
}

static void compare_draw(uint64_t *seed, unsigned features, bool runs)
{
    static struct drawn drawn;
    static struct model_sizes sizes;
    static struct budget budget;
    uint64_t from = *seed;
    char text[4096];
    draw(seed, features, runs, &drawn);
    model_sizes_init(&sizes, &drawn.model);
    struct budget_input in = { .model = &drawn.model,
                               .sizes = &sizes,
                               .hardware = &drawn.hardware,
                               .choices = &drawn.choices,
                               .gpus = drawn.gpus,
                               .seq_tokens = drawn.seq_tokens,
                               .routing = drawn.routing,
                               .routing_quantile = 0.99,
                               .lengths = &drawn.lengths };
    budget_compute(asked(&in), &budget);
    for (int i = 0; i < RANKS; i++) {
        int rank = (int)random_below(seed, (uint64_t)drawn.gpus);
        if (compare_rank(&in, &budget, rank) == 0)
            continue;
        drawn_format(&drawn, text, sizeof text);
        fail_msg("RANKFIT_SEED=%" PRIu64 " RANKFIT_DRAWS=1, rank %d of %s", from, rank, text);
    }
}

static void compare_all(unsigned features, bool runs)
{
    uint64_t seed = setting("RANKFIT_SEED", (uint64_t)time(NULL));
    uint64_t draws = getenv("RANKFIT_ALL") ? MANY : setting("RANKFIT_DRAWS", DRAWS);
    print_message("seed %" PRIu64 "\n", seed);
    for (uint64_t i = 0; i < draws; i++)
        compare_draw(&seed, features, runs);
}

static void compare(unsigned features)
{
    compare_all(features, false);
}

static void dense(void **state)
{
    (void)state;
    compare(0);
}

static void experts(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS);
}

static void capped_and_latent_experts(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS | DRAW_CAPPED);
}

static void stages(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS | DRAW_STAGES);
}

static void tensor_and_context(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS | DRAW_SPLIT | DRAW_CONTEXT);
}

static void latents(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS | DRAW_SPLIT | DRAW_CONTEXT | DRAW_LATENTS);
}

static void recurrences(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS | DRAW_SPLIT | DRAW_CONTEXT | DRAW_STATES);
}

static void elsewhere(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS | DRAW_STAGES | DRAW_SPLIT | DRAW_LATENTS | DRAW_ELSEWHERE);
}

static void interleaved(void **state)
{
    (void)state;
    compare_all(DRAW_EXPERTS | DRAW_STAGES | DRAW_INTERLEAVED, true);
}

/* Chosen keys and latent sums wait in flight too; offloaded inputs; tensors split and gathered. */
static void interleaved_everything(void **state)
{
    (void)state;
    compare_all(DRAW_ALL & ~(unsigned)DRAW_ALIKE, true);
}

static void predictions(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS | DRAW_STAGES | DRAW_INTERLEAVED | DRAW_PREDICTED);
}

static void reinforcement(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS | DRAW_STAGES | DRAW_INTERLEAVED | DRAW_SPLIT | DRAW_CONTEXT | DRAW_RL);
}

static void packed(void **state)
{
    (void)state;
    compare(DRAW_EXPERTS | DRAW_SPLIT | DRAW_CONTEXT | DRAW_STATES | DRAW_LATENTS | DRAW_RL |
            DRAW_PACKED);
}

static void trained(void **state)
{
    (void)state;
    compare(DRAW_ALL & ~(unsigned)(DRAW_INTERLEAVED | DRAW_ALIKE | DRAW_BESIDE));
}

static void everything(void **state)
{
    (void)state;
    compare(DRAW_ALL & ~(unsigned)(DRAW_INTERLEAVED | DRAW_ALIKE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense),
        cmocka_unit_test(experts),
        cmocka_unit_test(capped_and_latent_experts),
        cmocka_unit_test(stages),
        cmocka_unit_test(tensor_and_context),
        cmocka_unit_test(latents),
        cmocka_unit_test(recurrences),
        cmocka_unit_test(elsewhere),
        cmocka_unit_test(interleaved),
        cmocka_unit_test(interleaved_everything),
        cmocka_unit_test(predictions),
        cmocka_unit_test(reinforcement),
        cmocka_unit_test(packed),
        cmocka_unit_test(trained),
        cmocka_unit_test(everything),
    };
    cmocka_set_test_filter(getenv("RANKFIT_TEST")); /* NULL: all */
    return cmocka_run_group_tests_name("budget_simulated", tests, NULL, NULL);
}
