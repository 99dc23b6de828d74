#include "tests/simulator/draw.h"

#include "base/layout/legality.h"
#include "base/layout/trained.h"
#include "base/model/tensor.h"
#include "base/text.h"
#include "tests/support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One draw under way. */
struct draw {
    uint64_t *seed;
    unsigned features;
    struct drawn *ret;
};

static int pick(const struct draw *d, int low, int high)
{
    return low + (int)random_below(d->seed, (uint64_t)high - (uint64_t)low + 1);
}

static bool chance(const struct draw *d, int of)
{
    return pick(d, 1, of) == 1;
}

/* True in one of `of` draws that have the feature. */
static bool has(const struct draw *d, unsigned feature, int of)
{
    return (d->features & feature) && chance(d, of);
}

/* 1, 2, 4 … up to 2^most, now and then three times that. */
static int degree(const struct draw *d, int most)
{
    int ret = 1 << pick(d, 0, most);
    return chance(d, 6) ? 3 * ret : ret;
}

static void draw_widths(const struct draw *d, struct model *m)
{
    int kv = 1 << pick(d, 0, 3);
    m->layers = pick(d, 1, d->features & DRAW_STAGES ? 14 : 6);
    if (has(d, DRAW_INTERLEAVED, 2)) /* so many that several runs a stage are likely */
        m->layers = 2 * m->layers + pick(d, 0, 10);
    m->hidden = 32 * pick(d, 1, 5);
    m->vocab = chance(d, 2) ? 64 * pick(d, 2, 40) : pick(d, 50, 3000);
    m->tied = chance(d, 3);
    m->norm_eps = 1e-6;
    m->gqa =
        (struct gqa){ .heads = kv * pick(d, 1, 4), .kv_heads = kv, .head_dim = 8 * pick(d, 1, 4) };
    m->gqa.rotary_fraction = 1;
    m->gqa.rope_theta = 10000;
    m->gqa.qk_norm = chance(d, 2);
    m->gqa.output_gate = chance(d, 3);
    m->gqa.qkv_bias = chance(d, 3);
    m->gqa.output_bias = chance(d, 4);
    m->gqa.sinks = chance(d, 4);
    m->dense_width = 48 * pick(d, 1, 8);
    m->mlp_ungated = (d->features & DRAW_STATES) && chance(d, 4);
}

static void draw_experts(const struct draw *d, struct model *m)
{
    m->moe.experts = 8 << pick(d, 0, 2);
    m->moe.top_k = pick(d, 1, 4);
    m->moe.width = 24 * pick(d, 1, 5);
    m->moe.shared_width = chance(d, 2) ? 48 * pick(d, 1, 3) : 0;
    m->moe.shared_gate = m->moe.shared_width > 0 && chance(d, 2);
    m->moe.router_bias = chance(d, 3);
    m->moe.expert_bias = chance(d, 4);
    m->moe.latent = has(d, DRAW_CAPPED, 3) ? 16 * pick(d, 1, 4) : 0;
    for (int i = 0; i < m->layers; i++)
        m->layer_ffn[i] = chance(d, 4) && !(d->features & DRAW_ALIKE) ? FFN_DENSE : FFN_MOE;
}

static void draw_latents(const struct draw *d, struct model *m)
{
    m->mla = (struct mla){ chance(d, 3) ? 0 : 24 * pick(d, 1, 3), 16 * pick(d, 1, 3), 8, 4,
                           4 * pick(d, 1, 3) };
    m->gqa.kv_heads = m->gqa.heads;
    m->gqa.head_dim = m->mla.nope_dim + m->mla.rope_dim;
    m->gqa.qk_norm = m->gqa.output_gate = m->gqa.qkv_bias = m->gqa.output_bias = false;
    m->gqa.sinks = false;
    if (chance(d, 2))
        m->indexer = (struct indexer){ pick(d, 1, 4), 8 * pick(d, 1, 3), 8 * pick(d, 1, 6) };
    bool first = true;
    for (int i = 0; i < m->layers; i++) {
        if (m->layer_mixer[i] != MIXER_GQA)
            continue;
        m->layer_mixer[i] = (uint8_t)(m->indexer.heads == 0   ? MIXER_MLA
                                      : first || chance(d, 2) ? MIXER_DSA
                                                              : MIXER_DSA_SHARED);
        first = false;
    }
}

