/* The lists of operations are well formed: every row refers to what is there, every operation has a
 * place in an order, every tensor is made, gradients belong to a GEMM. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/predict/step_time.h"
#include "planner/step/layer.h"

#include <string.h>

static const struct step_list *list;

/* Calls with every entry of every order. */
static void each_entry(void (*call)(const struct step_entry *entry, int zone, void *context),
                       void *context)
{
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < SCHEDULE_COUNT * ZONE_COUNT; i++) {
            const struct step_order *order =
                &(way ? list->backward : list->forward)[i / ZONE_COUNT];
            int zone = i % ZONE_COUNT;
            for (int e = 0; e < order->zone[zone].count; e++)
                call(&order->zone[zone].entries[e], zone, context);
        }
}

static void check_entry(const struct step_entry *entry, int zone, void *context)
{
    bool *placed = context;
    assert_true(entry->op < list->op_count);
    assert_int_equal(entry->when & entry->unless, 0);
    if (zone != ZONE_CHUNK) {
        assert_int_equal(entry->chunk, 0);
        assert_false(entry->late);
    }
    placed[entry->op] = true;
}

static void check_tensors(const uint8_t *tensors, int count)
{
    for (int i = 0; i < count; i++)
        assert_true(tensors[i] < list->tensor_count);
}

static void check_gradient(const struct step_op *op)
{
    assert_true(op->gemm.of < list->op_count);
    const struct step_op *of = &list->ops[op->gemm.of];
    assert_true(of->kind == OP_GEMM || of->kind == OP_GROUPED);
    assert_int_equal(op->time_item, of->time_item);
}

static void check_op(const struct step_op *op)
{
    bool product = op->kind == OP_GEMM || op->kind == OP_GROUPED;
    assert_non_null(op->name);
    assert_true(op->kind <= OP_LINK && op->time_item < TIME_ITEM_COUNT);
    assert_int_equal(op->when & op->unless, 0);
    check_tensors(op->reads, OP_READS);
    check_tensors(op->also, OP_ALSO);
    check_tensors(op->holds, OP_HOLDS);
    check_tensors(op->makes, OP_MAKES);
    if (op->kind == OP_WGRAD || op->kind == OP_DGRAD)
        check_gradient(op);
    if (product)
        assert_true(op->gemm.n < WIDTH_COUNT && op->gemm.k < WIDTH_COUNT &&
                    op->gemm.component <= COMPONENT_COUNT);
    if (op->kind == OP_ELEMENTWISE)
        assert_true(op->traffic[0].coefficient > 0);
    if (op->kind == OP_KERNEL)
        assert_true(op->work < WORK_COUNT);
    if (op->kind == OP_LINK)
        assert_true(op->link < LINK_COUNT);
    for (int i = 0; i < OP_TRAFFIC; i++)
        assert_true(op->traffic[i].rows < ROWS_COUNT && op->traffic[i].width < WIDTH_COUNT);
}

static void check_tensor(int number)
{
    const struct step_tensor *tensor = &list->tensors[number];
    bool made = false, used = false;
    if (!tensor->name)
        return;
    assert_true(tensor->rows < ROWS_COUNT && tensor->width < WIDTH_COUNT);
    assert_true(tensor->bytes == 1 || tensor->bytes == 2 || tensor->bytes == 4);
    assert_true(tensor->item < ITEM_COUNT && tensor->fate <= FATE_CARRIED);
    for (int i = 0; i < list->op_count; i++) {
        const struct step_op *op = &list->ops[i];
        made |= memchr(op->makes, number, OP_MAKES) != NULL;
        used |= memchr(op->reads, number, OP_READS) || memchr(op->also, number, OP_ALSO) ||
                memchr(op->holds, number, OP_HOLDS);
    }
    if (number >= TENSOR_FIRST_OWN && !made && !used)
        fail_msg("%s: nothing makes or reads %s", list->name, tensor->name);
}

static void check_list(const struct step_list *one)
{
    bool placed[UINT8_MAX] = { false };
    list = one;
    each_entry(check_entry, placed);
    for (int i = 0; i < list->op_count; i++) {
        check_op(&list->ops[i]);
        if (!placed[i])
            fail_msg("%s: no order has %s", list->name, list->ops[i].name);
    }
    for (int i = 0; i < list->tensor_count; i++)
        check_tensor(i);
}

static void lists_are_well_formed(void **state)
{
    (void)state;
    assert_null(step_mixers[MIXER_OTHER]);
    assert_null(step_ffns[FFN_OTHER]);
    for (int i = 0; i < MIXER_OTHER; i++)
        check_list(step_mixers[i]);
    for (int i = 0; i < FFN_OTHER; i++)
        check_list(step_ffns[i]);
}

static bool is_kept(const struct step_pass *pass, const struct step_tensor *tensor)
{
    for (int i = 0; i < pass->count; i++)
        if (pass->lives[i].tensor == tensor && pass->lives[i].kept)
            return true;
    return false;
}

/* Tensors that a pass saves, each of which the other knows. */
static int kept_in_both(const struct step_pass *pass, const struct step_pass *other)
{
    int count = 0;
    for (int i = 0; i < pass->count; i++) {
        assert_true(!pass->lives[i].kept || is_kept(other, pass->lives[i].tensor));
        count += pass->lives[i].kept;
    }
    return count;
}

/* What a forward saves is what its backward starts from, in every kind of layer under every
 * condition; the same of a recompute. */
static void saved_is_what_backward_reads(void **state)
{
    static struct step_layer layer;
    (void)state;
    for (uint32_t when = 0; when < WHEN_KEEP_ATTENTION << 1; when += 7)
        for (int i = 0; i < MIXER_OTHER * FFN_OTHER; i++) {
            struct step_kind kind = { .mixer = step_mixers[i / FFN_OTHER],
                                      .ffn = step_ffns[i % FFN_OTHER],
                                      .schedule = (enum step_schedule)(when % SCHEDULE_COUNT),
                                      .when = when,
                                      .trained = when % 5 == 0 ? 0 : ~0U,
                                      .adapted = when % 5 == 0 ? ~0U : 0 };
            if ((when & WHEN_SHARED_GATE) && !(when & WHEN_SHARED))
                continue;
            step_layer_init(&kind, &layer);
            const struct step_pass *p = layer.pass;
            assert_int_equal(kept_in_both(&p[MODE_FORWARD_SAVED], &p[MODE_BACKWARD_SAVED]),
                             kept_in_both(&p[MODE_BACKWARD_SAVED], &p[MODE_FORWARD_SAVED]));
            assert_int_equal(kept_in_both(&p[MODE_RECOMPUTE], &p[MODE_BACKWARD]),
                             kept_in_both(&p[MODE_BACKWARD], &p[MODE_RECOMPUTE]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_well_formed),
        cmocka_unit_test(saved_is_what_backward_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
