#include "base/routing/routing.h"

#include "tests/support/golden.h"
#include "tests/support/near.h"
#include "tests/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct pos here = { "recipe.yaml", 2, 3 };

static struct routing profile(const char *text)
{
    struct routing r;
    struct diag_list errors = { 0 };
    assert_int_equal(routing_parse(text, here, &r, &errors), 0);
    return r;
}

static void parses_what_it_prints(void **state)
{
    static const char *const texts[] = { "balanced", "natural", "80:4",   "12.5:32",
                                         "0:1",      "100:8",   "zipf:1", "zipf:0.75" };
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct routing r = profile(texts[i]);
        char text[64];
        routing_format(&r, text, sizeof text);
        assert_string_equal(text, texts[i]);
    }
    assert_near(profile("80:4").hot_fraction, 0.8, 1e-15, "");
}

static void refuses_other_texts(void **state)
{
    static const char *const texts[] = { "balnced",  "80",    "80:",   "80:x",  "101:4",
                                         "-1:4",     "0.8:4", "80:0",  "zipf:", "zipf:-1",
                                         "zipf:nan", "",      "80:4:4" };
    struct diag_list errors = { 0 };
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct routing r;
        assert_int_equal(routing_parse(texts[i], here, &r, &errors), -1);
        assert_int_equal(errors.errors, i + 1);
    }
    assert_golden_diags("refused profiles", &errors);
}

/* By hand: T 32,768, k 8, E 128, ep 8. Uniform variance a token: 8 x 1/8 x 7/8 x 120/127. */
static void balanced_by_hand(void **state)
{
    const struct routing_shape shape = { 32768, 8, 128, 8 };
    struct routing r = profile("balanced");
    struct routing_load load;
    (void)state;

    routing_load(&r, &shape, -1, 0.99, &load);
    assert_int_equal(load.point_rows, 262144);
    assert_near(load.mean_rows, 262144, 1e-12, "rows");
    assert_near(load.variance_rows, 262144 * 0.875 * 120.0 / 127.0, 1e-12, "rows^2");
    assert_int_equal(load.bound_rows, 8 * 32768 * 8);
    assert_int_equal(load.copies_point, 8 * 32768);
    assert_true(load.upper_rows > load.point_rows + 1000 && load.upper_rows < 262144 * 1.01);
}

/* One rank receives all its rows, exactly, under every profile. */
static void one_rank_has_no_doubt(void **state)
{
    static const char *const texts[] = { "balanced", "natural", "80:4", "zipf:1" };
    const struct routing_shape shape = { 100, 8, 128, 1 };
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct routing r = profile(texts[i]);
        struct routing_load load;
        routing_load(&r, &shape, -1, 0.99, &load);
        assert_int_equal(load.point_rows, 800);
        assert_int_equal(load.upper_rows, 800);
        assert_int_equal(load.bound_rows, 800);
        assert_int_equal(load.copies_point, 100);
    }
}

/* 80:4 at k 8, E 128, ep 8, by hand: hot tokens send 4 rows to rank 0 and 4 x 12/124 more; cold
 * ones 8 x 12/124. */
static void hot_by_hand(void **state)
{
    const struct routing_shape shape = { 1000, 8, 128, 8 };
    struct routing r = profile("80:4");
    struct routing_load first, last, fullest;
    double share = 12.0 / 124.0, other = 16.0 / 124.0;
    (void)state;

    routing_load(&r, &shape, 0, 0.99, &first);
    routing_load(&r, &shape, 7, 0.99, &last);
    routing_load(&r, &shape, -1, 0.99, &fullest);
    assert_near(first.mean_rows, 8000 * (0.8 * (4 + 4 * share) + 0.2 * 8 * share), 1e-12, "rows");
    assert_near(last.mean_rows, 8000 * (0.8 * 4 * other + 0.2 * 8 * other), 1e-12, "rows");
    assert_int_equal(fullest.point_rows, first.point_rows);
    assert_int_equal(fullest.upper_rows, first.upper_rows);
    assert_int_equal(first.bound_rows, 8 * 1000 * 8);
}

struct example {
    const char *profile;
    struct routing_shape shape;
    double variance_slack; /* of the sample variance */
};
static const struct example examples[] = {
    { "natural", { 64, 8, 128, 8 }, 0.1 }, { "natural", { 4, 2, 8, 4 }, 0.1 },
    { "50:4", { 64, 8, 128, 8 }, 0.1 },    { "50:4", { 3, 2, 16, 4 }, 0.1 },
    { "80:4", { 64, 8, 128, 8 }, 0.1 },    { "80:4", { 2, 4, 16, 8 }, 0.1 },
    { "80:6", { 64, 4, 16, 8 }, 0.1 },     { "90:12", { 16, 8, 16, 4 }, 0.1 },
    { "5:4", { 64, 4, 32, 4 }, 0.1 },      { "zipf:1", { 32, 8, 64, 8 }, 0.1 },
    { "zipf:1", { 4, 2, 8, 4 }, 0.1 },     { "zipf:0.3", { 16, 4, 32, 8 }, 0.1 },
    { "zipf:2", { 16, 4, 16, 2 }, 0.1 },
};
enum { EXAMPLES = sizeof examples / sizeof *examples, MAX_EP = 8 };

