/* A comparison that cannot fail proves nothing: the budgets of drawn layouts, changed in one way
 * each, against the steps that are played for the true ones. Unchanged, none differs; changed, a
 * good part does. Tables are changed where the linker lets this program stand between their users
 * and them (--wrap). */
#include "planner/predict/parts.h"
#include "tests/property/budget_difference.h"
#include "tests/simulator/draw.h"
#include "tests/support/asked.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { DRAWS = 150, EDIT_DRAWS = 400, RUNS = DRAW_EXPERTS | DRAW_STAGES | DRAW_INTERLEAVED };

enum mutation {
    NONE,
    LIST_EDIT,       /* one row of one list of operations */
    EXTRA_BUFFER,    /* 256 bytes more while any layer is at work */
    HALVED_LIFETIME, /* the tensors of a layer live half as long */
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

void __real_step_layer_init(const struct step_kind *kind, struct step_layer *ret);
void __wrap_step_layer_init(const struct step_kind *kind, struct step_layer *ret);
void __real_context_bytes(const struct budget_input *in, enum mixer mixer,
                          struct context_bytes *ret);
void __wrap_context_bytes(const struct budget_input *in, enum mixer mixer,
                          struct context_bytes *ret);
uint64_t __real_unit_receive_bytes(const struct budget_input *in, const struct unit *unit);
uint64_t __wrap_unit_receive_bytes(const struct budget_input *in, const struct unit *unit);
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
struct choices __real_predicted_choices(const struct budget_input *in);
struct choices __wrap_predicted_choices(const struct budget_input *in);

/* The list and its row that LIST_EDIT changes, and in which way. */
enum edit { EDIT_LARGER, EDIT_NOT_SAVED, EDIT_SAVED, EDIT_COUNT };
static const char *const edit_names[] = { "larger", "not saved", "saved" };
static struct {
    const struct step_list *list;
    int tensor;
    enum edit edit;
} edited;

static const struct step_list *with_edit(const struct step_list *list, struct step_list *copy,
                                         struct step_tensor *tensors)
{
    if (mutation != LIST_EDIT || list != edited.list)
        return list;
    memcpy(tensors, list->tensors, list->tensor_count * sizeof *tensors);
    struct step_tensor *row = &tensors[edited.tensor];
    if (edited.edit == EDIT_LARGER)
        row->bytes = (uint8_t)(32 * row->bytes);
    else
        row->fate = edited.edit == EDIT_SAVED ? FATE_SAVED : FATE_REMADE;
    *copy = *list;
    copy->tensors = tensors;
    return copy;
}

static void hold_more(struct step_pass *pass)
{
    static const struct step_tensor tensor = { "extra", ROWS_ONE,           WIDTH_ONE,
                                               1,       ITEM_LAYER_WORKING, FATE_REMADE };
    struct step_life *extra = &pass->lives[pass->count++];
    *extra = (struct step_life){ .tensor = &tensor,
                                 .rows = ROWS_ONE,
                                 .width = WIDTH_ONE,
                                 .bytes = 1,
                                 .item = ITEM_LAYER_WORKING };
    for (int zone = 0; zone < ZONE_COUNT; zone++)
        if (pass->points[zone] > 0)
            extra->last =
                (struct step_place){ (uint8_t)zone, (uint8_t)(pass->points[zone] - 1), 0, false };
}

/* Every life outside of chunks is half as long. */
static void release_early(struct step_pass *pass)
{
    for (int i = 0; i < pass->count; i++) {
        struct step_life *life = &pass->lives[i];
        if (!life->output && life->made.zone == life->last.zone && life->made.zone != ZONE_CHUNK)
            life->last.point = (uint8_t)((life->made.point + life->last.point) / 2);
    }
}

void __wrap_step_layer_init(const struct step_kind *kind, struct step_layer *ret)
{
    static struct step_tensor tensors[2][UINT8_MAX];
    struct step_list lists[2];
    struct step_kind told = *kind;
    told.mixer = with_edit(kind->mixer, &lists[0], tensors[0]);
    told.ffn = with_edit(kind->ffn, &lists[1], tensors[1]);
    __real_step_layer_init(&told, ret);
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        if (mutation == EXTRA_BUFFER)
            hold_more(&ret->pass[mode]);
        if (mutation == HALVED_LIFETIME)
            release_early(&ret->pass[mode]);
    }
}

struct choices __wrap_predicted_choices(const struct budget_input *in)
{
    return mutation == FROZEN_AS_TRUNK ? *in->choices : __real_predicted_choices(in);
}

