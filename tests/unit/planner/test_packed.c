/* Packed pieces of several lengths: padding, rows, attention by the sum of squares, ranks that have
 * more of it; by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/layout/capability.h"
#include "budget_sample.h"
#include "planner/predict/parts.h"
#include "planner/predict/range.h"
#include "planner/predict/step_time.h"
#include "tests/support/asked.h"
#include "tests/support/golden.h"
#include "tests/support/near.h"
#include "tests/support/random.h"

#include <stdio.h>

static struct sample s;
static struct lengths mix;

static const struct pos nowhere = { NULL, 0, 0 };

static void parse(const char *text)
{
    struct diag_list errors = { .count = 0 };
    assert_int_equal(lengths_parse(text, nowhere, &mix, &errors), 0);
}

static void refused(const char *text, struct diag_list *errors)
{
    struct lengths other;
    assert_int_equal(lengths_parse(text, nowhere, &other, errors), -1);
}

static void lists_of_lengths(void **state)
{
    char text[LENGTHS_TEXT], many[4096];
    struct diag_list errors = { .count = 0 };
    size_t used = 0;
    (void)state;
    parse("513, 1000\n4K*2 513*3");
    assert_string_equal(lengths_format(&mix, text, sizeof text), "4096*2,1000,513*4");
    parse(text);
    assert_string_equal(lengths_format(&mix, many, sizeof many), text);
    refused("", &errors);
    refused("12x", &errors);
    refused("0", &errors);
    refused("5*0", &errors);
    refused("5000000000", &errors);
    for (int i = 1; i <= LENGTHS_MAX + 1; i++)
        used += (size_t)snprintf(many + used, sizeof many - used, "%d,", i);
    refused(many, &errors);
    assert_int_equal(errors.errors, 6);
    assert_golden_diags("refused lengths", &errors);
}

static void pack(int cp, int tp, enum packing packing, uint64_t row, struct packed_rows *ret)
{
    s.choices.layout.cp = cp;
    s.choices.layout.tp = tp;
    s.choices.primitives.packing = packing;
    struct rows_input in = { &s.choices, row, &mix };
    rows_init(&in, ret);
}

/* Pieces of 1,000 and 513 over cp 4: to multiples of 8, 1,000 and 520. */
static void pieces_are_padded(void **state)
{
    struct packed_rows rows;
    (void)state;
    sample_init(&s);
    parse("1000,513");
    pack(4, 2, PACKING_ROW, 1520, &rows);
    assert_int_equal(rows.multiple, 8);
    assert_int_equal(rows_padded(1000, rows.multiple), 1000);
    assert_int_equal(rows_padded(513, rows.multiple), 520);
    assert_int_equal(rows.tokens, 1513);
    assert_int_equal(rows.padded_tokens - rows.tokens, 7);
    assert_int_equal(rows.rows, 1);
    /* each to cp x lcm(2, tp): 4 x 2, 4 x 4 (1,008 and 528), 3 x 6, 1 x 2 */
    pack(4, 2, PACKING_PIECE, 1520, &rows);
    assert_int_equal(rows.multiple, 8);
    pack(4, 4, PACKING_PIECE, 1536, &rows);
    assert_int_equal(rows.multiple, 16);
    assert_int_equal(rows.padded_tokens - rows.tokens, 8 + 15);
    pack(3, 3, PACKING_PIECE, 1530, &rows);
    assert_int_equal(rows.multiple, 18);
    pack(1, 2, PACKING_PIECE, 1514, &rows);
    assert_int_equal(rows.multiple, 2);
    pack(1, 2, PACKING_ROW, 1514, &rows);
    assert_int_equal(rows.multiple, 1);
}

/* Rows of 100: 60 + 40, 60 + 40, 60 + 30 + 10, 30. */
static void rows_are_filled_longest_first(void **state)
{
    struct packed_rows rows;
    (void)state;
    sample_init(&s);
    parse("10,30*2,40*2,60*3");
    pack(1, 1, PACKING_ROW, 100, &rows);
    assert_int_equal(rows.pieces, 8);
    assert_int_equal(rows.rows, 4);
    assert_int_equal(rows.tokens, 330);
    struct rows_input in = { &s.choices, 100, &mix };
    s.choices.layout.micro_batches = 3;
    assert_near(rows_step_tokens(&in), 3 * 330.0 / 4, 1e-12, "tokens");
}

