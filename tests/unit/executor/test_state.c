/* Where state lies and how it begins: parts, shards, places of tensors, first weights. */
#include "executor/primitive/state/state.h"
#include "tests/unit/executor/step_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A trainer that has reserved and initialised, no more. */
struct opened {
    struct plan plan;
    struct data data;
    struct diag_list errors;
    struct backend *backend;
    struct trainer trainer;
};

static struct opened *open_trainer(const struct step_layout *layout)
{
    struct opened *o = calloc(1, sizeof *o);
    struct model model;

    assert_non_null(o);
    step_moe_model(&model);
    step_plan(&o->plan, &model, layout, "balanced");
    o->data = (struct data){ .seed = 1, .vocab = model.vocab };
    o->backend = backend_host_open(&o->errors);
    assert_non_null(o->backend);
    assert_int_equal(
        trainer_open(&o->trainer, &o->plan, step_fabric, o->backend, &o->data, 7, &o->errors), 0);
    return o;
}

static void close_trainer(struct opened *o)
{
    trainer_close(&o->trainer);
    o->backend->ops->close(o->backend);
    free(o);
}

static const struct state_tensor *tensor_of(const struct state_unit *unit, enum role role)
{
    for (int i = 0; i < unit->tensor_count; i++)
        if (unit->tensors[i].role == role)
            return &unit->tensors[i];
    fail_msg("no tensor of role %d", (int)role);
    return NULL;
}

/* hidden 32, query 4 x 8, keys 2 x 8, 8 experts of 16, shared 24, vocabulary 61. */
static void test_places(void **state)
{
    (void)state;
    struct step_layout layout = { .sharding = SHARDING_FSDP,
                                  .fsdp = step_fabric->world,
                                  .e_fsdp = step_fabric->world };
    struct opened *o = open_trainer(&layout);
    const struct state_unit *unit = &o->trainer.state.units[1];
    uint64_t query = UINT64_C(32) * 32, key = UINT64_C(16) * 32;

    assert_int_equal(tensor_of(unit, ROLE_K)->offset, tensor_of(unit, ROLE_Q)->offset + query);
    assert_int_equal(tensor_of(unit, ROLE_V)->offset, tensor_of(unit, ROLE_K)->offset + key);
    assert_int_equal(tensor_of(unit, ROLE_SHARED_UP)->offset,
                     tensor_of(unit, ROLE_SHARED_GATE)->offset + UINT64_C(24) * 32);
    assert_int_equal(tensor_of(unit, ROLE_EXPERT_GATE)->offset, 0);
    assert_int_equal(tensor_of(unit, ROLE_EXPERT_GATE)->stride, UINT64_C(2) * 16 * 32);
    assert_int_equal(tensor_of(unit, ROLE_EXPERT_UP)->offset, 16 * 32);
    assert_int_equal(tensor_of(unit, ROLE_EXPERT_DOWN)->offset, UINT64_C(8) * 2 * 16 * 32);
    assert_int_equal(tensor_of(unit, ROLE_EXPERT_DOWN)->stride, 16 * 32);
    /* norms 2 x 32 and 2 x 8; q, k, v, o; router 8 x 32; shared 3 x 24 x 32 and its gate 32 */
    assert_int_equal(unit->parts[MESH_DENSE].elements, UINT64_C(64) + 16 + query + 2 * key + query +
                                                           UINT64_C(8) * 32 +
                                                           UINT64_C(3) * 24 * 32 + 32);
    assert_int_equal(unit->parts[MESH_EXPERT].elements, UINT64_C(8) * 3 * 16 * 32);
    assert_int_equal(o->trainer.state.units[0].parts[MESH_DENSE].elements, UINT64_C(61) * 32);
    assert_int_equal(o->trainer.state.units[3].parts[MESH_DENSE].elements, UINT64_C(61) * 32 + 32);
    close_trainer(o);
}

