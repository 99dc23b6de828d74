/* A comparison that cannot fail proves nothing: the budgets of drawn layouts, changed in one way
 * each, against the steps that are played for the true ones. Unchanged, none differs; changed, a
 * good part does. Tables are changed where the linker lets this program stand between their users
 * and them (--wrap). */
#include "planner/budget/parts.h"
#include "tests/property/budget_difference.h"
#include "tests/simulator/draw.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { DRAWS = 150, RUNS = DRAW_EXPERTS | DRAW_STAGES | DRAW_INTERLEAVED };

enum mutation {
    NONE,
    EXTRA_BUFFER,    /* 256 bytes more in every step of every layer */
    HALVED_LIFETIME, /* what a layer holds at its last step is gone before */
    NO_CONTEXT,      /* nothing is exchanged at attention */
    WHOLE_RECEIVE,   /* gradients arrive as if of half the ranks */
    WRONG_GROUP,     /* state shared by half the ranks */
    KEPT_STATE,      /* of prediction layers one state more than is there */
    EARLY_RETURN,    /* what they gather is gone when the head comes */
    NOTHING_OPEN,    /* their gradients have no buffers before they are reduced */
    FROZEN_AS_TRUNK, /* what is frozen in the trunk is frozen in them */
    NO_REFERENCE,    /* the reference model weighs nothing */
    STATE_TOO_LONG,  /* a pass for log-probabilities keeps its last state beside the logits */
    NO_CHOICES,      /* it has no indexer's choices and no sums of experts */
    NO_PIECES,       /* a row is as if it had no pieces */
    ROW_AS_PIECE,    /* or one as long as itself */
    EVER_MOST,       /* beside each pass of interleaved runs the most that ever is of each item */
    OTHER_WAY,       /* beside a forward what is beside a backward, and the reverse */
    ONE_LESS         /* beside a pass one run less */
};
static enum mutation mutation;

void __real_residency_evaluate(const struct residency_shape *shape, enum mixer mixer, enum ffn ffn,
                               enum residency_mode mode, struct residency_half *halves,
                               struct residency *ret);
void __wrap_residency_evaluate(const struct residency_shape *shape, enum mixer mixer, enum ffn ffn,
                               enum residency_mode mode, struct residency_half *halves,
                               struct residency *ret);
void __real_context_bytes(const struct budget_input *in, enum mixer mixer,
                          struct context_bytes *ret);
void __wrap_context_bytes(const struct budget_input *in, enum mixer mixer,
                          struct context_bytes *ret);
uint64_t __real_reduce_receive_bytes(const struct budget_input *in, const struct stage *stage);
uint64_t __wrap_reduce_receive_bytes(const struct budget_input *in, const struct stage *stage);
uint64_t __real_reference_add(const struct budget_input *in, uint64_t *items);
uint64_t __wrap_reference_add(const struct budget_input *in, uint64_t *items);
void __real_logprob_bytes(const struct budget_input *in, struct loss_bytes *ret);
void __wrap_logprob_bytes(const struct budget_input *in, struct loss_bytes *ret);
uint64_t __real_passing_extras_bytes(const struct budget_input *in, int first, int layers,
                                     int place);
uint64_t __wrap_passing_extras_bytes(const struct budget_input *in, int first, int layers,
                                     int place);
uint64_t __real_packed_pieces(const struct budget_input *in);
uint64_t __wrap_packed_pieces(const struct budget_input *in);
uint64_t __real_longest_sequence(const struct budget_input *in);
uint64_t __wrap_longest_sequence(const struct budget_input *in);
void __real_beside_init(const struct budget_input *in, int stage, const struct in_flight *f,
                        const struct run_bytes *of, int from, struct beside (*ret)[WAYS]);
void __wrap_beside_init(const struct budget_input *in, int stage, const struct in_flight *f,
                        const struct run_bytes *of, int from, struct beside (*ret)[WAYS]);
void __real_predicted_init(const struct budget_input *in, const struct loss_bytes *loss,
                           const struct predicted_gradients *gradients, struct predicted *ret);
void __wrap_predicted_init(const struct budget_input *in, const struct loss_bytes *loss,
                           const struct predicted_gradients *gradients, struct predicted *ret);
void __real_predicted_residency(const struct budget_input *in, uint64_t received,
                                enum residency_mode mode, struct residency *ret);
void __wrap_predicted_residency(const struct budget_input *in, uint64_t received,
                                enum residency_mode mode, struct residency *ret);

static void sum_again(struct residency *ret)
{
    memset(ret->max, 0, sizeof ret->max);
    ret->peak = ret->bare = 0;
    for (int step = 0; step < ret->steps; step++) {
        uint64_t total = 0, output = ret->live[step][OWNER_OUTPUT];
        for (int owner = 0; owner < OWNER_COUNT; owner++) {
            uint64_t bytes = ret->live[step][owner];
            total += bytes;
            ret->max[owner] = bytes > ret->max[owner] ? bytes : ret->max[owner];
        }
        if (total > ret->peak) {
            ret->peak = total;
            ret->peak_step = step;
        }
        if (total - output > ret->bare) {
            ret->bare = total - output;
            memcpy(ret->bare_live, ret->live[step], sizeof ret->bare_live);
            ret->bare_live[OWNER_OUTPUT] = 0;
        }
    }
}