void __wrap_context_bytes(const struct budget_input *in, enum mixer mixer,
                          struct context_bytes *ret)
{
    __real_context_bytes(in, mixer, ret);
    if (mutation == NO_CONTEXT)
        ret->forward = ret->backward = 0;
}

uint64_t __wrap_unit_receive_bytes(const struct budget_input *in, const struct unit *unit)
{
    uint64_t bytes = __real_unit_receive_bytes(in, unit);
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
    budget_compute(asked(&in), &budget);
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

/* Features under which steps of a list are drawn. */
static unsigned features_of(const struct step_list *list, bool mixer)
{
    if (!mixer)
        return DRAW_EXPERTS | DRAW_CAPPED | DRAW_SPLIT | DRAW_STATES;
    return DRAW_CONTEXT | DRAW_SPLIT |
           (list == step_mixers[MIXER_GQA] ? 0 : DRAW_LATENTS | DRAW_STATES);
}

/* Whether an operation of one of the orders makes, or reads, the tensor: one that `besides`, unless
 * NULL, does not have. */
static bool touches(const struct step_list *list, const struct step_order *orders,
                    const bool *besides, int tensor, bool reads)
{
    for (int i = 0; i < SCHEDULE_COUNT * ZONE_COUNT; i++) {
        int count = orders[i / ZONE_COUNT].zone[i % ZONE_COUNT].count;
        const struct step_entry *entries = orders[i / ZONE_COUNT].zone[i % ZONE_COUNT].entries;
        for (int e = 0; e < count; e++) {
            const struct step_op *op = &list->ops[entries[e].op];
            if (besides && besides[entries[e].op])
                continue;
            if (reads ? memchr(op->reads, tensor, OP_READS) || memchr(op->also, tensor, OP_ALSO)
                      : memchr(op->makes, tensor, OP_MAKES) != NULL)
                return true;
        }
    }
    return false;
}

static void ops_of(const struct step_order *orders, bool *ret)
{
    for (int i = 0; i < SCHEDULE_COUNT * ZONE_COUNT; i++)
        for (int e = 0; e < orders[i / ZONE_COUNT].zone[i % ZONE_COUNT].count; e++)
            ret[orders[i / ZONE_COUNT].zone[i % ZONE_COUNT].entries[e].op] = true;
}

/* Whether an edit means anything: the list makes the tensor; only what a forward makes and a
 * backward reads can be saved. */
static bool is_change(const struct step_list *list, int tensor, enum edit edit)
{
    const struct step_tensor *row = &list->tensors[tensor];
    bool forward[UINT8_MAX] = { false };
    bool made = touches(list, list->forward, NULL, tensor, false);
    ops_of(list->forward, forward);
    if (edit == EDIT_LARGER)
        return row->name && (made || touches(list, list->backward, NULL, tensor, false));
    if (edit == EDIT_NOT_SAVED)
        return made && row->fate != FATE_REMADE;
    return made && row->fate == FATE_REMADE && touches(list, list->backward, forward, tensor, true);
}

/* Draws until one differs under the edit, and how many that took; 0: none. */
static int draws_until_caught(unsigned features)
{
    uint64_t seed = 20261201;
    for (int i = 1; i <= EDIT_DRAWS; i++)
        if (differs(&seed, features))
            return i;
    return 0;
}

static int check_list(const struct step_list *list, bool mixer)
{
    int missed = 0;
    for (int i = TENSOR_X1; i < list->tensor_count; i++)
        for (int edit = 0; edit < EDIT_COUNT; edit++) {
            edited.list = list;
            edited.tensor = i;
            edited.edit = (enum edit)edit;
            if (!is_change(list, i, edited.edit) ||
                draws_until_caught(features_of(list, mixer)) > 0)
                continue;
            print_message("%s: nothing sees %s %s\n", list->name, list->tensors[i].name,
                          edit_names[edit]);
            missed++;
        }
    return missed;
}

/* Every row of every list, made larger, or saved where it was not and the reverse. */
static void each_row_is_watched(void **state)
{
    int missed = 0;
    (void)state;
    mutation = LIST_EDIT;
    for (int i = 0; i < MIXER_COUNT; i++)
        missed += step_mixers[i] ? check_list(step_mixers[i], true) : 0;
    for (int i = 0; i < FFN_COUNT; i++)
        missed += step_ffns[i] ? check_list(step_ffns[i], false) : 0;
    mutation = NONE;
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_change_is_caught),
        cmocka_unit_test(each_row_is_watched),
    };
    return cmocka_run_group_tests_name("budget_mutations", tests, NULL, NULL);
}
