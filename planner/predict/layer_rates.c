/* layer_rates.c - kernels of a layer whose seconds are neither those of a GEMM nor of bytes moved:
 * attention in all its forms, indexers, scans. */
#include "planner/predict/layer_seconds.h"

#include "base/layout/trained.h"

/* Backward of flash attention and of chunked recurrences, in forwards. 2.5: the scores and four
 * products of their gradients against two. 2.7: public GB200 timings of the delta rule,
 * 4.74 - 1.27 over 1.27 ms. */
static const double attention_backward = 2.5, scan_backward = 2.7;

enum { REFERENCE_STATE = 32 * 128 * 128 }; /* of the hardware file's timing of the delta rule */

static double width_of(const struct step_sizes *s, enum step_width width)
{
    return (double)s->width[width];
}

static double tokens_of(const struct step_sizes *s)
{
    return (double)s->rows[ROWS_TOKENS];
}

static bool gathers_keys(const struct budget_input *in)
{
    return in->choices->layout.cp > 1 && in->choices->primitives.context == CONTEXT_ALLGATHER_KV;
}

/* Keys that a query sees, on average: everything before it, a window, half of its chunk. */
static double keys_seen(const struct budget_input *in, enum mixer mixer)
{
    const struct gqa *gqa = &in->model->gqa;
    if (mixer == MIXER_LOCAL && gqa->local_chunked)
        return chunk_keys(in, gqa->local_tokens);
    return causal_keys(in, mixer == MIXER_LOCAL ? gqa->local_tokens : gqa->window_tokens);
}

/* A device multiplies the whole of the square on which a run of queries meets its own keys: the
 * queries of 2 cp runs see 1 + 2 + ... + 2 cp runs of keys instead of half a run less each (26 to
 * 31 % more was measured at cp 2 on two H200, where this says 25). One run of a whole sequence
 * leaves the masked half out. */
static double squares(const struct budget_input *in)
{
    double runs = 2.0 * in->choices->layout.cp;
    return gathers_keys(in) && !in->hardware->host ? (runs + 1) / runs : 1;
}

/* 2 x 2 x Q per query and key; zig-zag order attends in two calls. */
static void softmax_kernels(const struct budget_input *in, const struct machine *machine,
                            const struct step_sizes *s, enum mixer mixer,
                            struct kernel_seconds *ret)
{
    double flops = 4.0 * tokens_of(s) * width_of(s, WIDTH_QUERY) * keys_seen(in, mixer);
    double calls = gathers_keys(in) ? 2 : 1, back = attention_backward * flops * squares(in);
    ret[WORK_ATTENTION] = (struct kernel_seconds){ calls, flops * machine->attention_flop, false };
    ret[WORK_ATTENTION_BACK] =
        (struct kernel_seconds){ calls, back * machine->attention_back, false };
    if (in->choices->primitives.attention_deterministic)
        ordered_kernels(in, machine, s, mixer, ret);
}

static void set_attention(const struct machine *machine, double flops, struct kernel_seconds *ret)
{
    ret[WORK_ATTENTION] = (struct kernel_seconds){ 1, flops * machine->attention_flop, false };
    ret[WORK_ATTENTION_BACK] =
        (struct kernel_seconds){ 1, attention_backward * flops * machine->attention_back, false };
}

/* Scores of every key, a head at a time in the width of its key; then the largest are chosen from
 * fp32 scores read once. Public H100 tables of GLM-5 at 16K queries: scores 20.5 ms in fp8 at 147K
 * keys, 0.96e15 FLOP/s, the rate of bf16 attention within a factor of two. The indexer learns from
 * the chosen keys alone. */
static void index_kernels(const struct budget_input *in, const struct machine *machine,
                          const struct step_sizes *s, struct kernel_seconds *ret)
{
    const struct indexer *x = &in->model->indexer;
    double query = width_of(s, WIDTH_INDEX_QUERY), tokens = tokens_of(s);
    double keys = causal_keys(in, 0), chosen = causal_keys(in, x->top_k);
    double moved = tokens * (8 * keys + 4 * x->top_k);
    double back = attention_backward * 2 * tokens * query * chosen;
    ret[WORK_INDEX] =
        (struct kernel_seconds){ 1, 2 * tokens * query * keys * machine->attention_flop, false };
    ret[WORK_CHOOSE] =
        (struct kernel_seconds){ 1, machine->kernel + moved * machine->moved_byte, false };
    ret[WORK_INDEX_BACK] = (struct kernel_seconds){ 1, back * machine->attention_back, false };
}

