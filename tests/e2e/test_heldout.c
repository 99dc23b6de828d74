/* `rankfit validate heldout`: what torchtitan's modules hold by hand from the models' sizes, what
 * Megatron holds of a model without a latent of queries, and the errors of each group once more.
 */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *document;

static json_t *run_named(const char *name)
{
    return json_named(json_at(document, "sets.0.runs"), name);
}

static double held(const char *run, const char *name)
{
    return number_at(json_named(json_at(run_named(run), "adjustments"), name), "bytes");
}

/* Llama-2-7B: hidden 4,096, MLP 11,008, vocabulary 32,000; 16,384 tokens on each of eight ranks.
 * Fullest at the loss: no gradient is there, the root and the last layer are gathered. */
static void at_the_loss(void **state)
{
    (void)state;
    double hidden = 4096, mlp = 11008, vocab = 32000, tokens = 16384, layers = 32;
    double layer = 4 * hidden * hidden + 3 * mlp * hidden + 2 * hidden;
    double root = 2 * vocab * hidden + hidden;
    double shard = (layers * layer + root) / 8;
    assert_near(held("llama2_7b_full", "shards"), 4 * shard, 0, "bytes");
    assert_near(held("llama2_7b_full", "moments"), 8 * shard, 0, "bytes");
    assert_near(held("llama2_7b_full", "units"), 2 * (root + layer), 0, "bytes");
    assert_near(held("llama2_7b_full", "kept"), layers * 2 * tokens * hidden, 0, "bytes");
    /* Logits in fp32, their logarithms and two gradients; the last norm's input in fp32 and its
     * normed copy, and the head's input. */
    assert_near(held("llama2_7b_full", "loss"), tokens * (16 * vocab + 8 * hidden), 0, "bytes");
}

/* The same with chosen operations kept: the input, queries, values, one up projection, the down
 * projection, attention's output, and a sum of 4 bytes for each of 32 heads. */
static void chosen_operations(void **state)
{
    (void)state;
    double hidden = 4096, mlp = 11008, tokens = 16384;
    double token = 2 * hidden + 2 * (hidden + hidden + mlp + hidden) + 2 * hidden + 4 * 32;
    assert_near(held("llama2_7b_op", "kept"), 32 * tokens * token, 0, "bytes");
}

/* Qwen3-32B, 4,096 tokens on each of eight ranks: fullest at the backward of the first layer, when
 * all other layers' and the head's gradients are sharded. Hidden 5,120, queries 8,192, keys 1,024
 * (held at every query head), MLP 25,600, vocabulary 151,936, 64 layers. */