/* The means of all ranks sum to every row that is sent. */
static void means_partition_the_rows(void **state)
{
    (void)state;
    for (int i = 0; i < EXAMPLES; i++) {
        const struct routing_shape *s = &examples[i].shape;
        struct routing r = profile(examples[i].profile);
        double sum = 0, most = 0;
        struct routing_load load;

        for (int rank = 0; rank < s->ep; rank++) {
            routing_load(&r, s, rank, 0.99, &load);
            sum += load.mean_rows;
            most = fmax(most, load.mean_rows);
        }
        assert_near(sum, (double)s->ep * (double)s->tokens * s->top_k, 1e-4, "rows");
        routing_load(&r, s, -1, 0.99, &load);
        assert_near(load.mean_rows, most, 1e-4, "rows");
    }
}

/* Sums over whole micro-batches that an EP group receives. */
struct sample {
    double rows[MAX_EP], squares[MAX_EP], copies[MAX_EP];
    int above; /* draws in which some rank exceeded the upper bound */
};

static void sample_once(const struct routing *r, const struct routing_shape *s, uint64_t seed,
                        uint64_t upper, struct sample *sum)
{
    uint64_t rows[MAX_EP] = { 0 }, copies[MAX_EP] = { 0 }, fullest = 0;
    int choices[16];

    for (uint64_t token = 0; token < s->tokens * (uint64_t)s->ep; token++) {
        unsigned met = 0;
        routing_draw(r, seed, 3, token, s->top_k, s->experts, choices);
        for (int j = 0; j < s->top_k; j++) {
            int rank = choices[j] / (s->experts / s->ep);
            rows[rank]++;
            met |= 1U << rank;
        }
        for (int rank = 0; rank < s->ep; rank++)
            copies[rank] += met >> rank & 1;
    }
    for (int rank = 0; rank < s->ep; rank++) {
        sum->rows[rank] += (double)rows[rank];
        sum->squares[rank] += (double)rows[rank] * (double)rows[rank];
        sum->copies[rank] += (double)copies[rank];
        fullest = rows[rank] > fullest ? rows[rank] : fullest;
    }
    sum->above += fullest > upper;
}

/* Draws against the closed form: mean within 5 standard errors, variance within its slack, the
 * upper bound of all ranks together exceeded by at most 1.6 % of draws. */
static void sampling_agrees(void **state)
{
    enum { DRAWS = 2000 };
    (void)state;

    for (int i = 0; i < EXAMPLES; i++) {
        const struct routing_shape *s = &examples[i].shape;
        struct routing r = profile(examples[i].profile);
        struct sample sum = { 0 };
        struct routing_load fullest, load;

        routing_load(&r, s, -1, 0.99, &fullest);
        for (uint64_t seed = 0; seed < DRAWS; seed++)
            sample_once(&r, s, seed, fullest.upper_rows, &sum);
        for (int rank = 0; rank < s->ep; rank++) {
            routing_load(&r, s, rank, 0.99, &load);
            double mean = sum.rows[rank] / DRAWS;
            double variance = sum.squares[rank] / DRAWS - mean * mean;
            double error = 5 * sqrt(load.variance_rows / DRAWS) + 2e-4 * load.mean_rows;
            if (fabs(mean - load.mean_rows) > error)
                fail_msg("%s rank %d: mean %g, closed form %g", examples[i].profile, rank, mean,
                         load.mean_rows);
            assert_near(variance, load.variance_rows, examples[i].variance_slack + 0.05, "rows^2");
            if (fabs(sum.copies[rank] / DRAWS - (double)load.copies_point) >
                1 + 0.01 * (double)load.copies_point)
                fail_msg("%s rank %d: copies %g, closed form %g", examples[i].profile, rank,
                         sum.copies[rank] / DRAWS, (double)load.copies_point);
        }
        if (sum.above > DRAWS * 16 / 1000)
            fail_msg("%s: bound %llu exceeded in %d of %d draws", examples[i].profile,
                     (unsigned long long)fullest.upper_rows, sum.above, DRAWS);
    }
}

/* The bound is of use: at 32,768 tokens it lies within 2 % of the mean for every profile. */
static void bounds_are_close_for_many_tokens(void **state)
{
    static const char *const texts[] = { "natural", "50:4", "80:4", "zipf:1" };
    const struct routing_shape shape = { 32768, 8, 128, 8 };
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct routing r = profile(texts[i]);
        struct routing_load load;
        routing_load(&r, &shape, -1, 0.99, &load);
        assert_true((double)load.upper_rows > load.mean_rows);
        assert_true((double)load.upper_rows < 1.02 * load.mean_rows);
    }
}