static void draw_states(const struct draw *d, struct model *m)
{
    static const enum mixer kinds[] = { MIXER_GDN, MIXER_LIGHTNING, MIXER_MAMBA };
    enum mixer kind = kinds[pick(d, 0, 2)];
    int keys = 4 << pick(d, 0, 1);
    if (kind == MIXER_GDN)
        m->gdn =
            (struct gdn){ keys, keys * pick(d, 1, 2), 8 * pick(d, 1, 3), 8 * pick(d, 1, 3), 4 };
    if (kind == MIXER_LIGHTNING)
        m->lightning = (struct lightning){ 4 << pick(d, 0, 1), 8 * pick(d, 1, 3) };
    if (kind == MIXER_MAMBA)
        m->mamba =
            (struct mamba){ keys * pick(d, 1, 3), 8 * pick(d, 1, 2), 8 * pick(d, 1, 3), keys, 4,
                            32 << pick(d, 0, 2) };
    for (int i = 0; i < m->layers; i++)
        if (!chance(d, 3))
            m->layer_mixer[i] = (uint8_t)kind;
    if (!chance(d, 3))
        return;
    for (int i = 0; i < m->layers; i++) {
        if (i % 2)
            m->layer_mixer[i] = MIXER_NONE;
        else
            m->layer_ffn[i] = FFN_NONE;
    }
}

static void draw_small(const struct draw *d, struct model *m)
{
    memset(m, 0, sizeof *m);
    (void)snprintf(m->name, sizeof m->name, "drawn");
    (void)snprintf(m->architecture, sizeof m->architecture, "Qwen3MoeForCausalLM");
    draw_widths(d, m);
    if (has(d, DRAW_EXPERTS, 2))
        draw_experts(d, m);
    if (has(d, DRAW_STATES, 2))
        draw_states(d, m);
    if (has(d, DRAW_LATENTS, 2))
        draw_latents(d, m);
    if (has(d, DRAW_BESIDE, 3))
        m->mtp_layers = pick(d, 1, 2);
    if (has(d, DRAW_PREDICTED, 2))
        m->mtp_layers = pick(d, 1, 3);
}

static void draw_published(const struct draw *d, struct model *m)
{
    static const char *const names[] = {
        "llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3",     "deepseek-v3.2",
        "glm-5.2",      "gpt-oss-20b",   "minimax-m1",      "nemotron-3-nano-30b-a3b",
        "mixtral-8x7b", "qwen2.5-7b",    "qwen3.5-35b-a3b", "nemotron-3-super-120b-a12b",
        "qwen3-vl-8b",  "llama-4-scout", "kimi-k2",         "minimax-m2",
    };
    struct diag_list errors = { 0 };
    int count = (int)(sizeof names / sizeof names[0]);
    if (model_load(names[pick(d, 0, count - 1)], m, &errors) != 0) {
        diag_list_print(stderr, &errors);
        abort();
    }
    if (d->features & DRAW_BESIDE) {
        m->vision_trained = m->vision.depth > 0 && chance(d, 2);
        m->vision_frozen = m->vision.depth > 0 && !m->vision_trained;
    }
}

static void draw_stages(const struct draw *d, struct layout *l, int layers)
{
    layout_split_layers(l, layers);
    if (d->features & DRAW_INTERLEAVED && l->pp > 1 && chance(d, 2))
        l->vpp = pick(d, 2, 4);
    for (int i = 0; i < 3 && l->pp > 1; i++) {
        int from = pick(d, 0, l->pp - 1), to = pick(d, 0, l->pp - 1), count = l->vpp;
        if (l->stage_layers[from] > count) {
            l->stage_layers[from] -= count;
            l->stage_layers[to] += count;
        }
    }
}

