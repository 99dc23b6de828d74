#include "base/layout/layout.h"
#include "base/checked.h"

#include <stdbool.h>

const char *const axis_names[AXIS_COUNT] = {
    [AXIS_TP] = "tp",       [AXIS_CP] = "cp",   [AXIS_FSDP] = "fsdp", [AXIS_D_REP] = "d_rep",
    [AXIS_PP] = "pp",       [AXIS_ETP] = "etp", [AXIS_EP] = "ep",     [AXIS_E_FSDP] = "e_fsdp",
    [AXIS_E_REP] = "e_rep", [AXIS_E_PP] = "pp",
};

int layout_degree(const struct layout *layout, enum axis axis)
{
    const int degrees[AXIS_COUNT] = {
        [AXIS_TP] = layout->tp,       [AXIS_CP] = layout->cp,         [AXIS_FSDP] = layout->fsdp,
        [AXIS_D_REP] = layout->d_rep, [AXIS_PP] = layout->pp,         [AXIS_ETP] = layout->etp,
        [AXIS_EP] = layout->ep,       [AXIS_E_FSDP] = layout->e_fsdp, [AXIS_E_REP] = layout->e_rep,
        [AXIS_E_PP] = layout->pp,
    };
    return degrees[axis];
}

static int first_axis_of_view(int axis)
{
    return axis <= AXIS_PP ? AXIS_TP : AXIS_ETP;
}

/* Distance in ranks between neighbours along axis: the product of the degrees inside it. */
static int axis_stride(const struct layout *layout, int axis)
{
    int stride = 1;
    for (int inner = first_axis_of_view(axis); inner < axis; inner++)
        stride *= layout_degree(layout, (enum axis)inner);
    return stride;
}

int layout_coordinate(const struct layout *layout, enum axis axis, int rank)
{
    return rank / axis_stride(layout, (int)axis) % layout_degree(layout, axis);
}

int layout_group(const struct layout *layout, unsigned axes, int rank, int *ret)
{
    int count = 1;

    ret[0] = rank;
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (!(axes & 1U << axis))
            continue;
        int stride = axis_stride(layout, axis);
        int degree = layout_degree(layout, (enum axis)axis);
        int base_shift = layout_coordinate(layout, (enum axis)axis, rank) * stride;
        for (int i = 0; i < count; i++)
            ret[i] -= base_shift;
        /* inner axes come first, so each new copy lies above all earlier ones: ascending order */
        for (int step = 1; step < degree; step++)
            for (int i = 0; i < count; i++)
                ret[step * count + i] = ret[i] + step * stride;
        count *= degree;
    }
    return count;
}

int layout_first_layer(const struct layout *layout, int stage)
{
    int first = 0;
    for (int s = 0; s < stage; s++)
        first += layout->stage_layers[s];
    return first;
}

int layout_stage(const struct layout *layout, int rank)
{
    return layout_coordinate(layout, AXIS_PP, rank);
}

/* The stages just before the last take one layer more: the last carries head and loss, and under
 * 1F1B the first ones hold the most live micro-batches. */
void layout_split_layers(struct layout *layout, int layers)
{
    int pp = layout->pp;
    int each = layers / pp, more = layers % pp;

    for (int stage = 0; stage < LAYOUT_MAX_STAGES; stage++) {
        bool takes_more = stage >= pp - 1 - more && stage < pp - 1;
        layout->stage_layers[stage] = stage < pp ? each + takes_more : 0;
    }
}

void layout_split_with_last(struct layout *layout, int layers, int more)
{
    int *last = &layout->stage_layers[layout->pp - 1];

    layout_split_layers(layout, layers + more);
    if (*last > more)
        *last -= more;
    else
        layout_split_layers(layout, layers);
}

uint64_t layout_local_tokens(const struct layout *layout, uint64_t seq_tokens)
{
    return mul_sat((uint64_t)layout->micro_batch, seq_tokens) / (uint64_t)layout->cp;
}

uint64_t layout_padded_vocab(uint64_t vocab, int tp)
{
    enum { PAD_ROWS = 128 };
    uint64_t ranks = (uint64_t)tp;
    return vocab % ranks == 0 ? vocab : round_up_to(vocab, PAD_ROWS * ranks);
}
