/* The forms of the loss, each alone on one rank, against the same in double precision: loss,
 * gradient of the hidden states, gradients of the head and of the final norm; and what each took.
 */
#include "executor/primitive/loss/loss.h"
#include "tests/unit/executor/step_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 7, LARGE_VOCABULARY = 248320, HEAD_SCALE = 32 };

struct form {
    const char *name;
    enum loss loss;
    enum dtype logits, gradient;
    int strip, tile;
};

static const struct form forms[] = {
    { "full, fp32", LOSS_FULL, DTYPE_FP32, DTYPE_FP32, 0, 512 },
    { "full, fp32, tiles of 96", LOSS_FULL, DTYPE_FP32, DTYPE_FP32, 0, 96 },
    { "full, bf16", LOSS_FULL, DTYPE_BF16, DTYPE_FP32, 0, 512 },
    { "tiles", LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 0, 512 },
    { "tiles of 1024", LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 0, 1024 },
    { "one tile", LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 0, 4096 },
    { "strips", LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 1000, 512 },
    { "strips, tiles of 3", LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 1000, 3 },
    { "strip of all", LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_FP32, 1, 512 },
    { "tiles, bf16 gradients", LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_BF16, 0, 512 },
    { "strips, bf16 gradients", LOSS_LINEAR_CE, DTYPE_FP32, DTYPE_BF16, 4099, 512 },
};
enum { FORM_COUNT = sizeof forms / sizeof *forms };

/* One rank, one layer that nobody runs, an untied head. */
struct bench {
    struct plan plan;
    struct work work;
    struct meshes mesh;
    struct state state;
    struct buffer workspace;
    struct diag_list errors;
    int64_t tokens, hidden, vocab;
    bf16 *input;      /* [tokens, hidden] */
    int32_t *targets; /* [tokens] */
    bf16 *d_input;    /* out */
    double loss;      /* out: sum */
    double *want_d_input, *want_head, *want_norm, want_loss;
};

static float widen(bf16 value)
{
    uint32_t bits = (uint32_t)value << 16;
    float ret;
    memcpy(&ret, &bits, sizeof ret);
    return ret;
}

static bf16 narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static void *allocate(int64_t count, size_t size)
{
    void *ret = calloc((size_t)count, size);
    assert_non_null(ret);
    return ret;
}

static void use_unit(struct bench *b, int unit)
{
    state_unit_begin(&b->state, unit);
    state_unit_end(&b->state);
}

/* The head's turn in a micro-batch, as the dry pass and the step walk it. */
static void walk(struct bench *b)
{
    struct work *w = &b->work;
    struct micro_batch batch = { .tokens = b->tokens, .loss_scale = 1 / (double)b->tokens };
    struct buffer gradient;
    int head = state_head_unit(&b->state);

    arena_mark_step(w->arena);
    state_zero_gradients(&b->state);
    state_micro_batch(&b->state);
    for (int unit = 0; unit < head; unit++)
        use_unit(b, unit);
    batch.targets = work_take_tensor(w, OWNER_TOKENS, b->tokens, 1, sizeof(int32_t));
    struct buffer hidden = work_take_tensor(w, OWNER_LOSS, b->tokens, b->hidden, sizeof(bf16));
    WORK_OP(w, upload, batch.targets.data, b->targets, batch.targets.bytes);
    WORK_OP(w, upload, hidden.data, b->input, hidden.bytes);
    state_unit_begin(&b->state, head);
    state_gradient_begin(&b->state, head);
    loss_run(&b->state, &batch, &hidden, &gradient);
    WORK_OP(w, download, b->d_input, gradient.data, gradient.bytes);
    work_give(w, &gradient);
    work_give(w, &batch.targets);
    state_unit_end(&b->state);
    state_gradient_end(&b->state, head);
    state_gradient_flush(&b->state);
    b->loss = batch.loss_sum;
}

static void fill_inputs(struct bench *b)
{
    uint64_t key = state_random_key(3, "hidden");
    b->input = allocate(b->tokens * b->hidden, sizeof *b->input);
    b->d_input = allocate(b->tokens * b->hidden, sizeof *b->d_input);
    b->targets = allocate(b->tokens, sizeof *b->targets);
    for (int64_t i = 0; i < b->tokens * b->hidden; i++)
        b->input[i] = narrow(100 * state_random_normal(key, (uint64_t)i));
    for (int64_t t = 0; t < b->tokens; t++)
        b->targets[t] = (int32_t)((t * 2654435761) % b->vocab);
    b->targets[1] = (int32_t)b->vocab - 1;
    b->targets[0] = 0;
}

