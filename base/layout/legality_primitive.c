/* Primitives against layout, model and each other. */
#include "base/layout/legality_rules.h"
#include "base/layout/rows.h"
#include "base/text.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdlib.h>

/* Parts of equal length that a sequence splits into: zig-zag order gives each rank one piece from
 * the front and one from the back; sequence parallelism splits a rank's tokens over tp. */
static int64_t sequence_parts(const struct choices *c)
{
    int64_t cp = c->layout.cp, tp = c->layout.tp;
    bool zig_zag =
        cp > 1 && c->primitives.context != CONTEXT_NONE && c->primitives.context != CONTEXT_ULYSSES;
    return zig_zag ? cp * (tp % 2 == 0 ? tp : 2 * tp) : cp * tp;
}

int legality_sequence(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    int64_t parts = sequence_parts(in->choices);
    uint64_t tokens = rows_capacity(in->choices, in->seq_tokens);
    uint64_t unit = (uint64_t)parts, below = tokens / unit * unit;

    if (tokens >= unit && tokens % unit == 0)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, l->cp > 1 ? "cp" : "tp"),
               "a sequence of %llu token%s does not split into %lld equal parts (cp %d, tp %d%s)",
               (unsigned long long)tokens, tokens == 1 ? "" : "s", (long long)parts, l->cp, l->tp,
               parts == (int64_t)l->cp * l->tp ? "" : ", two pieces a rank in zig-zag order");
    if (below > 0)
        diag_hint(reterr, "nearest legal lengths: %" PRIu64 " or %" PRIu64 " tokens", below,
                  below + unit);
    else
        diag_hint(reterr, "nearest legal length: %llu tokens", (unsigned long long)unit);
    return 1;
}

int legality_context(const struct legality_input *in, struct diag_list *reterr)
{
    int cp = in->choices->layout.cp;
    enum context context = in->choices->primitives.context;
    bool attention = model_has_softmax(in->model);
    bool needed = cp > 1 && attention;

    if (needed == (context != CONTEXT_NONE))
        return 0;
    if (!reterr)
        return 1;
    if (needed) {
        diag_error(reterr, choice_pos(in->fixed, "context"),
                   "context=none, but cp %d shares each sequence among ranks", cp);
        diag_hint(reterr, "context=allgather_kv, ulysses, ring or hierarchical; or cp=1");
        return 1;
    }
    diag_error(reterr, choice_pos(in->fixed, "context"), "context=%s, but %s",
               context_names[context],
               attention ? "cp is 1" : "the model has no softmax attention");
    diag_hint(reterr, attention ? "context=none, or cp above 1" : "context=none");
    return 1;
}

int legality_linear_context(const struct legality_input *in, struct diag_list *reterr)
{
    int cp = in->choices->layout.cp;
    enum linear_context context = in->choices->primitives.linear_context;
    bool linear = model_has_linear(in->model);
    bool needed = cp > 1 && linear;

    if (needed == (context != LINEAR_CONTEXT_NONE))
        return 0;
    if (!reterr)
        return 1;
    if (needed) {
        diag_error(
            reterr, choice_pos(in->fixed, "linear_context"),
            "linear_context=none, but cp %d shares each sequence and %s has linear attention", cp,
            in->model->name);
        diag_hint(reterr, "linear_context=head_split or state_pass; or cp=1");
        return 1;
    }
    diag_error(reterr, choice_pos(in->fixed, "linear_context"), "linear_context=%s, but %s",
               linear_context_names[context],
               linear ? "cp is 1" : "the model has no linear attention");
    diag_hint(reterr, linear ? "linear_context=none, or cp above 1" : "linear_context=none");
    return 1;
}

/* Whole query heads for each rank; key/value heads divide or repeat evenly. */
static bool ulysses_splits(const struct gqa *gqa, int64_t ranks)
{
    return gqa->heads % ranks == 0 && (gqa->kv_heads % ranks == 0 || ranks % gqa->kv_heads == 0);
}

/* "1, 2, 4, 8": numbers of ranks that divide `amount` and split the heads. Returns ret; the legal
 * one next to `ranks`, the smaller of two as near, in *nearest. */
