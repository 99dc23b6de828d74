/* mend.c - gathered weights of a rehearsal. Every rank's share is this rank's again there, so that
 * any element may stand for any other: matrices are all drawn alike, but what norms multiply by
 * would be lost among them. Norms are put right after each gather, and this rank's own share of
 * them is drawn like the rest, since its values come to stand elsewhere. */
#include "executor/primitive/state/state.h"

#include <stdlib.h>

enum { BF16_ONE = 0x3f80 };

static bool is_mixed(const struct state *state, const struct state_part *part)
{
    return state->work->mesh->fabric->alone && part->shards > 1;
}

enum start state_first_start(const struct state *state, const struct state_part *part,
                             const struct state_tensor *tensor)
{
    return is_mixed(state, part) ? START_DRAWN : tensor->start;
}

static void mend_tensor(struct work *w, const struct state_tensor *tensor, const void *weights)
{
    size_t count = (size_t)tensor->elements;
    bf16 *values = calloc(count, sizeof *values);

    if (!values) {
        w->failed = true;
        diag_error(w->errors, (struct pos){ 0 }, "no memory left for norms");
        return;
    }
    for (size_t i = 0; i < count && tensor->start == START_ONE; i++)
        values[i] = BF16_ONE;
    WORK_OP(w, upload, element_at(weights, tensor->offset, sizeof(bf16)), values,
            count * sizeof *values);
    free(values);
}

void state_mend(const struct state *state, const struct state_part *part, const void *weights)
{
    if (!is_mixed(state, part) || !work_runs(state->work))
        return;
    for (int i = 0; i < state->unit_count; i++) {
        const struct state_unit *unit = &state->units[i];
        for (int k = 0; part == &unit->parts[MESH_DENSE] && k < unit->tensor_count; k++)
            if (unit->tensors[k].mesh == MESH_DENSE && unit->tensors[k].start != START_DRAWN)
                mend_tensor(state->work, &unit->tensors[k], weights);
    }
}