void __wrap_residency_evaluate(const struct residency_shape *shape, enum mixer mixer, enum ffn ffn,
                               enum residency_mode mode, struct residency_half *halves,
                               struct residency *ret)
{
    __real_residency_evaluate(shape, mixer, ffn, mode, halves, ret);
    if (mutation == EXTRA_BUFFER)
        for (int step = 0; step < ret->steps; step++)
            ret->live[step][OWNER_WORKING] += 256;
    if (mutation == HALVED_LIFETIME)
        for (int step = ret->steps / 2; step < ret->steps; step++)
            ret->live[step][OWNER_WORKING] = 0;
    if (mutation == EXTRA_BUFFER || mutation == HALVED_LIFETIME)
        sum_again(ret);
}

void __wrap_context_bytes(const struct budget_input *in, enum mixer mixer,
                          struct context_bytes *ret)
{
    __real_context_bytes(in, mixer, ret);
    if (mutation == NO_CONTEXT)
        ret->forward = ret->backward = 0;
}

uint64_t __wrap_reduce_receive_bytes(const struct budget_input *in, const struct stage *stage)
{
    uint64_t bytes = __real_reduce_receive_bytes(in, stage);
    return mutation == WHOLE_RECEIVE ? 2 * bytes : bytes;
}

void __wrap_predicted_init(const struct budget_input *in, const struct loss_bytes *loss,
                           const struct predicted_gradients *gradients, struct predicted *ret)
{
    uint64_t head = gradients->head.dense + gradients->head.expert;
    uint64_t state = 2 * norm_tokens(in) * (uint64_t)in->model->hidden;
    __real_predicted_init(in, loss, gradients, ret);
    for (int i = 0; i < ret->count; i++) {
        struct predicted_moment *m = &ret->moments[i];
        if (mutation == KEPT_STATE)
            m->loss_working += arena_bytes(state, 1);
        if (mutation == EARLY_RETURN && m->gather == PREDICTED_AND_HEAD)
            m->gather = PREDICTED_GONE;
        if (mutation == NOTHING_OPEN && m->gather == PREDICTED_AND_HEAD)
            m->gradients = head;
    }
}

void __wrap_predicted_residency(const struct budget_input *in, uint64_t received,
                                enum residency_mode mode, struct residency *ret)
{
    const struct model *m = in->model;
    struct residency_half halves[RESIDENCY_HALVES] = { 0 };
    struct residency_shape shape;
    if (mutation != FROZEN_AS_TRUNK) {
        __real_predicted_residency(in, received, mode, ret);
        return;
    }
    working_shape(in, received, &shape);
    working_shape_mixer(in, model_mtp_mixer(m), &shape);
    residency_evaluate(&shape, model_mtp_mixer(m), model_mtp_ffn(m), mode, halves, ret);
}

uint64_t __wrap_reference_add(const struct budget_input *in, uint64_t *items)
{
    return mutation == NO_REFERENCE ? 0 : __real_reference_add(in, items);
}

void __wrap_logprob_bytes(const struct budget_input *in, struct loss_bytes *ret)
{
    __real_logprob_bytes(in, ret);
    if (mutation == STATE_TOO_LONG)
        ret->tiles += arena_bytes(norm_tokens(in) * (uint64_t)in->model->hidden, 2);
}

uint64_t __wrap_passing_extras_bytes(const struct budget_input *in, int first, int layers,
                                     int place)
{
    return mutation == NO_CHOICES ? 0 : __real_passing_extras_bytes(in, first, layers, place);
}

uint64_t __wrap_packed_pieces(const struct budget_input *in)
{
    return mutation == NO_PIECES ? 0 : __real_packed_pieces(in);
}

uint64_t __wrap_longest_sequence(const struct budget_input *in)
{
    uint64_t row = all_tokens(in) / (uint64_t)in->choices->layout.micro_batch;
    return mutation == ROW_AS_PIECE ? row : __real_longest_sequence(in);
}

static void raise_to(uint64_t bytes, uint64_t *ret)
{
    *ret = bytes > *ret ? bytes : *ret;
}

static void take_most(struct beside *all, int runs)
{
    struct beside most = all[0];
    for (int i = 0; i < runs * WAYS; i++) {
        raise_to(all[i].runs, &most.runs);
        raise_to(all[i].micro_batches, &most.micro_batches);
        raise_to(all[i].saved, &most.saved);
    }
    for (int i = 0; i < runs * WAYS; i++) {
        all[i].runs = most.runs;
        all[i].micro_batches = most.micro_batches;
        all[i].saved = most.saved;
    }
}

