/* delta_pass.c - the delta rule where each rank of a context group works at its own runs of every
 * sequence: halos of the convolution, states and their gradients passed on in two passes. */
#include "executor/nn/delta_net.h"

#include <stdlib.h>

/* The runs of a sequence are chunks of the zig-zag order; a rank's come sequence by sequence. */
struct chain {
    int sequences, chunks, own, own_chunks[2];
};

static struct chain chain_of(const struct layer_call *call)
{
    const struct zigzag *order = &call->batch->order;
    struct chain ret = { .chunks = zigzag_runs(order) * order->cp, .own = zigzag_runs(order) };
    ret.sequences = (int)(call->batch->tokens / zigzag_tokens(order));
    for (int run = 0; run < ret.own; run++)
        ret.own_chunks[run] = zigzag_chunk(order, run);
    return ret;
}

/* Places of every rank's runs among all runs in sequence order, [cp, runs]; NULL with the failure
 * noted. */
static int *places_of(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct zigzag order = call->batch->order;
    const struct chain chain = chain_of(call);
    int runs = chain.sequences * chain.own;
    int *ret = calloc((size_t)order.cp * (size_t)runs, sizeof *ret);

    if (!ret) {
        w->failed = true;
        diag_error(w->errors, (struct pos){ 0 }, "no memory left for places of runs");
        return NULL;
    }
    for (order.rank = 0; order.rank < order.cp; order.rank++)
        for (int i = 0; i < runs; i++)
            ret[order.rank * runs + i] =
                i / chain.own * chain.chunks + zigzag_chunk(&order, i % chain.own);
    return ret;
}

/* A tensor of `elements` for each of `runs`, working with what is gathered. */
static struct buffer take(const struct layer_call *call, int64_t runs, int64_t elements,
                          uint64_t element_bytes)
{
    return work_take_tensor(call->state->work, OWNER_KV, runs, elements, element_bytes);
}

/* Of all runs of the group in sequence order; `own` is given back unless `stays`. */
static struct buffer gather(const struct layer_call *call, struct buffer *own, int64_t elements,
                            uint64_t element_bytes, bool stays)
{
    struct work *w = call->state->work;
    const struct chain chain = chain_of(call);
    struct buffer ret =
        take(call, (int64_t)chain.sequences * chain.chunks, elements, element_bytes);
    int *places = work_runs(w) ? places_of(call) : NULL;

    if (places)
        WORK_FABRIC(w, gather_blocks, w->mesh->groups[MESH_CONTEXT], own->data, ret.data,
                    (uint64_t)elements * element_bytes, chain.sequences * chain.own, places);
    free(places);
    if (!stays)
        work_give(w, own);
    return ret;
}

static int64_t halo_elements(const struct layer_call *call)
{
    return (int64_t)(layer_model(call)->gdn.conv_width - 1) * delta_widths_of(call).channels;
}

static struct delta_tails tails_of(const struct layer_call *call, const struct delta_view *v)
{
    return (struct delta_tails){ .heads = v->heads,
                                 .columns = v->columns,
                                 .runs = v->runs,
                                 .width = layer_model(call)->gdn.conv_width,
                                 .tokens = v->tokens,
                                 .p_stride = v->p_stride,
                                 .p = v->p };
}

/* Where a run's block is among those of all runs. */
static uint64_t block_of(const struct chain *chain, int run, int chunk_offset)
{
    int chunk = chain->own_chunks[run % chain->own] + chunk_offset;
    return (uint64_t)(run / chain->own * chain->chunks + chunk);
}

/* The tail of the run before each run of this rank, zeros before a sequence. */
static struct buffer collect_halo(const struct layer_call *call, const struct delta_view *v)
{
    struct work *w = call->state->work;
    const struct chain chain = chain_of(call);
    uint64_t elements = (uint64_t)halo_elements(call), bytes = elements * sizeof(bf16);
    struct buffer own = take(call, v->runs, (int64_t)elements, sizeof(bf16));
    struct delta_tails tails = tails_of(call, v);

    tails.tails = own.data;
    WORK_OP(w, delta_tails, &tails);
    struct buffer all = gather(call, &own, (int64_t)elements, sizeof(bf16), false);
    struct buffer ret = take(call, v->runs, (int64_t)elements, sizeof(bf16));
    for (int run = 0; run < v->runs; run++) {
        void *to = element_at(ret.data, (uint64_t)run * elements, sizeof(bf16));
        if (chain.own_chunks[run % chain.own] == 0)
            WORK_OP(w, zero, to, bytes);
        else
            WORK_OP(w, copy, to,
                    element_at(all.data, block_of(&chain, run, -1) * elements, sizeof(bf16)),
                    bytes);
    }
    work_give(w, &all);
    return ret;
}

/* The gradients of halos go to the runs whose tails they are. d_halo is given back. */
static void return_halo(const struct layer_call *call, const struct delta_view *v,
                        struct buffer *d_halo, void *d_p)
{
    struct work *w = call->state->work;
    const struct chain chain = chain_of(call);
    uint64_t elements = (uint64_t)halo_elements(call), bytes = elements * sizeof(float);
    struct buffer all =
        take(call, (int64_t)chain.sequences * chain.chunks, (int64_t)elements, sizeof(float));
    struct delta_tails tails = tails_of(call, v);

