/* Weights from and to safetensors: what was loaded is saved again bit for bit under every layout of
 * the world; a checkpoint of another model is refused with every fault; choices from a file. */
#include "base/safetensors/writer.h"
#include "executor/runtime/replay.h"
#include "executor/runtime/weights.h"
#include "tests/support/golden.h"
#include "tests/unit/executor/step_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *reference_path(const char *model, const char *file)
{
    static char path[1024];
    (void)snprintf(path, sizeof path, "%s/tests/data/reference/%s/%s",
                   getenv("RANKFIT_SOURCE_ROOT"), model, file);
    return path;
}

static const char *temporary_path(void)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/rankfit-weights-%d.safetensors", (int)getpid());
    return path;
}

static void fail_with(const struct diag_list *errors)
{
    diag_list_print(stderr, errors);
    fail_msg("see above");
}

static struct safetensors *open_file(const char *path)
{
    struct diag_list errors = { 0 };
    struct safetensors *ret;
    if (safetensors_open(path, &ret, &errors) != 0)
        fail_with(&errors);
    return ret;
}

static void *bytes_of(const struct safetensors *file, const struct stored_tensor *tensor)
{
    struct diag_list errors = { 0 };
    void *ret = malloc(tensor->bytes + 1);
    if (!ret || safetensors_read_all(file, tensor, tensor->type, ret, &errors) != 0)
        fail_with(&errors);
    return ret;
}

static void assert_same_files(const char *got_path, const char *want_path)
{
    struct safetensors *got = open_file(got_path), *want = open_file(want_path);

    assert_int_equal(safetensors_count(got), safetensors_count(want));
    for (size_t i = 0; i < safetensors_count(want); i++) {
        const struct stored_tensor *a = safetensors_at(got, i), *b = safetensors_at(want, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->type, b->type);
        assert_int_equal(a->axes, b->axes);
        assert_memory_equal(a->shape, b->shape, (size_t)b->axes * sizeof *b->shape);
        void *left = bytes_of(got, a), *right = bytes_of(want, b);
        assert_memory_equal(left, right, b->bytes);
        free(left);
        free(right);
    }
    safetensors_close(got);
    safetensors_close(want);
}

/* Degrees that are not said are 1. */
static const struct {
    int world;
    struct step_layout layout;
} cases[] = {
    { 1, { .sharding = SHARDING_FSDP } },
    { 2, { .fsdp = 2, .e_fsdp = 2, .sharding = SHARDING_FSDP } },
    { 2, { .fsdp = 2, .ep = 2, .sharding = SHARDING_ZERO1 } },
    { 2, { .fsdp = 2, .ep = 2, .sharding = SHARDING_REPLICATED } },
    { 4, { .fsdp = 4, .ep = 2, .e_fsdp = 2, .sharding = SHARDING_FSDP } },
    { 4, { .fsdp = 4, .ep = 2, .e_fsdp = 2, .sharding = SHARDING_ZERO1 } },
    { 4, { .fsdp = 2, .d_rep = 2, .ep = 2, .e_rep = 2, .sharding = SHARDING_FSDP } },
};

/* path: of the checkpoint to load. */
static void load_and_save(const struct plan *plan, const char *name, const char *path)
{
    struct diag_list errors = { 0 };
    const struct data data = { .seed = 1, .vocab = plan->model.vocab };
    struct backend *backend = backend_host_open(&errors);
    struct trainer trainer;
    struct safetensors *weights = NULL;

    assert_non_null(backend);
    if (trainer_open(&trainer, plan, step_fabric, backend, &data, 3, &errors) != 0 ||
        weights_open(path, &plan->model, &weights, &errors) != 0 ||
        weights_load(&trainer, weights) != 0 || weights_save(&trainer, temporary_path()) != 0)
        fail_with(&errors);
    safetensors_close(weights);
    trainer_close(&trainer);
    backend->ops->close(backend);
    if (step_fabric->rank != 0)
        return;
    assert_same_files(temporary_path(), reference_path(name, "model.safetensors"));
    assert_int_equal(unlink(temporary_path()), 0);
}

