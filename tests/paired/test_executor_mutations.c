/* Tests that cannot fail prove nothing: one step of the executor as it is and with one thing wrong
 * at a time. Bytes are judged by the planner's comparison at the rows that were measured, values by
 * one rank alone with the same tokens; as it is the executor passes both, and with anything wrong
 * it must not. What is wrong stands between the executor and the fabric's and the backend's tables
 * of operations, or where the linker lets this program stand (--wrap). Started by mpirun. */
#include "base/text.h"
#include "executor/primitive/moe/moe.h"
#include "planner/compare/compare.h"
#include "tests/unit/executor/step_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum mutation {
    MUTATION_NONE,
    MUTATION_LOGITS_KEPT,
    MUTATION_SENT_KEPT,
    MUTATION_GATHER_KEPT,
    MUTATION_GATHER_LEFT,
    MUTATION_SHORT_GROUP,
    MUTATION_SHORT_SUM,
    MUTATION_KEYS_NOT_SUMMED,
    MUTATION_CHUNK_NOT_COMBINED,
    MUTATION_SLOTS_OF_ANOTHER_ORDER
};

/* What is wrong now, and what the wrong parts remember of the run under way. */
static enum mutation mutation;
static struct {
    uint32_t logits;    /* take of the tensor to be kept */
    struct buffer kept; /* from its give to the end of the backward */
    int combined;       /* forward combines so far */
    struct fabric_ops fabric_ops;
    struct backend_ops backend_ops;
    const struct fabric_ops *real_fabric;
    const struct backend_ops *real_backend;
} run_state;

enum { CHUNKS = 3, WRONG_CHUNK = 1, WRONG_USE = 1 /* the first layer's forward */ };

struct buffer __real_work_take_tensor(struct work *w, enum owner owner, int64_t rows, int64_t width,
                                      uint64_t element_bytes);
struct buffer __wrap_work_take_tensor(struct work *w, enum owner owner, int64_t rows, int64_t width,
                                      uint64_t element_bytes);
void __real_work_give(struct work *w, struct buffer *buffer);
void __wrap_work_give(struct work *w, struct buffer *buffer);
void __real_transformer_backward(struct transformer *t, struct micro_batch *batch);
void __wrap_transformer_backward(struct transformer *t, struct micro_batch *batch);
void __real_state_unit_end(struct state *state);
void __wrap_state_unit_end(struct state *state);
void __real_moe_exchange_wait(const struct moe_call *call, struct moe_exchange *exchange);
void __wrap_moe_exchange_wait(const struct moe_call *call, struct moe_exchange *exchange);
void __real_moe_exchange_close(const struct moe_call *call, struct moe_exchange *exchange);
void __wrap_moe_exchange_close(const struct moe_call *call, struct moe_exchange *exchange);
int __real_layout_group(const struct layout *layout, unsigned axes, int rank, int *ret);
int __wrap_layout_group(const struct layout *layout, unsigned axes, int rank, int *ret);

struct buffer __wrap_work_take_tensor(struct work *w, enum owner owner, int64_t rows, int64_t width,
                                      uint64_t element_bytes)
{
    struct buffer ret = __real_work_take_tensor(w, owner, rows, width, element_bytes);
    if (mutation == MUTATION_LOGITS_KEPT && owner == OWNER_LOSS && element_bytes == sizeof(float))
        run_state.logits = ret.take;
    return ret;
}

void __wrap_work_give(struct work *w, struct buffer *buffer)
{
    if (buffer->take == 0 || buffer->take != run_state.logits) {
        __real_work_give(w, buffer);
        return;
    }
    run_state.kept = *buffer;
    run_state.logits = 0;
    memset(buffer, 0, sizeof *buffer);
}