static void draw_layout(const struct draw *d, const struct model *m, struct layout *l)
{
    bool experts = m->moe.experts > 0;
    memset(l, 0, sizeof *l);
    l->tp = has(d, DRAW_SPLIT, 2) ? degree(d, 2) : 1;
    l->cp = has(d, DRAW_CONTEXT, 2) ? degree(d, 3) : 1;
    l->pp = has(d, DRAW_STAGES, 2) ? degree(d, 2) : 1;
    l->vpp = 1;
    l->fsdp = degree(d, 3);
    l->d_rep = chance(d, 4) ? 2 : 1;
    l->ep = experts ? 1 << pick(d, 0, 3) : 1;
    l->etp = experts && has(d, DRAW_CAPPED, 3) ? degree(d, 1) : 1;
    l->e_rep = chance(d, 4) ? 2 : 1;
    int wide = l->tp * l->cp * l->fsdp * l->d_rep, rest = l->etp * l->ep * l->e_rep;
    l->e_fsdp = wide / rest; /* legality refuses what does not fill the world */
    l->micro_batch = pick(d, 1, 2);
    l->micro_batches = l->pp > 1 ? pick(d, 1, 2 * l->pp + 1) : pick(d, 1, 3);
    if (l->pp <= m->layers)
        draw_stages(d, l, m->layers);
    if (l->vpp > 1)
        l->micro_batches = l->pp * pick(d, 1, chance(d, 3) ? 6 : 3);
}

static void draw_moe(const struct draw *d, const struct layout *l, uint64_t seq,
                     struct primitives *p)
{
    bool capped = has(d, DRAW_CAPPED, 3);
    if (!capped && chance(d, 2))
        return;
    p->moe = capped ? MOE_CAPPED : MOE_CHUNKED;
    p->moe_chunks = pick(d, 2, 6);
    p->wgrad_delay = pick(d, -1, p->moe_chunks - 1);
    if (capped)
        p->moe_cap_tokens =
            1 + (uint64_t)l->micro_batch * seq / (uint64_t)(l->cp * l->tp * pick(d, 1, 9));
}

static void draw_contexts(const struct draw *d, const struct model *m, int cp, struct primitives *p)
{
    if (cp == 1)
        return;
    for (int i = 0; i < m->layers; i++) {
        enum mixer mixer = (enum mixer)m->layer_mixer[i];
        if (mixer_is_softmax(mixer) && p->context == CONTEXT_NONE)
            p->context = (enum context)pick(d, CONTEXT_ALLGATHER_KV, CONTEXT_HIERARCHICAL);
        if (mixer_is_linear(mixer) && p->linear_context == LINEAR_CONTEXT_NONE)
            p->linear_context =
                chance(d, 2) ? LINEAR_CONTEXT_HEAD_SPLIT : LINEAR_CONTEXT_STATE_PASS;
    }
}

static void draw_loss(const struct draw *d, int64_t vocab, struct primitives *p)
{
    p->logits_dtype = chance(d, 2) ? DTYPE_FP32 : DTYPE_BF16;
    p->loss = chance(d, 2) ? LOSS_FULL : LOSS_LINEAR_CE;
    if (has(d, DRAW_ELSEWHERE, 3)) {
        p->loss = LOSS_RING_DTP;
        p->vocab_group = 2 * pick(d, 1, 2);
        return;
    }
    p->loss_tile_tokens = 1 << pick(d, 0, 12);
    if (p->loss == LOSS_LINEAR_CE && chance(d, 2))
        p->vocab_strip = pick(d, 1, (int)vocab);
}

