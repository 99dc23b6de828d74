/* `rankfit validate stages`: recipes, differences and the step from a distributed optimizer to
 * sharded state, by hand from the model's published configuration. */
#include "tests/e2e/program.h"
#include "tests/e2e/texts.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Qwen3.5-35B-A3B: parameters of a full-attention and of a delta-net mixer, of the rest of a layer
 * beside its experts (router, shared expert with its gate, two norms), of the experts, embedding.
 */
static const double full_mixer = 27263488, delta_mixer = 33718464;
static const double beside = 524288 + 3147776 + 2 * 2048, experts = 805306368;
static const double embedding = 508559360;
static const double tokens = 32768, sequence = 131072, hidden = 2048;

/* Half of the model: 20 layers, 5 of them with full attention, and the embedding. */
static double half_dense(void)
{
    return embedding + 5 * full_mixer + 15 * delta_mixer + 20 * beside;
}

static double half_experts(void)
{
    return 20 * experts / 8;
}

static json_t *run_named(json_t *document, const char *name)
{
    return json_named(json_at(document, "sets.0.runs"), name);
}

static double adjustment(json_t *run, const char *name)
{
    return number_at(json_named(json_at(run, "adjustments"), name), "bytes");
}

/* An item of rank 0 at the peak. */
static double item_bytes(const char *recipe, const char *item)
{
    char line[256];
    (void)snprintf(line, sizeof line, "budget --json --recipe %s", recipe);
    json_t *budget = program_json(line, 0);
    double ret = number_at(json_named(json_at(budget, "ranks.0.items"), item), "bytes");
    json_decref(budget);
    return ret;
}

static void check_layout(const char *recipe, int tp, int pp, int cp, int dp)
{
    char line[256];
    (void)snprintf(line, sizeof line, "plan --json --recipe %s", recipe);
    json_t *plan = program_json(line, 0);
    assert_true(number_at(plan, "recommended.layout.tp") == tp);
    assert_true(number_at(plan, "recommended.layout.pp") == pp);
    assert_true(number_at(plan, "recommended.layout.cp") == cp);
    assert_true(number_at(plan, "recommended.layout.ep") == 8);
    assert_true(number_at(plan, "recommended.layout.dp") == dp);
    assert_true(number_at(plan, "recommended.layout.micro_batches") * dp == 32);
    json_decref(plan);
}

/* The degrees of the five stages on 32 GPUs; dp and micro-batches follow. */
static void recipes_are_the_stages(void **state)
{
    (void)state;
    check_layout("stage-1-baseline", 2, 4, 2, 2);
    check_layout("stage-2-linear-ce", 1, 2, 4, 4);
    check_layout("stage-3-fsdp2", 1, 2, 4, 4);
    check_layout("stage-4-one-stage", 1, 1, 4, 8);
    check_layout("stage-5-chunked-ep", 1, 1, 4, 8);
}

/* 42.91 GB cannot be a rank with whole logits: 65,536 tokens x 124,160 x 4 B beside its state. */
static void whole_logits_do_not_fit_the_first_figure(void **state)
{
    (void)state;
    double dense = embedding / 2 + 3 * full_mixer / 2 + 7 * delta_mixer / 2 +
                   10 * (524288 + 3145728.0 / 2 + 2048 + 2 * 2048);
    double owned = 10 * experts / 8, shards = 4, logits = 65536.0 * 124160 * 4;
    double bytes = 6 * (dense + owned) + 12 * (dense / shards + owned);
    json_t *budget = program_json("budget --json --recipe stage-1-baseline", 0);
    assert_near(number_at(budget, "ranks.3.static_bytes"), bytes, 1e-4, "bytes");
    json_t *items = json_at(budget, "ranks.3.items");
    assert_near(number_at(json_named(items, "logits"), "bytes"), logits, 0, "bytes");
    assert_true(bytes + logits > 42.91e9);
    json_decref(budget);
}

static double peak_of(const char *recipe)
{
    char line[256];
    (void)snprintf(line, sizeof line, "plan --json --recipe %s", recipe);
    json_t *plan = program_json(line, 0);
    double ret = number_at(plan, "recommended.peak_bytes");
    json_decref(plan);
    return ret;
}

