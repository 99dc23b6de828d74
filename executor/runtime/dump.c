#include "executor/runtime/dump.h"
#include "base/file.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char dump_hidden_name[] = "final_hidden";

static int no_memory(struct work *w)
{
    w->failed = true;
    return diag_error(w->errors, (struct pos){ 0 }, "no memory left for the dump");
}

static float *add_tensor(struct dump *dump, const char *name, int axes, const uint64_t *shape)
{
    if (dump->count == dump->room) {
        size_t room = dump->room ? 2 * dump->room : 64;
        struct dump_tensor *grown = realloc(dump->tensors, room * sizeof *grown);
        if (!grown)
            return NULL;
        dump->tensors = grown;
        dump->room = room;
    }
    struct dump_tensor *tensor = &dump->tensors[dump->count];
    memset(tensor, 0, sizeof *tensor);
    (void)text_copy(tensor->name, sizeof tensor->name, name);
    tensor->axes = axes;
    tensor->elements = 1;
    for (int i = 0; i < axes; i++)
        tensor->elements *= tensor->shape[i] = shape[i];
    tensor->values = calloc(tensor->elements + 1, sizeof *tensor->values);
    dump->count += tensor->values != NULL;
    return tensor->values;
}

static float bf16_value(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float ret;
    memcpy(&ret, &bits, sizeof ret);
    return ret;
}

