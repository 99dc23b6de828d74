/* delta_split.c - the delta rule where each rank of a context group works at some of the heads of
 * whole sequences: what enters the convolution is exchanged, and what the rule makes on the way
 * back. */
#include "executor/nn/delta_net.h"

#include <stdlib.h>

/* Columns that go together: from the projection into a row of the split one. */
struct piece {
    int64_t from, to, width;
};

/* The heads of member `member`, and its rows: queries, keys, values, then b and a, of each key head
 * alike. */
struct share {
    int key_heads;
    int64_t each, key, values; /* value heads a key head; widths of one */
    int64_t qkv, width;        /* of a row */
};

static struct share share_of(const struct layer_call *call)
{
    const struct gdn *g = &layer_model(call)->gdn;
    struct share ret = { .key_heads = g->key_heads / call->batch->order.cp,
                         .each = g->value_heads / g->key_heads,
                         .key = g->key_dim };
    ret.values = ret.each * g->value_dim;
    ret.qkv = ret.key_heads * (2 * ret.key + ret.values);
    ret.width = ret.qkv + 2 * ret.key_heads * ret.each;
    return ret;
}

/* Rows of a share: q of all its heads, k, v, b, a. */
static struct delta_columns share_columns(const struct share *s)
{
    int64_t keys = s->key_heads * s->key;
    return (struct delta_columns){ .q = 0,
                                   .k = keys,
                                   .v = 2 * keys,
                                   .b = s->qkv,
                                   .a = s->qkv + s->key_heads * s->each,
                                   .key_step = s->key,
                                   .value_step = s->values,
                                   .gate_step = s->each };
}

enum { KINDS = 5 };

/* Of key heads first .. first + count - 1, of one kind: neighbouring columns on both sides. */
static struct piece piece_of(const struct share *s, const struct delta_columns *from, int kind,
                             int first, int local)
{
    const struct delta_columns to = share_columns(s);
    const int64_t from_at[KINDS] = { from->q, from->k, from->v, from->b, from->a };
    const int64_t to_at[KINDS] = { to.q, to.k, to.v, to.b, to.a };
    const int64_t from_step[KINDS] = { from->key_step, from->key_step, from->value_step,
                                       from->gate_step, from->gate_step };
    const int64_t widths[KINDS] = { s->key, s->key, s->values, s->each, s->each };
    return (struct piece){ from_at[kind] + first * from_step[kind],
                           to_at[kind] + local * widths[kind], widths[kind] };
}

/* Whether a kind's heads lie next to each other in the projection. */
static bool adjacent(const struct share *s, const struct delta_columns *from, int kind)
{
    const int64_t steps[KINDS] = { from->key_step, from->key_step, from->value_step,
                                   from->gate_step, from->gate_step };
    const int64_t widths[KINDS] = { s->key, s->key, s->values, s->each, s->each };
    return steps[kind] == widths[kind];
}

static void move(struct work *w, int64_t rows, struct piece piece, const void *p, int64_t p_stride,
                 const void *split, int64_t split_stride, bool back)
{
    void *at = element_at(p, (uint64_t)piece.from, sizeof(bf16));
    void *there = element_at(split, (uint64_t)piece.to, sizeof(bf16));
    if (back)
        WORK_OP(w, copy_rows, rows, piece.width, there, split_stride, at, p_stride);
    else
        WORK_OP(w, copy_rows, rows, piece.width, at, p_stride, there, split_stride);
}

/* The columns of every member's heads: p into [cp, T, width], or back. */
static void move_shares(const struct layer_call *call, const void *p, const struct buffer *split,
                        bool back)
{
    struct work *w = call->state->work;
    const struct delta_view own = delta_own_view(call);
    const struct share s = share_of(call);
    int64_t rows = call->batch->tokens;

    for (int member = 0; member < call->batch->order.cp; member++)
        for (int kind = 0; kind < KINDS; kind++) {
            bool whole = adjacent(&s, &own.columns, kind);
            const void *to =
                element_at(split->data, (uint64_t)(member * rows * s.width), sizeof(bf16));
            for (int head = 0; head < (whole ? 1 : s.key_heads); head++) {
                struct piece piece =
                    piece_of(&s, &own.columns, kind, member * s.key_heads + head, head);
                if (whole)
                    piece.width *= s.key_heads;
                move(w, rows, piece, p, own.p_stride, to, s.width, back);
            }
        }
}

/* The same for rows of values, where each member has neighbouring columns. */
static void move_values(const struct layer_call *call, const void *values,
                        const struct buffer *split, bool back)
{
    struct work *w = call->state->work;
    int64_t rows = call->batch->tokens, all = delta_widths_of(call).value;
    int64_t width = all / call->batch->order.cp;

    for (int member = 0; member < call->batch->order.cp; member++) {
        const void *to = element_at(split->data, (uint64_t)(member * rows * width), sizeof(bf16));
        move(w, rows, (struct piece){ member * width, 0, width }, values, all, to, width, back);
    }
}

static struct buffer take(const struct layer_call *call, int64_t width)
{
    return work_take_tensor(call->state->work, OWNER_KV,
                            call->batch->tokens * call->batch->order.cp, width, sizeof(bf16));
}

/* Rows from and to each member, as many as a rank has. `rows` is given back. */
static struct buffer exchange(const struct layer_call *call, struct buffer *rows, int64_t width)
{
    struct work *w = call->state->work;
    int cp = call->batch->order.cp;
    struct buffer ret = take(call, width);
    int64_t *counts = work_runs(w) ? calloc((size_t)cp, sizeof *counts) : NULL;