/* Measured: -8.88 GB. Engine rankfit gives weights and gradients, 6 B, to 16 and 2 ranks, and pays
 * for gathered units and gradients on their way. */
static void the_step_to_sharded_state(void **state)
{
    (void)state;
    double own = peak_of("stage-3-fsdp2") - peak_of("stage-2-linear-ce");
    assert_near(own, -8.88e9, 3 / 8.88, "bytes");
    double saved = 6 * (half_dense() * 15 / 16 + half_experts() / 2);
    double before =
        item_bytes("stage-2-linear-ce", "weights") + item_bytes("stage-2-linear-ce", "gradients");
    double after =
        item_bytes("stage-3-fsdp2", "weights") + item_bytes("stage-3-fsdp2", "gradients");
    assert_near(before - after, saved, 1e-4, "bytes");
    double paid = item_bytes("stage-3-fsdp2", "gathered_weights") +
                  item_bytes("stage-3-fsdp2", "gathered_gradients");
    assert_near(own, paid - saved, 1e-3, "bytes");
}

/* The measured engine keeps a stage's bf16 units gathered, so fp32 gradients alone are saved:
 * 4 B x 15/16 and 1/2; in flight are bf16 gradients of a layer's dense part and, in fp32, those of
 * its experts with what arrives of them. */
static void the_step_of_the_measured_engine(void **state)
{
    (void)state;
    json_t *document = program_json("validate --json stages", 0);
    json_t *step = json_at(document, "sets.0.steps.0");
    double saved = 4 * (half_dense() * 15 / 16 + half_experts() / 2);
    double flying = 2 * (full_mixer + beside) + 4 * 1.5 * experts / 8;
    assert_near(number_at(step, "engine_bytes"), flying - saved, 1e-4, "bytes");
    assert_near(number_at(step, "engine_bytes"), -8.88e9, 3 / 8.88, "bytes");
    assert_near(number_at(step, "bytes"), -8.88e9, 3 / 8.88, "bytes");
    assert_near(number_at(step, "measured_bytes"), -8.88e9, 0, "bytes");
    assert_true(json_is_true(json_at(step, "holds")));
    assert_true(json_is_true(json_at(document, "holds")));
    json_decref(document);
}

/* From engine rankfit to the other engine, item by item; nothing is left over. */
static void differences_add_up(void **state)
{
    size_t index, inner;
    json_t *run, *step;
    (void)state;
    json_t *document = program_json("validate --json stages", 0);
    assert_int_equal(json_array_size(json_at(document, "sets.0.runs")), 5);
    json_array_foreach(json_at(document, "sets.0.runs"), index, run)
    {
        double sum = number_at(run, "peak_bytes");
        json_array_foreach(json_at(run, "adjustments"), inner, step)
        {
            sum += number_at(step, "bytes");
        }
        assert_near(number_at(run, "engine_peak_bytes"), sum, 0, "bytes");
        double off = number_at(run, "unexplained_bytes");
        double low = number_at(run, "measured_bytes.0"), high = number_at(run, "measured_bytes.1");
        assert_true(sum + off >= low - 1 && sum + off <= high + 1);
    }
    json_decref(document);
}

static void state_of_the_measured_engine(void **state)
{
    (void)state;
    json_t *document = program_json("validate --json stages", 0);
    json_t *two = run_named(document, "fsdp2"), *one = run_named(document, "one_stage");
    /* fp32 shards alone: 2 B an element less */
    double shard = half_dense() / 16 + half_experts() / 2;
    assert_near(adjustment(two, "shards"), -2 * shard, 1e-4, "bytes");
    /* two stages: every unit; one: root, a layer and the dense part of another */
    double all = 2 * (half_dense() + half_experts());
    double root = 2 * (2 * embedding + hidden);
    double layer = 2 * (2 * (full_mixer + beside) + experts / 8);
    assert_near(adjustment(two, "gathered"), all - item_bytes("stage-3-fsdp2", "gathered_weights"),
                1e-4, "bytes");
    assert_near(adjustment(one, "gathered"),
                root + layer - item_bytes("stage-4-one-stage", "gathered_weights"), 1e-4, "bytes");
    json_decref(document);
}