static void widen(const void *from, enum dtype dtype, uint64_t count, float *to)
{
    if (dtype == DTYPE_FP32) {
        memcpy(to, from, count * sizeof *to);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        to[i] = bf16_value(((const uint16_t *)from)[i]);
}

/* What each rank holds, at rank 0: texts[rank], to be freed by free_texts. */
static char **gather(struct work *w, const void *host, uint64_t bytes)
{
    struct fabric *f = w->mesh->fabric;
    char **texts = calloc((size_t)f->world, sizeof *texts);
    uint64_t *sizes = calloc((size_t)f->world, sizeof *sizes);

    if (!texts || !sizes)
        no_memory(w);
    else
        work_note(w, f->ops->gather_text(f->all, host, bytes, texts, sizes, w->errors));
    free(sizes);
    return texts;
}

static void free_texts(struct work *w, char **texts)
{
    for (int i = 0; texts && i < w->mesh->fabric->world; i++)
        free(texts[i]);
    free(texts);
}

/* Index of `rank` among the ranks that share its state. */
static int shard_index(const struct layout *l, enum mesh mesh, int rank)
{
    if (mesh == MESH_EXPERT)
        return layout_coordinate(l, AXIS_E_FSDP, rank);
    return layout_coordinate(l, AXIS_CP, rank) + l->cp * layout_coordinate(l, AXIS_FSDP, rank);
}

/* The parts of all ep ranks, whole, one after another. */
static float *assemble(struct work *w, const struct state_part *part, enum mesh mesh,
                       char *const *texts)
{
    const struct layout *l = w->mesh->layout;
    enum dtype dtype = w->plan->choices.primitives.grad_dtype;
    uint64_t spread = mesh == MESH_EXPERT ? (uint64_t)l->ep : 1;
    float *whole = calloc(spread * part->padded, sizeof *whole);

    if (!whole) {
        no_memory(w);
        return NULL;
    }
    for (int rank = 0; rank < w->mesh->fabric->world; rank++) {
        uint64_t ep = mesh == MESH_EXPERT ? (uint64_t)layout_coordinate(l, AXIS_EP, rank) : 0;
        uint64_t index = part->shards > 1 ? (uint64_t)shard_index(l, mesh, rank) : 0;
        widen(texts[rank], dtype, part->slice, whole + ep * part->padded + index * part->slice);
    }
    return whole;
}

static void copy_tensors(struct work *w, const struct state_unit *unit, enum mesh mesh,
                         const float *whole, struct dump *ret)
{
    int spread = mesh == MESH_EXPERT ? w->mesh->layout->ep : 1;
    uint64_t padded = unit->parts[mesh].padded;

    for (int i = 0; i < unit->tensor_count; i++) {
        struct state_tensor tensor = unit->tensors[i];
        for (int c = 0; tensor.mesh == mesh && c < spread * tensor.copies; c++) {
            char name[128];
            tensor.first_copy = 0;
            state_tensor_name(&tensor, c, name, sizeof name);
            float *values = add_tensor(ret, name, tensor.facts.axes, tensor.facts.shape);
            if (!values) {
                no_memory(w);
                return;
            }
            const float *from = whole + (uint64_t)(c / tensor.copies) * padded + tensor.offset +
                                (uint64_t)(c % tensor.copies) * tensor.stride;
            memcpy(values, from, tensor.elements * sizeof *values);
        }
    }
}

static void dump_part(struct trainer *t, struct state_unit *unit, enum mesh mesh, struct dump *ret)
{
    struct work *w = &t->work;
    const struct state_part *part = &unit->parts[mesh];
    uint64_t bytes = part->slice * dtype_bytes(w->plan->choices.primitives.grad_dtype);
    char *host = malloc(bytes + 1);

    if (!host) {
        no_memory(w);
        return;
    }
    WORK_OP(w, download, host, state_gradient_slice(&t->state, part), bytes);
    char **texts = w->failed ? NULL : gather(w, host, bytes);
    if (!w->failed && w->mesh->fabric->rank == 0) {
        float *whole = assemble(w, part, mesh, texts);
        if (whole)
            copy_tensors(w, unit, mesh, whole, ret);
        free(whole);
    }
    free_texts(w, texts);
    free(host);
}

int dump_gradients(struct trainer *t, struct dump *ret)
{
    for (int i = 0; i < t->state.unit_count && !t->work.failed; i++)
        for (int mesh = 0; mesh < 2; mesh++)
            if (t->state.units[i].parts[mesh].elements > 0)
                dump_part(t, &t->state.units[i], (enum mesh)mesh, ret);
    return t->work.failed ? -1 : 0;
}

/* Part of the global batch that `rank` works on. */
static int data_rank_of(const struct layout *l, int rank)
{
    return layout_coordinate(l, AXIS_FSDP, rank) + l->fsdp * layout_coordinate(l, AXIS_D_REP, rank);
}

static void place_hidden(struct trainer *t, char *const *texts, float *values)
{
    const struct plan *plan = t->work.plan;
    uint64_t hidden = (uint64_t)plan->model.hidden;
    uint64_t batch = (uint64_t)trainer_batch_tokens(plan) * hidden;

    for (int rank = 0; rank < t->mesh.fabric->world; rank++)
        for (int m = 0; m < plan->choices.layout.micro_batches; m++) {
            int data_rank = data_rank_of(&plan->choices.layout, rank);
            uint64_t first = trainer_first_sequence(plan, data_rank, m) * plan->seq_tokens * hidden;
            widen(texts[rank] + (uint64_t)m * batch * sizeof(bf16), DTYPE_BF16, batch,
                  values + first);
        }
}

int dump_hidden(struct trainer *t, struct dump *ret)
{
    struct work *w = &t->work;
    const struct plan *plan = w->plan;
    uint64_t batches = (uint64_t)plan->choices.layout.micro_batches;
    uint64_t bytes = batches * (uint64_t)trainer_batch_tokens(plan) * (uint64_t)plan->model.hidden *
                     sizeof(bf16);
    const uint64_t shape[2] = { (uint64_t)plan->global_batch * plan->seq_tokens,
                                (uint64_t)plan->model.hidden };

    char **texts = gather(w, t->hidden, bytes);
    if (!w->failed && t->mesh.fabric->rank == 0) {
        float *values = add_tensor(ret, dump_hidden_name, 2, shape);
        if (values)
            place_hidden(t, texts, values);
        else
            no_memory(w);
    }
    free_texts(w, texts);
    return w->failed ? -1 : 0;
}

const struct dump_tensor *dump_find(const struct dump *dump, const char *name)
{
    for (size_t i = 0; i < dump->count; i++)
        if (strcmp(dump->tensors[i].name, name) == 0)
            return &dump->tensors[i];
    return NULL;
}

void dump_done(struct dump *dump)
{
    for (size_t i = 0; i < dump->count; i++)
        free(dump->tensors[i].values);
    free(dump->tensors);
    memset(dump, 0, sizeof *dump);
}

static json_t *header_entry(const struct dump_tensor *tensor, uint64_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < tensor->axes; i++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    uint64_t end = begin + tensor->elements * sizeof(float);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

/* Where the next piece goes. */
static char *put(char *at, const void *from, uint64_t bytes)
{
    memcpy(at, from, bytes);
    return at + bytes;
}

/* Length of the header (8 bytes, little endian), header in JSON, tensors. */
static char *render(const struct dump *dump, size_t *ret_bytes)
{
    json_t *header = json_object();
    uint64_t data = 0;

    for (size_t i = 0; i < dump->count; i++) {
        json_object_set_new(header, dump->tensors[i].name, header_entry(&dump->tensors[i], data));
        data += dump->tensors[i].elements * sizeof(float);
    }
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t length = text ? strlen(text) : 0;
    char *file = text ? malloc(sizeof length + length + data) : NULL;
    json_decref(header);
    if (file) {
        char *at = put(put(file, &length, sizeof length), text, length);
        for (size_t i = 0; i < dump->count; i++)
            at = put(at, dump->tensors[i].values, dump->tensors[i].elements * sizeof(float));
    }
    free(text);
    *ret_bytes = sizeof length + length + data;
    return file;
}

int dump_write(const struct dump *dump, const char *path, struct diag_list *reterr)
{
    size_t bytes = 0;
    char *file = render(dump, &bytes);
    if (!file)
        return diag_error(reterr, (struct pos){ 0 }, "no memory left for the dump");
    int ret = file_write_whole(path, file, bytes, reterr);
    free(file);
    return ret;
}