/* Padded to 64 elements a shard; slices cover the part, and bytes follow the sharding's table. */
static void test_shards(void **state)
{
    (void)state;
    int world = step_fabric->world;
    const enum sharding kinds[] = { SHARDING_REPLICATED, SHARDING_ZERO1, SHARDING_FSDP };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct step_layout layout = { .sharding = kinds[i], .fsdp = world, .e_fsdp = world };
        struct opened *o = open_trainer(&layout);
        const struct state_part *part = &o->trainer.state.units[0].parts[MESH_DENSE];
        uint64_t unit = 64 * (uint64_t)world, padded = (UINT64_C(61) * 32 + unit - 1) / unit * unit;
        uint64_t slice = kinds[i] == SHARDING_REPLICATED ? padded : padded / (uint64_t)world;
        uint64_t held = kinds[i] == SHARDING_FSDP ? slice : padded;
        assert_int_equal(part->padded, padded);
        assert_int_equal(part->slice, slice);
        assert_int_equal(part->slice_first,
                         kinds[i] == SHARDING_REPLICATED ? 0 : slice * (uint64_t)step_fabric->rank);
        assert_int_equal(part->weights.bytes, 2 * held);
        assert_int_equal(part->gradients.bytes, 4 * held);
        assert_int_equal(part->master.bytes, 4 * slice);
        assert_int_equal(part->moments.bytes, 8 * slice);
        close_trainer(o);
    }
}

/* What this rank's slice of the head begins with is what the generator says of the element at that
 * place, and the weight is its bf16. */
static void test_first_weights(void **state)
{
    (void)state;
    int world = step_fabric->world;
    struct step_layout layout = { .sharding = SHARDING_FSDP, .fsdp = world, .e_fsdp = world };
    struct opened *o = open_trainer(&layout);
    const struct state_unit *unit = &o->trainer.state.units[3];
    const struct state_part *part = &unit->parts[MESH_DENSE];
    const struct state_tensor *head = tensor_of(unit, ROLE_HEAD);
    uint64_t key = state_random_key(7, "lm_head.weight");
    const float *master = part->master.data;
    const bf16 *weights = part->weights.data;

    for (uint64_t i = 0; i < part->slice; i++) {
        uint64_t place = part->slice_first + i;
        float want = 0, stored;
        if (place < 32) /* the final norm */
            want = 1;
        else if (place - head->offset < head->elements)
            want = state_random_normal(key, place - head->offset);
        assert_true(master[i] == want);
        uint32_t bits = (uint32_t)weights[i] << 16;
        memcpy(&stored, &bits, sizeof stored);
        assert_true(fabsf(stored - want) <= fabsf(want) / 256);
    }
    close_trainer(o);
}

/* Mean 0, deviation 0.02, a tenth beyond 1.645 deviations; other seeds, names and elements differ.
 * 1e5 draws: the mean's own deviation is 6.3e-5, the share's 0.00095. */
static void test_normal(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    uint64_t key = state_random_key(3, "a.weight");
    double sum = 0, square = 0;
    int beyond = 0;

    for (int i = 0; i < DRAWS; i++) {
        double x = (double)state_random_normal(key, (uint64_t)i);
        sum += x;
        square += x * x;
        beyond += fabs(x) > 1.645 * 0.02;
    }
    assert_true(fabs(sum / DRAWS) < 4 * 6.3e-5);
    assert_true(fabs(sqrt(square / DRAWS) / 0.02 - 1) < 0.01);
    assert_true(fabs((double)beyond / DRAWS - 0.1) < 4 * 0.00095);
    assert_true(state_random_key(3, "a.weight") == key);
    assert_true(state_random_key(4, "a.weight") != key);
    assert_true(state_random_key(3, "b.weight") != key);
    assert_true(state_random_normal(key, 0) != state_random_normal(key, 1));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_first_weights),
        cmocka_unit_test(test_normal),
    };
    return step_main(argc, argv, "state", tests, sizeof tests / sizeof *tests);
}