/* Under a budget a step has samples of the mix: 6 a rank, of 60 and 40, two to a row of 2 x 50. */
static void samples_of_a_mix(void **state)
{
    (void)state;
    sample_init(&s);
    parse("60,40");
    s.choices.layout.cp = 2;
    s.choices.layout.micro_batches = 6;
    s.choices.primitives.tokens_per_gpu = 50;
    s.choices.primitives.packing = PACKING_ROW;
    struct rows_input in = { &s.choices, 60, &mix };
    assert_int_equal(rows_micro_batches(&in), 3);
    assert_near(rows_step_tokens(&in), 6 * 50, 1e-12, "tokens");
    s.choices.layout.fsdp = 4;
    assert_int_equal(rows_micro_batches(&in), 3);
    assert_near(rows_step_tokens(&in), 4 * 6 * 50, 1e-12, "tokens");
}

static double imbalance(const char *text, int dp)
{
    struct packed_rows rows;
    sample_init(&s);
    parse(text);
    s.choices.layout.fsdp = dp;
    pack(1, 1, PACKING_ROW, 100, &rows);
    return rows.imbalance;
}

/* Squares of a row: 100 x 100 and 2 x 50 x 50. */
static void some_ranks_attend_more(void **state)
{
    (void)state;
    assert_near(imbalance("100,50*2", 2), 10000 / 7500.0, 1e-12, "times");
    /* a sample of the rows of four ranks */
    assert_near(imbalance("100,50*2", 4), 10000 / 7500.0, 1e-12, "times");
    /* each has one of both */
    assert_near(imbalance("100*2,50*4", 2), 1, 1e-12, "times");
    /* 100, 100, 50 + 50 dealt to two: 15,000 and 10,000 */
    assert_near(imbalance("100*2,50*2", 2), 15000 / 12500.0, 1e-12, "times");
    assert_near(imbalance("100", 1), 1, 1e-12, "times");
}

static uint64_t drawn(uint64_t *seed, uint64_t low, uint64_t high)
{
    return low + random_below(seed, high - low + 1);
}

/* Piece by piece: a row takes the longest that fits of those left, until none does; rows go to the
 * ranks in turn. */
static void pack_plainly(uint64_t capacity, int ranks, uint64_t multiple, uint64_t *ret_rows,
                         uint64_t *ret_pieces, double *ret_most)
{
    double own[8] = { 0 };
    uint64_t left[LENGTHS_MAX] = { 0 }, pieces = 0;
    *ret_rows = *ret_pieces = 0;
    *ret_most = 0;
    for (int i = 0; i < mix.distinct; i++)
        pieces += left[i] = mix.items[i].count;
    for (int rank = 0; pieces > 0; rank = (rank + 1) % ranks, ++*ret_rows) {
        uint64_t room = capacity, before = pieces;
        for (int i = 0; i < mix.distinct; i++)
            for (uint64_t tokens = rows_padded(mix.items[i].tokens, multiple);
                 left[i] > 0 && tokens <= room; left[i]--, pieces--) {
                room -= tokens;
                own[rank] += (double)tokens * (double)tokens;
            }
        *ret_pieces = before - pieces > *ret_pieces ? before - pieces : *ret_pieces;
    }
    for (int rank = 0; rank < ranks; rank++)
        *ret_most = own[rank] > *ret_most ? own[rank] : *ret_most;
}

static void many_rows_at_once_are_those_one_by_one(void **state)
{
    uint64_t seed = 5;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct packed_rows rows;
        uint64_t plain, fullest, all = 0;
        double most, squares = 0;
        int ranks = (int)drawn(&seed, 1, 8), cp = 1 << drawn(&seed, 0, 2);
        sample_init(&s);
        mix.distinct = (int)drawn(&seed, 1, 6);
        for (int i = 0; i < mix.distinct; i++)
            mix.items[i] = (struct length_count){ 1000 - 150 * (uint64_t)i - drawn(&seed, 0, 149),
                                                  drawn(&seed, 1, 40) };
        s.choices.layout.fsdp = ranks;
        uint64_t capacity = drawn(&seed, 1000, 4000);
        pack(cp, 1, PACKING_ROW, capacity, &rows);
        pack_plainly(capacity, ranks, rows.multiple, &plain, &fullest, &most);
        assert_int_equal(rows.rows, plain);
        assert_int_equal(rows.most_pieces, fullest);
        for (int i = 0; i < mix.distinct; i++) {
            double tokens = (double)rows_padded(mix.items[i].tokens, rows.multiple);
            squares += (double)mix.items[i].count * tokens * tokens;
            all += mix.items[i].count;
        }
        assert_int_equal(rows.pieces, all);
        if (plain >= (uint64_t)ranks)
            assert_near(rows.imbalance, most * ranks / squares, 1e-9, "times");
    }
}

