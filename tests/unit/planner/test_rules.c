/* The rules of arithmetic: each formula on small numbers, how figures are rounded and written, and
 * what expert tensor parallelism does to skew, over drawn and routed loads. */
#include "base/routing/routing.h"
#include "planner/rules/fact.h"
#include "planner/rules/figure.h"
#include "planner/rules/rule.h"
#include "tests/support/near.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct case_of {
    const char *rule;
    double in[RULE_MAX_SYMBOLS];
    double want;
};

static const struct case_of cases[] = {
    { "layer_inputs", { 3, 5 }, 30 },
    { "chosen_keys", { 3, 5 }, 60 },
    { "sum", { 3, 5 }, 8 },
    { "dispatch_row", { 3, 5 }, 26 },
    { "worst_dispatch", { 3, 5 }, 15 },
    { "gathered_units", { 100, 5, 0.25, 0.75, 3 }, 20 * 0.5 * 8 },
    { "state_whole", { 10, 18 }, 180 },
    { "state_sharded", { 100, 18, 0.25, 5, 0.75, 15 }, 1800 * (0.05 + 0.05) },
    { "dynamic_memory", { 10, 1, 2, 3, 4, 7 }, 107 },
    { "rank_memory", { 1, 2, 3 }, 6 },
    { "spare", { 5, 3 }, 2 },
    { "least_gpus", { 100, 30 }, 4 },
    { "least_gpus", { 90, 30 }, 3 },
    { "whole_logits", { 10, 6, 2, 4 }, 120 },
    { "latent_row", { 5, 3, 2 }, 20 },
    { "sequence_rows", { 7, 3 }, 21 },
    { "far_share", { 640, 16, 4 }, 640 * 3 / 16.0 },
    { "near_share", { 640, 4 }, 480 },
    { "layer_experts", { 100, 5, 0.75, 3 }, 10 },
    { "expert_traffic", { 10 }, 40 },
    { "dense_traffic", { 100, 5, 0.25 }, 40 },
    { "layer_traffic", { 3, 4 }, 7 },
    { "wire", { 12, 4 }, 3 },
    { "context_wire", { 12, 4 }, 12 },
    { "layer_active", { 100, 5, 0.5, 0.5, 2, 8 }, 20 * 0.625 },
    { "layer_products", { 3 }, 24 },
    { "tokens_to_hide_behind", { 100, 0.5, 6, 10, 2 }, 10 },
    { "layer_time", { 100, 0.5, 10, 10, 2 }, 6 },
    { "share", { 1, 4 }, 0.25 },
    { "utilization", { 1, 4 }, 0.25 },
    { "utilization_with_replay", { 3, 2, 12 }, 0.5 },
    { "utilization_without_replay", { 3, 2, 12 }, 0.125 },
    { "replay_tax", { 2, 4 }, 8 / 6.0 },
    { "pipeline_bubble", { 4, 5 }, 3 / 8.0 },
    { "bubble_over_work", { 4, 5 }, 3 / 5.0 },
    { "micro_batches_for", { 4, 3 / 8.0 }, 5 },
    { "edge", { 4 }, 0.25 },
    { "chunk_overlap", { 3 }, 0.75 },
    { "load_skew", { 6, 2 }, 3 },
    { "tensor_skew", { 8, 2, 4 }, (8 + 3 * 2) / 4.0 / 8 },
    { "ratio", { 1, 4 }, 0.25 },
    { "rank_tokens", { 100, 6, 3 }, 200 },
    { "tensor_width", { 12, 4 }, 3 },
    { "as_measured", { 12 }, 12 },
};

static void formulas(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct rule *rule = rule_find(cases[i].rule);
        assert_non_null(rule);
        assert_near(rule->value(cases[i].in), cases[i].want, 1e-12, cases[i].rule);
    }
}

/* Every rule has a case above, a source, a unit that people can write, and facts that there are. */
static void rules_are_whole(void **state)
{
    (void)state;
    for (size_t r = 0; r < rule_count; r++) {
        size_t with_case = 0, with_unit = 0;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            with_case += strcmp(cases[i].rule, rules[r].name) == 0;
        for (size_t i = 0; i < figure_unit_count; i++)
            with_unit += strcmp(figure_units[i].base, rules[r].unit) == 0;
        assert_true(with_case > 0 && with_unit > 0);
        assert_true(rules[r].source[0] && rules[r].formula[0] && rule_symbols(&rules[r]) > 0);
        assert_ptr_equal(rule_find(rules[r].name), &rules[r]);
        for (size_t i = 0; i < rule_symbols(&rules[r]); i++) {
            const char *fact = rules[r].symbols[i].fact;
            size_t known = fact && strncmp(fact, "hardware.", 9) == 0;
            for (size_t f = 0; fact && f < fact_count; f++)
                known += strcmp(facts[f].name, fact) == 0 &&
                         strcmp(facts[f].unit, rules[r].symbols[i].unit) == 0;
            assert_int_equal(known, fact != NULL);
        }
    }
}