/* Bytes a token of what a delta net holds: widths 4,096 of queries and keys at 32 value heads and
 * of values, 8,192 through the convolution, 64 x 32 of the triangle, states of 32 x 128 x 128 every
 * 64 tokens; decay fp32 and beta bf16. */
static const double wide = 2 * 4096.0, conv = 2 * 8192.0, gates = 32 * (4 + 2);
static const double triangle = 2 * 64 * 32.0, states = 2 * 32 * 128 * 128 / 64.0;

/* At the end of the delta rule's backward: input of the convolution, normed queries and keys, the
 * same at value heads, values; gradients of gate and output; w, u, new values; states and their
 * gradients; gradients of new values, w, queries, keys, keys of the system, values. */
static double rule_backward(double at_work)
{
    double token =
        conv + wide + 3 * wide + gates + triangle + 2 * wide + 3 * wide + 2 * states + 6 * wide;
    return at_work * token + 5 * tokens * 2 * hidden; /* n1, x1, d x1, output and its gradient */
}

/* When the replay sums what the experts returned: mixer kept, four expert-wide tensors of rows. */
static double replay_sum(double at_work)
{
    double kept = conv + wide + 4 * wide + gates + triangle + 2 * wide;
    double row = 8 + 4 + 4 * 2 * hidden + 2 * 1024 + 2 * 512;
    double token = wide + 6 * 2 * hidden + 2 * 1024 + 2 * 512 + 10 * 256;
    return at_work * kept + tokens * token + 8 * tokens * row;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* All that is neither layers nor their inputs is as engine rankfit has it. */
static void layer_of_the_measured_engine(void **state)
{
    (void)state;
    static const char *const others[] = { "weights",   "master",           "moments",
                                          "gradients", "pipeline_buffers", "inputs" };
    json_t *document = program_json("validate --json stages", 0);
    json_t *run = run_named(document, "linear_ce");
    double rest = 201327616; /* scratch of the matmul library */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        rest += item_bytes("stage-2-linear-ce", others[i]);
    double inputs = 39 * tokens * 2 * hidden; /* of 19 layers, and of 20 of the next micro-batch */
    assert_near(number_at(run, "engine_whole_peak_bytes"),
                rest + inputs + larger(rule_backward(sequence), replay_sum(sequence)), 1e-6,
                "bytes");
    assert_near(number_at(run, "engine_peak_bytes"),
                rest + inputs + larger(rule_backward(tokens), replay_sum(tokens)), 1e-6, "bytes");
    json_decref(document);
}

/* One expert layer alone, 64K tokens: 22.2 GB with 4 B a parameter of its 32 experts; half of the
 * rest at 32K, less what is counted when the replay sums what came back: the layer's gradient and
 * output, n2, the shared expert, the router, and four tensors of rows. */
static void experts_measured_alone(void **state)
{
    (void)state;
    double row = 8 + 4 + 4 * 2 * hidden + 2 * 1024 + 2 * 512;
    double token = 4 * 2 * hidden + 2 * 1024 + 2 * 512 + 10 * 256;
    double counted = tokens * (token + 8 * row);
    json_t *document = program_json("validate --json stages", 0);
    json_t *run = run_named(document, "linear_ce");
    assert_near(number_at(run, "experts_alone_bytes"), (22.2e9 - 4 * experts / 8) / 2 - counted,
                1e-6, "bytes");
    json_decref(document);
}

/* Operations a token as the engine's own benchmark counts them (no router), 131,072 tokens: within
 * half a percent of ours, so TFLOP/s mean the same. */
static void operations_are_counted_alike(void **state)
{
    (void)state;
    double full = 6 * (hidden * 9216 + 4096 * sequence + 4096 * hidden);
    double delta = 6 * (hidden * (2 * 2048 + 2 * 4096 + 64) + 4 * 8192.0 + 32 * 128 * 128 * 4.0 +
                        hidden * 4096);
    double moe = 18 * hidden * (512 * 8 + 512), logits = 6 * hidden * 248320;
    json_t *plan = program_json("plan --json --recipe stage-4-one-stage", 0);
    double own = 1e12 * number_at(plan, "recommended.step.model_tflops_per_gpu") /
                 number_at(plan, "recommended.step.tokens_per_second_per_gpu");
    assert_near(own, 10 * full + 30 * delta + 40 * moe + logits, 5e-3, "operations");
    json_decref(plan);
}

/* Every rank at the whole sequence: three times its own part of the delta rule more, and the other
 * ranks' projections, 2 B x 12,288, in three passes through 30 layers of 4 micro-batches at 74 % of
 * 450 GB/s. */
static void whole_sequences_take_longer(void **state)
{
    (void)state;
    json_t *document = program_json("validate --json stages", 0);
    json_t *plan = program_json("plan --json --recipe stage-4-one-stage", 0);
    json_t *items = json_at(plan, "recommended.step.items");
    double seconds = number_at(plan, "recommended.step.seconds");
    double rule = 3 * number_at(json_named(items, "linear_attention"), "seconds");
    double gather = 3.0 * 30 * 4 * 3 * tokens * 2 * 12288 / (0.74 * 450e9);
    json_t *run = run_named(document, "one_stage");
    double ratio =
        number_at(run, "engine_whole_tflops_per_gpu") / number_at(run, "model_tflops_per_gpu");
    assert_near(ratio, seconds / (seconds + rule + gather), 1e-6, "");
    json_decref(plan);
    json_decref(document);
}

/* A narrower bound does not hold: exit 1. */
static void a_step_that_does_not_hold(void **state)
{
    struct program_result result;
    (void)state;
    program_run("sed 's/within: 3/within: 0.5/' \"$RANKFIT_SOURCE_ROOT/validation/stages.yaml\" "
                ">$TMP/narrow.yaml && \"$RANKFIT\" validate --json $TMP/narrow.yaml",
                &result);
    assert_int_equal(result.status, 1);
    json_t *document = json_loads(result.out, 0, NULL);
    assert_true(json_is_false(json_at(document, "sets.0.steps.0.holds")));
    json_decref(document);
    program_done(&result);
}

/* The device's figure of the fullest rank, of engine rankfit's shards: other assumptions of the
 * same file, other adjustments. */
static void assumptions_are_data(void **state)
{
    struct program_result result;
    (void)state;
    program_run("sed -e 's/value: allocated/value: device/' -e 's/value: several_stages/value: "
                "never/' -e 's/value: fp32/value: bf16_beside_master/' "
                "\"$RANKFIT_SOURCE_ROOT/validation/stages.yaml\" >$TMP/other.yaml && "
                "\"$RANKFIT\" validate --json $TMP/other.yaml",
                &result);
    json_t *document = json_loads(result.out, 0, NULL);
    assert_non_null(document);
    json_t *run = run_named(document, "fsdp2");
    size_t count = json_array_size(json_at(run, "adjustments"));
    assert_int_equal(count, 3); /* gathered, unit gradients, layer at work */
    double root = 2 * embedding, layer = 2 * (2 * (full_mixer + beside) + experts / 8);
    assert_near(adjustment(run, "gathered"),
                root + layer - item_bytes("stage-3-fsdp2", "gathered_weights"), 1e-3, "bytes");
    json_decref(document);
    program_done(&result);
}

/* All faults of a file at once. */
static void faulty_files(void **state)
{
    (void)state;
    assert_told("faulty stages", 2, "\"$RANKFIT\" validate stages-faulty.yaml");
    assert_told("unknown rules", 2, "\"$RANKFIT\" validate stages-unknown-rules.yaml");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_are_the_stages),
        cmocka_unit_test(whole_logits_do_not_fit_the_first_figure),
        cmocka_unit_test(the_step_to_sharded_state),
        cmocka_unit_test(the_step_of_the_measured_engine),
        cmocka_unit_test(differences_add_up),
        cmocka_unit_test(state_of_the_measured_engine),
        cmocka_unit_test(layer_of_the_measured_engine),
        cmocka_unit_test(experts_measured_alone),
        cmocka_unit_test(operations_are_counted_alike),
        cmocka_unit_test(whole_sequences_take_longer),
        cmocka_unit_test(a_step_that_does_not_hold),
        cmocka_unit_test(assumptions_are_data),
        cmocka_unit_test(faulty_files),
    };
    return cmocka_run_group_tests_name("stages", tests, NULL, NULL);
}