/* Two layers of 4 heads of 16; forward, replay and 2.5 in backward; everything but FLOPs free. */
static double attention(const char *text)
{
    struct step_time time;
    parse(text);
    sample_input(&s, 128);
    s.in.lengths = mix.distinct > 0 ? &mix : NULL;
    s.choices.primitives.packing = PACKING_ROW;
    step_time_compute(asked(&s.in), &time);
    return time.item_seconds[TIME_ATTENTION];
}

static void attention_by_the_sum_of_squares(void **state)
{
    double one = 2 * 4.5 * 4 * 64 / 0.5e14; /* a query and key */
    (void)state;
    sample_init(&s);
    s.hardware = (struct hardware){ .bf16_flops_per_second = 1e14,
                                    .attention_forward_efficiency = 0.5,
                                    .attention_backward_efficiency = 0.5 };
    assert_near(attention("128"), one * 128 * 128 / 2, 1e-12, "s");
    assert_near(attention("96,32"), one * (96 * 96 + 32 * 32) / 2, 1e-12, "s");
    /* pieces are a mix: half as many of each are the same row */
    assert_near(attention("96*4,32*4"), one * (96 * 96 + 32 * 32) / 2, 1e-12, "s");
    /* a window of 16: 16 l - 16 x 16 / 2 of each piece */
    s.model.gqa.window_tokens = 16;
    assert_near(attention("96,32"), one * (16 * 96 - 128 + 16 * 32 - 128), 1e-12, "s");
    /* short pieces do not fill the device: a token's piece has (96^2 + 32^2) / 128 = 80 */
    s.model.gqa.window_tokens = 0;
    s.hardware.attention_half_tokens = 80;
    assert_near(attention("96,32"), 2 * one * (96 * 96 + 32 * 32) / 2, 1e-12, "s");
}

static struct budget plain, packed;

static void pack_a_row(void)
{
    parse("96,30");
    budget_compute(asked(sample_input(&s, 128)), &plain);
    s.in.lengths = &mix;
    s.choices.primitives.packing = PACKING_ROW;
    budget_compute(asked(&s.in), &packed);
}

/* A row has as many tokens whatever its pieces are. Its inputs are ids, targets and positions,
 * 512 B each, and where the pieces begin and end, 3 numbers up to 256 B. */
static void memory_is_of_the_row(void **state)
{
    (void)state;
    sample_init(&s);
    s.hardware.host = false;
    pack_a_row();
    for (int i = 0; i < ITEM_COUNT; i++)
        if (i != ITEM_INPUTS)
            assert_int_equal(packed.groups[0].item_max_bytes[i], plain.groups[0].item_max_bytes[i]);
    assert_int_equal(plain.groups[0].item_max_bytes[ITEM_INPUTS], 2 * 512);
    assert_int_equal(packed.groups[0].item_max_bytes[ITEM_INPUTS], 3 * 512 + 256);
    assert_int_equal(budget_basis(&s.in, ITEM_LAYER_WORKING), BASIS_ASSUMED);
    assert_int_equal(budget_basis(&s.in, ITEM_MOMENTS), BASIS_ARITHMETIC);
    assert_int_equal(step_time_basis(&s.in, TIME_ATTENTION), BASIS_ASSUMED);
}

/* The host sums dK and dV of one key head of one piece, 2 x 4 B x 96 x 16; and its scratch. */
static void attention_works_piece_by_piece(void **state)
{
    (void)state;
    sample_init(&s);
    s.hardware.host = true;
    pack_a_row();
    uint64_t scratch = s.hardware.workspace_bytes;
    assert_int_equal(plain.groups[0].item_max_bytes[ITEM_WORKSPACE], 16384 + scratch);
    assert_int_equal(packed.groups[0].item_max_bytes[ITEM_WORKSPACE], 12288 + scratch);
    /* over cp 4 a piece of 90 has 96 with its padding */
    s.choices.layout.cp = 4;
    parse("90");
    struct rows_input in = { &s.choices, 128, &mix };
    assert_int_equal(rows_longest(&in), 96);
    in.lengths = NULL;
    assert_int_equal(rows_longest(&in), 128);
}