static void test_saved_as_loaded(void **state)
{
    static const char *const names[] = { "qwen3-moe", "qwen3-dense", "qwen3.5-moe", "qwen3-next" };
    struct plan *plan = calloc(1, sizeof *plan);
    struct model *model = calloc(1, sizeof *model);
    struct diag_list errors = { 0 };

    (void)state;
    assert_true(plan && model);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        assert_int_equal(model_load(reference_path(names[n], ""), model, &errors), 0);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            if (cases[i].world != step_fabric->world ||
                (model->moe.experts == 0 && cases[i].layout.ep > 1))
                continue;
            step_plan(plan, model, &cases[i].layout, "natural");
            char path[1024];
            (void)snprintf(path, sizeof path, "%s", reference_path(names[n], ""));
            load_and_save(plan, names[n], path);
        }
    }
    free(model);
    free(plan);
}

/* A stacked tensor as one tensor for each expert and matrix. */
struct separated {
    struct tensor_description tensors[512];
    char names[512][96];
    const char *values[512];
    uint64_t shapes[512][2], bytes[512];
    size_t count;
};

static void separate(struct separated *to, const struct stored_tensor *t, const char *values)
{
    static const char *const matrices[] = { "gate", "up", "down" };
    const char *end = strstr(t->name, "gate_up_proj") ? strstr(t->name, "gate_up_proj")
                                                      : strstr(t->name, "down_proj");
    int each = strstr(t->name, "gate_up_proj") ? 2 : 1;
    for (int i = 0; i < (int)t->shape[0] * each; i++) {
        size_t n = to->count++;
        assert_true(n < 512);
        to->shapes[n][0] = t->shape[1] / (uint64_t)each;
        to->shapes[n][1] = t->shape[2];
        to->bytes[n] = to->shapes[n][0] * to->shapes[n][1] * sizeof(bf16);
        to->values[n] = values + (uint64_t)i * to->bytes[n];
        (void)snprintf(to->names[n], sizeof to->names[n], "%.*s%d.%s_proj.weight",
                       (int)(end - t->name), t->name, i / each, matrices[each == 2 ? i % 2 : 2]);
        to->tensors[n] =
            (struct tensor_description){ to->names[n], TENSOR_TYPE_BF16, 2, to->shapes[n] };
    }
}

/* The checkpoint of qwen3.5-moe with every expert's matrices apart. */
static void write_separated(const char *path)
{
    struct diag_list errors = { 0 };
    struct safetensors *file = open_file(reference_path("qwen3.5-moe", ""));
    struct separated *all = calloc(1, sizeof *all);
    struct safetensors_writer *writer;
    void *kept[128];
    size_t keeps = safetensors_count(file);

    assert_true(all && keeps <= 128);
    for (size_t i = 0; i < keeps; i++) {
        const struct stored_tensor *t = safetensors_at(file, i);
        kept[i] = bytes_of(file, t);
        if (strstr(t->name, "mlp.experts.")) {
            separate(all, t, kept[i]);
            continue;
        }
        all->tensors[all->count] =
            (struct tensor_description){ t->name, t->type, t->axes, t->shape };
        all->bytes[all->count] = t->bytes;
        all->values[all->count++] = kept[i];
    }
    const struct safetensors_contents contents = { .count = all->count, .tensors = all->tensors };
    if (safetensors_create(path, &contents, &writer, &errors) != 0)
        fail_with(&errors);
    for (size_t i = 0; i < all->count; i++)
        assert_int_equal(safetensors_append(writer, all->values[i], all->bytes[i], &errors), 0);
    assert_int_equal(safetensors_commit(writer, &errors), 0);
    for (size_t i = 0; i < keeps; i++)
        free(kept[i]);
    free(all);
    safetensors_close(file);
}

/* Both namings of experts are the same weights; what is saved is stacked. */
static void test_separated_experts(void **state)
{
    struct plan *plan = calloc(1, sizeof *plan);
    struct model *model = calloc(1, sizeof *model);
    struct diag_list errors = { 0 };
    char path[64];

    (void)state;
    assert_true(plan && model);
    (void)snprintf(path, sizeof path, "/tmp/rankfit-separated-%d.safetensors", (int)getpid());
    write_separated(path);
    assert_int_equal(model_load(reference_path("qwen3.5-moe", ""), model, &errors), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].world != step_fabric->world)
            continue;
        step_plan(plan, model, &cases[i].layout, "natural");
        load_and_save(plan, "qwen3.5-moe", path);
    }
    assert_int_equal(unlink(path), 0);
    free(model);
    free(plan);
}

