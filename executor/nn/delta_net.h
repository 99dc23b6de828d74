/* delta_net.h - what the parts of a gated delta net share: its sizes, what it saves, and the forms
 * in which its rule runs where the ranks of a context group share sequences. Within nn/ only.
 *
 * Contract of the forms (`linear_context`). T local tokens, A = T cp; R runs of a rank (zig-zag:
 * two of each sequence); C channels, h value heads, Vd = h dv; W the convolution's width.
 * - none: cp is 1, and every run is a whole sequence.
 * - state_pass: a rank works at its own tokens with all heads. Each run begins with the tail of the
 *   run before it in the sequence (the halo) and with the state that the runs before it leave. It
 *   takes two passes: every run from zeros, for its end and its transition; these are gathered, and
 *   every rank combines them to the states before its own runs; then the runs from there. No rank
 *   waits for another's chunks, and zig-zag order costs nothing: a sequence is a row of 2 cp runs
 * in whatever order ranks have them. Backward is the same from the end: gradients of states from
 *   zeros, combined with the same transitions.
 *   Memory, all `kv_gather` but what is saved: tails bf16 [R, (W-1) C] and [R cp, ..], halos bf16
 *   [R, (W-1) C]; ends fp32 [R, h dk dv] and [R cp, ..], transitions fp32 of all [R cp, h dk dk],
 *   states fp32 [R, h dk dv]; in the backward d_halo fp32 [R, (W-1) C] and [R cp, ..]. Saved in
 *   addition: transitions fp32 [R, h dk dk].
 * - head_split: a rank works at whole sequences with h/cp of the heads. What enters the convolution
 *   (q, k, v, b, a) is exchanged, and o on the way back; cp divides the key heads. Memory, all
 *   `kv_gather`: [T, C + 2h] bf16 three times at an exchange (to send, received, in sequence
 * order), of which two live at a time; o [T, Vd] likewise.
 *
 * What the forms preserve: the values of one rank with whole sequences, up to the order of sums (a
 * state carried by a transition) and, in the backward, bf16 rounding of gradients at the ends of
 * runs. How they are tested: one rank against 2, 4 and 8 under both forms, with ep and fsdp,
 * several sequences and micro-batches (tests/unit/executor/test_step_layouts). */
#ifndef RANKFIT_EXECUTOR_NN_DELTA_NET_H
#define RANKFIT_EXECUTOR_NN_DELTA_NET_H

#include "executor/nn/layer.h"

/* What the backward needs of the forward. */
struct delta_saved {
    struct buffer p, o, states, transitions;
};

static inline struct delta_saved *delta_saved_of(const struct layer_call *call)
{
    return call->saved->mixer;
}

/* The tokens and heads that a rank's rule works on, and where their values are. */
struct delta_view {
    struct delta_heads heads;
    struct delta_columns columns;
    int first_key_head; /* among those of the model */
    int runs;
    int64_t tokens; /* of a run */
    int64_t p_stride;
    const void *p, *halo;
};

struct delta_widths {
    int64_t key, value, channels; /* of queries or keys, of values, of both and values */
    int64_t p;
};

/* All heads, this rank's own runs. */
struct delta_view delta_own_view(const struct layer_call *call);
struct delta_widths delta_widths_of(const struct layer_call *call);

static inline int64_t delta_rows(const struct delta_view *v)
{
    return v->runs * v->tokens;
}

/* What the delta rule reads, or the gradients of it. */
struct delta_tensors {
    struct buffer qkv, decay, beta;
};
struct delta_tensors delta_tensors_take(const struct layer_call *call, const struct delta_view *v);
void delta_tensors_give(const struct layer_call *call, struct delta_tensors *t);

/* g3; k4 */
struct delta_tensors delta_enter(const struct layer_call *call, const struct delta_view *v);
/* k6: d_in is given back; d_halo NULL where the view has no halo. */
void delta_enter_backward(const struct layer_call *call, const struct delta_view *v,
                          struct delta_tensors *d_in, void *d_p, void *d_halo);

/* The rule of a view with nothing but its inputs filled in, and its run in a workspace. */
struct delta_rule delta_rule_of(const struct delta_view *v, const struct delta_tensors *in);
void delta_rule_run(const struct layer_call *call, struct delta_rule *rule);
void delta_rule_run_backward(const struct layer_call *call, struct delta_rule_gradient *rule);

/* Where states are kept when the pass keeps anything: taken, else NULL. */
float *delta_take_states(const struct layer_call *call, const struct delta_view *v);

/* A form of running the rule between p and o. forward: o is there, to be filled; states are taken.
 * backward: d_o is given back, d_p's columns but z are filled, states are given back. */
struct delta_form {
    void (*forward)(const struct layer_call *call);
    void (*backward)(const struct layer_call *call, struct buffer *d_o, const struct buffer *d_p);
};
extern const struct delta_form delta_whole, delta_state_pass; /* delta_net.c, delta_pass.c */
extern const struct delta_form delta_head_split;              /* delta_split.c */

#endif
