#include "planner/engine/autograd.h"

#include <stdlib.h>
#include <string.h>

static int *filled(int count)
{
    int *ret = malloc((size_t)(count + 1) * sizeof *ret);
    for (int i = 0; ret && i < count; i++)
        ret[i] = -1;
    return ret;
}

int autograd_init(struct autograd *autograd, const struct tape *tape, struct allocator *allocator,
                  bool checkpointed)
{
    *autograd = (struct autograd){
        .tape = tape, .allocator = allocator, .checkpointed = checkpointed, .free_object = -1
    };
    autograd->instance = filled(tape->storage_count);
    autograd->gradient = filled(tape->tensor_count);
    autograd->named = calloc((size_t)tape->storage_count + 1, sizeof *autograd->named);
    if (!tape->failed && autograd->instance && autograd->gradient && autograd->named)
        return 0;
    autograd_done(autograd);
    return -1;
}

void autograd_done(struct autograd *autograd)
{
    free(autograd->instance);
    free(autograd->gradient);
    free(autograd->named);
    free(autograd->objects);
    *autograd = (struct autograd){ .free_object = -1 };
}

static int object_make(struct autograd *g, uint64_t bytes)
{
    int ret = g->free_object;
    if (ret >= 0) {
        g->free_object = g->objects[ret].block;
    } else {
        if (g->object_count == g->object_room) {
            int room = g->object_room > 0 ? 2 * g->object_room : 256;
            void *list = realloc(g->objects, (size_t)room * sizeof *g->objects);
            if (!list) {
                g->failed = true;
                return -1;
            }
            g->objects = list;
            g->object_room = room;
        }
        ret = g->object_count++;
    }
    int block = allocator_take(g->allocator, bytes);
    g->failed = g->failed || block == -1;
    g->objects[ret] = (struct object){ .block = block, .references = 1 };
    return ret;
}

static void object_keep(struct autograd *g, int object)
{
    if (object >= 0)
        g->objects[object].references++;
}

static void object_drop(struct autograd *g, int object)
{
    if (object < 0 || --g->objects[object].references > 0)
        return;
    allocator_give(g->allocator, g->objects[object].block);
    g->objects[object].block = g->free_object;
    g->free_object = object;
}

static void take_scratch(struct autograd *g, const uint64_t *bytes, int *ret_blocks)
{
    for (int i = 0; i < TAPE_SCRATCH; i++) {
        ret_blocks[i] = bytes[i] > 0 ? allocator_take(g->allocator, bytes[i]) : -2;
        g->failed = g->failed || ret_blocks[i] == -1;
    }
}

static void give_scratch(struct autograd *g, const int *blocks)
{
    for (int i = 0; i < TAPE_SCRATCH; i++)
        allocator_give(g->allocator, blocks[i]);
}

static void save(struct autograd *g, const struct tape_step *step, bool keeps)
{
    for (int i = 0; i < step->saved_count; i++) {
        int object = g->instance[g->tape->tensors[step->saved[i]].storage];
        if (keeps)
            object_keep(g, object);
        else
            object_drop(g, object);
    }
}

static bool makes_node(const struct autograd *g, const struct tape_step *step)
{
    return step->kind == TAPE_RUN && g->tape->tensors[step->output].differs;
}

/* Notes where the allocator's peak rises. */
static void note_peak(struct autograd *g, const struct tape_step *step, uint64_t before,
                      bool in_backward)
{
    if (g->allocator->allocated_peak_bytes <= before)
        return;
    g->peaked = true;
    g->peak_mark = step->mark;
    g->peak_in_backward = in_backward;
}

static void run(struct autograd *g, const struct tape_step *step, bool saves)
{
    int scratch[TAPE_SCRATCH];
    int storage = g->tape->tensors[step->output].storage;
    uint64_t before = g->allocator->allocated_peak_bytes;
    if (step->splits)
        return;
    take_scratch(g, step->scratch, scratch);
    g->instance[storage] = object_make(g, g->tape->storages[storage].bytes);
    g->named[storage] = true;
    give_scratch(g, scratch);
    if (saves && makes_node(g, step))
        save(g, step, true);
    note_peak(g, step, before, g->in_backward);
}

