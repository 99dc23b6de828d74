#include "planner/engine/tape.h"

#include <stdlib.h>
#include <string.h>

void tape_done(struct tape *tape)
{
    free(tape->tensors);
    free(tape->storages);
    free(tape->steps);
    *tape = (struct tape){ .failed = false };
}

/* Room for one more element of `size` bytes; NULL leaves the tape failed. */
static void *grow(struct tape *tape, void *list, int count, int *room, size_t size)
{
    if (list && count < *room)
        return list;
    int wanted = *room > 0 ? 2 * *room : 64;
    void *ret = tape->failed ? NULL : realloc(list, (size_t)wanted * size);
    if (!ret) {
        tape->failed = true;
        return NULL;
    }
    *room = wanted;
    return ret;
}

static int add_storage(struct tape *tape, uint64_t bytes, bool resident)
{
    void *list = grow(tape, tape->storages, tape->storage_count, &tape->storage_room,
                      sizeof *tape->storages);
    if (!list)
        return -1;
    tape->storages = list;
    tape->storages[tape->storage_count] =
        (struct tape_storage){ .bytes = bytes, .resident = resident };
    return tape->storage_count++;
}

static int add_tensor(struct tape *tape, int storage, uint64_t bytes)
{
    if (storage < 0)
        return -1;
    void *list =
        grow(tape, tape->tensors, tape->tensor_count, &tape->tensor_room, sizeof *tape->tensors);
    if (!list)
        return -1;
    tape->tensors = list;
    tape->tensors[tape->tensor_count] = (struct tape_tensor){ .storage = storage, .bytes = bytes };
    return tape->tensor_count++;
}

static struct tape_step *add_step(struct tape *tape, enum tape_step_kind kind)
{
    void *list = grow(tape, tape->steps, tape->step_count, &tape->step_room, sizeof *tape->steps);
    if (!list)
        return NULL;
    tape->steps = list;
    struct tape_step *ret = &tape->steps[tape->step_count++];
    *ret = (struct tape_step){ .kind = (uint8_t)kind, .output = -1, .mark = tape->mark };
    for (int i = 0; i < TAPE_INPUTS; i++)
        ret->input[i] = -1;
    for (int i = 0; i < TAPE_ALSO; i++)
        ret->also[i] = -1;
    return ret;
}

int tape_resident(struct tape *tape, uint64_t bytes, bool trained)
{
    int ret = add_tensor(tape, add_storage(tape, bytes, true), bytes);
    if (ret >= 0)
        tape->tensors[ret].differs = tape->tensors[ret].parameter = trained;
    return ret;
}

static bool differs(const struct tape *tape, int tensor)
{
    return tensor >= 0 && tape->tensors[tensor].differs;
}

struct tape_step *tape_run(struct tape *tape, const char *name, uint64_t bytes, int a, int b)
{
    int output = add_tensor(tape, add_storage(tape, bytes, false), bytes);
    struct tape_step *ret = output < 0 ? NULL : add_step(tape, TAPE_RUN);
    if (!ret)
        return NULL;
    ret->name = name;
    ret->output = output;
    ret->input[0] = a;
    ret->input[1] = b;
    tape->tensors[output].differs = differs(tape, a) || differs(tape, b);
    return ret;
}

void tape_split(struct tape *tape, int of, const uint64_t bytes[TAPE_ALSO + 1],
                int ret[TAPE_ALSO + 1])
{
    for (int i = 0; i <= TAPE_ALSO; i++) {
        ret[i] = tape->failed ? -1 : add_tensor(tape, tape->tensors[of].storage, bytes[i]);
        if (ret[i] >= 0)
            tape->tensors[ret[i]].differs = tape->tensors[of].differs;
    }
    struct tape_step *step = tape->failed ? NULL : add_step(tape, TAPE_RUN);
    if (!step)
        return;
    step->name = "split";
    step->splits = true;
    step->output = ret[0];
    for (int i = 0; i < TAPE_ALSO; i++)
        step->also[i] = ret[i + 1];
    step->input[0] = of;
    step->gradient[0] = GRADIENT_MADE;
}

int tape_last(const struct tape *tape)
{
    return tape->failed ? -1 : tape->steps[tape->step_count - 1].output;
}

void tape_save(struct tape *tape, int tensor)
{
    if (tape->failed)
        return;
    struct tape_step *step = &tape->steps[tape->step_count - 1];
    if (step->saved_count < TAPE_SAVED)
        step->saved[step->saved_count++] = tensor;
}

void tape_release(struct tape *tape, int tensor)
{
    struct tape_step *step = tensor < 0 ? NULL : add_step(tape, TAPE_RELEASE);
    if (step)
        step->output = tensor;
}

void tape_segment(struct tape *tape, bool begins)
{
    (void)add_step(tape, begins ? TAPE_SEGMENT_BEGIN : TAPE_SEGMENT_END);
}