static const char *ulysses_list(const struct gqa *gqa, int64_t amount, int64_t ranks, char *ret,
                                size_t size, int64_t *nearest)
{
    size_t used = 0;

    ret[0] = '\0';
    *nearest = 1;
    for (int64_t d = 1; d <= amount && d <= gqa->heads; d++) {
        if (amount % d != 0 || !ulysses_splits(gqa, d))
            continue;
        text_append(ret, size, &used, "%s%lld", used ? ", " : "", (long long)d);
        if (llabs(d - ranks) < llabs(*nearest - ranks))
            *nearest = d;
    }
    return ret;
}

int legality_ulysses_heads(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    const struct gqa *gqa = &in->model->gqa;
    int64_t ranks = (int64_t)l->cp * l->tp, nearest;
    char all[160], both[160], here[160];

    if (in->choices->primitives.context != CONTEXT_ULYSSES || l->cp == 1 ||
        ulysses_splits(gqa, ranks))
        return 0;
    if (!reterr)
        return 1;
    bool heads = gqa->heads % ranks == 0;
    diag_error(reterr, choice_pos(in->fixed, "cp"),
               "ulysses gives each of cp %d x tp %d = %lld ranks whole heads, but %d %s %s", l->cp,
               l->tp, (long long)ranks, heads ? gqa->kv_heads : gqa->heads,
               heads ? "key/value heads" : "query heads",
               heads ? "neither divide among them nor repeat evenly" : "do not divide among them");
    (void)ulysses_list(gqa, gqa->heads, ranks, both, sizeof both, &nearest);
    (void)ulysses_list(gqa, in->gpus, ranks, here, sizeof here, &nearest);
    diag_hint(reterr,
              "nearest legal cp x tp: %lld; query heads allow %s, key/value heads of these %s, %d "
              "GPUs of these %s; or context=allgather_kv",
              (long long)nearest, all_divisors(gqa->heads, all, sizeof all), both, in->gpus, here);
    return 1;
}

int legality_ulysses_repeat(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    int64_t ranks = (int64_t)l->cp * l->tp, kv = in->model->gqa.kv_heads;

    if (in->choices->primitives.context != CONTEXT_ULYSSES || l->cp == 1 || kv < 1 || ranks <= kv ||
        in->model->mla.kv_rank > 0)
        return 0;
    if (!reterr)
        return 1;
    diag_warning(reterr, choice_pos(in->fixed, "cp"),
                 "ulysses over cp %d x tp %d = %lld ranks repeats %lld key/value heads: exchanged "
                 "keys and values take %lld times their bytes",
                 l->cp, l->tp, (long long)ranks, (long long)kv, (long long)(ranks / kv));
    diag_hint(reterr, "cp x tp up to %lld repeats none; context=allgather_kv and ring never do",
              (long long)kv);
    return 1;
}

/* A run takes its halo from the run before it alone. */
int legality_state_pass(const struct legality_input *in, struct diag_list *reterr)
{
    const struct model *m = in->model;
    int cp = in->choices->layout.cp, halo = 0;
    uint64_t run = in->seq_tokens / (2 * (uint64_t)cp);

    if (model_has_mixer(m, MIXER_GDN))
        halo = m->gdn.conv_width - 1;
    else if (model_has_mixer(m, MIXER_MAMBA))
        halo = m->mamba.conv_width - 1;
    if (in->choices->primitives.linear_context != LINEAR_CONTEXT_STATE_PASS || cp < 2 ||
        run >= (uint64_t)halo)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "linear_context"),
               "linear_context=state_pass: runs of %" PRIu64
               " tokens are shorter than the %d that a convolution of %d looks back",
               run, halo, halo + 1);
    diag_hint(reterr, "at least %d tokens a sequence, a smaller cp, or linear_context=head_split",
              2 * cp * halo);
    return 1;
}

int legality_head_split(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    const struct gdn *gdn = &in->model->gdn;
    int64_t ranks = (int64_t)l->cp * l->tp;
    int64_t heads = linear_heads(in->model);
    char near[64];

    if (in->choices->primitives.linear_context != LINEAR_CONTEXT_HEAD_SPLIT || heads == 0 ||
        heads % ranks == 0)
        return 0;
    if (!reterr)
        return 1;
    if (model_has_mixer(in->model, MIXER_GDN))
        diag_error(reterr, choice_pos(in->fixed, "linear_context"),
                   "head_split divides %d key and %d value heads among cp %d x tp %d = %lld ranks",
                   gdn->key_heads, gdn->value_heads, l->cp, l->tp, (long long)ranks);
    else
        diag_error(reterr, choice_pos(in->fixed, "linear_context"),
                   "head_split divides %lld heads or groups among cp %d x tp %d = %lld ranks",
                   (long long)heads, l->cp, l->tp, (long long)ranks);
    diag_hint(reterr, "nearest legal cp x tp on %d GPUs: %s; or linear_context=state_pass",
              in->gpus,
              nearest_divisors(common_divisor(heads, in->gpus), ranks, near, sizeof near));
    return 1;
}

