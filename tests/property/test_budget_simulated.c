/* Budgets of random legal layouts against steps that are played tensor by tensor, to the byte: what
 * is live at the peak, every item's own maximum, the peak and its phase, what the host holds. The
 * seed is printed; RANKFIT_SEED and RANKFIT_DRAWS set it and the number of draws, RANKFIT_ALL=1
 * makes many. */
#include "planner/budget/budget.h"
#include "tests/simulator/draw.h"
#include "tests/simulator/simulator.h"
#include "tests/support/random.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { DRAWS = 60, MANY = 2000, RANKS = 3 };

static uint64_t asked(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static bool is_played(int item)
{
    return item != ITEM_COMMUNICATORS && item != ITEM_CONTEXT && item != ITEM_MODULES &&
           item != ITEM_SLACK;
}

static uint64_t played_bytes(const struct rank_budget *r)
{
    uint64_t sum = 0;
    for (int i = 0; i < ITEM_COUNT; i++)
        sum += is_played(i) ? r->item_bytes[i] : 0;
    return sum;
}

static void phase_text(int kind, int stage, int micro_batch, int layer, char *ret, size_t size)
{
    struct phase phase = { (enum phase_kind)kind, stage, micro_batch, layer };
    phase_format(&phase, ret, size);
}

/* Tells every difference; returns how many. */
static int differences(const struct rank_budget *got, const struct sim_result *want)
{
    int count = 0;
    char a[96], b[96];
    const struct phase *p = &got->peak_phase;
    for (int i = 0; i < ITEM_COUNT; i++) {
        if (!is_played(i))
            continue;
        if (got->item_max_bytes[i] != want->max[i] && ++count)
            print_error("  maximum of %s: %" PRIu64 " in the budget, %" PRIu64 " played\n",
                        item_infos[i].name, got->item_max_bytes[i], want->max[i]);
        if (got->item_bytes[i] != want->at_peak[i] && ++count)
            print_error("  %s at the peak: %" PRIu64 " in the budget, %" PRIu64 " played\n",
                        item_infos[i].name, got->item_bytes[i], want->at_peak[i]);
    }
    phase_text((int)p->kind, p->stage, p->micro_batch, p->layer, a, sizeof a);
    phase_text((int)want->phase.kind, want->phase.stage, want->phase.micro_batch, want->phase.layer,
               b, sizeof b);
    bool same = (int)p->kind == (int)want->phase.kind && p->layer == want->phase.layer &&
                p->micro_batch == want->phase.micro_batch && p->stage == want->phase.stage;
    if ((played_bytes(got) != want->peak || !same) && ++count)
        print_error("  peak: %" PRIu64 " at %s in the budget, %" PRIu64 " at %s played\n",
                    played_bytes(got), a, want->peak, b);
    if (got->host_bytes != want->host_bytes && ++count)
        print_error("  host: %" PRIu64 " in the budget, %" PRIu64 " played\n", got->host_bytes,
                    want->host_bytes);
    return count;
}

/* Interleaved stages of layers alike: every item's own maximum to the byte. The peak counts the
 * inputs of as many micro-batches as there ever are, and every run with all others in flight, as
 * from twice as many micro-batches as stages on. */
static int bounds(const struct rank_budget *got, const struct sim_result *want, bool many)
{
    int count = 0;
    uint64_t peak = played_bytes(got), over = want->peak + want->max[ITEM_INPUTS];
    for (int i = 0; i < ITEM_COUNT; i++)
        if (is_played(i) && got->item_max_bytes[i] != want->max[i] && ++count)
            print_error("  maximum of %s: %" PRIu64 " in the budget, %" PRIu64 " played\n",
                        item_infos[i].name, got->item_max_bytes[i], want->max[i]);
    if ((peak < want->peak || (many && peak > over)) && ++count)
        print_error("  peak: %" PRIu64 " in the budget, %" PRIu64 " played\n", peak, want->peak);
    return count;
}

static int compare_rank(const struct budget_input *in, const struct budget *budget, int rank)
{
    struct sim_job job = { .model = in->model,
                           .hardware = in->hardware,
                           .choices = in->choices,
                           .seq_tokens = in->seq_tokens,
                           .rank = rank,
                           .routing = in->routing };
    struct sim_result played;
    const struct layout *l = &in->choices->layout;
    const struct rank_budget *group = &budget->groups[budget_group_of(in, budget, rank)];
    simulate(&job, &played);
    if (l->vpp > 1)
        return bounds(group, &played, l->micro_batches >= 2 * l->pp);
    return differences(group, &played);
}

static void compare_draw(uint64_t *seed, unsigned features)
{
    static struct drawn drawn;
    static struct model_sizes sizes;
    static struct budget budget;
    uint64_t from = *seed;
    char text[4096];
    draw_step(seed, features, &drawn);
    model_sizes_init(&sizes, &drawn.model);
    struct budget_input in = { .model = &drawn.model,
                               .sizes = &sizes,
                               .hardware = &drawn.hardware,
                               .choices = &drawn.choices,
                               .gpus = drawn.gpus,
                               .seq_tokens = drawn.seq_tokens,
                               .routing = drawn.routing,
                               .routing_quantile = 0.99 };
    budget_compute(&in, &budget);
    for (int i = 0; i < RANKS; i++) {
        int rank = (int)random_below(seed, (uint64_t)drawn.gpus);
        if (compare_rank(&in, &budget, rank) == 0)
            continue;
        drawn_format(&drawn, text, sizeof text);
        fail_msg("RANKFIT_SEED=%" PRIu64 " RANKFIT_DRAWS=1, rank %d of %s", from, rank, text);
    }
}

static void compare(unsigned features)
{
    uint64_t seed = asked("RANKFIT_SEED", (uint64_t)time(NULL));
    uint64_t draws = asked("RANKFIT_DRAWS", getenv("RANKFIT_ALL") ? MANY : DRAWS);
    print_message("seed %" PRIu64 "\n", seed);
    for (uint64_t i = 0; i < draws; i++)
        compare_draw(&seed, features);
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
    compare(DRAW_EXPERTS | DRAW_STAGES | DRAW_INTERLEAVED | DRAW_ALIKE);
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
        cmocka_unit_test(everything),
    };
    cmocka_set_test_filter(getenv("RANKFIT_TEST")); /* NULL: all */
    return cmocka_run_group_tests_name("budget_simulated", tests, NULL, NULL);
}