    if (work_runs(w) && !counts) {
        w->failed = true;
        diag_error(w->errors, (struct pos){ 0 }, "no memory left for an exchange of heads");
    }
    for (int i = 0; counts && i < cp; i++)
        counts[i] = call->batch->tokens;
    WORK_FABRIC(w, all_to_all_rows, w->mesh->groups[MESH_CONTEXT], rows->data, counts, ret.data,
                counts, (uint64_t)width * sizeof(bf16));
    free(counts);
    work_give(w, rows);
    return ret;
}

/* Member after member, each in its zig-zag order, into sequence order, or back. `rows` is given
 * back.
 */
static struct buffer reorder(const struct layer_call *call, struct buffer *rows, int64_t width,
                             bool back)
{
    struct work *w = call->state->work;
    struct zigzag order = call->batch->order;
    int64_t length = zigzag_run_tokens(&order), at = 0;
    struct buffer ret = take(call, width);

    for (order.rank = 0; order.rank < order.cp; order.rank++)
        for (int64_t row = 0; row < call->batch->tokens; row += length, at += length) {
            uint64_t here = (uint64_t)(at * width);
            uint64_t there = (uint64_t)(zigzag_token(&order, row) * width);
            WORK_OP(w, copy, element_at(ret.data, back ? here : there, sizeof(bf16)),
                    element_at(rows->data, back ? there : here, sizeof(bf16)),
                    (uint64_t)(length * width) * sizeof(bf16));
        }
    work_give(w, rows);
    return ret;
}

/* p's columns of this rank's heads, of whole sequences in order. */
static struct buffer collect(const struct layer_call *call)
{
    const struct share s = share_of(call);
    struct buffer sent = take(call, s.width);
    move_shares(call, delta_saved_of(call)->p.data, &sent, false);
    struct buffer received = exchange(call, &sent, s.width);
    return reorder(call, &received, s.width, false);
}

/* Values of this rank's heads, of whole sequences in order, to all heads of its tokens: given back.
 */
static void values_home(const struct layer_call *call, struct buffer *split, const void *values)
{
    int64_t width = delta_widths_of(call).value / call->batch->order.cp;
    struct buffer rows = reorder(call, split, width, true);
    struct buffer received = exchange(call, &rows, width);
    move_values(call, values, &received, true);
    work_give(call->state->work, &received);
}

static struct buffer values_out(const struct layer_call *call, const void *values)
{
    int64_t width = delta_widths_of(call).value / call->batch->order.cp;
    struct buffer sent = take(call, width);
    move_values(call, values, &sent, false);
    struct buffer received = exchange(call, &sent, width);
    return reorder(call, &received, width, false);
}

/* Some heads of whole sequences. */
static struct delta_view split_view(const struct layer_call *call, const void *p)
{
    const struct zigzag *order = &call->batch->order;
    const struct share s = share_of(call);
    struct delta_view ret = delta_own_view(call);

    ret.columns = share_columns(&s);
    ret.first_key_head = order->rank * s.key_heads;
    ret.heads.key_heads = s.key_heads;
    ret.heads.value_heads = (int)(s.key_heads * s.each);
    ret.tokens = order->seq_tokens;
    ret.runs = (int)(call->batch->tokens * order->cp / order->seq_tokens);
    ret.p = p;
    ret.p_stride = s.width;
    return ret;
}

static void split_forward(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct buffer p = collect(call);
    const struct delta_view view = split_view(call, p.data);
    struct delta_tensors in = delta_enter(call, &view);
    struct delta_rule rule = delta_rule_of(&view, &in);

    work_give(w, &p);
    struct buffer o = take(call, delta_widths_of(call).value / call->batch->order.cp);
    rule.o = o.data;
    rule.states = delta_take_states(call, &view);
    delta_rule_run(call, &rule);
    delta_tensors_give(call, &in);
    values_home(call, &o, delta_saved_of(call)->o.data);
}

static void split_backward(const struct layer_call *call, struct buffer *d_o,
                           const struct buffer *d_p)
{
    struct work *w = call->state->work;
    const struct share s = share_of(call);
    struct buffer d_values = values_out(call, d_o->data);
    work_give(w, d_o);
    struct buffer p = collect(call);
    const struct delta_view view = split_view(call, p.data);
    struct delta_tensors in = delta_enter(call, &view), d_in = delta_tensors_take(call, &view);
    struct delta_rule_gradient rule = { .forward = delta_rule_of(&view, &in),
                                        .d_o = d_values.data,
                                        .d_qkv = d_in.qkv.data,
                                        .d_decay = d_in.decay.data,
                                        .d_beta = d_in.beta.data };

    rule.forward.states = delta_saved_of(call)->states.data;
    delta_rule_run_backward(call, &rule);
    delta_tensors_give(call, &in);
    work_give(w, &d_values);
    work_give(w, &delta_saved_of(call)->states);
    struct buffer split = take(call, s.width);
    delta_enter_backward(call, &view, &d_in, split.data, NULL);
    work_give(w, &p);
    struct buffer rows = reorder(call, &split, s.width, true);
    struct buffer received = exchange(call, &rows, s.width);
    move_shares(call, d_p->data, &received, true);
    work_give(w, &received);
}

const struct delta_form delta_head_split = { split_forward, split_backward };
