#include "executor/runtime/weights.h"
#include "base/pool.h"
#include "base/safetensors/writer.h"
#include "executor/runtime/whole.h"

#include <stdlib.h>
#include <string.h>

static const struct pos nowhere = { NULL, 0, 0 };

/* True for a tensor that holds all experts of a layer. */
static bool is_stacked(const struct tensor *tensor)
{
    return tensor->mesh == MESH_EXPERT && !strstr(tensor->name, "{e}");
}

struct check {
    const struct safetensors *checkpoint;
    const char *path;
    bool *known; /* of the checkpoint's tensors */
    struct diag_list *reterr;
};

static void mark(struct check *check, const char *name)
{
    const struct stored_tensor *found = safetensors_find(check->checkpoint, name);
    if (found)
        check->known[found - safetensors_at(check->checkpoint, 0)] = true;
}

static void expect(struct check *check, const char *name, int axes, const uint64_t *shape)
{
    const struct tensor_expectation expectation = { name, TENSOR_TYPE_ANY, axes, shape };
    const struct stored_tensor *found;

    mark(check, name);
    if (safetensors_expect(check->checkpoint, &expectation, &found, check->reterr) != 0)
        return;
    if (found->type != TENSOR_TYPE_BF16 && found->type != TENSOR_TYPE_F32)
        diag_error(check->reterr, (struct pos){ .file = check->path },
                   "tensor '%s' is %s; weights are read from BF16 and F32", name,
                   tensor_type_name(found->type));
}

static void expect_stacked(struct check *check, const struct tensor *tensor)
{
    uint64_t shape[TENSOR_MAX_AXES + 1] = { tensor->copies };
    for (int i = 0; i < tensor->axes; i++)
        shape[i + 1] = tensor->shape[i];
    expect(check, tensor->name, tensor->axes + 1, shape);
}

/* Other checkpoints of the same model have a tensor an expert and matrix: what the stacked name
 * holds is then gate_proj and up_proj, or down_proj alone. How many there are, and the name of one;
 * 0 for a tensor that is not stacked. */
static int separate_names(const struct tensor *tensor)
{
    size_t length = strlen(tensor->name);
    bool pair = length > 12 && !strcmp(tensor->name + length - 12, "gate_up_proj");
    return !is_stacked(tensor) ? 0 : pair ? 2 : 1;
}

static void separate_name(const struct tensor *tensor, int expert, int matrix, char *ret,
                          size_t size)
{
    static const char *const matrices[] = { "gate", "up", "down" };
    int last = separate_names(tensor) == 2 ? matrix : 2;
    const char *end = strrchr(tensor->name, '.');
    (void)snprintf(ret, size, "%.*s.%d.%s_proj.weight", (int)(end - tensor->name), tensor->name,
                   expert, matrices[last]);
}

/* Whether a checkpoint has this stacked tensor expert by expert. */
static bool is_separated(const struct safetensors *checkpoint, const struct tensor *tensor)
{
    char name[128];

    if (!is_stacked(tensor) || safetensors_find(checkpoint, tensor->name))
        return false;
    separate_name(tensor, 0, 0, name, sizeof name);
    return safetensors_find(checkpoint, name) != NULL;
}

static void expect_separated(struct check *check, const struct tensor *tensor)
{
    int matrices = separate_names(tensor);
    uint64_t shape[TENSOR_MAX_AXES];
    char name[128];

    memcpy(shape, tensor->shape, sizeof shape);
    shape[0] /= (uint64_t)matrices;
    for (int i = 0; i < (int)tensor->copies * matrices; i++) {
        separate_name(tensor, i / matrices, i % matrices, name, sizeof name);
        expect(check, name, tensor->axes, shape);
    }
}

static int visit_tensor(const struct tensor *tensor, void *context)
{
    struct check *check = context;
    struct state_tensor copy = { .mesh = tensor->mesh, .facts = *tensor };
    bool run = tensor->unit != UNIT_MTP && tensor->unit != UNIT_VISION;
    char name[128];

    if (run && is_separated(check->checkpoint, tensor)) {
        expect_separated(check, tensor);
        return 0;
    }
    if (run && is_stacked(tensor)) {
        expect_stacked(check, tensor);
        return 0;
    }
    for (int i = 0; i < (int)tensor->copies; i++) {
        state_tensor_name(&copy, i, name, sizeof name);
        if (run)
            expect(check, name, tensor->axes, tensor->shape);
        else
            mark(check, name);
    }
    return 0;
}

static void check_superfluous(const struct check *check)
{
    const struct safetensors *checkpoint = check->checkpoint;
    for (size_t i = 0; i < safetensors_count(checkpoint); i++)
        if (!check->known[i])
            diag_error(check->reterr, (struct pos){ .file = check->path },
                       "tensor '%.200s' is not of this model", safetensors_at(checkpoint, i)->name);
}

int weights_open(const char *path, const struct model *model, struct safetensors **ret,
                 struct diag_list *reterr)
{
    int errors_before = reterr->errors;

    if (safetensors_open(path, ret, reterr) != 0)
        return -1;
    struct check check = { *ret, path, calloc(safetensors_count(*ret) + 1, sizeof(bool)), reterr };
    if (check.known) {
        (void)model_tensors(model, visit_tensor, &check);
        if (model->tied)
            mark(&check, "lm_head.weight");
        check_superfluous(&check);
    } else {
        diag_error(reterr, nowhere, "no memory left for the list of tensors");
    }
    free(check.known);
    if (reterr->errors == errors_before)
        return 0;
    safetensors_close(*ret);
    *ret = NULL;
    return -1;
}

