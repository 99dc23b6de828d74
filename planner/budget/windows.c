/* windows.c - what is gathered under fsdp while each use of a unit is current. */
#include "planner/budget/parts.h"

#include "base/checked.h"

uint64_t predicted_gathered_bytes(const struct budget_input *in, const struct stage *s)
{
    return add_sat(unit_gathered_bytes(in, &s->prediction), unit_gathered_bytes(in, &s->embedding));
}

/* Units in the order of use: embedding, layers, prediction layers, head, layers backwards. */
static int uses_of(const struct budget_input *in, const struct stage *s, bool forward_only,
                   uint64_t *ret)
{
    int n = 0;
    if (s->has_embedding)
        ret[n++] = unit_gathered_bytes(in, &s->embedding);
    for (int i = 0; i < s->layers; i++)
        ret[n++] = unit_gathered_bytes(in, &s->layer[i]);
    if (s->predicts && !forward_only)
        ret[n++] = predicted_gathered_bytes(in, s);
    if (s->has_head)
        ret[n++] = head_gathered_bytes(in, s);
    for (int i = s->layers - 1; i >= 0 && !forward_only; i--)
        ret[n++] = unit_gathered_bytes(in, &s->layer[i]);
    return n;
}

int gather_windows(const struct budget_input *in, const struct stage *s, bool forward_only,
                   uint64_t *ret)
{
    uint64_t use[MAX_USES];
    int n = uses_of(in, s, forward_only, use);
    int ahead = in->choices->primitives.prefetch_units;
    int heads = s->has_head + (s->predicts && !forward_only);
    for (int i = 0; i < n; i++) {
        int end = pass_end(&in->choices->layout, s->layers, s->has_embedding, heads, i);
        end = end < n ? end : n;
        ret[i] = 0;
        for (int j = i; j < end && j - i <= ahead; j++)
            ret[i] = add_sat(ret[i], use[j]);
    }
    return n;
}
