/* The executor against transformers (tests/reference/make_reference.py): small models from
 * safetensors under their Hugging Face names, on as many ranks as there are. Logits, loss and every
 * gradient with the router's choices replayed; how often the router itself would have chosen
 * otherwise; twenty losses of training with its own choices.
 *
 * Bounds. A tensor's RMS error against fp32 is at most twice that of PyTorch's own bf16 runs, or 4
 * bf16 ulp of the tensor's RMS where that is more. PyTorch's error is a root mean square over eight
 * batches for the hybrids and of one batch for the others; with a tensor of a dozen elements one
 * batch is a noisy measure of it (make_reference.py says how it is taken). A loss is a mean of
 * differences of logits, so its error is at most about the logits' error if all tokens erred alike:
 * the same bound holds for it, in every step; a rate of AdamW that is wrong by a tenth breaks it in
 * ten steps. Training adds: a step moves an element by about the rate in the direction of its
 * gradient's sign, so a gradient that is right to 1 % goes wrong only where it is near zero and
 * matters least. Neither side decays norms. */
#include "executor/runtime/replay.h"
#include "executor/runtime/weights.h"
#include "tests/unit/executor/step_fixture.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQUENCES = 2, STEPS = 20 };

/* What is stored of one model. */
struct stored {
    const char *name;
    char directory[512];
    struct model model;
    struct safetensors *weights, *expected;
    json_t *facts;
    size_t length;    /* tokens of a sequence */
    uint32_t *tokens; /* [STEPS, sequences of a step, length + 1] */
    struct data data;
};

/* Tokens of a stored step. */
static size_t step_tokens(const struct stored *s)
{
    return SEQUENCES * s->length;
}

static void fail_with(const struct diag_list *errors)
{
    diag_list_print(stderr, errors);
    fail_msg("see above");
}

static const char *path_of(const struct stored *s, const char *file)
{
    static char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", s->directory, file);
    return path;
}

/* Where a step has more sequences than are stored they are repeated: the mean is the same. */
static void read_tokens(struct stored *s, int sequences)
{
    const size_t length = s->length + 1;
    FILE *file = fopen(path_of(s, "tokens.u32"), "rb");

    free(s->tokens);
    s->tokens = calloc((size_t)(STEPS * sequences) * length, sizeof *s->tokens);
    if (!file || !s->tokens) {
        fail_msg("no tokens of %s", s->name);
        return;
    }
    for (int step = 0; step < STEPS; step++) {
        uint32_t *at = s->tokens + (size_t)(step * sequences) * length;
        assert_int_equal(fread(at, sizeof *at, SEQUENCES * length, file), SEQUENCES * length);
        for (int i = SEQUENCES; i < sequences; i++)
            memcpy(at + (size_t)i * length, at + (size_t)(i % SEQUENCES) * length,
                   length * sizeof *at);
    }
    (void)fclose(file);
    s->data = (struct data){ .format = DATA_U32,
                             .map = s->tokens,
                             .tokens = (uint64_t)(STEPS * sequences) * length,
                             .stride = length,
                             .vocab = s->model.vocab };
}

static void open_stored(struct stored *s, const char *name)
{
    struct diag_list errors = { 0 };

    memset(s, 0, sizeof *s);
    s->name = name;
    (void)snprintf(s->directory, sizeof s->directory, "%s/tests/data/reference/%s",
                   getenv("RANKFIT_SOURCE_ROOT"), name);
    if (model_load(s->directory, &s->model, &errors) != 0 ||
        weights_open(s->directory, &s->model, &s->weights, &errors) != 0 ||
        safetensors_open(path_of(s, "expected.safetensors"), &s->expected, &errors) != 0)
        fail_with(&errors);
    s->facts = json_load_file(path_of(s, "facts.json"), 0, NULL);
    assert_non_null(s->facts);
    s->length = (size_t)json_integer_value(json_object_get(s->facts, "tokens"));
    assert_true(s->length > 0);
}

static void close_stored(struct stored *s)
{
    safetensors_close(s->weights);
    safetensors_close(s->expected);
    json_decref(s->facts);
    free(s->tokens);
}