/* What was kept goes when the backward has ended. */
void __wrap_transformer_backward(struct transformer *t, struct micro_batch *batch)
{
    struct work *w = t->state->work;
    __real_transformer_backward(t, batch);
    __real_work_give(w, &run_state.kept);
    for (int i = 0; mutation == MUTATION_GATHER_KEPT && i < USE_MAX_PARTS; i++)
        __real_work_give(w, &t->state->uses[WRONG_USE].weights[i]);
}

void __wrap_state_unit_end(struct state *state)
{
    bool keeps = mutation == MUTATION_GATHER_KEPT || mutation == MUTATION_GATHER_LEFT;
    if (!keeps || state->position != WRONG_USE)
        __real_state_unit_end(state);
}

/* The rows that were sent stay until those that came are given back. */
void __wrap_moe_exchange_wait(const struct moe_call *call, struct moe_exchange *exchange)
{
    struct buffer from = exchange->from, values = exchange->from_values;
    const struct buffer nothing = { 0 };
    if (mutation == MUTATION_SENT_KEPT)
        exchange->from = exchange->from_values = nothing;
    __real_moe_exchange_wait(call, exchange);
    if (mutation != MUTATION_SENT_KEPT)
        return;
    exchange->from = from;
    exchange->from_values = values;
}

void __wrap_moe_exchange_close(const struct moe_call *call, struct moe_exchange *exchange)
{
    __real_moe_exchange_close(call, exchange);
    if (mutation != MUTATION_SENT_KEPT)
        return;
    __real_work_give(call->state->work, &exchange->from);
    __real_work_give(call->state->work, &exchange->from_values);
}

/* The last rank of those that share dense state is left out, and alone. */
int __wrap_layout_group(const struct layout *layout, unsigned axes, int rank, int *ret)
{
    int count = __real_layout_group(layout, axes, rank, ret);
    if (mutation != MUTATION_SHORT_GROUP || axes != (1U << AXIS_FSDP | 1U << AXIS_CP))
        return count;
    if (rank != ret[count - 1])
        return count - 1;
    ret[0] = rank;
    return 1;
}

/* A sum without the last member's share. */
static int short_reduce_scatter(struct group *g, const void *send, void *recv, uint64_t elements,
                                enum dtype dtype, struct transfer **ret, struct diag_list *reterr)
{
    const struct group_info *info = group_info(g);
    bool left_out = info->count > 1 && info->index == info->count - 1;
    uint64_t bytes = (uint64_t)info->count * elements * dtype_bytes(dtype);
    void *zeros = left_out ? calloc(1, bytes) : NULL;

    assert_true(zeros || !left_out);
    *ret = NULL;
    int status = run_state.real_fabric->reduce_scatter(g, left_out ? zeros : send, recv, elements,
                                                       dtype, reterr);
    free(zeros);
    return status;
}

/* Every rank keeps what its own queries gave its keys. */
static int own_blocks(struct group *g, const void *send, void *recv, uint64_t elements, int blocks,
                      const int *places, enum dtype dtype, struct diag_list *reterr)
{
    const uint64_t bytes = elements * dtype_bytes(dtype);
    const int *own = places + (ptrdiff_t)group_info(g)->index * blocks;

    (void)reterr;
    for (int i = 0; i < blocks; i++)
        memcpy((char *)recv + (uint64_t)i * bytes, (const char *)send + (uint64_t)own[i] * bytes,
               bytes);
    return 0;
}

/* One chunk's rows never reach the layer's output. */
static int combine_but_one(struct backend *b, enum stream s, int64_t rows, int top_k, int64_t width,
                           const bf16 *from, const int32_t *slots, const bf16 *base, bf16 *to,
                           const float *from_values, float *to_values, struct diag_list *reterr)
{
    if (to_values || run_state.combined++ % CHUNKS != WRONG_CHUNK)
        return run_state.real_backend->combine_rows(b, s, rows, top_k, width, from, slots, base, to,
                                                    from_values, to_values, reterr);
    memcpy(to, base, (size_t)(rows * width) * sizeof *to);
    return 0;
}