    WORK_OP(w, zero, all.data, all.bytes);
    for (int run = 0; run < v->runs; run++)
        if (chain.own_chunks[run % chain.own] > 0)
            WORK_OP(w, copy,
                    element_at(all.data, block_of(&chain, run, -1) * elements, sizeof(float)),
                    element_at(d_halo->data, (uint64_t)run * elements, sizeof(float)), bytes);
    int *places = work_runs(w) ? places_of(call) : NULL;
    if (places)
        WORK_FABRIC(w, reduce_blocks, w->mesh->groups[MESH_CONTEXT], all.data, d_halo->data,
                    elements, v->runs, places, DTYPE_FP32);
    free(places);
    work_give(w, &all);
    tails.d_tails = d_halo->data;
    tails.d_p = d_p;
    WORK_OP(w, delta_tails_backward, &tails);
    work_give(w, d_halo);
}

/* States before this rank's runs, or gradients behind them, from what all runs end with alone.
 * ends: given back. */
static struct buffer combine(const struct layer_call *call, const struct delta_view *v,
                             struct buffer *ends, bool backward)
{
    struct work *w = call->state->work;
    const struct chain chain = chain_of(call);
    int64_t size = delta_state_elements(&v->heads);
    int64_t square = (int64_t)v->heads.value_heads * v->heads.key_dim * v->heads.key_dim;

    struct buffer all = gather(call, ends, size, sizeof(float), false);
    struct buffer transitions =
        gather(call, &delta_saved_of(call)->transitions, square, sizeof(float), true);
    struct buffer ret = take(call, v->runs, size, sizeof(float));
    const struct delta_combine d = { .heads = v->heads,
                                     .sequences = chain.sequences,
                                     .chunks = chain.chunks,
                                     .own = chain.own,
                                     .own_chunks = { chain.own_chunks[0], chain.own_chunks[1] },
                                     .ends = all.data,
                                     .transitions = transitions.data,
                                     .states = ret.data,
                                     .backward = backward };
    WORK_OP(w, delta_combine, &d);
    work_give(w, &all);
    work_give(w, &transitions);
    return ret;
}

static void pass_forward(const struct layer_call *call)
{
    struct work *w = call->state->work;
    struct delta_saved *s = delta_saved_of(call);
    struct delta_view view = delta_own_view(call);
    struct buffer halo = collect_halo(call, &view);

    view.halo = halo.data;
    struct delta_tensors in = delta_enter(call, &view);
    work_give(w, &halo);
    struct delta_rule first = delta_rule_of(&view, &in), second = first;
    s->transitions = work_take_tensor(
        w, kept_owner(call->keep, OWNER_LAYER), view.runs,
        (int64_t)view.heads.value_heads * view.heads.key_dim * view.heads.key_dim, sizeof(float));
    struct buffer ends = take(call, view.runs, delta_state_elements(&view.heads), sizeof(float));
    first.final = ends.data;
    first.transition = s->transitions.data;
    delta_rule_run(call, &first);
    struct buffer before = combine(call, &view, &ends, false);
    second.initial = before.data;
    second.o = s->o.data;
    second.states = delta_take_states(call, &view);
    delta_rule_run(call, &second);
    work_give(w, &before);
    work_give_unless_kept(w, call->keep, &s->transitions);
    delta_tensors_give(call, &in);
}

/* The gradients behind this rank's runs. */
static struct buffer behind_runs(const struct layer_call *call, const struct delta_view *v,
                                 struct delta_rule_gradient rule)
{
    struct buffer before = take(call, v->runs, delta_state_elements(&v->heads), sizeof(float));
    rule.d_initial = before.data;
    rule.states_only = true;
    delta_rule_run_backward(call, &rule);
    return combine(call, v, &before, true);
}

static void pass_backward(const struct layer_call *call, struct buffer *d_o,
                          const struct buffer *d_p)
{
    struct work *w = call->state->work;
    struct delta_saved *s = delta_saved_of(call);
    struct delta_view view = delta_own_view(call);
    struct buffer halo = collect_halo(call, &view);

    view.halo = halo.data;
    struct delta_tensors in = delta_enter(call, &view);
    struct delta_rule_gradient rule = { .forward = delta_rule_of(&view, &in), .d_o = d_o->data };
    rule.forward.states = s->states.data;
    struct buffer behind = behind_runs(call, &view, rule);
    work_give(w, &s->transitions);
    struct delta_tensors d_in = delta_tensors_take(call, &view);
    rule.d_final = behind.data;
    rule.d_qkv = d_in.qkv.data;
    rule.d_decay = d_in.decay.data;
    rule.d_beta = d_in.beta.data;
    delta_rule_run_backward(call, &rule);
    work_give(w, &behind);
    delta_tensors_give(call, &in);
    work_give(w, d_o);
    work_give(w, &s->states);
    struct buffer d_halo = take(call, view.runs, halo_elements(call), sizeof(float));
    delta_enter_backward(call, &view, &d_in, d_p->data, d_halo.data);
    work_give(w, &halo);
    return_halo(call, &view, &d_halo, d_p->data);
}

const struct delta_form delta_state_pass = { pass_forward, pass_backward };