int legality_moe(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    bool plain = p->moe == MOE_PLAIN;

    if (plain ? p->moe_chunks == 1 : p->moe_chunks >= 2 && in->model->moe.experts > 0)
        return 0;
    if (!reterr)
        return 1;
    if (!plain && in->model->moe.experts == 0) {
        diag_error(reterr, choice_pos(in->fixed, "moe"), "moe=%s, but %s has no experts",
                   moe_names[p->moe], in->model->name);
        diag_hint(reterr, "moe=plain");
        return 1;
    }
    diag_error(reterr, choice_pos(in->fixed, "moe_chunks"), "moe_chunks=%d with moe=%s",
               p->moe_chunks, moe_names[p->moe]);
    diag_hint(reterr,
              plain ? "moe_chunks=1, or moe=chunked" : "moe_chunks=2 or more, or moe=plain");
    return 1;
}

int legality_moe_cap(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;

    if ((p->moe == MOE_CAPPED) == (p->moe_cap_tokens > 0))
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "moe_cap_tokens"), "moe_cap_tokens=%llu with moe=%s",
               (unsigned long long)p->moe_cap_tokens, moe_names[p->moe]);
    if (p->moe == MOE_CAPPED)
        diag_hint(reterr, "moe=capped needs moe_cap_tokens, the tokens a source sends per chunk");
    else
        diag_hint(reterr, "moe=capped, or leave moe_cap_tokens out");
    return 1;
}

int legality_wgrad_delay(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;

    if (p->wgrad_delay == 0 || (p->moe != MOE_PLAIN && p->wgrad_delay < p->moe_chunks))
        return 0;
    if (!reterr)
        return 1;
    if (p->moe == MOE_PLAIN) {
        diag_error(reterr, choice_pos(in->fixed, "wgrad_delay"),
                   "wgrad_delay puts off chunks, but moe=plain has none");
        diag_hint(reterr, "wgrad_delay=0, or moe=chunked");
        return 1;
    }
    diag_error(reterr, choice_pos(in->fixed, "wgrad_delay"), "wgrad_delay=%d with only %d chunks",
               p->wgrad_delay, p->moe_chunks);
    diag_hint(reterr, "wgrad_delay is at most %d, or all", p->moe_chunks - 1);
    return 1;
}

int legality_recompute_layers(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    const struct layout *l = &in->choices->layout;
    int largest = 0;

    for (int stage = 0; stage < l->pp; stage++)
        if (l->stage_layers[stage] > largest)
            largest = l->stage_layers[stage];
    bool all = p->recompute_layers == RECOMPUTE_ALL_LAYERS;
    if (all || (p->recompute != RECOMPUTE_NONE && p->recompute_layers <= largest))
        return 0;
    if (!reterr)
        return 1;
    if (p->recompute == RECOMPUTE_NONE) {
        diag_error(reterr, choice_pos(in->fixed, "recompute_layers"),
                   "recompute_layers=%d with recompute=none", p->recompute_layers);
        diag_hint(reterr, "recompute=full or selective, or recompute_layers=all");
        return 1;
    }
    diag_error(reterr, choice_pos(in->fixed, "recompute_layers"),
               "recompute_layers=%d, but the largest stage has %d layers", p->recompute_layers,
               largest);
    diag_hint(reterr, "recompute_layers is at most %d, or all", largest);
    return 1;
}

int legality_selective_recompute(const struct legality_input *in, struct diag_list *reterr)
{
    if (in->choices->primitives.recompute != RECOMPUTE_SELECTIVE)
        return 0;
    if (!reterr)
        return 1;
    diag_warning(reterr, choice_pos(in->fixed, "recompute"),
                 "recompute=selective saves 0 bytes: fused attention keeps no scores, norms and "
                 "activations are made again in any case, and what a product made stays");
    diag_hint(reterr, "recompute=full with recompute_layers=N keeps of N layers their input alone");
    return 1;
}