/* Places in the order of tokens, where rows lie in the order of experts. */
static int sort_by_token(struct backend *b, enum stream s, int64_t rows, int top_k, int experts,
                         const int32_t *choices, int32_t *slots, int64_t *counts,
                         struct diag_list *reterr)
{
    int status = run_state.real_backend->sort_choices(b, s, rows, top_k, experts, choices, slots,
                                                      counts, reterr);
    for (int64_t i = 0; i < rows * top_k; i++)
        slots[i] = (int32_t)i;
    return status;
}

/* The executor's surroundings with what is wrong now. */
static void mutate(enum mutation wrong, struct fabric *fabric, struct backend *backend)
{
    memset(&run_state, 0, sizeof run_state);
    mutation = wrong;
    run_state.real_fabric = fabric->ops;
    run_state.real_backend = backend->ops;
    run_state.fabric_ops = *fabric->ops;
    run_state.backend_ops = *backend->ops;
    if (wrong == MUTATION_SHORT_SUM)
        run_state.fabric_ops.reduce_scatter_start = short_reduce_scatter;
    if (wrong == MUTATION_KEYS_NOT_SUMMED)
        run_state.fabric_ops.reduce_blocks = own_blocks;
    if (wrong == MUTATION_CHUNK_NOT_COMBINED)
        run_state.backend_ops.combine_rows = combine_but_one;
    if (wrong == MUTATION_SLOTS_OF_ANOTHER_ORDER)
        run_state.backend_ops.sort_choices = sort_by_token;
    fabric->ops = &run_state.fabric_ops;
    backend->ops = &run_state.backend_ops;
}

/* What is trained: a layout for a world of `world` ranks. */
enum subject { SUBJECT_EXPERTS, SUBJECT_CONTEXT, SUBJECT_CHUNKS, SUBJECT_COUNT };
static const char *const subject_names[SUBJECT_COUNT] = { "experts", "context", "chunks" };

static struct step_layout layout_of(enum subject subject, int world)
{
    const int ep = 2;
    struct step_layout ret = { .fsdp = world,
                               .ep = ep,
                               .e_fsdp = world / ep,
                               .micro_batch = 2,
                               .sharding = SHARDING_FSDP,
                               .prefetch_units = 1 };
    if (subject == SUBJECT_CONTEXT) {
        ret.fsdp = 1;
        ret.cp = world;
    }
    if (subject == SUBJECT_CHUNKS)
        ret.chunks = CHUNKS;
    return ret;
}

static void plan_of(const struct step_layout *layout, struct plan *ret)
{
    enum { TOKENS = 256 };
    struct diag_list errors = { 0 };
    struct model model;

    step_moe_model(&model);
    step_plan(ret, &model, layout, "natural");
    ret->seq_tokens = TOKENS;
    /* every source may send all its rows to one rank */
    ret->dispatch_bound_rows =
        (uint64_t)(trainer_batch_tokens(ret) * model.moe.top_k) * (uint64_t)ret->choices.layout.ep;
    ret->routing_quantile = 0.99;
    assert_int_equal(hardware_load("host", &ret->hardware, &errors), 0);
    assert_int_equal(plan_seal(ret, &(struct diag_list){ 0 }), 0);
}

enum { MAX_LAYERS = 4, MAX_RANKS = 4 };

/* What a run leaves for its judges. */
struct outcome {
    struct dump dump; /* at rank 0, when asked for */
    double loss;
    bool refused; /* with this */
    char refusal[256];
    struct measurement measurement; /* of this rank */
    struct measured_rank rank;
    struct routed_rows routed[MAX_LAYERS];
    uint64_t chunk_rows[MAX_LAYERS][CHUNKS];
};

static void keep_dump(struct trainer *trainer, void *context)
{
    assert_int_equal(dump_gradients(trainer, context), 0);
}