void __wrap_beside_init(const struct budget_input *in, int stage, const struct in_flight *f,
                        const struct run_bytes *of, int from, struct beside (*ret)[WAYS])
{
    int runs = run_count(f->run, f->layers);
    __real_beside_init(in, stage, f, of, from, ret);
    if (mutation == EVER_MOST)
        take_most(ret[0], runs);
    for (int i = 0; i < runs; i++) {
        struct beside forward = ret[i][WAY_FORWARD];
        if (mutation == OTHER_WAY) {
            ret[i][WAY_FORWARD] = ret[i][WAY_BACKWARD];
            ret[i][WAY_BACKWARD] = forward;
        }
        for (int way = 0; mutation == ONE_LESS && way < WAYS; way++)
            ret[i][way].runs -= ret[i][way].runs > 0;
    }
}

/* What the budget is told of the layout. */
static void tell_layout(const struct layout *true_one, struct layout *ret)
{
    *ret = *true_one;
    if (mutation != WRONG_GROUP || ret->fsdp % 2 != 0)
        return;
    ret->fsdp /= 2;
    ret->d_rep *= 2;
}

static bool differs(uint64_t *seed, unsigned features)
{
    static struct drawn drawn;
    static struct model_sizes sizes;
    static struct budget budget;
    struct sim_result played;
    do
        draw_step(seed, features, &drawn);
    while ((features & DRAW_INTERLEAVED) && drawn.choices.layout.vpp == 1);
    struct choices told = drawn.choices;
    tell_layout(&drawn.choices.layout, &told.layout);
    model_sizes_init(&sizes, &drawn.model);
    struct budget_input in = { .model = &drawn.model,
                               .sizes = &sizes,
                               .hardware = &drawn.hardware,
                               .choices = &told,
                               .gpus = drawn.gpus,
                               .seq_tokens = drawn.seq_tokens,
                               .routing = drawn.routing,
                               .routing_quantile = 0.99,
                               .lengths = &drawn.lengths };
    struct sim_job job = { .model = &drawn.model,
                           .hardware = &drawn.hardware,
                           .choices = &drawn.choices,
                           .seq_tokens = drawn.seq_tokens,
                           .rank = (int)random_below(seed, (uint64_t)drawn.gpus),
                           .routing = drawn.routing,
                           .lengths = &drawn.lengths };
    simulate(&job, &played);
    budget_compute(&in, &budget);
    const struct rank_budget *rank = &budget.groups[budget_group_of(&in, &budget, job.rank)];
    return budget_differences(rank, &played, false) + moment_differences(&in, rank, &job, false) >
           0;
}

static int caught(enum mutation which, unsigned features)
{
    uint64_t seed = 20261130;
    int count = 0;
    mutation = which;
    for (int i = 0; i < DRAWS; i++)
        count += differs(&seed, features);
    mutation = NONE;
    return count;
}

static void each_change_is_caught(void **state)
{
    static const struct {
        enum mutation mutation;
        unsigned features;
        int least; /* of the draws; what a change does not touch it cannot fail */
    } rows[] = {
        { EXTRA_BUFFER, DRAW_EXPERTS, DRAWS },
        { HALVED_LIFETIME, DRAW_EXPERTS, DRAWS / 2 },
        { NO_CONTEXT, DRAW_CONTEXT, DRAWS / 10 },
        { WHOLE_RECEIVE, DRAW_EXPERTS, DRAWS / 20 },
        { WRONG_GROUP, DRAW_EXPERTS, DRAWS / 3 },
        { KEPT_STATE, DRAW_PREDICTED, DRAWS / 10 },
        { EARLY_RETURN, DRAW_PREDICTED, DRAWS / 10 },
        { NOTHING_OPEN, DRAW_PREDICTED, DRAWS / 10 },
        { NO_REFERENCE, DRAW_RL, DRAWS / 10 },
        { STATE_TOO_LONG, DRAW_RL, DRAWS / 10 },
        { NO_CHOICES, DRAW_RL | DRAW_LATENTS, DRAWS / 50 },
        { NO_PIECES, DRAW_PACKED, DRAWS / 5 },
        { ROW_AS_PIECE, DRAW_PACKED, DRAWS / 20 },
        { EVER_MOST, RUNS, DRAWS / 5 },
        { OTHER_WAY, RUNS, DRAWS / 3 },
        { ONE_LESS, RUNS, DRAWS / 3 },
        { FROZEN_AS_TRUNK, DRAW_PREDICTED | DRAW_EXPERTS | DRAW_TRAINED, DRAWS / 50 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int count = caught(rows[i].mutation, rows[i].features);
        print_message("change %zu: %d of %d draws differ\n", i, count, (int)DRAWS);
        assert_true(count >= rows[i].least);
        assert_int_equal(caught(NONE, rows[i].features), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_change_is_caught) };
    return cmocka_run_group_tests_name("budget_mutations", tests, NULL, NULL);
}
