/* Other engines by hand: the caching allocator's sizes, lifetimes on a tape of three operations,
 * and the bytes that a layer of Llama-3.1-70B leaves saved under Megatron. */
#include "base/hardware/hardware.h"
#include "base/model/model.h"
#include "planner/engine/autograd.h"
#include "planner/engine/engine.h"
#include "planner/engine/megatron.h"
#include "planner/engine/torch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t mib = UINT64_C(1) << 20;

/* 100 B count as 512 and come from a segment of 2 MiB; 3 MiB from one of 20; 30.5 MiB from one of
 * 32, of which the rest of 1.5 MiB is split off and serves 1.2 MiB; freed neighbors serve 31 MiB.
 */
static void sizes_of_the_allocator(void **state)
{
    struct allocator a;
    (void)state;
    allocator_init(&a);
    assert_int_equal(allocator_take(&a, 0), -2);
    (void)allocator_take(&a, 100);
    assert_int_equal(a.allocated_bytes, 512);
    assert_int_equal(a.reserved_bytes, 2 * mib);
    int middle = allocator_take(&a, 3 * mib);
    assert_int_equal(a.reserved_bytes, 22 * mib);
    allocator_give(&a, middle);
    int large = allocator_take(&a, 61 * mib / 2);
    assert_int_equal(a.reserved_bytes, 54 * mib);
    int rest = allocator_take(&a, 6 * mib / 5);
    assert_int_equal(a.reserved_bytes, 54 * mib);
    allocator_give(&a, large);
    allocator_give(&a, rest);
    (void)allocator_take(&a, 31 * mib);
    assert_int_equal(a.reserved_bytes, 54 * mib);
    assert_int_equal(a.allocated_bytes, 512 + 32 * mib); /* a rest of 1 MiB is not split off */
    assert_int_equal(a.reserved_peak_bytes, 54 * mib);
    allocator_done(&a);
}

/* w (8 MiB, trained) -> y = w x, 4 MiB, which saves nothing -> z = f(y), 4 MiB, which keeps y ->
 * loss, which keeps z. Forward: y and z. The backward of the loss makes dz in addition, 12 MiB;
 * that of f frees z and makes dy; that of the product frees y and makes dw: at most 4 + 8. In a
 * checkpointed segment z alone is there after the forward. */
static void make_tape(struct tape *t)
{
    *t = (struct tape){ .failed = false };
    int w = tape_resident(t, 8 * mib, true);
    tape_segment(t, true);
    struct tape_step *step = tape_run(t, "product", 4 * mib, w, -1);
    step->gradient[0] = GRADIENT_MADE;
    int y = tape_last(t);
    step = tape_run(t, "f", 4 * mib, y, -1);
    step->gradient[0] = GRADIENT_MADE;
    int z = tape_last(t);
    tape_save(t, y);
    tape_release(t, y);
    tape_segment(t, false);
    step = tape_run(t, "loss", 512, z, -1);
    step->gradient[0] = GRADIENT_MADE;
    tape_save(t, z);
    tape_release(t, z);
}

static void lifetimes(void **state)
{
    static const uint64_t after_forward[] = { 8 * 1048576 + 512, 4 * 1048576 + 512 };
    static const uint64_t peak[] = { 12 * 1048576 + 1024, 12 * 1048576 + 512 };
    (void)state;
    for (int checkpointed = 0; checkpointed < 2; checkpointed++) {
        struct tape tape;
        struct allocator a;
        struct autograd g;
        make_tape(&tape);
        allocator_init(&a);
        assert_int_equal(autograd_init(&g, &tape, &a, checkpointed != 0), 0);
        assert_int_equal(autograd_forward(&g), 0);
        assert_int_equal(a.allocated_bytes, after_forward[checkpointed]);
        assert_int_equal(autograd_backward(&g), 0);
        assert_int_equal(a.allocated_bytes, 8 * mib);
        assert_int_equal(a.allocated_peak_bytes, peak[checkpointed]);
        autograd_zero(&g);
        assert_int_equal(a.allocated_bytes, 0);
        autograd_done(&g);
        allocator_done(&a);
        tape_done(&tape);
    }
}

/* Llama-3.1-70B: hidden and queries 8,192, keys 1,024, MLP 28,672, 64 heads; 4,096 tokens, bf16; a
 * vocabulary so small that the peak is not the gradient of its table. */
static uint64_t peak_of(int layers, int tp, bool recomputed)
{
    static struct model model;
    struct hardware hardware = { .gpus_per_node = 8 };
    struct model_sizes sizes;
    struct diag_list errors = { 0 };
    struct choices choices = { .layout = { .tp = tp,
                                           .pp = 1,
                                           .vpp = 1,
                                           .cp = 1,
                                           .ep = 1,
                                           .etp = 1,
                                           .fsdp = 1,
                                           .d_rep = 1,
                                           .e_fsdp = 1,
                                           .e_rep = 1,
                                           .micro_batch = 1,
                                           .micro_batches = 1 },
                               .primitives = { .sharding = SHARDING_ZERO1,
                                               .loss = LOSS_FULL,
                                               .logits_dtype = DTYPE_BF16,
                                               .recompute_layers = RECOMPUTE_ALL_LAYERS } };
    struct rank_budget rank = { .rank = 0 };
    struct megatron_memory memory;
    assert_int_equal(model_load("llama-3.1-70b", &model, &errors), 0);
    assert_int_equal(
        model_set(&model, "layers", layers == 2 ? "2" : "3", (struct pos){ 0 }, &errors), 0);
    assert_int_equal(model_set(&model, "vocab", "4096", (struct pos){ 0 }, &errors), 0);
    model_sizes_init(&sizes, &model);
    choices.layout.stage_layers[0] = layers;
    choices.primitives.recompute = recomputed ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    const struct budget_input in = { .model = &model,
                                     .sizes = &sizes,
                                     .hardware = &hardware,
                                     .choices = &choices,
                                     .gpus = tp,
                                     .seq_tokens = 4096 };
    assert_int_equal(megatron_memory(&in, &rank, &memory, &errors), 0);
    return memory.allocated_bytes;
}

/* Saved for one more layer: both residual inputs and both norms' outputs, queries, attention's
 * output, keys, values, both up projections, the activation; log-sum-exp and no more. */
static void a_layer_under_megatron(void **state)
{
    uint64_t hidden = 8192, query = 8192, key = 1024, mlp = 28672, heads = 64, tokens = 4096;
    (void)state;
    for (uint64_t tp = 1; tp <= 8; tp *= 8) {
        uint64_t kept = 2 * tokens * (4 * hidden + 2 * query + 2 * key + 3 * mlp) / tp +
                        4 * tokens * heads / tp;
        assert_int_equal(peak_of(3, (int)tp, false) - peak_of(2, (int)tp, false), kept);
    }
    assert_int_equal(peak_of(3, 1, true) - peak_of(2, 1, true), 2 * tokens * hidden);
}

/* The option's names are the table's, in its order. */
static void engines_by_name(void **state)
{
    (void)state;
    assert_string_equal(engines[0].name, "rankfit");
    assert_null(engines[0].methods);
    for (size_t i = 0; i < engine_count; i++) {
        assert_ptr_equal(engine_find(engines[i].name), &engines[i]);
        for (int j = 0; j < ENGINE_CHOICES_MAX && engines[i].choices[j].key; j++)
            assert_true(choice_key_find(engines[i].choices[j].key) >= 0);
    }
    assert_null(engine_find("deepspeed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_the_allocator),
        cmocka_unit_test(lifetimes),
        cmocka_unit_test(a_layer_under_megatron),
        cmocka_unit_test(engines_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