static int read_named(const struct safetensors *checkpoint, const char *name, uint64_t first,
                      uint64_t count, float *ret, struct diag_list *reterr)
{
    const struct tensor_range stored = { .tensor = safetensors_find(checkpoint, name),
                                         .first = first,
                                         .count = count };
    if (!stored.tensor)
        return diag_error(reterr, nowhere, "the checkpoint has no tensor '%s'", name);
    return safetensors_read(checkpoint, stored, TENSOR_TYPE_F32, ret, reterr);
}

static int read_separated(const struct safetensors *checkpoint, const struct state_range *range,
                          float *ret, struct diag_list *reterr)
{
    const struct state_tensor *tensor = range->tensor;
    uint64_t each = tensor->elements / (uint64_t)separate_names(&tensor->facts), done = 0;
    char name[128];

    while (done < range->count) {
        uint64_t at = range->from + done, left = range->count - done, rest = each - at % each;
        uint64_t count = left < rest ? left : rest;
        separate_name(&tensor->facts, tensor->first_copy + range->copy, (int)(at / each), name,
                      sizeof name);
        if (read_named(checkpoint, name, at % each, count, ret + done, reterr) != 0)
            return -1;
        done += count;
    }
    return 0;
}

static int read_range(void *context, const struct state_range *range, float *ret,
                      struct diag_list *reterr)
{
    const struct safetensors *const *checkpoint = context;
    const struct state_tensor *tensor = range->tensor;
    char name[128];

    if (is_separated(*checkpoint, &tensor->facts))
        return read_separated(*checkpoint, range, ret, reterr);
    state_tensor_name(tensor, range->copy, name, sizeof name);
    return read_named(*checkpoint, name, state_tensor_before(tensor, range->copy) + range->from,
                      range->count, ret, reterr);
}

int weights_load(struct trainer *t, const struct safetensors *checkpoint)
{
    const struct state_source source = { .read = read_range, .context = &checkpoint };
    state_initialise_from(&t->state, &source);
    return t->work.failed ? -1 : 0;
}

/* What rank 0 needs to write the file. */
struct save {
    struct work *work;
    struct pool pool;
    size_t count;
    struct tensor_description *tensors; /* NULL: they are counted only */
    struct safetensors_writer *writer;
};

static int describe_copy(void *context, const struct whole_copy *copy)
{
    struct save *save = context;
    const struct tensor *facts = &copy->tensor->facts;
    bool stacked = is_stacked(facts);

    if (stacked && copy->index > 0)
        return 0;
    if (save->tensors) {
        uint64_t *shape = pool_alloc(&save->pool, (TENSOR_MAX_AXES + 1) * sizeof *shape);
        char *name = pool_copy_text(&save->pool, copy->name, strlen(copy->name));
        if (!shape || !name)
            return -1;
        shape[0] = facts->copies;
        memcpy(shape + stacked, facts->shape, (size_t)facts->axes * sizeof *shape);
        save->tensors[save->count] =
            (struct tensor_description){ name, TENSOR_TYPE_BF16, facts->axes + stacked, shape };
    }
    save->count++;
    return 0;
}

static int append_copy(void *context, const struct whole_copy *copy)
{
    struct save *save = context;
    return safetensors_append(save->writer, copy->values, copy->tensor->elements * sizeof(bf16),
                              save->work->errors);
}

static int describe(struct save *save, const struct state *state)
{
    int ret = 0;
    save->count = 0;
    for (int i = 0; i < state->unit_count && ret == 0; i++)
        for (int mesh = 0; mesh < 2 && ret == 0; mesh++)
            ret = whole_each(save->work, &state->units[i], (enum mesh)mesh, NULL, sizeof(bf16),
                             describe_copy, save);
    return ret;
}

static int begin_file(struct save *save, const struct state *state, const char *path)
{
    static const struct tensor_metadata metadata = { "format", "pt" };
    int ret = describe(save, state);

    if (ret == 0)
        save->tensors = pool_alloc(&save->pool, (save->count + 1) * sizeof *save->tensors);
    if (!save->tensors || describe(save, state) != 0)
        return diag_error(save->work->errors, nowhere, "no memory left for the list of tensors");
    const struct safetensors_contents contents = { save->count, 1, save->tensors, &metadata };
    return safetensors_create(path, &contents, &save->writer, save->work->errors);
}

static void save_part(struct save *save, const struct state *state, const struct state_unit *unit,
                      enum mesh mesh)
{
    struct work *w = save->work;
    const struct state_part *part = &unit->parts[mesh];
    void *whole = whole_gather(w, part, mesh, state_weight_slice(state, part), sizeof(bf16));

    if (whole)
        work_note(w, whole_each(w, unit, mesh, whole, sizeof(bf16), append_copy, save));
    free(whole);
}

int weights_save(struct trainer *t, const char *path)
{
    struct work *w = &t->work;
    struct save save = { .work = w };
    const struct state *state = &t->state;

    arena_phase(w->arena, "save");
    if (w->mesh->fabric->rank == 0)
        work_note(w, begin_file(&save, state, path));
    for (int i = 0; i < state->unit_count && !w->failed; i++)
        for (int mesh = 0; mesh < 2; mesh++)
            if (state->units[i].parts[mesh].elements > 0)
                save_part(&save, state, &state->units[i], (enum mesh)mesh);
    if (save.writer && !w->failed)
        work_note(w, safetensors_commit(save.writer, w->errors));
    else
        safetensors_discard(save.writer);
    pool_done(&save.pool);
    return w->failed ? -1 : 0;
}