static void measure(const struct trainer *t, struct outcome *ret)
{
    const struct plan *plan = t->work.plan;
    struct arena_record memory;
    int layers = plan->model.layers;

    assert_true(layers <= MAX_LAYERS);
    arena_record(t->work.arena, &memory);
    ret->rank = (struct measured_rank){ .rank = t->mesh.fabric->rank,
                                        .arena_live_bytes = memory.live_peak_bytes,
                                        .arena_extent_bytes = memory.extent_bytes,
                                        .routed = ret->routed,
                                        .routed_count = (size_t)layers };
    memcpy(ret->rank.item_bytes, memory.item_at_peak, sizeof ret->rank.item_bytes);
    memcpy(ret->rank.item_max_bytes, memory.item_max, sizeof ret->rank.item_max_bytes);
    memcpy(ret->routed, t->work.routed, (size_t)layers * sizeof *ret->routed);
    for (int i = 0; i < layers; i++)
        if (ret->routed[i].chunk_count > 0) {
            memcpy(ret->chunk_rows[i], ret->routed[i].chunk_rows_received,
                   sizeof ret->chunk_rows[i]);
            ret->routed[i].chunk_rows_received = ret->chunk_rows[i];
        }
    ret->measurement = (struct measurement){ .rank_count = 1, .ranks = &ret->rank };
    (void)text_copy(ret->measurement.plan_digest, sizeof ret->measurement.plan_digest,
                    plan->digest);
    (void)text_copy(ret->measurement.backend, sizeof ret->measurement.backend, "host");
}

static void step_once(struct trainer *t, struct outcome *ret)
{
    struct step_result result;

    t->on_gradients = keep_dump;
    t->on_gradients_context = &ret->dump;
    assert_int_equal(trainer_keep_hidden(t), 0);
    assert_int_equal(trainer_step(t, 1, &result), 0);
    assert_int_equal(dump_hidden(t, &ret->dump), 0);
    ret->loss = result.loss;
}

/* One step with one thing wrong. A short group's parts have other sizes at every rank and are not
 * gathered into a dump. */
static void run(const struct fabric *real, const struct plan *plan, enum mutation wrong,
                struct outcome *ret)
{
    struct diag_list errors = { 0 };
    struct fabric fabric = *real;
    struct trainer trainer;
    struct step_result result;
    const struct data data = { .seed = 5, .vocab = plan->model.vocab };
    struct backend *backend = backend_host_open(&errors);

    memset(ret, 0, sizeof *ret);
    assert_non_null(backend);
    mutate(wrong, &fabric, backend);
    ret->refused = trainer_open(&trainer, plan, &fabric, backend, &data, 7, &errors) != 0;
    if (ret->refused)
        (void)text_copy(ret->refusal, sizeof ret->refusal, errors.items[0].what);
    else if (wrong == MUTATION_SHORT_GROUP)
        assert_int_equal(trainer_step(&trainer, 1, &result), 0);
    else
        step_once(&trainer, ret);
    if (!ret->refused)
        measure(&trainer, ret);
    trainer_close(&trainer);
    backend->ops->close(backend);
    mutation = MUTATION_NONE;
}

/* A judge says what it saw and whether that is within its bounds; all ranks hear the same. */
enum judge { JUDGE_BYTES, JUDGE_VALUES };

static void sum_over_ranks(double *values, int count)
{
    struct diag_list errors = { 0 };
    assert_int_equal(step_fabric->ops->sum_doubles(step_fabric->all, values, count, &errors), 0);
}

/* Every rank's own comparison; the worst of them all is told. Something predicted that was never
 * seen counts as wholly wrong. */