static void unname(struct autograd *g, int storage)
{
    if (g->named[storage])
        object_drop(g, g->instance[storage]);
    g->named[storage] = false;
}

static int segment_end(const struct autograd *g, int at)
{
    while (g->tape->steps[at].kind != TAPE_SEGMENT_END)
        at++;
    return at;
}

static int segment_begin(const struct autograd *g, int at)
{
    while (g->tape->steps[at].kind != TAPE_SEGMENT_BEGIN)
        at--;
    return at;
}

/* Whether a storage was made before the segment from `begin` on, by the tape. */
static bool made_before(const struct autograd *g, int storage, int begin)
{
    for (int i = begin; g->tape->steps[i].kind != TAPE_SEGMENT_END; i++)
        if (g->tape->steps[i].kind == TAPE_RUN && !g->tape->steps[i].splits &&
            g->tape->tensors[g->tape->steps[i].output].storage == storage)
            return false;
    return !g->tape->storages[storage].resident;
}

/* A checkpoint refers to the inputs of its segment, each once, until its backward has ended. */
static void segment_inputs(struct autograd *g, int begin, bool keeps)
{
    int seen[8], count = 0;
    for (int i = begin; g->tape->steps[i].kind != TAPE_SEGMENT_END; i++)
        for (int j = 0; g->tape->steps[i].kind == TAPE_RUN && j < TAPE_INPUTS; j++) {
            int input = g->tape->steps[i].input[j], k = 0;
            int storage = input < 0 ? -1 : g->tape->tensors[input].storage;
            while (k < count && seen[k] != storage)
                k++;
            if (storage < 0 || k < count || count == 8 || !made_before(g, storage, begin))
                continue;
            seen[count++] = storage;
            if (keeps)
                object_keep(g, g->instance[storage]);
            else
                object_drop(g, g->instance[storage]);
        }
}

static void forward(struct autograd *g)
{
    bool inside = false;
    for (int i = 0; i < g->tape->step_count; i++) {
        const struct tape_step *step = &g->tape->steps[i];
        switch ((enum tape_step_kind)step->kind) {
        case TAPE_RUN:
            run(g, step, !(inside && g->checkpointed));
            break;
        case TAPE_RELEASE:
            unname(g, g->tape->tensors[step->output].storage);
            break;
        case TAPE_SEGMENT_BEGIN:
            inside = true;
            if (g->checkpointed)
                segment_inputs(g, i, true);
            break;
        case TAPE_SEGMENT_END:
            inside = false;
            break;
        }
    }
}

/* The segment again, up to its last operation that saves a tensor; then its names are gone. */
static void replay(struct autograd *g, int begin)
{
    int end = segment_end(g, begin), last = begin;
    for (int i = begin; i < end; i++)
        if (g->reentrant ||
            (makes_node(g, &g->tape->steps[i]) && g->tape->steps[i].saved_count > 0))
            last = i;
    for (int i = begin + 1; i <= last; i++) {
        const struct tape_step *step = &g->tape->steps[i];
        int storage = step->kind == TAPE_RUN || step->kind == TAPE_RELEASE
                          ? g->tape->tensors[step->output].storage
                          : -1;
        if (step->kind == TAPE_RUN)
            run(g, step, true);
        else if (step->kind == TAPE_RELEASE && !made_before(g, storage, begin))
            unname(g, storage);
    }
    for (int i = begin + 1; i <= last; i++)
        if (g->tape->steps[i].kind == TAPE_RUN && !g->tape->steps[i].splits)
            unname(g, g->tape->tensors[g->tape->steps[i].output].storage);
}

/* A gradient that arrives at a tensor: the first is taken as it is, a further one is added, in
 * place where nothing else refers to the sum. */