int legality_keep_attention(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    bool recomputes = p->recompute == RECOMPUTE_FULL, softmax = model_has_softmax(in->model);

    if (!p->keep_attention || (recomputes && softmax))
        return 0;
    if (!reterr)
        return 1;
    if (softmax)
        diag_warning(reterr, choice_pos(in->fixed, "keep_attention"),
                     "keep_attention=1 has no effect with recompute=%s: every layer keeps what "
                     "attention made",
                     recompute_names[p->recompute]);
    else
        diag_warning(reterr, choice_pos(in->fixed, "keep_attention"),
                     "keep_attention=1 has no effect: no layer of %s attends to keys",
                     in->model->name);
    diag_hint(reterr,
              softmax ? "recompute=full, or leave keep_attention out" : "leave keep_attention out");
    return 1;
}

int legality_vocab_group(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    const struct layout *l = &in->choices->layout;
    int64_t dp = (int64_t)l->fsdp * l->d_rep;
    char near[64];

    if (p->loss != LOSS_RING_DTP) {
        if (p->vocab_group <= 1)
            return 0;
        if (reterr) {
            diag_error(reterr, choice_pos(in->fixed, "vocab_group"), "vocab_group=%d with loss=%s",
                       p->vocab_group, loss_names[p->loss]);
            diag_hint(reterr, "loss=ring_dtp, or vocab_group=1");
        }
        return 1;
    }
    bool divides = p->vocab_group >= 2 && dp % p->vocab_group == 0;
    if (divides && in->model->vocab % p->vocab_group == 0)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "vocab_group"),
               "loss=ring_dtp splits a vocabulary of %lld over vocab_group %d of dp %lld ranks",
               (long long)in->model->vocab, p->vocab_group, (long long)dp);
    int64_t common = common_divisor(dp, in->model->vocab);
    if (common < 2)
        diag_hint(reterr, "no group of at least 2 divides both: loss=linear_ce");
    else
        diag_hint(
            reterr, "vocab_group must divide both and be at least 2: nearest legal %s",
            nearest_divisors(common, p->vocab_group < 2 ? 2 : p->vocab_group, near, sizeof near));
    return 1;
}

int legality_vocab_strip(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    int64_t vocab = in->model->vocab;

    if (p->vocab_strip == 0 || (p->loss == LOSS_LINEAR_CE && p->vocab_strip <= vocab))
        return 0;
    if (!reterr)
        return 1;
    if (p->loss != LOSS_LINEAR_CE) {
        diag_error(reterr, choice_pos(in->fixed, "vocab_strip"), "vocab_strip=%d with loss=%s",
                   p->vocab_strip, loss_names[p->loss]);
        diag_hint(reterr, "loss=linear_ce, or vocab_strip=0");
        return 1;
    }
    diag_error(reterr, choice_pos(in->fixed, "vocab_strip"),
               "vocab_strip=%d, but the vocabulary has %lld entries", p->vocab_strip,
               (long long)vocab);
    diag_hint(reterr, "vocab_strip is at most %lld, or 0 for no strips", (long long)vocab);
    return 1;
}

int legality_loss_tile(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;

    if (p->loss != LOSS_RING_DTP || p->loss_tile_tokens == LOSS_TILE_TOKENS)
        return 0;
    if (!reterr)
        return 1;
    diag_error(reterr, choice_pos(in->fixed, "loss_tile_tokens"),
               "loss_tile_tokens=%d with loss=%s", p->loss_tile_tokens, loss_names[p->loss]);
    diag_hint(reterr, "loss=linear_ce, loss=full, or loss_tile_tokens=%d", LOSS_TILE_TOKENS);
    return 1;
}

int legality_offload(const struct legality_input *in, struct diag_list *reterr)
{
    const struct primitives *p = &in->choices->primitives;
    bool checkpoints = p->offload & OFFLOAD_CHECKPOINTS;
    int violated = 0;

    if (checkpoints && p->recompute == RECOMPUTE_NONE) {
        violated = 1;
        if (reterr) {
            diag_error(reterr, choice_pos(in->fixed, "offload"),
                       "offload=checkpoints, but recompute=none keeps no checkpoints");
            diag_hint(reterr, "recompute=full, or leave checkpoints out of offload");
        }
    }
    if (checkpoints != (p->sco_host_bytes > 0)) {
        violated = 1;
        if (reterr) {
            diag_error(reterr, choice_pos(in->fixed, checkpoints ? "offload" : "sco_host_bytes"),
                       "sco_host_bytes=%llu, and offload %s checkpoints",
                       (unsigned long long)p->sco_host_bytes, checkpoints ? "has" : "lacks");
            diag_hint(reterr, checkpoints ? "sco_host_bytes is the host memory they may take"
                                          : "offload=checkpoints, or sco_host_bytes=0");
        }
    }
    if ((p->offload & OFFLOAD_OPTIMIZER) && p->slots < 2) {
        violated = 1;
        if (reterr) {
            diag_error(reterr, choice_pos(in->fixed, "slots"),
                       "slots=%d: one bucket is updated while the next arrives", p->slots);
            diag_hint(reterr, "slots=2 or more");
        }
    }
    return violated;
}

