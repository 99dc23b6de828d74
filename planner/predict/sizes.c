/* sizes.c - the values of the operation lists' symbols for one layout, and the conditions under
 * which its layers run. */
#include "planner/predict/parts.h"

#include "base/checked.h"
#include "base/layout/trained.h"

#include <string.h>

enum {
    DELTA_CHUNK_TOKENS = 64,
    DELTA_SEGMENT_TOKENS = 4096,
    DELTA_CELLS = 4096, /* chunks of heads that a device works on at once */
    DELTA_PLAIN_BYTES = 1 << 28,
    LIGHTNING_CHUNK_TOKENS = 256,
    INDEX_TILE_TOKENS = 512
};

uint64_t local_tokens(const struct budget_input *in)
{
    const struct layout *l = &in->choices->layout;
    uint64_t budget = in->choices->primitives.tokens_per_gpu;
    if (budget > 0)
        return budget;
    return div_up(mul_sat((uint64_t)l->micro_batch, in->seq_tokens), (uint64_t)l->cp);
}

uint64_t all_tokens(const struct budget_input *in)
{
    const struct layout *l = &in->choices->layout;
    uint64_t budget = in->choices->primitives.tokens_per_gpu;
    if (budget > 0)
        return mul_sat(budget, (uint64_t)l->cp);
    return mul_sat((uint64_t)l->micro_batch, in->seq_tokens);
}

uint64_t longest_sequence(const struct budget_input *in)
{
    struct rows_input rows = { in->choices, in->seq_tokens, in->lengths };
    return rows_longest(&rows);
}

uint64_t packed_pieces(const struct budget_input *in)
{
    struct rows_input input = { in->choices, in->seq_tokens, in->lengths };
    struct packed_rows rows;
    if (!rows_are_packed(&input))
        return 0;
    rows_init(&input, &rows);
    return mul_sat(rows.most_pieces, (uint64_t)in->choices->layout.micro_batch);
}

/* Chunks of a recurrence end with their piece: each but one may add one. */
static uint64_t recurrence_chunks(const struct budget_input *in, uint64_t chunk_tokens)
{
    uint64_t pieces = packed_pieces(in);
    return add_sat(div_up(local_tokens(in), chunk_tokens), pieces > 0 ? pieces - 1 : 0);
}

int packed_micro_batches(const struct budget_input *in)
{
    struct rows_input rows = { in->choices, in->seq_tokens, in->lengths };
    return rows_micro_batches(&rows);
}

double step_tokens_of(const struct budget_input *in)
{
    struct rows_input rows = { in->choices, in->seq_tokens, in->lengths };
    return rows_step_tokens(&rows);
}

uint64_t norm_tokens(const struct budget_input *in)
{
    return div_up(local_tokens(in), (uint64_t)in->choices->layout.tp);
}

/* A width divided by tensor parallelism; heads that are fewer than the ranks are repeated. */
static uint64_t split(int count, int ranks)
{
    return div_up((uint64_t)count, (uint64_t)ranks);
}

static void attention_widths(const struct model *m, int tp, uint64_t *width)
{
    uint64_t dim = (uint64_t)m->gqa.head_dim, heads = split(m->gqa.heads, tp);
    width[WIDTH_HEADS] = heads;
    width[WIDTH_QUERY] = heads * dim;
    width[WIDTH_KEY] = split(m->gqa.kv_heads, tp) * dim;
    width[WIDTH_KEY_VALUE] = 2 * width[WIDTH_KEY];
    width[WIDTH_QKV] = width[WIDTH_QUERY] * (m->gqa.output_gate ? 2 : 1) + 2 * width[WIDTH_KEY];
}