/* First weights are small: logits that differ by several units need larger ones. */
static void enlarge_head(struct bench *b)
{
    struct state_unit *unit = &b->state.units[state_head_unit(&b->state)];
    for (int i = 0; i < unit->tensor_count; i++) {
        const struct state_tensor *tensor = &unit->tensors[i];
        bf16 *weight =
            element_at(unit->parts[MESH_DENSE].weights.data, tensor->offset, sizeof *weight);
        for (uint64_t at = 0; tensor->role == ROLE_HEAD && at < tensor->elements; at++)
            weight[at] = narrow(HEAD_SCALE * widen(weight[at]));
    }
}

static void run(struct bench *b, const struct form *form)
{
    struct work *w = &b->work;
    struct primitives *p = &b->plan.choices.primitives;

    p->loss = form->loss;
    p->logits_dtype = form->logits;
    p->grad_dtype = form->gradient;
    p->vocab_strip = form->strip == 1 ? (int)b->vocab : form->strip;
    p->loss_tile_tokens = form->tile;
    *w = (struct work){ .plan = &b->plan,
                        .backend = backend_host_open(&b->errors),
                        .mesh = &b->mesh,
                        .errors = &b->errors,
                        .seed = SEED,
                        .dry = true };
    assert_non_null(w->backend);
    assert_int_equal(mesh_open(&b->mesh, step_fabric, &b->plan.choices.layout, false, &b->errors),
                     0);
    const struct arena_source source = w->backend->ops->arena_source(w->backend);
    w->arena = arena_open(&source);
    assert_non_null(w->arena);
    assert_int_equal(state_open(&b->state, w), 0);
    b->workspace = work_take(w, OWNER_WORKSPACE, w->backend->ops->workspace_bytes(w->backend));
    walk(b);
    assert_int_equal(arena_pack(w->arena, &b->errors), 0);
    w->dry = false;
    arena_resident(w->arena, &b->workspace);
    w->backend->ops->set_workspace(w->backend, b->workspace.data);
    state_resident(&b->state);
    state_initialise(&b->state);
    enlarge_head(b);
    arena_record_reset(w->arena);
    walk(b);
    assert_false(w->failed);
}

static void finish(struct bench *b)
{
    state_close(&b->state);
    arena_close(b->work.arena);
    mesh_close(&b->mesh);
    b->work.backend->ops->close(b->work.backend);
}

static double element(const struct bench *b, enum role role, int64_t index)
{
    const struct state_unit *unit = &b->state.units[state_head_unit(&b->state)];
    enum dtype dtype = b->plan.choices.primitives.grad_dtype;
    for (int i = 0; i < unit->tensor_count; i++) {
        if (unit->tensors[i].role != role)
            continue;
        const void *at = element_at(unit->parts[MESH_DENSE].gradients.data,
                                    unit->tensors[i].offset + (uint64_t)index, dtype_bytes(dtype));
        return dtype == DTYPE_FP32 ? (double)*(const float *)at : (double)widen(*(const bf16 *)at);
    }
    fail_msg("no such tensor");
    return 0;
}