int legality_offload_idle(const struct legality_input *in, struct diag_list *reterr)
{
    static const char *const keys[] = { "bucket_params", "slots" };
    int violated = 0;

    if (in->choices->primitives.offload & OFFLOAD_OPTIMIZER)
        return 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!choice_is_fixed(in->fixed, keys[i]))
            continue;
        violated = 1;
        if (reterr) {
            diag_warning(reterr, choice_pos(in->fixed, keys[i]),
                         "%s has no effect without offload=optimizer", keys[i]);
            diag_hint(reterr, "offload=optimizer, or leave %s out", keys[i]);
        }
    }
    return violated;
}

/* Weights are gathered a unit at a time where they are sharded, gradients reduced so where they
 * are.
 */
int legality_units_idle(const struct legality_input *in, struct diag_list *reterr)
{
    enum sharding sharding = in->choices->primitives.sharding;
    const struct {
        const char *key;
        bool matters;
        const char *where;
    } rows[] = {
        { "prefetch_units", sharding == SHARDING_FSDP, "sharding=fsdp" },
        { "comm_streams", sharding == SHARDING_FSDP || sharding == SHARDING_ZERO2,
          "sharding=fsdp or zero2" },
    };
    int violated = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].matters || !choice_is_fixed(in->fixed, rows[i].key))
            continue;
        violated = 1;
        if (reterr) {
            diag_warning(reterr, choice_pos(in->fixed, rows[i].key),
                         "%s has no effect with sharding=%s", rows[i].key,
                         sharding_names[sharding]);
            diag_hint(reterr, "%s, or leave %s out", rows[i].where, rows[i].key);
        }
    }
    return violated;
}

/* Tokens of the last and of the other chunks, as runs of ceil(T / n) leave them; 0: there is no
 * such chunk. */
static bool shares_are_equal(const struct legality_input *in)
{
    const struct layout *l = &in->choices->layout;
    uint64_t tokens = in->seq_tokens * (uint64_t)l->micro_batch / (uint64_t)(l->cp * l->tp);
    uint64_t chunks = (uint64_t)in->choices->primitives.moe_chunks;
    uint64_t run = (tokens + chunks - 1) / chunks, top_k = (uint64_t)in->model->moe.top_k;
    uint64_t last = run > 0 ? tokens % run : 0;

    return run * top_k % (uint64_t)l->ep == 0 && last * top_k % (uint64_t)l->ep == 0;
}

int legality_exchange(const struct legality_input *in, struct diag_list *reterr)
{
    const struct layout *l = &in->choices->layout;
    int domain = in->hardware->domain_gpus;

    if (in->choices->primitives.exchange != EXCHANGE_COPY)
        return 0;
    bool exchanges = l->ep > 1, near = l->ep * l->etp <= domain && l->etp == 1;
    bool even = !in->routing || in->routing->kind == ROUTING_BALANCED;
    if (exchanges && near && even && shares_are_equal(in))
        return 0;
    if (!reterr)
        return 1;
    struct pos at = choice_pos(in->fixed, "exchange");
    if (!exchanges)
        diag_error(reterr, at, "exchange=copy, but ep 1 exchanges nothing");
    else if (!near)
        diag_error(reterr, at,
                   "exchange=copy writes into the memory of GPUs of one NVLink domain of %d, but "
                   "the expert group is ep %d x etp %d",
                   domain, l->ep, l->etp);
    else if (!even)
        diag_error(reterr, at,
                   "exchange=copy moves equal shares, which only balanced routing promises");
    else
        diag_error(reterr, at,
                   "exchange=copy moves equal shares, but the tokens of a chunk x top-%d do not "
                   "divide by ep %d",
                   in->model->moe.top_k, l->ep);
    diag_hint(reterr, "exchange=sm%s", exchanges ? "" : ", or ep above 1");
    return 1;
}