/* A second way to draw by weight: one choice after another, by the weights that are left. */
static void zipf_is_successive_sampling(void **state)
{
    enum { DRAWS = 200000, E = 8, K = 3 };
    struct routing r = profile("zipf:1.5");
    double race[E] = { 0 }, naive[E] = { 0 };
    uint64_t seed = 99;
    (void)state;

    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        int choices[K];
        double weight[E], total = 0;
        routing_draw(&r, 1, 0, draw, K, E, choices);
        for (int j = 0; j < K; j++)
            race[choices[j]]++;
        for (int i = 0; i < E; i++)
            total += weight[i] = pow(i + 1.0, -1.5);
        for (int j = 0; j < K; j++) {
            double at = (double)(random_next(&seed) >> 11) * 0x1p-53 * total;
            int pick = 0;
            while (pick < E - 1 && (weight[pick] <= 0 || at >= weight[pick]))
                at -= weight[pick++];
            naive[pick]++;
            total -= weight[pick];
            weight[pick] = 0;
        }
    }
    for (int i = 0; i < E; i++)
        assert_near(race[i], naive[i], 0.02, "draws");
}

/* k distinct experts in range; the same arguments draw the same; a layer changes the draw. */
static void draws_are_distinct_and_pure(void **state)
{
    static const char *const texts[] = { "balanced", "natural", "80:4", "100:16", "zipf:1" };
    static const int shapes[][2] = { { 1, 1 }, { 2, 2 }, { 8, 128 }, { 6, 60 }, { 12, 16 } };
    (void)state;

    for (size_t p = 0; p < sizeof texts / sizeof *texts; p++) {
        struct routing r = profile(texts[p]);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            int k = shapes[s][0], experts = shapes[s][1], differ = 0;
            for (uint64_t token = 0; token < 300; token++) {
                int once[16], twice[16], elsewhere[16];
                routing_draw(&r, 5, 1, token, k, experts, once);
                routing_draw(&r, 5, 1, token, k, experts, twice);
                routing_draw(&r, 5, 2, token, k, experts, elsewhere);
                assert_memory_equal(once, twice, (size_t)k * sizeof *once);
                differ += memcmp(once, elsewhere, (size_t)k * sizeof *once) != 0;
                for (int j = 0; j < k; j++) {
                    assert_in_range(once[j], 0, experts - 1);
                    for (int i = 0; i < j; i++)
                        assert_int_not_equal(once[i], once[j]);
                }
            }
            assert_true(k == experts || differ > 0);
        }
    }
}

/* Any contiguous range of T tokens sends each of ep ranks T k / ep rows when that is whole, and
 * each token meets min(k, ep) ranks. */
static void balanced_draws_are_exact(void **state)
{
    static const int shapes[][3] = { { 8, 128, 8 },  { 8, 128, 4 }, { 2, 8, 4 },
                                     { 4, 160, 16 }, { 6, 60, 4 },  { 3, 16, 2 } };
    struct routing r = profile("balanced");
    (void)state;

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int k = shapes[s][0], experts = shapes[s][1], ep = shapes[s][2];
        for (uint64_t first = 0; first < 40; first += 7) {
            for (uint64_t tokens = 1; tokens <= 64; tokens++) {
                uint64_t rows[16] = { 0 }, met = 0;
                for (uint64_t t = first; t < first + tokens; t++) {
                    int choices[16];
                    unsigned ranks = 0;
                    routing_draw(&r, 11, 4, t, k, experts, choices);
                    for (int j = 0; j < k; j++) {
                        rows[choices[j] / (experts / ep)]++;
                        ranks |= 1U << choices[j] / (experts / ep);
                    }
                    met += (uint64_t)__builtin_popcount(ranks);
                }
                assert_int_equal(met, tokens * (uint64_t)(k < ep ? k : ep));
                for (int rank = 0; rank < ep && tokens * (uint64_t)k % (uint64_t)ep == 0; rank++)
                    assert_int_equal(rows[rank], tokens * (uint64_t)k / (uint64_t)ep);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_what_it_prints),
        cmocka_unit_test(refuses_other_texts),
        cmocka_unit_test(balanced_by_hand),
        cmocka_unit_test(one_rank_has_no_doubt),
        cmocka_unit_test(hot_by_hand),
        cmocka_unit_test(means_partition_the_rows),
        cmocka_unit_test(sampling_agrees),
        cmocka_unit_test(bounds_are_close_for_many_tokens),
        cmocka_unit_test(zipf_is_successive_sampling),
        cmocka_unit_test(draws_are_distinct_and_pure),
        cmocka_unit_test(balanced_draws_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