static void at_the_first_layer(void **state)
{
    (void)state;
    double hidden = 5120, query = 8192, key = 1024, mlp = 25600, tokens = 4096;
    /* The last 256: rankfit's units are multiples of 64 elements a shard. */
    double layer =
        2 * query * hidden + 2 * key * hidden + 3 * mlp * hidden + 2 * hidden + 2 * 128 + 256;
    double embedding = 151936 * hidden, head = embedding + hidden;
    assert_near(held("32b_fsdp8_b1", "gradients"), 4 * (63 * layer + head) / 8, 0, "bytes");
    /* This layer and the embedding gathered, the layer behind in reduction, the down projection's
     * gradient. */
    assert_near(held("32b_fsdp8_b1", "units"),
                2 * (layer + embedding) + 4 * layer + 2 * mlp * hidden, 0, "bytes");
    assert_near(held("32b_fsdp8_b1", "kept"), 2 * tokens * hidden, 0, "bytes");
    double norms = 2 * hidden + 2 * 2 * hidden + 2 * (query + key);
    double attention = 2 * (query + query + query + query) + 4 * 64;
    double products = (4 + 2) * 2 * mlp;
    double gradient = 2 * hidden;
    assert_near(held("32b_fsdp8_b1", "layer"), tokens * (norms + attention + products + gradient),
                0, "bytes");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool text_is(json_t *run, const char *key, const char *text)
{
    return strcmp(json_string_value(json_object_get(run, key)), text) == 0;
}

/* Median, ends and number of a group from its rows. */
static void check_group(int index, const char *engine, const char *metric, size_t rows)
{
    double errors[64];
    char path[64];
    size_t count = 0, i;
    json_t *run;
    json_array_foreach(json_at(document, "sets.0.runs"), i, run)
    {
        bool ours =
            strncmp(json_string_value(json_object_get(run, "engine")), engine, strlen(engine)) == 0;
        if (ours && text_is(run, "metric", metric) &&
            json_is_false(json_object_get(run, "ran_out")))
            errors[count++] = number_at(run, "engine_bytes") / number_at(run, "measured_bytes") - 1;
    }
    assert_int_equal(count, rows);
    qsort(errors, count, sizeof *errors, by_value);
    (void)snprintf(path, sizeof path, "sets.0.groups.%d", index);
    json_t *group = json_at(document, path);
    assert_true(text_is(group, "engine", engine) && text_is(group, "metric", metric));
    assert_near(number_at(group, "rows"), (double)rows, 0, "rows");
    assert_near(number_at(group, "engine_errors.median"),
                (errors[(count - 1) / 2] + errors[count / 2]) / 2, 1e-9, "");
    assert_near(number_at(group, "engine_errors.least"), errors[0], 1e-9, "");
    assert_near(number_at(group, "engine_errors.most"), errors[count - 1], 1e-9, "");
}

static void errors_by_group(void **state)
{
    (void)state;
    check_group(0, "megatron", "allocated", 7);
    check_group(1, "torchtitan", "active", 4);
    check_group(2, "torchtitan", "reserved", 9);
}

/* Seven layouts ran out of memory; each is predicted above what the device has, and none of those
 * that ran is. */
static void what_ran_out(void **state)
{
    size_t i, out = 0;
    json_t *run;
    (void)state;
    json_array_foreach(json_at(document, "sets.0.runs"), i, run)
    {
        double has = 94.99 * 1073741824.0, predicted = number_at(run, "engine_bytes");
        if (!json_is_true(json_object_get(run, "ran_out"))) {
            assert_true(!text_is(run, "metric", "reserved") || predicted < has);
            continue;
        }
        assert_near(number_at(run, "measured_bytes"), has, 1e-12, "bytes");
        assert_true(predicted > has);
        out++;
    }
    assert_int_equal(out, 7);
}

static void as_text(void **state)
{
    (void)state;
    assert_told("as text", 0, "\"$RANKFIT\" validate heldout 2>/dev/null");
}

/* A run that ran out holds where it is predicted to: 10.7 GB, of eight and of ninety. Without a
 * peak no error is told. */
static void nothing_but_ran_out(void **state)
{
    (void)state;
    json_t *ran_out = program_json("validate --json peaks-ran-out.yaml", 0);
    assert_true(json_is_true(json_at(ran_out, "sets.0.holds")));
    assert_null(json_at(ran_out, "sets.0.engine_errors"));
    json_decref(ran_out);
    assert_told("a run that ran out", 0, "\"$RANKFIT\" validate peaks-ran-out.yaml");
    assert_told("a run that should not have run out", 1,
                "sed 's/ran_out: 8/ran_out: 90/' peaks-ran-out.yaml >$TMP/more.yaml && "
                "\"$RANKFIT\" validate $TMP/more.yaml");
}

static int read_document(void **state)
{
    (void)state;
    document = program_json("validate --json heldout", 0);
    return document ? 0 : -1;
}

static int drop_document(void **state)
{
    (void)state;
    json_decref(document);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_the_loss),
        cmocka_unit_test(chosen_operations),
        cmocka_unit_test(at_the_first_layer),
        cmocka_unit_test(errors_by_group),
        cmocka_unit_test(what_ran_out),
        cmocka_unit_test(nothing_but_ran_out),
        cmocka_unit_test(as_text),
    };
    return cmocka_run_group_tests_name("heldout", tests, read_document, drop_document);
}