static bool bytes_are_predicted(const struct plan *plan, const struct outcome *outcome)
{
    enum { WITHIN, ITEM, ERROR, FIGURES };
    double seen[MAX_RANKS][FIGURES] = { 0 }, *own = seen[step_fabric->rank];
    struct prediction *prediction = calloc(1, sizeof *prediction);
    struct tolerances tolerances = tolerances_default();
    struct comparison comparison;
    struct diag_list errors = { 0 };
    int worst = 0, within = 0;

    assert_non_null(prediction);
    assert_true(step_fabric->world <= MAX_RANKS);
    prediction->plan = *plan;
    assert_int_equal(prediction_compute(prediction), 0);
    assert_int_equal(
        comparison_compute(prediction, &outcome->measurement, &tolerances, &comparison, &errors),
        0);
    own[WITHIN] = comparison.within;
    own[ITEM] = comparison.worst_item;
    own[ERROR] = isnan(comparison.worst_error) ? -1 : comparison.worst_error;
    comparison_done(&comparison);
    prediction_done(prediction);
    free(prediction);
    sum_over_ranks(seen[0], step_fabric->world * FIGURES);
    for (int i = 0; i < step_fabric->world; i++) {
        within += seen[i][WITHIN] > 0;
        if (fabs(seen[i][ERROR]) > fabs(seen[worst][ERROR]))
            worst = i;
    }
    print_message("predicted bytes are off most in %s of rank %d: %+.2f %%\n",
                  comparison_item_name((int)seen[worst][ITEM]), worst, 100 * seen[worst][ERROR]);
    return within == step_fabric->world;
}

/* RMS of the difference over RMS of `want`. */
static double difference(const struct dump_tensor *got, const struct dump_tensor *want)
{
    double square = 0, size = 0;
    assert_int_equal(got->elements, want->elements);
    for (uint64_t i = 0; i < want->elements; i++) {
        double d = (double)got->values[i] - (double)want->values[i];
        square += d * d;
        size += (double)want->values[i] * (double)want->values[i];
    }
    return size > 0 ? sqrt(square / size) : sqrt(square);
}

/* Hidden states to the bit, gradients to the order of their sums; where sequences are split, to the
 * neighbouring bf16 of a key's gradient. */
static double tolerance_of(const struct plan *plan, const char *name)
{
    if (strcmp(name, dump_hidden_name) == 0)
        return 0;
    return plan->choices.layout.cp > 1 ? 2e-4 : 2e-6;
}

/* The same step by one rank alone, nothing wrong, experts at once. */
static void run_alone(const struct plan *plan, struct outcome *ret)
{
    const struct step_layout single = { .micro_batch = 1,
                                        .micro_batches = (int)plan->global_batch,
                                        .sharding = SHARDING_FSDP };
    struct fabric *alone = step_alone(step_fabric);
    struct plan *own = calloc(1, sizeof *own);

    assert_non_null(own);
    plan_of(&single, own);
    run(alone, own, MUTATION_NONE, ret);
    free(own);
    step_alone_close(alone);
}

static bool compare_dumps(const struct plan *plan, const struct outcome *got,
                          const struct outcome *want)
{
    const char *worst_name = "none";
    double worst = 0;
    int beyond = 0;

    assert_int_equal(got->dump.count, want->dump.count);
    for (size_t i = 0; i < want->dump.count; i++) {
        const struct dump_tensor *tensor = dump_find(&got->dump, want->dump.tensors[i].name);
        assert_non_null(tensor);
        double error = difference(tensor, &want->dump.tensors[i]);
        beyond += !(error <= tolerance_of(plan, tensor->name));
        if (!(error <= worst)) {
            worst = error;
            worst_name = tensor->name;
        }
    }
    print_message("loss %.7f, one rank alone %.7f; %d of %zu tensors beyond their bounds, most %s: "
                  "%.2g\n",
                  got->loss, want->loss, beyond, want->dump.count, worst_name, worst);
    return beyond == 0 && fabs(got->loss - want->loss) <= 1e-6 * want->loss;
}

static bool values_are_one_ranks(const struct plan *plan, const struct outcome *outcome)
{
    double agrees = 0;

    if (step_fabric->rank == 0) {
        struct outcome *want = calloc(1, sizeof *want);
        assert_non_null(want);
        run_alone(plan, want);
        agrees = compare_dumps(plan, outcome, want);
        dump_done(&want->dump);
        free(want);
    }
    sum_over_ranks(&agrees, 1);
    return agrees > 0;
}