static double fact(const struct stored *s, const char *key)
{
    const json_t *value = json_object_get(s->facts, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static double yardstick(const struct stored *s, const char *tensor)
{
    const json_t *value = json_object_get(json_object_get(s->facts, "bf16_rms_error"), tensor);
    if (!json_is_number(value))
        fail_msg("no yardstick for %s", tensor);
    return json_number_value(value);
}

static float *read_tensor(const struct safetensors *file, const char *name, uint64_t elements)
{
    struct diag_list errors = { 0 };
    const struct stored_tensor *tensor = safetensors_find(file, name);
    float *ret = calloc(elements + 1, sizeof *ret);

    if (!tensor || !ret) {
        free(ret);
        fail_msg("no tensor %s", name);
        return NULL;
    }
    assert_int_equal(tensor->elements, elements);
    if (safetensors_read_all(file, tensor, TENSOR_TYPE_F32, ret, &errors) != 0)
        fail_with(&errors);
    return ret;
}

static double rms(const float *values, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum / (double)count);
}

/* RMS error over its bound: max(2 x PyTorch's bf16 error, 4 bf16 ulp of the RMS). */
static double judged(const float *got, const float *want, uint64_t count, double pytorch)
{
    double sum = 0, size = rms(want, count);
    double ulp = size > 0 ? exp2(floor(log2(size)) - 7) : 0;
    double bound = fmax(2 * pytorch, 4 * ulp);

    for (uint64_t i = 0; i < count; i++)
        sum += pow((double)got[i] - (double)want[i], 2);
    double error = sqrt(sum / (double)count);
    return error > 0 ? error / bound : 0;
}

struct outcome {
    struct dump dump;
    double loss[STEPS];
    struct replay noted;
};

static void keep_gradients(struct trainer *trainer, void *context)
{
    (void)dump_gradients(trainer, context);
    trainer->on_gradients = NULL;
}

static void run(const struct stored *s, const struct plan *plan, const struct choice_book *given,
                int steps, struct outcome *ret)
{
    struct diag_list errors = { 0 };
    struct trainer trainer;
    struct backend *backend = step_open_backend(&errors);

    memset(ret, 0, sizeof *ret);
    if (!backend || trainer_open(&trainer, plan, step_fabric, backend, &s->data, 0, &errors) != 0 ||
        weights_load(&trainer, s->weights) != 0 || replay_blank(plan, &ret->noted, &errors) != 0) {
        fail_with(&errors);
        return;
    }
    trainer.work.given = given;
    trainer.work.noted = plan->model.moe.experts > 0 ? &ret->noted.book : NULL;
    trainer.on_gradients = keep_gradients;
    trainer.on_gradients_context = &ret->dump;
    assert_int_equal(trainer_keep_hidden(&trainer), 0);
    for (int step = 1; step <= steps; step++) {
        struct step_result result;
        if (trainer_step(&trainer, step, &result) != 0)
            fail_with(&errors);
        ret->loss[step - 1] = result.loss;
        trainer.work.noted = NULL; /* of the first step, whose weights are the stored ones */
        if (step == 1 && dump_hidden(&trainer, &ret->dump) != 0)
            fail_with(&errors);
    }
    trainer_close(&trainer);
    step_close_backend(backend);
}

static void outcome_done(struct outcome *outcome)
{
    dump_done(&outcome->dump);
    replay_close(&outcome->noted);
}

/* The stored choices, repeated as the sequences are. */
static void read_choices(const struct stored *s, const struct plan *plan, struct replay *ret)
{
    struct diag_list errors = { 0 };

    assert_int_equal(replay_blank(plan, ret, &errors), 0);
    for (int layer = 0; layer < plan->model.layers; layer++) {
        char name[32];
        size_t step = step_tokens(s) * (size_t)plan->model.moe.top_k;
        if (plan->model.layer_ffn[layer] != FFN_MOE)
            continue;
        (void)snprintf(name, sizeof name, "choices.%d", layer);
        const struct stored_tensor *tensor = safetensors_find(s->expected, name);
        if (!tensor) {
            fail_msg("no %s", name);
            return;
        }
        assert_int_equal(tensor->elements, step);
        int32_t *to = ret->book.layers[layer];
        if (safetensors_read_all(s->expected, tensor, TENSOR_TYPE_I32, to, &errors) != 0)
            fail_with(&errors);
        for (int64_t i = SEQUENCES; i < plan->global_batch; i += SEQUENCES)
            memcpy(to + (size_t)(i / SEQUENCES) * step, to, step * sizeof *to);
    }
}

/* Final hidden x head, in double precision. */
static float *logits_of(const struct stored *s, const struct dump_tensor *hidden)
{
    const uint64_t width = (uint64_t)s->model.hidden, vocab = (uint64_t)s->model.vocab;
    float *head = read_tensor(s->weights, "lm_head.weight", vocab * width);
    float *ret = calloc(step_tokens(s) * vocab, sizeof *ret);

    assert_non_null(ret);
    for (uint64_t t = 0; t < step_tokens(s); t++)
        for (uint64_t v = 0; v < vocab; v++) {
            double sum = 0;
            for (uint64_t i = 0; i < width; i++)
                sum += (double)hidden->values[t * width + i] * (double)head[v * width + i];
            ret[t * vocab + v] = (float)sum;
        }
    free(head);
    return ret;
}

static double check_logits(const struct stored *s, const struct outcome *outcome)
{
    const struct dump_tensor *hidden = dump_find(&outcome->dump, dump_hidden_name);
    const uint64_t count = step_tokens(s) * (uint64_t)s->model.vocab;
    float *want = read_tensor(s->expected, "logits", count);

    if (!hidden) {
        fail_msg("no hidden states");
        return 0;
    }
    float *got = logits_of(s, hidden);
    double ratio = judged(got, want, count, yardstick(s, "logits"));
    free(got);
    free(want);
    if (!(ratio <= 1))
        fail_msg("%s: logits are wrong by %.3g times what is allowed", s->name, ratio);
    return ratio;
}

/* The worst over all gradients; and that there are as many as transformers has. */
static double check_gradients(const struct stored *s, const struct dump *dump)
{
    static const char prefix[] = "gradient.";
    double worst = 0;
    size_t found = 0;

    for (size_t i = 0; i < safetensors_count(s->expected); i++) {
        const struct stored_tensor *stored = safetensors_at(s->expected, i);
        if (strncmp(stored->name, prefix, sizeof prefix - 1) != 0)
            continue;
        const struct dump_tensor *got = dump_find(dump, stored->name + sizeof prefix - 1);
        if (!got) {
            fail_msg("no %s", stored->name);
            return 0;
        }
        float *want = read_tensor(s->expected, stored->name, got->elements);
        double ratio = judged(got->values, want, got->elements, yardstick(s, stored->name));
        free(want);
        if (!(ratio <= 1))
            fail_msg("%s: %s is wrong by %.3g times what is allowed", s->name, stored->name, ratio);
        worst = fmax(worst, ratio);
        found++;
    }
    assert_int_equal(dump->count, found + 1); /* and the hidden states */
    return worst;
}

/* Of the stored choices, how many the router itself makes (as sets, token by token). */
static void print_choices(const struct stored *s, const struct replay *stored,
                          const struct replay *own)
{
    size_t k = (size_t)s->model.moe.top_k, missed = 0, all = 0;

    if (!stored->book.layers || !own->book.layers) {
        fail_msg("no choices of %s", s->name);
        return;
    }
    for (int layer = 0; layer < s->model.layers; layer++) {
        const int32_t *wanted = stored->book.layers[layer], *chosen = own->book.layers[layer];
        for (size_t i = 0; wanted && chosen && i < step_tokens(s) * k; i++) {
            bool there = false;
            for (size_t j = i / k * k; j < i / k * k + k; j++)
                there = there || chosen[j] == wanted[i];
            missed += !there;
            all++;
        }
    }
    print_message("%s: the router itself chooses otherwise in %zu of %zu\n", s->name, missed, all);
    /* a bf16 hidden state moves logits by some thousandths; few pairs are as near */
    assert_true(all > 0 && missed <= all / 20);
}

static void check_loss(const struct stored *s, int step, double got, double want, double *worst)
{
    double bound = 2 * yardstick(s, "logits"), error = fabs(got - want);

    *worst = fmax(*worst, error / bound);
    if (!(error <= bound))
        fail_msg("%s: loss of step %d is %.6f, %.6f in transformers", s->name, step, got, want);
}

static void make_plan(struct plan *ret, const struct stored *s, const struct step_layout *layout)
{
    step_plan(ret, &s->model, layout, "natural");
    ret->seq_tokens = s->length;
    ret->dispatch_bound_rows =
        (uint64_t)ret->global_batch * s->length * (uint64_t)s->model.moe.top_k;
}

static void replayed(const struct stored *s, const struct plan *plan, struct replay *choices)
{
    struct outcome outcome;
    double loss = 0;

    if (s->model.moe.experts > 0)
        read_choices(s, plan, choices);
    run(s, plan, s->model.moe.experts > 0 ? &choices->book : NULL, 1, &outcome);
    if (step_fabric->rank == 0) {
        double logits = check_logits(s, &outcome);
        double gradients = check_gradients(s, &outcome.dump);
        check_loss(s, 1, outcome.loss[0], fact(s, "loss"), &loss);
        print_message(
            "%s, %d ranks, ep %d, cp %d, sharding %d: logits %.2f, worst gradient %.2f, loss "
            "%.3f of what is allowed\n",
            s->name, plan->gpus, plan->choices.layout.ep, plan->choices.layout.cp,
            (int)plan->choices.primitives.sharding, logits, gradients, loss);
    }
    outcome_done(&outcome);
}

static void trained(const struct stored *s, const struct plan *plan, const struct replay *choices)
{
    const json_t *losses = json_object_get(s->facts, "losses");
    struct outcome outcome;
    double worst = 0;

    assert_int_equal(json_array_size(losses), STEPS);
    run(s, plan, NULL, STEPS, &outcome);
    for (int i = 0; i < STEPS && step_fabric->rank == 0; i++)
        check_loss(s, i + 1, outcome.loss[i], json_number_value(json_array_get(losses, (size_t)i)),
                   &worst);
    print_message("%s: the worst of %d losses is off by %.3f of what is allowed\n", s->name, STEPS,
                  worst);
    if (s->model.moe.experts > 0 && step_fabric->world == 1 &&
        plan->choices.layout.micro_batches == 1)
        print_choices(s, choices, &outcome.noted);
    outcome_done(&outcome);
}

struct layout_case {
    int world;
    struct step_layout layout;
};

/* Degrees that are not said are 1. */
static const struct layout_case cases[] = {
    { 1, { .micro_batch = 2, .sharding = SHARDING_FSDP, .prefetch_units = 1 } },
    { 1, { .micro_batches = 2, .sharding = SHARDING_FSDP } },
    { 2, { .fsdp = 2, .e_fsdp = 2, .sharding = SHARDING_FSDP, .comm_streams = 2 } },
    { 2, { .fsdp = 2, .ep = 2, .sharding = SHARDING_FSDP, .prefetch_units = 1 } },
    { 2, { .fsdp = 2, .ep = 2, .sharding = SHARDING_ZERO1 } },
    { 2, { .fsdp = 2, .e_fsdp = 2, .sharding = SHARDING_REPLICATED } },
    { 2, { .cp = 2, .ep = 2, .micro_batch = 2, .sharding = SHARDING_FSDP } },
    { 2, { .cp = 2, .e_fsdp = 2, .micro_batches = 2, .sharding = SHARDING_ZERO1 } },
    { 4, { .cp = 2, .fsdp = 2, .ep = 2, .e_fsdp = 2, .sharding = SHARDING_FSDP } },
    { 4, { .fsdp = 4, .ep = 2, .e_fsdp = 2, .sharding = SHARDING_FSDP, .prefetch_units = 2 } },
    { 4, { .fsdp = 4, .ep = 4, .sharding = SHARDING_ZERO1 } },
};

static void run_cases(const char *name)
{
    struct plan *plan = calloc(1, sizeof *plan);
    struct stored stored;

    assert_non_null(plan);
    open_stored(&stored, name);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct replay choices = { 0 };
        if (cases[i].world != step_fabric->world ||
            (stored.model.moe.experts == 0 && cases[i].layout.ep > 1))
            continue;
        make_plan(plan, &stored, &cases[i].layout);
        read_tokens(&stored, (int)plan->global_batch);
        if (stored.model.gdn.value_heads > 0 && cases[i].layout.cp > 1) /* in turn */
            plan->choices.primitives.linear_context = cases[i].layout.micro_batches > 1
                                                          ? LINEAR_CONTEXT_HEAD_SPLIT
                                                          : LINEAR_CONTEXT_STATE_PASS;
        plan->choices.primitives.latent_head_block = 3; /* of 4: blocks of unequal size */
        replayed(&stored, plan, &choices);
        trained(&stored, plan, &choices);
        replay_close(&choices);
    }
    close_stored(&stored);
    free(plan);
}

