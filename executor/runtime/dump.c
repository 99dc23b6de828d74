#include "executor/runtime/dump.h"
#include "base/file.h"
#include "base/text.h"
#include "executor/runtime/whole.h"

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

struct gradient_copies {
    struct work *work;
    struct dump *dump;
};

/* Of experts that a checkpoint keeps in one tensor, the copies follow each other there. */
static float *place_of(struct dump *dump, const struct whole_copy *copy)
{
    const struct tensor *facts = &copy->tensor->facts;
    uint64_t shape[TENSOR_MAX_AXES + 1] = { facts->copies };
    bool stacked = facts->copies > 1 && !strstr(facts->name, "{e}");

    if (stacked && copy->index > 0) {
        struct dump_tensor *tensor = &dump->tensors[dump->count - 1];
        return tensor->values + (uint64_t)copy->index * copy->tensor->elements;
    }
    memcpy(shape + stacked, facts->shape, (size_t)facts->axes * sizeof *shape);
    return add_tensor(dump, copy->name, facts->axes + stacked, shape);
}

static int keep_copy(void *context, const struct whole_copy *copy)
{
    const struct gradient_copies *to = context;
    enum dtype dtype = to->work->plan->choices.primitives.grad_dtype;
    float *values = place_of(to->dump, copy);

    if (!values)
        return no_memory(to->work);
    widen(copy->values, dtype, copy->tensor->elements, values);
    return 0;
}

static void dump_part(struct trainer *t, struct state_unit *unit, enum mesh mesh, struct dump *ret)
{
    struct work *w = &t->work;
    const struct state_part *part = &unit->parts[mesh];
    struct gradient_copies copies = { w, ret };
    uint64_t bytes = dtype_bytes(w->plan->choices.primitives.grad_dtype);
    void *whole = whole_gather(w, part, mesh, state_gradient_slice(&t->state, part), bytes);

    if (whole)
        (void)whole_each(w, unit, mesh, whole, bytes, keep_copy, &copies);
    free(whole);
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

/* One micro-batch of one rank, run by run, each to its place in the global batch. */
static void place_batch(const struct plan *plan, int rank, uint64_t first, const char *from,
                        float *values)
{
    const struct zigzag order = trainer_order(plan, rank);
    uint64_t hidden = (uint64_t)plan->model.hidden;
    int64_t length = zigzag_run_tokens(&order);

    for (int64_t row = 0; row < trainer_batch_tokens(plan); row += length)
        widen(from + (uint64_t)row * hidden * sizeof(bf16), DTYPE_BF16, (uint64_t)length * hidden,
              values + (first + (uint64_t)zigzag_token(&order, row)) * hidden);
}

static void place_hidden(struct trainer *t, char *const *texts, float *values)
{
    const struct plan *plan = t->work.plan;
    uint64_t batch = (uint64_t)trainer_batch_tokens(plan) * (uint64_t)plan->model.hidden;

    for (int rank = 0; rank < t->mesh.fabric->world; rank++)
        for (int m = 0; m < plan->choices.layout.micro_batches; m++) {
            int data_rank = data_rank_of(&plan->choices.layout, rank);
            place_batch(plan, rank, trainer_first_sequence(plan, data_rank, m) * plan->seq_tokens,
                        texts[rank] + (uint64_t)m * batch * sizeof(bf16), values);
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

    char **texts = whole_texts(w, t->hidden, bytes);
    if (!w->failed && t->mesh.fabric->rank == 0) {
        float *values = add_tensor(ret, dump_hidden_name, 2, shape);
        if (values)
            place_hidden(t, texts, values);
        else
            no_memory(w);
    }
    whole_texts_free(w, texts);
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

static struct json *header_entry(const struct dump_tensor *tensor, uint64_t begin)
{
    struct json *ret = json_map(), *shape = json_list(), *offsets = json_list();
    for (int i = 0; i < tensor->axes; i++)
        json_append_u64(shape, tensor->shape[i]);
    json_append_u64(offsets, begin);
    json_append_u64(offsets, begin + tensor->elements * sizeof(float));
    json_put_text(ret, "dtype", "F32");
    json_put(ret, "shape", shape);
    json_put(ret, "data_offsets", offsets);
    return ret;
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
    struct json *header = json_map();
    uint64_t data = 0;

    for (size_t i = 0; i < dump->count; i++) {
        json_put(header, dump->tensors[i].name, header_entry(&dump->tensors[i], data));
        data += dump->tensors[i].elements * sizeof(float);
    }
    char *text = json_render(header, JSON_FORM_BARE);
    uint64_t length = text ? strlen(text) : 0;
    char *file = text ? malloc(sizeof length + length + data) : NULL;
    json_free(header);
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
