/* The liveness tables: well formed, and a few steps added up by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/residency/residency.h"

#include <string.h>

static const struct residency_table *tables[2 * (MIXER_COUNT + FFN_COUNT)];

static int all_tables(void)
{
    int n = 0;
    for (int i = 0; i < MIXER_COUNT; i++) {
        tables[n++] = residency_mixer_forward[i];
        tables[n++] = residency_mixer_backward[i];
    }
    for (int i = 0; i < FFN_COUNT; i++) {
        tables[n++] = residency_ffn_forward[i];
        tables[n++] = residency_ffn_backward[i];
    }
    return n;
}

static void rows_are_well_formed(void **state)
{
    (void)state;
    int n = all_tables();
    for (int t = 0; t < n; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            const struct residency_row *row = &tables[t]->rows[i];
            assert_true(row->made <= row->last && row->last < tables[t]->steps);
            assert_true(row->owner < OWNER_COUNT && row->rows < ROWS_COUNT);
            assert_true(row->width < WIDTH_COUNT);
            assert_true(row->bytes == 1 || row->bytes == 2 || row->bytes == 4);
            assert_true((row->when & row->unless) == 0);
        }
}

static uint64_t widths_kept(const struct residency_table *table,
                            const struct residency_shape *shape)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < table->count; i++)
        if (table->rows[i].stays && residency_row_applies(&table->rows[i], shape))
            bytes += residency_row_bytes(&table->rows[i], shape);
    return bytes;
}

/* What a forward keeps is what its backward starts from, under every condition. */
static void kept_is_what_backward_uses(void **state)
{
    (void)state;
    struct residency_shape shape;
    for (unsigned when = 0; when < 256; when++) {
        memset(&shape, 0, sizeof shape);
        for (int i = 0; i < ROWS_COUNT; i++)
            shape.rows[i] = 256;
        for (int i = 0; i < WIDTH_COUNT; i++)
            shape.width[i] = (uint64_t)i + 1;
        shape.when = when;
        if ((when & WHEN_SHARED_GATE) && !(when & WHEN_SHARED))
            continue;
        for (int i = 0; i < MIXER_COUNT; i++)
            assert_int_equal(widths_kept(residency_mixer_forward[i], &shape),
                             widths_kept(residency_mixer_backward[i], &shape));
        for (int i = 0; i < FFN_COUNT; i++)
            assert_int_equal(widths_kept(residency_ffn_forward[i], &shape),
                             widths_kept(residency_ffn_backward[i], &shape));
    }
}

/* T 256, H 8, Q 4, K 2, heads 2: every size a multiple of 256. */
static void attention_step_by_step(void **state)
{
    (void)state;
    struct residency_shape shape;
    struct residency_half halves[RESIDENCY_HALVES] = { { false } };
    struct residency r;
    const uint64_t T = 256;
    memset(&shape, 0, sizeof shape);
    shape.rows[ROWS_ONE] = 1;
    shape.rows[ROWS_NORM] = shape.rows[ROWS_TOKENS] = T;
    shape.width[WIDTH_HIDDEN] = 8;
    shape.width[WIDTH_QUERY] = 4;
    shape.width[WIDTH_KEY] = 2;
    shape.width[WIDTH_QKV] = 8;
    shape.width[WIDTH_HEADS] = 2;
    residency_evaluate(&shape, MIXER_GQA, FFN_DENSE, RESIDENCY_FORWARD, halves, &r);
    const uint64_t want[] = {
        T * 16,                   /* n1 */
        T * (16 + 16),            /* n1, qkv */
        T * (16 + 8 + 4),         /* qkv, qr, kr */
        T * (16 + 8 + 4),         /* nothing to gather */
        T * (16 + 8 + 4 + 8 + 8), /* qkv, qr, kr, o, lse */
        T * 8,                    /* no gate: o */
        T * (8 + 16),             /* o, x1 */
        T * (16 + 16),            /* x1, n2 */
        T * (16 + 16),            /* x1, n2; no MLP width */
        T * 16,
        T * 16, /* x1 */
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_int_equal(r.live[i][OWNER_WORKING], want[i]);
    assert_int_equal(r.steps, 11);
    assert_int_equal(r.live[10][OWNER_OUTPUT], T * 16);
    assert_int_equal(r.kept, 0);
    residency_evaluate(&shape, MIXER_GQA, FFN_DENSE, RESIDENCY_FORWARD_SAVED, halves, &r);
    assert_int_equal(r.kept, T * (16 + 8 + 8 + 16)); /* qkv, o, lse, x1 */
    assert_int_equal(r.max[OWNER_SAVED], r.kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_well_formed),
        cmocka_unit_test(kept_is_what_backward_uses),
        cmocka_unit_test(attention_step_by_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