static void test_moe(void **state)
{
    (void)state;
    run_cases("qwen3-moe");
}

static void test_dense(void **state)
{
    (void)state;
    run_cases("qwen3-dense");
}

static void test_hybrids(void **state)
{
    (void)state;
    run_cases("qwen3.5-moe");
    run_cases("qwen3.5-dense");
    run_cases("qwen3-next");
}

/* Sigmoids, a correction, groups and a scale; a dense layer first, biases, half of a head turns. */
static void test_glm(void **state)
{
    (void)state;
    run_cases("glm4-moe");
}

/* YaRN: frequencies that are stretched by 4, cosines and sines that are scaled. */
static void test_yarn(void **state)
{
    (void)state;
    run_cases("llama-yarn");
}

/* A layer that sees 24 tokens, and one that sees all. */
static void test_windows(void **state)
{
    (void)state;
    run_cases("qwen3-windows");
}

/* MLA: YaRN with scaled scores, groups; then values narrower than the own part of keys. */
static void test_mla(void **state)
{
    (void)state;
    if (!step_has_latents)
        skip();
    run_cases("deepseek-v3");
    run_cases("glm4-moe-lite");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe),     cmocka_unit_test(test_dense),
        cmocka_unit_test(test_hybrids), cmocka_unit_test(test_glm),
        cmocka_unit_test(test_yarn),    cmocka_unit_test(test_mla),
        cmocka_unit_test(test_windows),
    };
    return step_main(argc, argv, "transformers", tests, sizeof tests / sizeof *tests);
}