static void arrive(struct autograd *g, int tensor, int object)
{
    int *sum = &g->gradient[tensor];
    if (*sum < 0) {
        *sum = object;
        return;
    }
    if (g->objects[*sum].references > 1) {
        int added = object_make(g, g->tape->tensors[tensor].bytes);
        object_drop(g, *sum);
        *sum = added;
    }
    object_drop(g, object);
}

static int gradient_of(struct autograd *g, const struct tape_step *step, int i)
{
    int input = step->input[i];
    if (input < 0 || !g->tape->tensors[input].differs)
        return -1;
    switch ((enum gradient)step->gradient[i]) {
    case GRADIENT_PASSED:
        object_keep(g, g->gradient[step->output]);
        return g->gradient[step->output];
    case GRADIENT_MADE:
        return object_make(g, g->tape->tensors[input].bytes);
    case GRADIENT_REDUCED:
        return object_make(g, g->tape->tensors[step->output].bytes);
    case GRADIENT_NONE:
        return -1;
    }
    return -1;
}

static void reduce(struct autograd *g, const struct tape_step *step, int i, int *object)
{
    if (*object < 0 || step->gradient[i] != GRADIENT_REDUCED)
        return;
    int sum = object_make(g, g->tape->tensors[step->input[i]].bytes);
    object_drop(g, *object);
    *object = sum;
}

static void drop_gradient(struct autograd *g, int tensor)
{
    if (tensor < 0)
        return;
    object_drop(g, g->gradient[tensor]);
    g->gradient[tensor] = -1;
}

static void run_backward(struct autograd *g, const struct tape_step *step)
{
    int made[TAPE_INPUTS], scratch[TAPE_SCRATCH];
    uint64_t before = g->allocator->allocated_peak_bytes;
    if (g->gradient[step->output] < 0) {
        save(g, step, false);
        return;
    }
    take_scratch(g, step->backward_scratch, scratch);
    for (int i = 0; i < TAPE_INPUTS; i++)
        made[i] = gradient_of(g, step, i);
    give_scratch(g, scratch);
    for (int i = 0; i < TAPE_INPUTS; i++)
        reduce(g, step, i, &made[i]);
    drop_gradient(g, step->output);
    for (int i = 0; i < TAPE_ALSO; i++)
        drop_gradient(g, step->also[i]);
    save(g, step, false);
    for (int i = 0; i < TAPE_INPUTS; i++)
        if (made[i] >= 0)
            arrive(g, step->input[i], made[i]);
    note_peak(g, step, before, true);
}

static void backward(struct autograd *g)
{
    int last = g->tape->step_count - 1;
    while (last > 0 && g->tape->steps[last].kind != TAPE_RUN)
        last--;
    int loss = g->tape->steps[last].output;
    g->gradient[loss] = object_make(g, g->tape->tensors[loss].bytes);
    for (int i = g->tape->step_count - 1; i >= 0; i--) {
        const struct tape_step *step = &g->tape->steps[i];
        if (step->kind == TAPE_SEGMENT_END && g->checkpointed)
            replay(g, segment_begin(g, i));
        else if (step->kind == TAPE_SEGMENT_BEGIN && g->checkpointed)
            segment_inputs(g, i, false);
        else if (makes_node(g, step))
            run_backward(g, step);
    }
}

static void end_of_pass(struct autograd *g)
{
    for (int i = 0; i < g->tape->storage_count; i++)
        unname(g, i);
    for (int i = 0; i < g->tape->tensor_count; i++)
        if (!g->tape->tensors[i].parameter)
            drop_gradient(g, i);
}

static int outcome(const struct autograd *g)
{
    return g->failed || g->allocator->failed ? -1 : 0;
}

int autograd_forward(struct autograd *autograd)
{
    autograd->in_backward = false;
    forward(autograd);
    return outcome(autograd);
}

int autograd_backward(struct autograd *autograd)
{
    autograd->in_backward = true;
    backward(autograd);
    end_of_pass(autograd);
    return outcome(autograd);
}

void autograd_zero(struct autograd *autograd)
{
    for (int i = 0; i < autograd->tape->tensor_count; i++)
        if (autograd->tape->tensors[i].parameter)
            drop_gradient(autograd, i);
}