/* Whether a judge finds nothing wrong. */
static bool passes(enum subject subject, enum mutation wrong, const char *name, enum judge judge)
{
    struct plan *plan = calloc(1, sizeof *plan);
    struct outcome *outcome = calloc(1, sizeof *outcome);
    const struct step_layout layout = layout_of(subject, step_fabric->world);
    bool ret = false;

    assert_non_null(plan);
    assert_non_null(outcome);
    plan_of(&layout, plan);
    run(step_fabric, plan, wrong, outcome);
    print_message("%s, %s: ", subject_names[subject], name);
    if (outcome->refused)
        print_message("%s\n", outcome->refusal);
    else if (judge == JUDGE_BYTES)
        ret = bytes_are_predicted(plan, outcome);
    else
        ret = values_are_one_ranks(plan, outcome);
    dump_done(&outcome->dump);
    free(outcome);
    free(plan);
    return ret;
}

struct mutant {
    enum subject subject;
    enum mutation wrong;
    const char *name;
};

static const struct mutant mutants_of_bytes[] = {
    { SUBJECT_EXPERTS, MUTATION_LOGITS_KEPT, "logits kept to the end of the backward" },
    { SUBJECT_EXPERTS, MUTATION_SENT_KEPT, "sent rows kept until those received go" },
    { SUBJECT_EXPERTS, MUTATION_GATHER_KEPT, "a layer's gather kept to the end of the backward" },
    { SUBJECT_EXPERTS, MUTATION_GATHER_LEFT, "a layer's gather never freed" },
    { SUBJECT_EXPERTS, MUTATION_SHORT_GROUP, "dense state shared by one rank less" },
    { SUBJECT_CONTEXT, MUTATION_SHORT_GROUP, "dense state shared by one rank less" },
};

static const struct mutant mutants_of_values[] = {
    { SUBJECT_EXPERTS, MUTATION_SHORT_SUM, "gradients summed over one rank less" },
    { SUBJECT_CONTEXT, MUTATION_KEYS_NOT_SUMMED, "gradients of keys and values not summed" },
    { SUBJECT_CHUNKS, MUTATION_CHUNK_NOT_COMBINED, "one chunk not combined" },
    { SUBJECT_EXPERTS, MUTATION_SLOTS_OF_ANOTHER_ORDER, "slots in the order of tokens" },
    { SUBJECT_CHUNKS, MUTATION_SLOTS_OF_ANOTHER_ORDER, "slots in the order of tokens" },
};

static void check_caught(const struct mutant *mutants, size_t count, enum judge judge)
{
    for (size_t i = 0; i < count; i++)
        if (passes(mutants[i].subject, mutants[i].wrong, mutants[i].name, judge))
            fail_msg("%s, %s: nobody notices", subject_names[mutants[i].subject], mutants[i].name);
}

static void test_as_it_is(void **state)
{
    (void)state;
    for (int i = 0; i < SUBJECT_COUNT; i++) {
        assert_true(passes((enum subject)i, MUTATION_NONE, "as it is", JUDGE_BYTES));
        assert_true(passes((enum subject)i, MUTATION_NONE, "as it is", JUDGE_VALUES));
    }
}

static void test_bytes(void **state)
{
    (void)state;
    check_caught(mutants_of_bytes, sizeof mutants_of_bytes / sizeof *mutants_of_bytes, JUDGE_BYTES);
}

static void test_values(void **state)
{
    (void)state;
    check_caught(mutants_of_values, sizeof mutants_of_values / sizeof *mutants_of_values,
                 JUDGE_VALUES);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_as_it_is),
                                        cmocka_unit_test(test_bytes),
                                        cmocka_unit_test(test_values) };
    return step_main(argc, argv, "executor_mutations", tests, sizeof tests / sizeof *tests);
}