/* The tensors of qwen3-dense, the first left out, one more, one of another shape, one of another
 * type. */
static void write_faulty(const char *path)
{
    static const uint64_t one = 1, other_shape[2] = { 7, 48 };
    struct diag_list errors = { 0 };
    struct safetensors *file = open_file(reference_path("qwen3-dense", ""));
    struct tensor_description tensors[64];
    struct safetensors_writer *writer;
    size_t count = 0;

    for (size_t i = 1; i < safetensors_count(file); i++) {
        const struct stored_tensor *t = safetensors_at(file, i);
        tensors[count++] =
            (struct tensor_description){ t->name, TENSOR_TYPE_BF16, t->axes, t->shape };
    }
    tensors[0].axes = 2;
    tensors[0].shape = other_shape;
    tensors[1].type = TENSOR_TYPE_F16;
    tensors[count++] = (struct tensor_description){ "stranger", TENSOR_TYPE_F32, 1, &one };
    const struct safetensors_contents contents = { .count = count, .tensors = tensors };
    if (safetensors_create(path, &contents, &writer, &errors) != 0)
        fail_with(&errors);
    for (size_t i = 0; i < count; i++) {
        static const char zeros[1 << 16];
        size_t bytes = tensor_type_bits(tensors[i].type) / 8;
        for (int axis = 0; axis < tensors[i].axes; axis++)
            bytes *= (size_t)tensors[i].shape[axis];
        assert_true(bytes <= sizeof zeros);
        assert_int_equal(safetensors_append(writer, zeros, bytes, &errors), 0);
    }
    assert_int_equal(safetensors_commit(writer, &errors), 0);
    safetensors_close(file);
}

static void test_every_fault_is_told(void **state)
{
    struct diag_list errors = { 0 };
    struct model *model = calloc(1, sizeof *model);
    struct safetensors *weights;

    (void)state;
    if (step_fabric->rank != 0 || !model) {
        free(model);
        return;
    }
    write_faulty(temporary_path());
    assert_int_equal(model_load(reference_path("qwen3-dense", ""), model, &errors), 0);
    assert_int_equal(weights_open(temporary_path(), model, &weights, &errors), -1);
    assert_null(weights);
    assert_int_equal(errors.errors, 4);
    assert_golden_diags("four faulty tensors", &errors);
    assert_int_equal(unlink(temporary_path()), 0);
    free(model);
}

/* Of a file with choices for 2 sequences of 64 tokens: taken whole, or refused. */
static void test_choices(void **state)
{
    static const struct step_layout layout = { .micro_batch = 2, .sharding = SHARDING_FSDP };
    struct diag_list errors = { 0 };
    struct plan *plan = calloc(1, sizeof *plan);
    struct model *model = calloc(1, sizeof *model);
    struct replay replay;

    (void)state;
    assert_true(plan && model);
    assert_int_equal(model_load(reference_path("qwen3-moe", ""), model, &errors), 0);
    step_plan(plan, model, &layout, "natural");
    plan->seq_tokens = 64;
    const char *path = reference_path("qwen3-moe", "expected.safetensors");
    assert_int_equal(replay_open(path, plan, &replay, &errors), 0);
    assert_int_equal(replay.book.tokens, 128);
    assert_non_null(replay.book.layers[1]);
    replay_close(&replay);

    plan->seq_tokens = 32;
    assert_int_equal(replay_open(path, plan, &replay, &errors), -1);
    replay_close(&replay);
    plan->seq_tokens = 64;
    plan->model.moe.experts = 4;
    assert_int_equal(replay_open(path, plan, &replay, &errors), -1);
    if (step_fabric->rank == 0)
        assert_golden_diags("choices of another sequence and of another model", &errors);
    replay_close(&replay);
    free(model);
    free(plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_as_loaded),
        cmocka_unit_test(test_separated_experts),
        cmocka_unit_test(test_every_fault_is_told),
        cmocka_unit_test(test_choices),
    };
    return step_main(argc, argv, "weights", tests, sizeof tests / sizeof *tests);
}