/* 128 tokens have one state of the delta rule, saved before every 4,096; two pieces have two. */
static void states_begin_with_their_piece(void **state)
{
    struct step_sizes sizes;
    (void)state;
    sample_init(&s);
    s.model.gdn = (struct gdn){ 2, 2, 16, 16, 4 };
    pack_a_row();
    layer_sizes(&s.in, 0, &sizes);
    assert_int_equal(sizes.rows[ROWS_DELTA_SEGMENTS], 2);
    s.in.lengths = NULL;
    layer_sizes(&s.in, 0, &sizes);
    assert_int_equal(sizes.rows[ROWS_DELTA_SEGMENTS], 1);
}

/* Rows of 100, and of two 50: 10,000 / 2 and 5,000 / 2 pairs of query and key, 3,750 on average. A
 * step that waits for the rank of the first has a third more. */
static void a_step_may_wait_for_the_fullest_rank(void **state)
{
    struct step_time time;
    struct time_range range;
    (void)state;
    sample_init(&s);
    s.hardware = (struct hardware){ .bf16_flops_per_second = 1e14,
                                    .attention_forward_efficiency = 0.5,
                                    .attention_backward_efficiency = 0.5 };
    parse("100,50*2");
    s.choices.layout.fsdp = 2;
    s.choices.primitives.packing = PACKING_ROW;
    sample_input(&s, 100);
    s.in.lengths = &mix;
    step_time_compute(asked(&s.in), &time);
    step_time_range(asked(&s.in), &time, &range);
    assert_near(range.slowest - time.seconds, time.item_seconds[TIME_ATTENTION] / 3, 1e-9, "s");
    /* two layers, 4.5 forwards, 4 x 64 FLOPs a pair */
    assert_near(time.item_seconds[TIME_ATTENTION], 2 * 4.5 * 4 * 64 * 3750 / 0.5e14, 1e-12, "s");
}

/* 121 of 128 tokens are trained on: 96, and 25 padded to 32 over cp 4. */
static void padding_is_no_throughput(void **state)
{
    struct step_time time;
    (void)state;
    sample_init(&s);
    s.hardware = (struct hardware){ .bf16_flops_per_second = 1e14, .gemm_efficiency = 0.5 };
    parse("96,25");
    s.choices.layout.cp = 4;
    s.choices.layout.micro_batches = 5;
    s.choices.primitives.context = CONTEXT_ALLGATHER_KV;
    s.choices.primitives.packing = PACKING_ROW;
    sample_input(&s, 128);
    s.in.lengths = &mix;
    step_time_compute(asked(&s.in), &time);
    assert_near(time.tokens_per_second_per_gpu * time.seconds * 4, 5 * 121, 1e-9, "tokens");
}

static void executors_refuse(const char *what)
{
    struct diag_list errors = { .count = 0 };
    assert_int_equal(capability_check(BACKEND_HOST, &s.model, &s.choices, &errors), -1);
    assert_non_null(strstr(errors.items[0].what, what));
    assert_int_equal(capability_check(BACKEND_CUDA, &s.model, &s.choices, &errors), -1);
}

static void no_executor_runs_them(void **state)
{
    struct diag_list errors = { .count = 0 };
    (void)state;
    sample_init(&s);
    assert_int_equal(capability_check(BACKEND_HOST, &s.model, &s.choices, &errors), 0);
    s.choices.primitives.packing = PACKING_ROW;
    executors_refuse("packing=row");
    s.choices.primitives = primitives_default();
    s.choices.primitives.tokens_per_gpu = 8192;
    executors_refuse("tokens_per_gpu=8192");
    s.choices.primitives = primitives_default();
    s.choices.primitives.rl = RL_OLD | RL_ENTROPY;
    executors_refuse("rl=old,entropy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_lengths),
        cmocka_unit_test(pieces_are_padded),
        cmocka_unit_test(rows_are_filled_longest_first),
        cmocka_unit_test(samples_of_a_mix),
        cmocka_unit_test(some_ranks_attend_more),
        cmocka_unit_test(many_rows_at_once_are_those_one_by_one),
        cmocka_unit_test(attention_by_the_sum_of_squares),
        cmocka_unit_test(memory_is_of_the_row),
        cmocka_unit_test(attention_works_piece_by_piece),
        cmocka_unit_test(states_begin_with_their_piece),
        cmocka_unit_test(a_step_may_wait_for_the_fullest_rank),
        cmocka_unit_test(padding_is_no_throughput),
        cmocka_unit_test(no_executor_runs_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