static void draw_offload(const struct draw *d, struct primitives *p)
{
    if (chance(d, 2)) {
        p->offload |= OFFLOAD_OPTIMIZER;
        p->bucket_params = (uint64_t)pick(d, 1, 100000);
        p->slots = pick(d, 2, 3);
    }
    if (p->recompute == RECOMPUTE_FULL && chance(d, 2)) {
        p->offload |= OFFLOAD_CHECKPOINTS;
        p->sco_host_bytes = (uint64_t)pick(d, 1, 1 << 20);
    }
}

/* Some of the components that `frozen` may name and the model has. */
static unsigned draw_frozen(const struct draw *d, const struct model *m)
{
    struct model_counts counts;
    unsigned there = 0;
    model_count(m, &counts);
    for (int i = 0; i < FREEZABLE_COMPONENTS; i++)
        there |= counts.by_component[i] > 0 ? 1U << i : 0;
    return (unsigned)pick(d, 1, (1 << FREEZABLE_COMPONENTS) - 1) & there;
}

static void draw_trained(const struct draw *d, const struct model *m, struct primitives *p)
{
    if (!has(d, DRAW_TRAINED, 2))
        return;
    p->optimizer = (enum optimizer)pick(d, 0, 1);
    p->moments_dtype = (enum dtype)pick(d, 0, 1);
    p->master = (enum master)pick(d, 0, 1);
    /* adapters of the projections into experts' latents are not played */
    if (m->moe.latent == 0 && chance(d, 3)) {
        p->lora_rank = pick(d, 1, 9);
        p->lora_targets = (unsigned)pick(d, 1, 7);
    } else if (chance(d, 2)) {
        p->frozen = draw_frozen(d, m);
    }
}

/* A row of whole pieces of zig-zag order holds at least one sequence. */
static void draw_rl(const struct draw *d, struct layout *l, uint64_t seq, struct primitives *p)
{
    if (!has(d, DRAW_RL, 2))
        return;
    p->rl = (unsigned)pick(d, 0, (1 << RL_COUNT) - 1);
    if (p->rl & RL_REFERENCE)
        p->reference_weights = (enum reference_weights)pick(d, 0, 1);
    if (chance(d, 2))
        return;
    uint64_t part = 2 * (uint64_t)l->tp, own = (seq + (uint64_t)l->cp - 1) / (uint64_t)l->cp;
    p->tokens_per_gpu = part * ((own + part - 1) / part + (uint64_t)pick(d, 0, 1) * own);
    l->micro_batch = 1;
    if (p->moe == MOE_CAPPED)
        p->moe_cap_tokens = 1 + p->tokens_per_gpu / (uint64_t)(l->tp * pick(d, 1, 9));
}

/* Lengths up to a row's, the longest first; of each some pieces. */
static void draw_lengths(const struct draw *d, uint64_t seq, struct primitives *p,
                         struct lengths *ret)
{
    ret->distinct = 0;
    if (!has(d, DRAW_PACKED, 2))
        return;
    p->packing = (enum packing)pick(d, PACKING_ROW, PACKING_PIECE);
    uint64_t length = (uint64_t)pick(d, 1, (int)seq);
    for (int i = pick(d, 1, 6); i > 0 && length > 0; i--) {
        ret->items[ret->distinct++] = (struct length_count){ length, (uint64_t)pick(d, 1, 9) };
        length = length > 1 ? (uint64_t)pick(d, 1, (int)length) - 1 : 0;
    }
}