/* One token: logits, loss, and the three gradients it adds to. normed as the step rounds it. */
static void reference_token(struct bench *b, int64_t t, const double *head, double *probs)
{
    int64_t n = b->hidden, target = b->targets[t];
    double normed[64], d_normed[64] = { 0 }, squares = 0, sum = 0, dot = 0;
    for (int64_t i = 0; i < n; i++)
        squares += pow((double)widen(b->input[t * n + i]), 2);
    double inverse = 1 / sqrt(squares / (double)n + b->plan.model.norm_eps);
    for (int64_t i = 0; i < n; i++)
        normed[i] = (double)widen(narrow((float)((double)widen(b->input[t * n + i]) * inverse)));
    for (int64_t v = 0; v < b->vocab; v++) {
        double logit = 0;
        for (int64_t i = 0; i < n; i++)
            logit += normed[i] * head[v * n + i];
        sum += probs[v] = exp(logit);
    }
    b->want_loss -= log(probs[target] / sum);
    for (int64_t v = 0; v < b->vocab; v++) {
        double d = (probs[v] / sum - (v == target)) / (double)b->tokens;
        for (int64_t i = 0; i < n; i++) {
            d_normed[i] += d * head[v * n + i];
            b->want_head[v * n + i] += d * normed[i];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        double unit = (double)widen(b->input[t * n + i]) * inverse;
        b->want_norm[i] += d_normed[i] * unit;
        dot += d_normed[i] * unit / (double)n;
    }
    for (int64_t i = 0; i < n; i++)
        b->want_d_input[t * n + i] =
            inverse * (d_normed[i] - (double)widen(b->input[t * n + i]) * inverse * dot);
}

static void compute_reference(struct bench *b)
{
    int64_t n = b->hidden;
    double *head = allocate(b->vocab * n, sizeof *head), *probs = allocate(b->vocab, sizeof *probs);
    uint64_t key = state_random_key(SEED, "lm_head.weight");

    assert_true(n <= 64);
    b->want_head = allocate(b->vocab * n, sizeof *b->want_head);
    b->want_norm = allocate(n, sizeof *b->want_norm);
    b->want_d_input = allocate(b->tokens * n, sizeof *b->want_d_input);
    for (int64_t i = 0; i < b->vocab * n; i++)
        head[i] = HEAD_SCALE * (double)widen(narrow(state_random_normal(key, (uint64_t)i)));
    for (int64_t t = 0; t < b->tokens; t++)
        reference_token(b, t, head, probs);
    free(head);
    free(probs);
}

struct error {
    double square, size;
};

static void add_error(struct error *e, double got, double want)
{
    e->square += (got - want) * (got - want);
    e->size += want * want;
}

static double relative(const struct error *e)
{
    return sqrt(e->square / e->size);
}

/* Within 4 units of the last bf16 place of the tensor's RMS. */
static void compare(const struct bench *b, const struct form *form)
{
    const double rule = 4 * 0x1p-8;
    struct error hidden = { 0 }, head = { 0 }, norm = { 0 };

    for (int64_t i = 0; i < b->tokens * b->hidden; i++)
        add_error(&hidden, (double)widen(b->d_input[i]), b->want_d_input[i]);
    for (int64_t i = 0; i < b->vocab * b->hidden; i++)
        add_error(&head, element(b, ROLE_HEAD, i), b->want_head[i]);
    for (int64_t i = 0; i < b->hidden; i++)
        add_error(&norm, element(b, ROLE_FINAL_NORM, i), b->want_norm[i]);
    print_message("vocabulary %lld, %s: loss %.8f (%.1g off), hidden %.2g, head %.2g, norm %.2g\n",
                  (long long)b->vocab, form->name, b->loss / (double)b->tokens,
                  b->loss / b->want_loss - 1, relative(&hidden), relative(&head), relative(&norm));
    assert_true(fabs(b->loss / b->want_loss - 1) < (form->logits == DTYPE_BF16 ? 2e-4 : 1e-6));
    assert_true(relative(&hidden) < rule);
    assert_true(relative(&head) < rule);
    assert_true(relative(&norm) < rule);
}

static uint64_t rounded(int64_t rows, int64_t width, uint64_t bytes)
{
    return ((uint64_t)(rows * width) * bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT *
           ARENA_ALIGNMENT;
}

/* ARCHITECTURE.md, "Loss". */
static void check_memory(const struct bench *b, const struct form *form)
{
    int64_t tile = b->tokens < form->tile ? b->tokens : form->tile;
    int64_t width = b->plan.choices.primitives.vocab_strip;
    uint64_t want = 3 * rounded(b->tokens, b->hidden, 2), logits = 0;
    struct arena_record record;

    if (form->loss == LOSS_FULL) {
        logits = rounded(b->tokens, b->vocab, dtype_bytes(form->logits));
        want += form->logits == DTYPE_FP32 ? rounded(tile, b->vocab, 2) : 0;
    } else if (width > 0) {
        want += rounded(tile, width, 4) + rounded(tile, width, 2) + rounded(tile, b->hidden, 4) +
                rounded(b->tokens, 1, 4);
    } else {
        want += rounded(tile, b->vocab, 4) + rounded(tile, b->vocab, 2);
    }
    arena_record(b->work.arena, &record);
    assert_int_equal(record.item_max[ITEM_LOGITS], logits);
    assert_int_equal(record.item_max[ITEM_LOSS_WORKING], want);
}

static void run_forms(int64_t tokens, int64_t hidden, int64_t vocab)
{
    struct bench *b = allocate(1, sizeof *b);
    struct step_layout layout = { .micro_batch = 1, .sharding = SHARDING_FSDP };
    struct model model;

    step_dense_model(&model);
    model.layers = 1;
    model.tied = false;
    model.hidden = (int)hidden;
    model.vocab = (int)vocab;
    step_plan(&b->plan, &model, &layout, "balanced");
    b->tokens = tokens;
    b->hidden = hidden;
    b->vocab = vocab;
    fill_inputs(b);
    compute_reference(b);
    for (int i = 0; i < FORM_COUNT; i++) {
        if (forms[i].strip > vocab)
            continue;
        run(b, &forms[i]);
        compare(b, &forms[i]);
        check_memory(b, &forms[i]);
        finish(b);
    }
    free(b->input);
    free(b->d_input);
    free(b->targets);
    free(b->want_d_input);
    free(b->want_head);
    free(b->want_norm);
    free(b);
}

/* Two whole tiles and a part of one; the last strip is a part of one too. */
static void test_tiles(void **state)
{
    (void)state;
    run_forms(1100, 32, 1501);
}

static void test_large_vocabulary(void **state)
{
    (void)state;
    run_forms(6, 16, LARGE_VOCABULARY);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_large_vocabulary),
    };
    return step_main(argc, argv, "loss_forms", tests, sizeof tests / sizeof *tests);
}