static void units(void **state)
{
    (void)state;
    double value = -1;
    assert_int_equal(figure_unit_parse("1200 MB", "bytes", &value), 0);
    assert_near(value, 1.2e9, 0, "bytes");
    assert_int_equal(figure_unit_parse("7.5", "bytes", &value), 0);
    assert_near(value, 7.5, 0, "bytes");
    assert_int_equal(figure_unit_parse("27 ms", "any", &value), 0);
    assert_near(value, 0.027, 1e-15, "seconds");
    static const char *const wrong[] = { "",     "ms",  "27 bytes", "27ms", "27 ms ",
                                         "27 %", "inf", "nan",      "1 2",  "0x" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(figure_unit_parse(wrong[i], "seconds", &value), -1);
}

static struct figure published(const char *text, double value, const char *unit)
{
    struct figure ret = { .published_text = text, .unit = figure_unit_find(unit) };
    ret.published = value * ret.unit->factor;
    return ret;
}

static void rounding(void **state)
{
    (void)state;
    struct figure f = published("0.958", 0.958, "MB/token");
    assert_true(figure_holds(&f, 958464));
    assert_true(figure_holds(&f, 957501));
    assert_false(figure_holds(&f, 958501));
    assert_false(figure_holds(&f, 957499));
    f = published("9.460", 9.46, "GB");
    assert_true(figure_holds(&f, 9.4604e9));
    assert_false(figure_holds(&f, 9.4606e9));
    f = published("20300", 20300, "tokens");
    assert_false(figure_holds(&f, 20333));
    f.digits = 3;
    assert_true(figure_holds(&f, 20333));
    assert_false(figure_holds(&f, 20351));
    f = published("133", 133, "GB");
    assert_false(figure_holds(&f, 132.28e9));
    f.rounding = ROUNDING_UP;
    assert_true(figure_holds(&f, 132.28e9));
    assert_false(figure_holds(&f, 133.28e9));
    f = published("1.544", 1.544, "GB");
    f.rounding = ROUNDING_DOWN;
    assert_true(figure_holds(&f, 1.5446e9));
    assert_false(figure_holds(&f, 1.5439e9));
    f = published("1", 1, "times");
    f.relation = RELATION_AT_MOST;
    assert_true(figure_holds(&f, 1) && figure_holds(&f, 0.2));
    assert_false(figure_holds(&f, 1.01));
    f.relation = RELATION_AT_LEAST;
    assert_true(figure_holds(&f, 1) && figure_holds(&f, 25));
    assert_false(figure_holds(&f, 0.99));
}

static void writing(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *base, *want;
    } written[] = {
        { 1.97901e11, "bytes", "197.901 GB" },  { 13312, "bytes", "13312 B" },
        { 0.0262799, "seconds", "26.2799 ms" }, { 0.8, "fraction", "80 %" },
        { 4.5e10, "bytes/s", "45 GB/s" },       { 2.5e15, "FLOP/s", "2.5 PFLOP/s" },
        { 753e9, "parameters", "753 billion" }, { 78, "layers", "78" },
        { 3355444, "rows", "3355444" },
    };
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        char text[64];
        figure_format(written[i].value, written[i].base, text, sizeof text);
        assert_string_equal(text, written[i].want);
    }
}

/* max over groups of etp ranks of the group's mean load, over the mean of all. */
static double skew_of(const double *load, int ranks, int etp)
{
    double fullest = 0, all = 0;
    for (int group = 0; group < ranks / etp; group++) {
        double sum = 0;
        for (int i = 0; i < etp; i++)
            sum += load[group * etp + i];
        fullest = sum / etp > fullest ? sum / etp : fullest;
        all += sum;
    }
    return fullest / (all / ranks);
}

/* Any loads: cutting experts never raises the skew, and where the fullest rank's group is the
 * fullest one the rule gives by how much it falls. */
static void cutting_experts_never_raises_skew(void **state)
{
    (void)state;
    uint64_t seed = 20261130;
    const struct rule *rule = rule_find("tensor_skew");
    for (int draw = 0; draw < 2000; draw++) {
        double load[64], fullest = 0;
        int at = 0;
        for (int i = 0; i < 64; i++) {
            load[i] = 1 + (double)random_below(&seed, 1 + random_below(&seed, 1000));
            at = load[i] > load[at] ? i : at;
        }
        for (int etp = 1; etp <= 64; etp *= 2) {
            double sum = 0, whole = skew_of(load, 64, 1), cut = skew_of(load, 64, etp);
            assert_true(cut <= whole * (1 + 1e-12) && cut >= 1 - 1e-12);
            for (int i = at / etp * etp; i < (at / etp + 1) * etp; i++)
                sum += load[i];
            fullest = load[at];
            const double in[RULE_MAX_SYMBOLS] = { fullest,
                                                  etp > 1 ? (sum - fullest) / (etp - 1) : 0, etp };
            assert_true(rule->value(in) <= cut / whole * (1 + 1e-12));
        }
    }
}

/* The closed forms of routing say the same: rows of the fullest group over etp ranks. */
static void routed_skew_falls(void **state)
{
    (void)state;
    static const char *const profiles[] = { "balanced", "80:4", "50:8", "zipf:0.8", "zipf:1.2" };
    for (size_t p = 0; p < sizeof profiles / sizeof *profiles; p++) {
        struct diag_list ignored = { 0 };
        struct routing routing;
        double before = 1e300;
        assert_int_equal(routing_parse(profiles[p], (struct pos){ 0 }, &routing, &ignored), 0);
        for (int etp = 1; etp <= 8; etp *= 2) {
            /* the tokens of all 64 ranks, from 64 / etp sources of etp each */
            struct routing_shape shape = { 4096 * (uint64_t)etp, 8, 256, 64 / etp };
            struct routing_load load;
            routing_load(&routing, &shape, -1, 0.99, &load);
            double skew = load.mean_rows / etp / (4096 * 8);
            assert_true(skew <= before * (1 + 1e-9) && skew >= 1 - 1e-6);
            before = skew;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas),
        cmocka_unit_test(rules_are_whole),
        cmocka_unit_test(units),
        cmocka_unit_test(rounding),
        cmocka_unit_test(writing),
        cmocka_unit_test(cutting_experts_never_raises_skew),
        cmocka_unit_test(routed_skew_falls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