static void draw_primitives(const struct draw *d, const struct model *m, const struct layout *l,
                            uint64_t seq, struct primitives *p)
{
    static const enum sharding kinds[] = { SHARDING_FSDP, SHARDING_FSDP, SHARDING_REPLICATED,
                                           SHARDING_ZERO1, SHARDING_ZERO2 };
    *p = primitives_default();
    p->sharding = kinds[pick(d, 0, d->features & DRAW_STAGES ? 4 : 3)];
    p->grad_dtype = chance(d, 2) ? DTYPE_FP32 : DTYPE_BF16;
    p->recompute = chance(d, 3) ? RECOMPUTE_NONE : RECOMPUTE_FULL;
    if (p->recompute == RECOMPUTE_FULL && chance(d, 2) && !(d->features & DRAW_ALIKE))
        p->recompute_layers = pick(d, 0, m->layers);
    p->keep_attention = p->recompute == RECOMPUTE_FULL && chance(d, 3);
    p->prefetch_units = pick(d, 0, 3);
    p->comm_streams = pick(d, 1, 2);
    p->attention_deterministic = m->mla.kv_rank == 0 && chance(d, 3);
    if (m->mla.kv_rank > 0)
        p->latent_head_block = pick(d, 0, 2);
    if (m->moe.experts > 0)
        draw_moe(d, l, seq, p);
    draw_loss(d, m->vocab, p);
    draw_contexts(d, m, l->cp, p);
    if (has(d, DRAW_ELSEWHERE, 2))
        draw_offload(d, p);
    draw_trained(d, m, p);
}

static bool is_legal(const struct drawn *r)
{
    const struct layout *l = &r->choices.layout;
    struct legality_input in = { .model = &r->model,
                                 .hardware = &r->hardware,
                                 .choices = &r->choices,
                                 .gpus = r->gpus,
                                 .seq_tokens = r->seq_tokens,
                                 .routing = &r->routing,
                                 .lengths = &r->lengths };
    in.global_batch = (int64_t)layout_dp(l) * l->micro_batch * l->micro_batches;
    return r->gpus <= 768 && legality_check(&in, NULL) == 0;
}

void draw_step(uint64_t *seed, unsigned features, struct drawn *ret)
{
    struct draw d = { seed, features, ret };
    bool published = has(&d, DRAW_PUBLISHED, 4);
    memset(ret, 0, sizeof *ret);
    if (published)
        draw_published(&d, &ret->model);
    else
        draw_small(&d, &ret->model);
    if (ret->model.mtp_layers > 0)
        ret->model.mtp_trained = (features & DRAW_PREDICTED) && !chance(&d, 4);
    ret->hardware.host = chance(&d, 2);
    ret->hardware.workspace_bytes = 4096;
    ret->hardware.domain_gpus = 8;
    do {
        struct layout *l = &ret->choices.layout;
        draw_layout(&d, &ret->model, l);
        ret->gpus = layout_world(l);
        ret->seq_tokens = (uint64_t)(l->tp * l->cp) * (uint64_t)pick(&d, 1, published ? 2000 : 200);
        draw_primitives(&d, &ret->model, l, ret->seq_tokens, &ret->choices.primitives);
        draw_rl(&d, l, ret->seq_tokens, &ret->choices.primitives);
        draw_lengths(&d, ret->seq_tokens, &ret->choices.primitives, &ret->lengths);
        ret->routing = (struct routing){ .kind = ROUTING_BALANCED };
        if (ret->model.moe.experts > 0 && chance(&d, 4))
            ret->routing = (struct routing){ ROUTING_HOT, 0.8, 4, 0 };
    } while (!is_legal(ret));
}

void drawn_format(const struct drawn *drawn, char *ret, size_t size)
{
    size_t used = 0;
    char text[512];
    const struct model *m = &drawn->model;
    text_append(ret, size, &used, "%s, %d layers, %d GPUs, %llu tokens, %s;", m->name, m->layers,
                drawn->gpus, (unsigned long long)drawn->seq_tokens,
                drawn->hardware.host ? "host" : "device");
    for (size_t i = 0; i < choice_key_count; i++) {
        choice_format(&drawn->choices, (int)i, text, sizeof text);
        text_append(ret, size, &used, " %s=%s", choice_keys[i].key, text);
    }
    text_append(ret, size, &used, " micro_batches=%d", drawn->choices.layout.micro_batches);
    text_append(ret, size, &used, "; layers:");
    for (int i = 0; i < m->layers && i < 24; i++)
        text_append(ret, size, &used, " %d.%d", m->layer_mixer[i], m->layer_ffn[i]);
}