static void delta_widths(const struct model *m, int tp, uint64_t *width)
{
    uint64_t heads = split(m->gdn.value_heads, tp), keys = split(m->gdn.key_heads, tp);
    uint64_t key = keys * (uint64_t)m->gdn.key_dim, value = heads * (uint64_t)m->gdn.value_dim;
    width[WIDTH_DELTA_IN] = 2 * key + 2 * value;
    width[WIDTH_DELTA_ALL] = 2 * key + 2 * value + 2 * heads;
    width[WIDTH_DELTA_KEY] = heads * (uint64_t)m->gdn.key_dim;
    width[WIDTH_DELTA_TILE] = heads * DELTA_CHUNK_TOKENS;
    width[WIDTH_DELTA_CONV] = 2 * key + value;
    width[WIDTH_DELTA_VALUE] = value;
    width[WIDTH_DELTA_HEADS] = heads;
    width[WIDTH_DELTA_STATE] = value * (uint64_t)m->gdn.key_dim;
    width[WIDTH_DELTA_SQUARE] = heads * (uint64_t)m->gdn.key_dim * (uint64_t)m->gdn.key_dim;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Of one call of the delta rule: `runs` of `run_tokens` tokens, `heads` value heads of this rank.
 * Host: one run and head at a time. Device: states, products and their gradients of as many runs at
 * once as fill it; heads other than 128 x 128 a token at a time, as many states (backward each with
 * 128 steps and for all value heads of a key head) as 256 MiB hold. */
static uint64_t delta_workspace(const struct budget_input *in, uint64_t run_tokens, uint64_t runs,
                                uint64_t heads, bool backward)
{
    const struct gdn *g = &in->model->gdn;
    uint64_t key = (uint64_t)g->key_dim, value = (uint64_t)g->value_dim;
    uint64_t most = key > value ? key : value, segment = least(run_tokens, DELTA_SEGMENT_TOKENS);
    uint64_t chunks = div_up(segment, DELTA_CHUNK_TOKENS);
    uint64_t each = (uint64_t)(g->value_heads / (g->key_heads > 0 ? g->key_heads : 1));
    if (in->hardware->host) {
        uint64_t floats = key * value + 64 * (5 * key + 7 * most) + 4 * 64 * 64;
        if (backward)
            floats += (chunks + each) * key * value + 2 * segment * key;
        return 4 * floats;
    }
    if (key != 128 || value != 128) {
        uint64_t block = (backward ? 516 * each : 4) * key * value;
        uint64_t blocks = mul_sat(runs, backward && each > 0 ? div_up(heads, each) : heads);
        uint64_t held = block > 0 ? DELTA_PLAIN_BYTES / block : 0;
        return least(blocks, held > 0 ? held : 1) * block;
    }
    uint64_t cells = chunks * heads, held = cells > 0 ? DELTA_CELLS / cells : 1;
    uint64_t states = heads * least(runs, held > 0 ? held : 1);
    return states * ((backward ? 82944 : 17408) * chunks + 131072);
}

/* Runs of the delta rule: whole sequences, of all heads or, exchanged, of some; or the pieces of a
 * sequence that a rank has, two in the zig-zag order. */
static void delta_runs(const struct budget_input *in, struct step_sizes *ret)
{
    const struct layout *l = &in->choices->layout;
    enum linear_context form = in->choices->primitives.linear_context;
    bool splits = l->cp > 1 && form == LINEAR_CONTEXT_HEAD_SPLIT;
    bool passes = l->cp > 1 && form == LINEAR_CONTEXT_STATE_PASS;
    uint64_t sequences = (uint64_t)l->micro_batch, own = passes ? 2 : 1, cp = (uint64_t)l->cp;
    uint64_t sequence = all_tokens(in) / sequences, pieces = packed_pieces(in);
    uint64_t run = passes ? sequence / (own * cp) : sequence, *w = ret->width;
    ret->rows[ROWS_DELTA_RUNS] = sequences * own;
    ret->rows[ROWS_DELTA_ALL_RUNS] = sequences * own * cp;
    ret->rows[ROWS_DELTA_SEGMENTS] =
        add_sat(mul_sat(ret->rows[ROWS_DELTA_RUNS], div_up(run, DELTA_SEGMENT_TOKENS)),
                pieces > 0 ? pieces - 1 : 0);
    if (passes)
        w[WIDTH_DELTA_HALO] = mul_sat((uint64_t)in->model->gdn.conv_width - 1, w[WIDTH_DELTA_CONV]);
    if (splits) {
        w[WIDTH_DELTA_SPLIT] = (w[WIDTH_DELTA_CONV] + 2 * w[WIDTH_DELTA_HEADS]) / cp;
        w[WIDTH_DELTA_SPLIT_VALUE] = w[WIDTH_DELTA_VALUE] / cp;
        w[WIDTH_DELTA_STATE] /= cp;
    }
    uint64_t heads = w[WIDTH_DELTA_HEADS] / (splits ? cp : 1);
    w[WIDTH_DELTA_WORKSPACE] = delta_workspace(in, run, sequences * own, heads, false);
    w[WIDTH_DELTA_WORKSPACE_BACK] = delta_workspace(in, run, sequences * own, heads, true);
}

uint64_t latent_head_block(const struct budget_input *in)
{
    uint64_t heads = split(in->model->gqa.heads, in->choices->layout.tp);
    uint64_t block = (uint64_t)in->choices->primitives.latent_head_block;
    return block > 0 && block < heads ? block : heads;
}

static void latent_widths(const struct budget_input *in, int tp, uint64_t *width)
{
    const struct model *m = in->model;
    const struct mla *mla = &m->mla;
    uint64_t heads = split(m->gqa.heads, tp), block = latent_head_block(in);
    uint64_t latent = (uint64_t)mla->kv_rank, rope = (uint64_t)mla->rope_dim;
    uint64_t nope = (uint64_t)mla->nope_dim, value = (uint64_t)mla->value_dim;
    uint64_t query = (uint64_t)mla->q_rank;
    if (latent == 0)
        return;
    width[WIDTH_QUERY_LATENT] = query;
    width[WIDTH_QUERY_INPUT] = query > 0 ? query : (uint64_t)m->hidden;
    width[WIDTH_LATENT] = latent;
    width[WIDTH_LATENT_KEY] = latent + rope;
    width[WIDTH_LATENTS] = query + latent;
    width[WIDTH_DOWN] = query + latent + rope;
    width[WIDTH_EXPANDED] = heads * (nope + value);
    width[WIDTH_VALUE] = heads * value;
    width[WIDTH_APART] = heads * nope + rope;
    width[WIDTH_NOPE] = nope;
    width[WIDTH_VALUE_DIM] = value;
    width[WIDTH_ROTATED] = (heads + 1) * rope;
    width[WIDTH_BLOCK_EXPANDED] = block * (nope + value);
    width[WIDTH_BLOCK_KEY] = block * (uint64_t)m->gqa.head_dim;
    width[WIDTH_ABSORBED] = heads * (latent + rope);
    width[WIDTH_ABSORBED_OUT] = heads * latent;
}

/* Indexers are whole on every rank of tp. */
static void index_widths(const struct budget_input *in, bool own, uint64_t *width)
{
    const struct indexer *x = &in->model->indexer;
    uint64_t tokens = local_tokens(in),
             tile = tokens < INDEX_TILE_TOKENS ? tokens : INDEX_TILE_TOKENS;
    uint64_t n = own ? 1 : 0;
    width[WIDTH_INDEX_QUERY] = n * (uint64_t)x->heads * (uint64_t)x->dim;
    width[WIDTH_INDEX_KEY] = n * (uint64_t)x->dim;
    width[WIDTH_INDEX_HEADS] = n * (uint64_t)x->heads;
    width[WIDTH_INDEX_DOWN] = width[WIDTH_INDEX_KEY] + width[WIDTH_INDEX_HEADS];
    width[WIDTH_CHOICES] = n * (uint64_t)x->top_k;
    width[WIDTH_INDEX_TILE] = own && x->heads > 0 ? mul3_sat(4, tile, longest_sequence(in)) : 0;
}

static void state_widths(const struct budget_input *in, int tp, uint64_t *width)
{
    const struct lightning *g = &in->model->lightning;
    const struct mamba *m = &in->model->mamba;
    uint64_t heads = split(g->heads, tp), dim = (uint64_t)g->head_dim;
    width[WIDTH_LIGHTNING] = heads * dim;
    width[WIDTH_LIGHTNING_THREE] = 3 * heads * dim;
    width[WIDTH_LIGHTNING_FOUR] = 4 * heads * dim;
    if (g->heads > 0)
        width[WIDTH_LIGHTNING_STATES] =
            mul3_sat(recurrence_chunks(in, LIGHTNING_CHUNK_TOKENS), heads * dim, dim);
    if (m->heads == 0)
        return;
    uint64_t groups = split(m->groups, tp), inner = split(m->heads, tp) * (uint64_t)m->head_dim;
    uint64_t chunk = (uint64_t)m->chunk_tokens, state = (uint64_t)m->state;
    width[WIDTH_MAMBA_HEADS] = split(m->heads, tp);
    width[WIDTH_MAMBA_INNER] = inner;
    width[WIDTH_MAMBA_CHANNELS] = inner + 2 * groups * state;
    width[WIDTH_MAMBA_IN] = 2 * inner + 2 * groups * state + width[WIDTH_MAMBA_HEADS];
    width[WIDTH_MAMBA_TILE] = groups * chunk;
    width[WIDTH_MAMBA_STATES] = mul3_sat(div_up(local_tokens(in), chunk), inner, state);
}

static void ffn_widths(const struct model *m, int tp, int etp, uint64_t *width)
{
    width[WIDTH_EXPERTS] = (uint64_t)m->moe.experts;
    width[WIDTH_TOP_K] = (uint64_t)m->moe.top_k;
    width[WIDTH_SCORES] = width[WIDTH_EXPERTS] + width[WIDTH_TOP_K];
    width[WIDTH_EXPERT] = split(m->moe.width, etp);
    uint64_t parts = m->mlp_ungated ? 1 : 2; /* up alone, or gate and up */
    width[WIDTH_GATE_UP] = parts * width[WIDTH_EXPERT];
    width[WIDTH_ROUTED] = (uint64_t)model_routed_width(m);
    width[WIDTH_ROUTED_SUM] = (m->moe.shared_width > 0 ? 2 : 1) * width[WIDTH_ROUTED];
    width[WIDTH_EXPERT_LATENT] = (uint64_t)m->moe.latent;
    width[WIDTH_SHARED] = split(m->moe.shared_width, tp);
    width[WIDTH_SHARED_TWO] = parts * width[WIDTH_SHARED];
    width[WIDTH_DENSE] = split(m->dense_width, tp);
    width[WIDTH_DENSE_TWO] = parts * width[WIDTH_DENSE];
}

/* Gate and up of routed experts, which a checkpoint may store as one matrix: then they have one
 * adapter. */
static uint64_t expert_up_matrices(const struct budget_input *in)
{
    for (int mixer = 0; mixer < MIXER_COUNT; mixer++) {
        const struct layer_tensors *tensors = &in->sizes->tensors[mixer][FFN_MOE];
        uint64_t count = 0;
        for (int i = 0; i < tensors->count; i++)
            count += tensors->items[i].expert && tensors->items[i].matrix;
        if (count > 1)
            return count - 1; /* the other is down */
    }
    return in->model->mlp_ungated ? 1 : 2;
}

static uint32_t conditions(const struct budget_input *in, enum mixer mixer)
{
    const struct model *m = in->model;
    const struct layout *l = &in->choices->layout;
    const struct primitives *p = &in->choices->primitives;
    uint32_t when = l->tp > 1 ? WHEN_TP : 0;
    when |= m->gqa.output_gate ? WHEN_GATE : 0;
    when |= m->gqa.qkv_bias ? WHEN_BIAS : 0;
    when |= l->ep * l->etp > 1 ? WHEN_EXCHANGE : 0;
    when |= m->moe.shared_width > 0 ? WHEN_SHARED : 0;
    when |= m->moe.shared_width > 0 && m->moe.shared_gate ? WHEN_SHARED_GATE : 0;
    when |= m->moe.latent > 0 ? WHEN_LATENT : 0;
    when |= l->cp > 1 ? WHEN_CONTEXT : 0;
    when |= l->cp > 1 && p->context == CONTEXT_ALLGATHER_KV ? WHEN_GATHER_KV : 0;
    when |= p->attention_deterministic && !in->hardware->host ? WHEN_ORDERED : 0;
    when |= mixer == MIXER_DSA ? WHEN_INDEXER : 0;
    bool shares = l->cp > 1 && mixer == MIXER_GDN;
    when |= shares && p->linear_context == LINEAR_CONTEXT_HEAD_SPLIT ? WHEN_SPLIT_HEADS : 0;
    when |= shares && p->linear_context == LINEAR_CONTEXT_STATE_PASS ? WHEN_PASS_STATES : 0;
    return when | (p->keep_attention ? WHEN_KEEP_ATTENTION : 0);
}

void layer_kind(const struct budget_input *in, enum mixer mixer, enum ffn ffn,
                struct step_kind *ret)
{
    const struct primitives *p = &in->choices->primitives;
    struct dispatch d;
    memset(ret, 0, sizeof *ret);
    ret->mixer = step_mixers[mixer];
    ret->ffn = step_ffns[ffn];
    ret->when = conditions(in, mixer);
    ret->trained = trained_components(p);
    ret->adapted = adapted_components(p);
    if (ffn != FFN_MOE)
        return;
    dispatch_init(in, 0, &d);
    ret->schedule = p->moe == MOE_CAPPED ? SCHEDULE_CAPPED
                    : d.chunks > 1       ? SCHEDULE_CHUNKED
                                         : SCHEDULE_PLAIN;
    ret->when |= d.delay > 0 ? WHEN_DELAY : 0;
}

void layer_sizes(const struct budget_input *in, uint64_t received, struct step_sizes *ret)
{
    const struct layout *l = &in->choices->layout;
    bool gathers = l->cp > 1 && in->choices->primitives.context == CONTEXT_ALLGATHER_KV;
    struct dispatch d;
    dispatch_init(in, received, &d);
    memset(ret, 0, sizeof *ret);
    ret->rows[ROWS_ONE] = 1;
    ret->rows[ROWS_TOKENS] = local_tokens(in);
    ret->rows[ROWS_NORM] = norm_tokens(in);
    ret->rows[ROWS_ALL] = mul_sat(ret->rows[ROWS_TOKENS], (uint64_t)l->cp);
    ret->rows[ROWS_EXPANDED] = ret->rows[gathers ? ROWS_ALL : ROWS_TOKENS];
    ret->rows[ROWS_SENT] = d.sent;
    ret->rows[ROWS_RECV] = d.received;
    ret->chunks.count = d.chunks;
    ret->chunks.capped = in->choices->primitives.moe == MOE_CAPPED;
    ret->chunks.delay = d.delay;
    ret->adapter_rank = (uint64_t)in->choices->primitives.lora_rank;
    ret->width[WIDTH_ONE] = ret->width[WIDTH_PARTS_ONE] = 1;
    ret->width[WIDTH_PARTS_UP] = in->model->mlp_ungated ? 1 : 2;
    ret->width[WIDTH_PARTS_EXPERT_UP] = expert_up_matrices(in);
    ret->width[WIDTH_HIDDEN] = (uint64_t)in->model->hidden;
    attention_widths(in->model, l->tp, ret->width);
    delta_widths(in->model, l->tp, ret->width);
    if (in->model->gdn.value_heads > 0)
        delta_runs(in, ret);
    latent_widths(in, l->tp, ret->width);
    state_widths(in, l->tp, ret->width);
    ffn_widths(in->model, l->tp, l->etp, ret->width);
}

void layer_sizes_mixer(const struct budget_input *in, enum mixer mixer, struct step_sizes *sizes)
{
    struct context_bytes context;
    context_bytes(in, mixer, &context);
    index_widths(in, mixer != MIXER_DSA_SHARED, sizes->width);
    sizes->width[WIDTH_PARTS_MIXER] =
        mixer == MIXER_NONE ? 0 : (uint64_t)mixer_input_matrices(in, mixer);
    sizes->width[WIDTH_CONTEXT_FORWARD] = context.forward;
    sizes->width[WIDTH_CONTEXT_BACKWARD] = context.backward;
    sizes->width[WIDTH_ATTENTION_WORKSPACE] = context.workspace;
}
