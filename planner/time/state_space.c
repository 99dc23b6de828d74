/* state_space.c - the operations of lightning attention and Mamba-2, in the order of
 * planner/residency/state_space.c. Their scans take the time that the machine's delta rule takes
 * for as large a state, which is measured where theirs is not. */
#include "planner/time/cost.h"

static const double scan_backward = 2.7; /* in forwards, as the delta rule */

enum { REFERENCE_STATE = 32 * 128 * 128 }; /* of the hardware file's timing of the delta rule */

/* Widths a token: in: all that the projection makes; active: what the scan reads; inner: what it
 * writes; state: elements. */
struct sizes {
    double in, active, inner, state;
};

static struct sizes sizes_of(const struct layer_shape *s, enum mixer mixer)
{
    if (mixer == MIXER_LIGHTNING) {
        double width = width_of(s, WIDTH_LIGHTNING);
        return (struct sizes){ 4 * width, 3 * width, width,
                               width * s->in->model->lightning.head_dim };
    }
    double inner = width_of(s, WIDTH_MAMBA_INNER);
    return (struct sizes){ width_of(s, WIDTH_MAMBA_IN), width_of(s, WIDTH_MAMBA_CHANNELS), inner,
                           inner * s->in->model->mamba.state };
}

static double scan_seconds(const struct layer_shape *s, const struct sizes *z)
{
    double scale = z->state / REFERENCE_STATE;
    return s->in->hardware->delta_rule_seconds_per_token * scale * s->tokens;
}

void state_space_forward(struct walk *w, const struct layer_shape *s, enum mixer mixer)
{
    struct sizes z = sizes_of(s, mixer);
    walk_move(w, TIME_ELEMENTWISE, 4 * s->normed * s->hidden);
    walk_product(w, TIME_MATMUL, s->tokens, z.in, s->hidden, 2);
    adapter_forward(w, s, COMPONENT_LINEAR_ATTENTION, s->tokens, s->hidden, z.in,
                    mixer_input_matrices(s->in, mixer));
    walk_move(w, TIME_ELEMENTWISE, 4 * s->tokens * z.active);
    walk_run(w, TIME_LINEAR_ATTENTION, 1, scan_seconds(s, &z));
    walk_move(w, TIME_ELEMENTWISE, 6 * s->tokens * z.inner);
    walk_move(w, TIME_ELEMENTWISE, 4 * s->normed * s->hidden);
    walk_product(w, TIME_MATMUL, s->tokens, s->hidden, z.inner, 4);
    adapter_forward(w, s, COMPONENT_LINEAR_ATTENTION, s->tokens, z.inner, s->hidden, 1);
}

void state_space_back(struct walk *w, const struct layer_shape *s, enum mixer mixer)
{
    struct sizes z = sizes_of(s, mixer);
    double t = s->tokens;
    bool reads = inputs_are_read(s, COMPONENT_LINEAR_ATTENTION);
    if (reads)
        walk_move(w, TIME_ELEMENTWISE, 6 * t * z.inner);
    weight_gradient(w, s, COMPONENT_LINEAR_ATTENTION, s->hidden, z.inner, t);
    walk_product(w, TIME_MATMUL, t, z.inner, s->hidden, 2);
    adapter_backward(w, s, COMPONENT_LINEAR_ATTENTION, t, z.inner, s->hidden, 1);
    walk_move(w, TIME_ELEMENTWISE, 10 * t * z.inner);
    walk_move(w, TIME_ELEMENTWISE, 4 * t * z.active);
    walk_run(w, TIME_LINEAR_ATTENTION, 1, scan_backward * scan_seconds(s, &z));
    walk_move(w, TIME_ELEMENTWISE, 6 * t * z.active);
    if (reads)
        walk_move(w, TIME_ELEMENTWISE, 4 * s->normed * s->hidden);
    weight_gradient(w, s, COMPONENT_LINEAR_ATTENTION, z.in, s->hidden, t);
    walk_product(w, TIME_MATMUL, t, s->hidden, z.in, 2);
    adapter_backward(w, s, COMPONENT_LINEAR_ATTENTION, t, s->hidden, z.in,
                     mixer_input_matrices(s->in, mixer));
    walk_move(w, TIME_ELEMENTWISE, 8 * s->normed * s->hidden);
}