/* Absorbed queries against chosen latents: 2 x heads x (2 latent + rope) per key; expanded: 2 x
 * (queries + values). */
static void latent_kernels(const struct budget_input *in, const struct machine *machine,
                           const struct step_sizes *s, enum mixer mixer, struct kernel_seconds *ret)
{
    const struct mla *mla = &in->model->mla;
    double absorbed = width_of(s, WIDTH_HEADS) * (2.0 * mla->kv_rank + mla->rope_dim);
    double expanded = width_of(s, WIDTH_QUERY) + width_of(s, WIDTH_VALUE);
    bool sparse = mixer != MIXER_MLA;
    double keys = causal_keys(in, sparse ? in->model->indexer.top_k : 0);
    set_attention(machine, 2 * tokens_of(s) * (sparse ? absorbed : expanded) * keys, ret);
    if (mixer == MIXER_DSA)
        index_kernels(in, machine, s, ret);
}

/* Elements of a recurrence's state. Lightning's and Mamba-2's scans take the time of the machine's
 * delta rule for as large a state, which is measured where theirs is not. */
static double state_elements(const struct budget_input *in, const struct step_sizes *s,
                             enum mixer mixer)
{
    if (mixer == MIXER_LIGHTNING)
        return width_of(s, WIDTH_LIGHTNING) * in->model->lightning.head_dim;
    if (mixer == MIXER_MAMBA)
        return width_of(s, WIDTH_MAMBA_INNER) * in->model->mamba.state;
    return width_of(s, WIDTH_DELTA_STATE);
}

/* The chain over chunks takes as long for few heads as for many; the rest grows with the states. */
static void scan_kernels(const struct budget_input *in, const struct step_sizes *s,
                         enum mixer mixer, struct kernel_seconds *ret)
{
    const struct hardware *h = in->hardware;
    double scale = state_elements(in, s, mixer) / REFERENCE_STATE;
    double seconds = h->delta_rule_seconds_per_token * tokens_of(s);
    double back = h->delta_backward_factor > 0 ? h->delta_backward_factor : scan_backward;
    double chain = h->delta_chain_share, back_chain = h->delta_backward_chain_share;
    ret[WORK_SCAN] = (struct kernel_seconds){ 1, seconds * (chain + (1 - chain) * scale), false };
    ret[WORK_SCAN_BACK] =
        (struct kernel_seconds){ 1, back * seconds * (back_chain + (1 - back_chain) * scale),
                                 false };
}

void layer_kernels(const struct budget_input *in, const struct machine *machine,
                   const struct step_sizes *sizes, enum mixer mixer, struct kernel_seconds *ret)
{
    struct machine called = *machine; /* over the keys of one call */
    attention_rates(in, machine, &called.attention_flop, &called.attention_back);
    if (mixer == MIXER_GQA || mixer == MIXER_LOCAL)
        softmax_kernels(in, &called, sizes, mixer, ret);
    else if (mixer_is_latent(mixer))
        latent_kernels(in, &called, sizes, mixer, ret);
    else if (mixer_is_linear(mixer))
        scan_kernels(in, sizes, mixer, ret);
}

void layer_rates_init(const struct budget_input *in, const struct machine *machine,
                      const struct step_sizes *sizes, enum mixer mixer, struct layer_rates *ret)
{
    const struct primitives *p = &in->choices->primitives;
    *ret = (struct layer_rates){
        .machine = machine,
        .sizes = sizes,
        .experts = (double)in->model->moe.experts / in->choices->layout.ep,
        .gradient_bytes = (double)dtype_bytes(p->grad_dtype),
        .trained = trained_components(p),
        .adapted = adapted_components(p),
        .exchange_overlap = exchange_overlap(in),
    };
    layer_kernels(in, machine, sizes, mixer, ret->work);
    layer_links(in, sizes, mixer, ret->link);
}
