#include "tests/unit/layout/legality_examples.h"

#include "base/layout/trained.h"

#include <string.h>

/* Half of the experts' ranks, and stages for the others. */
static void two_stages(struct fixture *f)
{
    f->choices.layout.ep = 4;
    f->choices.layout.pp = 2;
    fixture_derive(f);
}

static void p03_world_too_small(struct fixture *f)
{
    f->choices.layout.pp = 2;
    fixture_derive(f);
}

static void dense_world_too_small(struct fixture *f)
{
    f->choices.layout.cp = 16;
    f->choices.primitives.context = CONTEXT_RING;
    fixture_derive(f);
}

static void dense_world_uneven(struct fixture *f)
{
    f->input.gpus = 12;
    f->choices.layout.ep = 4;
    f->choices.layout.tp = 8;
    f->model.gqa.kv_heads = 8;
    fixture_derive(f);
}

static void shards_do_not_fill(struct fixture *f)
{
    f->choices.layout.fsdp = 3;
}

static void shards_need_copies(struct fixture *f)
{
    f->choices.layout.fsdp = 4;
}

static void expert_shards_do_not_fill(struct fixture *f)
{
    f->choices.layout.ep = 1;
    f->choices.layout.e_fsdp = 5;
}

void experts_uneven(struct fixture *f)
{
    f->model.moe.experts = 60;
}

static void expert_width_uneven(struct fixture *f)
{
    f->choices.layout.ep = 1;
    f->choices.layout.etp = 8;
    f->model.moe.width = 1412;
    fixture_derive(f);
}

static void dense_model_with_ep(struct fixture *f)
{
    f->model.moe = (struct moe){ 0 };
    f->model.dense_width = 8192;
    memset(f->model.layer_ffn, FFN_DENSE, sizeof f->model.layer_ffn);
}

static void p04_kv_heads(struct fixture *f)
{
    f->model.gqa.heads = 16;
    f->model.gqa.kv_heads = 2;
    f->choices.layout.tp = 4;
    fixture_derive(f);
}

static void heads_uneven(struct fixture *f)
{
    f->model.gqa.heads = 12;
    f->choices.layout.tp = 8;
    f->model.gqa.kv_heads = 8;
    fixture_derive(f);
}

static void hybrid(struct fixture *f)
{
    f->model.gdn = (struct gdn){
        .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .conv_width = 4
    };
    for (int layer = 0; layer < f->model.layers; layer++)
        f->model.layer_mixer[layer] = layer % 4 == 3 ? MIXER_GQA : MIXER_GDN;
}

static void linear_heads_uneven(struct fixture *f)
{
    hybrid(f);
    f->model.gdn.key_heads = 6;
    f->choices.layout.tp = 4;
    fixture_derive(f);
}

static void shared_expert_uneven(struct fixture *f)
{
    f->choices.layout.tp = 4;
    f->model.moe.shared_width = 510;
    fixture_derive(f);
}

static void p07_layers_dropped(struct fixture *f)
{
    two_stages(f);
    f->choices.layout.stage_layers[0] = 11;
    f->choices.layout.stage_layers[1] = 13;
}

static void stage_too_many(struct fixture *f)
{
    f->choices.layout.stage_layers[0] = 24;
    f->choices.layout.stage_layers[1] = 24;
}

static void pp_beyond_layers(struct fixture *f)
{
    f->model.layers = 3;
    f->choices.layout.pp = 4;
    f->choices.layout.ep = 2;
    fixture_derive(f);
}

static void stage_without_layers(struct fixture *f)
{
    two_stages(f);
    f->choices.layout.stage_layers[0] = 0;
    f->choices.layout.stage_layers[1] = 48;
}

static void vpp_without_pp(struct fixture *f)
{
    f->choices.layout.vpp = 2;
}

static void vpp_uneven(struct fixture *f)
{
    f->choices.layout.ep = 4;
    f->choices.layout.pp = 2;
    f->choices.layout.vpp = 5;
    fixture_derive(f);
}

static void vpp_group_broken(struct fixture *f)
{
    f->input.global_batch = 12;
    f->choices.layout.ep = 4;
    f->choices.layout.pp = 2;
    f->choices.layout.vpp = 2;
    fixture_derive(f);
}

static void vpp_group_too_small(struct fixture *f)
{
    f->input.global_batch = 4;
    f->choices.layout.ep = 2;
    f->choices.layout.pp = 4;
    f->choices.layout.vpp = 3;
    fixture_derive(f);
}

/* 12 samples as long as a row: 3 rows on each of 4 data-parallel ranks. */
static void vpp_group_of_rows(struct fixture *f)
{
    f->input.global_batch = 12;
    f->choices.layout.ep = 4;
    f->choices.layout.pp = 2;
    f->choices.layout.vpp = 2;
    f->choices.primitives.tokens_per_gpu = f->input.seq_tokens;
    fixture_derive(f);
}

static void p21_batch(struct fixture *f)
{
    f->input.gpus = 7;
    f->input.global_batch = 256;
    f->choices.layout.ep = 1;
    f->choices.layout.micro_batch = 2;
    fixture_derive(f);
}

static void batch_too_small(struct fixture *f)
{
    f->input.global_batch = 4;
}

static void micro_batches_wrong(struct fixture *f)
{
    f->choices.layout.micro_batches = 3;
}

static void p09_sequence(struct fixture *f)
{
    f->input.seq_tokens = 1513;
    f->choices.layout.cp = 4;
    f->choices.primitives.context = CONTEXT_ALLGATHER_KV;
    fixture_derive(f);
}

static void context_missing(struct fixture *f)
{
    f->choices.layout.cp = 4;
    fixture_derive(f);
}

static void prediction_attends(struct fixture *f)
{
    hybrid(f);
    for (int layer = 0; layer < f->model.layers; layer++)
        f->model.layer_mixer[layer] = MIXER_GDN;
    f->model.mtp_layers = 1;
    f->model.mtp_trained = true;
    f->choices.layout.cp = 4;
    f->choices.primitives.linear_context = LINEAR_CONTEXT_STATE_PASS;
    fixture_derive(f);
}

/* An indexer every third layer; two stages of 23 and 25 layers, so that the second begins with the
 * last of three. */
static void choices_on_another_stage(struct fixture *f)
{
    for (int layer = 0; layer < f->model.layers; layer++)
        f->model.layer_mixer[layer] = layer % 3 == 0 ? MIXER_DSA : MIXER_DSA_SHARED;
    f->choices.layout.pp = 2;
    fixture_derive(f);
    f->choices.layout.stage_layers[0] = 23;
    f->choices.layout.stage_layers[1] = 25;
}

static void context_without_cp(struct fixture *f)
{
    f->choices.primitives.context = CONTEXT_ULYSSES;
}

static void linear_context_missing(struct fixture *f)
{
    hybrid(f);
    f->choices.layout.cp = 4;
    f->choices.primitives.context = CONTEXT_ALLGATHER_KV;
    fixture_derive(f);
}

static void linear_context_without_layers(struct fixture *f)
{
    f->choices.layout.cp = 4;
    f->choices.primitives.context = CONTEXT_ALLGATHER_KV;
    f->choices.primitives.linear_context = LINEAR_CONTEXT_STATE_PASS;
    fixture_derive(f);
}

static void p05_ulysses(struct fixture *f)
{
    f->input.gpus = 16;
    f->model.gqa.heads = 40;
    f->model.gqa.kv_heads = 8;
    f->choices.layout.cp = 16;
    f->choices.primitives.context = CONTEXT_ULYSSES;
    fixture_derive(f);
}

static void ulysses_of_neither_heads(struct fixture *f)
{
    p05_ulysses(f);
    f->input.gpus = 40;
    f->choices.layout.ep = 8;
    f->choices.layout.cp = 5;
    fixture_derive(f);
}

static void p04_ulysses_repeats(struct fixture *f)
{
    f->model.gqa.heads = 16;
    f->model.gqa.kv_heads = 2;
    f->choices.layout.cp = 8;
    f->choices.primitives.context = CONTEXT_ULYSSES;
    fixture_derive(f);
}

static void p15_selective(struct fixture *f)
{
    f->choices.primitives.recompute = RECOMPUTE_SELECTIVE;
}

static void p06_even_with_prediction(struct fixture *f)
{
    f->model.layers = 46;
    f->model.mtp_layers = 1;
    f->model.mtp_trained = true;
    f->choices.layout.ep = 2;
    f->choices.layout.pp = 4;
    fixture_derive(f);
    f->choices.layout.stage_layers[3] += 2;
}

static void head_split_uneven(struct fixture *f)
{
    linear_context_missing(f);
    f->model.gdn.key_heads = 6;
    f->choices.primitives.linear_context = LINEAR_CONTEXT_HEAD_SPLIT;
}

static void state_pass_short(struct fixture *f)
{
    linear_context_missing(f);
    f->choices.primitives.linear_context = LINEAR_CONTEXT_STATE_PASS;
    f->input.seq_tokens = 16;
}

void chunks_under_plain(struct fixture *f)
{
    f->choices.primitives.moe_chunks = 4;
}

static void cap_under_plain(struct fixture *f)
{
    f->choices.primitives.moe_cap_tokens = 4096;
}

static void cap_missing(struct fixture *f)
{
    f->choices.primitives.moe = MOE_CAPPED;
    f->choices.primitives.moe_chunks = 2;
}

static void copy_without_exchange(struct fixture *f)
{
    f->choices.layout.ep = 1;
    f->choices.primitives.exchange = EXCHANGE_COPY;
    fixture_derive(f);
}

static void copy_beyond_domain(struct fixture *f)
{
    f->hardware.domain_gpus = 4;
    f->choices.primitives.exchange = EXCHANGE_COPY;
}

static void copy_uneven(struct fixture *f)
{
    static const struct routing natural = { .kind = ROUTING_NATURAL };
    f->input.routing = &natural;
    f->choices.primitives.exchange = EXCHANGE_COPY;
}

/* Runs of 2,731, 2,731 and 2,730 tokens; top-4 of the last are 10,920, and 8 divides that, but not
 * the 10,924 of the others. */
static void copy_indivisible(struct fixture *f)
{
    f->model.moe.top_k = 4;
    f->choices.primitives.moe = MOE_CHUNKED;
    f->choices.primitives.moe_chunks = 3;
    f->choices.primitives.exchange = EXCHANGE_COPY;
}

static void delay_too_long(struct fixture *f)
{
    f->choices.primitives.moe = MOE_CHUNKED;
    f->choices.primitives.moe_chunks = 2;
    f->choices.primitives.wgrad_delay = 2;
}

static void recompute_beyond_stage(struct fixture *f)
{
    f->choices.primitives.recompute_layers = 49;
}

static void attention_kept_anyway(struct fixture *f)
{
    f->choices.primitives.recompute = RECOMPUTE_NONE;
    f->choices.primitives.keep_attention = 1;
}

static void nothing_attends(struct fixture *f)
{
    f->choices.primitives.keep_attention = 1;
    for (int i = 0; i < f->model.layers; i++)
        f->model.layer_mixer[i] = MIXER_GDN;
}

static void recompute_layers_without(struct fixture *f)
{
    f->choices.primitives.recompute = RECOMPUTE_NONE;
    f->choices.primitives.recompute_layers = 4;
}

void ring_without_group(struct fixture *f)
{
    f->choices.primitives.loss = LOSS_RING_DTP;
}

static void group_without_ring(struct fixture *f)
{
    f->choices.primitives.vocab_group = 4;
}

static void strip_without_stream(struct fixture *f)
{
    f->choices.primitives.vocab_strip = 4096;
    f->choices.primitives.loss = LOSS_FULL;
}

static void strip_beyond_vocabulary(struct fixture *f)
{
    f->choices.primitives.vocab_strip = 151937;
}

static void tiles_of_ring(struct fixture *f)
{
    f->choices.primitives.loss = LOSS_RING_DTP;
    f->choices.primitives.vocab_group = 8;
    f->choices.primitives.loss_tile_tokens = 1024;
}

static void blocks_without_latents(struct fixture *f)
{
    f->choices.primitives.latent_head_block = 4;
}

static void blocks_beyond_heads(struct fixture *f)
{
    f->model.mla = (struct mla){ 1536, 512, 128, 64, 128 };
    f->model.gqa.kv_heads = f->model.gqa.heads;
    f->choices.primitives.latent_head_block = 64;
}

static void order_through_latents(struct fixture *f)
{
    f->model.mla = (struct mla){ 1536, 512, 128, 64, 128 };
    f->model.gqa.kv_heads = f->model.gqa.heads;
    f->choices.primitives.attention_deterministic = 1;
}

static void muon_in_buckets(struct fixture *f)
{
    f->choices.primitives.optimizer = OPTIMIZER_MUON;
    f->choices.primitives.offload = OFFLOAD_OPTIMIZER;
    f->choices.primitives.bucket_params = 1000000;
}

static void muon_on_adapters(struct fixture *f)
{
    f->choices.primitives.optimizer = OPTIMIZER_MUON;
    f->choices.primitives.lora_rank = 16;
}

static void muon_without_matrices(struct fixture *f)
{
    f->choices.primitives.optimizer = OPTIMIZER_MUON;
    f->choices.primitives.frozen = 1 << COMPONENT_ATTENTION | 1 << COMPONENT_EXPERTS;
}

static void rank_of_hidden(struct fixture *f)
{
    f->choices.primitives.lora_rank = f->model.hidden;
}

static void adapters_of_nothing(struct fixture *f)
{
    f->choices.primitives.lora_rank = 16;
    f->choices.primitives.lora_targets = LORA_MLP;
}

static void adapters_and_frozen(struct fixture *f)
{
    f->choices.primitives.lora_rank = 16;
    f->choices.primitives.frozen = 1 << COMPONENT_ROUTER;
}

static void adapters_and_prediction(struct fixture *f)
{
    f->choices.primitives.lora_rank = 16;
    f->model.mtp_layers = 1;
    f->model.mtp_trained = true;
}

static void frozen_and_absent(struct fixture *f)
{
    f->choices.primitives.frozen = 1 << COMPONENT_DENSE_MLP | 1 << COMPONENT_SHARED_EXPERT;
}

static void frozen_tied_head(struct fixture *f)
{
    f->model.tied = true;
    f->choices.primitives.frozen = 1 << COMPONENT_HEAD;
}

static void frozen_wholly(struct fixture *f)
{
    f->choices.primitives.frozen = 1 << COMPONENT_EMBEDDING | 1 << COMPONENT_HEAD |
                                   1 << COMPONENT_NORMS | 1 << COMPONENT_ATTENTION |
                                   1 << COMPONENT_ROUTER | 1 << COMPONENT_EXPERTS;
}

static void offload_without_budget(struct fixture *f)
{
    f->choices.primitives.offload = OFFLOAD_CHECKPOINTS;
}

static void one_slot(struct fixture *f)
{
    f->choices.primitives.offload = OFFLOAD_OPTIMIZER;
    f->choices.primitives.slots = 1;
}

static void zero_degree(struct fixture *f)
{
    f->choices.layout.tp = 0;
}

static void p08_vocab(struct fixture *f)
{
    f->model.vocab = 151669;
    f->choices.layout.tp = 4;
    fixture_derive(f);
}

static void tied_stages(struct fixture *f)
{
    f->model.tied = true;
    two_stages(f);
}

static void beyond_context(struct fixture *f)
{
    f->model.context_tokens = 4096;
}

static void p21_bubble(struct fixture *f)
{
    f->input.gpus = 32;
    f->input.global_batch = 16;
    f->choices.layout.pp = 8;
    f->choices.layout.ep = 4;
    fixture_derive(f);
}

static void wide_ep(struct fixture *f)
{
    f->input.gpus = 16;
    f->input.global_batch = 16;
    f->choices.layout.ep = 16;
    fixture_derive(f);
}

static void wide_tp(struct fixture *f)
{
    f->input.gpus = 16;
    f->choices.layout.tp = 16;
    f->model.gqa.kv_heads = 16;
    fixture_derive(f);
}

const struct example legality_examples[] = {
    { "degrees", zero_degree, "tp 0 is outside 1..65536", "" },
    { "expert_world", p03_world_too_small,
      "pp 2 x etp 1 x ep 8 = 16 ranks, but there are 8 GPUs: needs at least 16 GPUs",
      "ep 8 with pp 1, or pp 2 with ep 4, or 16 GPUs" },
    { "dense_world", dense_world_too_small,
      "pp 1 x tp 1 x cp 16 = 16 ranks, but there are 8 GPUs: needs at least 16 GPUs", "cp 8" },
    { "dense_world", dense_world_uneven, "= 8 ranks, which does not divide 12 GPUs",
      "tp 6, or 8 or 16 GPUs" },
    { "dense_shards", shards_do_not_fill, "fsdp 3 x d_rep 1 = 3, but dp = 8 GPUs / 1 = 8",
      "nearest legal 2 or 4" },
    { "dense_shards", shards_need_copies, "fsdp 4 x d_rep 1 = 4, but dp = 8", "d_rep 2 fills it" },
    { "expert_shards", expert_shards_do_not_fill, "e_fsdp 5 x e_rep 1 = 5, but e_dp = 8",
      "nearest legal 4 or 8" },
    { "experts", experts_uneven, "ep 8 does not divide 60 experts", "on 8 GPUs: 4" },
    { "expert_width", expert_width_uneven, "etp 8 does not divide 1412 columns", "on 8 GPUs: 4" },
    { "no_experts", dense_model_with_ep, "has no experts", "ep=1" },
    { "kv_heads", p04_kv_heads, "tp 4 does not divide 2 key/value heads",
      "at most 2 for this model on 8 GPUs; legal: 1, 2" },
    { "heads", heads_uneven, "tp 8 does not divide 12 query heads", "on 8 GPUs: 4" },
    { "linear_heads", linear_heads_uneven, "tp 4 does not divide 2 heads common", "2" },
    { "mlp_width", shared_expert_uneven, "tp 4 does not divide 510 columns of the shared expert",
      "on 8 GPUs: 2" },
    { "stage_sum", p07_layers_dropped, "11 + 13 = 24, but the model has 48 layers", "24,24" },
    { "stage_sum", p06_even_with_prediction, "11 + 12 + 12 + 13 = 48, but the model has 46",
      "12,12,12,10" },
    { "stage_count", stage_too_many, "names 2 stages, but pp is 1", "48" },
    { "stage_count", pp_beyond_layers, "pp 4 is more than the model's 3 layers", "at most 3" },
    { "stage_empty", stage_without_layers, "stage 0 of 2 holds 0 layers", "at least one" },
    { "virtual_stages", vpp_without_pp, "vpp 2 interleaves stages, but pp is 1", "vpp=1" },
    { "virtual_stages", vpp_uneven, "vpp 5 does not divide the 24 layers of stage 0", "4 or 6" },
    { "virtual_groups", vpp_group_broken, "in groups of pp 2, which does not divide 3",
      "8 (2 micro-batches) or 16 (4 micro-batches)" },
    { "virtual_groups", vpp_group_too_small, "in groups of pp 4, which does not divide 2",
      "batch of 8 (4 micro-batches)" },
    { "virtual_groups", vpp_group_of_rows, "in groups of pp 2, which does not divide 3",
      "a multiple of 2 rows" },
    { "batch", p21_batch, "global batch 256 is not a multiple of dp 7 x micro_batch 2 = 14",
      "252 (18 micro-batches) or 266 (19 micro-batches)" },
    { "batch", batch_too_small, "global batch 4 is not a multiple of dp 8", "8 (1 micro-batch)" },
    { "batch", micro_batches_wrong, "micro_batches 3, but global batch 8 / (dp 8 x micro_batch 1)",
      "1" },
    { "sequence", p09_sequence, "1513 tokens does not split into 8 equal parts", "1512 or 1520" },
    { "context", context_missing, "context=none, but cp 4", "allgather_kv" },
    { "context", prediction_attends, "context=none, but cp 4", "allgather_kv" },
    { "shared_choices", choices_on_another_stage,
      "layer 23 begins stage 1 and attends to what the indexer of layer 21 chose",
      "begin with layer 24" },
    { "context", context_without_cp, "context=ulysses, but cp is 1", "context=none" },
    { "linear_context", linear_context_missing, "linear_context=none, but cp 4", "state_pass" },
    { "linear_context", linear_context_without_layers,
      "linear_context=state_pass, but the model has no linear attention", "linear_context=none" },
    { "ulysses_heads", p05_ulysses, "40 query heads do not divide",
      "cp x tp: 8; query heads allow 1, 2, 4, 5, 8, 10, 20, 40, key/value heads of these "
      "1, 2, 4, 8, 40, 16 GPUs of these 1, 2, 4, 8;" },
    { "ulysses_heads", ulysses_of_neither_heads, "8 key/value heads neither divide",
      "cp x tp: 4;" },
    { "ulysses_repeat", p04_ulysses_repeats, "repeats 2 key/value heads", "up to 2" },
    { "selective_recompute", p15_selective, "saves 0 bytes", "recompute_layers=N" },
    { "head_split", head_split_uneven, "6 key and 32 value heads among cp 4", "2" },
    { "state_pass", state_pass_short, "runs of 2 tokens are shorter than the 3", "at least 24" },
    { "moe", chunks_under_plain, "moe_chunks=4 with moe=plain", "moe=chunked" },
    { "moe_cap", cap_under_plain, "moe_cap_tokens=4096 with moe=plain", "moe=capped" },
    { "moe_cap", cap_missing, "moe_cap_tokens=0 with moe=capped", "needs moe_cap_tokens" },
    { "exchange", copy_without_exchange, "exchange=copy, but ep 1 exchanges nothing",
      "ep above 1" },
    { "exchange", copy_beyond_domain, "NVLink domain of 4, but the expert group is ep 8 x etp 1",
      "exchange=sm" },
    { "exchange", copy_uneven, "only balanced routing promises", "exchange=sm" },
    { "exchange", copy_indivisible, "top-4 do not divide by ep 8", "exchange=sm" },
    { "wgrad_delay", delay_too_long, "wgrad_delay=2 with only 2 chunks", "at most 1" },
    { "recompute_layers", recompute_beyond_stage,
      "recompute_layers=49, but the largest stage has 48", "at most 48" },
    { "recompute_layers", recompute_layers_without, "recompute_layers=4 with recompute=none",
      "recompute=full" },
    { "keep_attention", attention_kept_anyway, "no effect with recompute=none", "recompute=full" },
    { "keep_attention", nothing_attends, "no layer of sample-30b-a3b attends", "leave" },
    { "vocab_group", ring_without_group, "151936 over vocab_group 1 of dp 8", "legal 2" },
    { "vocab_group", group_without_ring, "vocab_group=4 with loss=linear_ce", "loss=ring_dtp" },
    { "vocab_strip", strip_without_stream, "vocab_strip=4096 with loss=full", "loss=linear_ce" },
    { "vocab_strip", strip_beyond_vocabulary,
      "vocab_strip=151937, but the vocabulary has 151936 entries", "at most 151936" },
    { "loss_tile", tiles_of_ring, "loss_tile_tokens=1024 with loss=ring_dtp", "loss=linear_ce" },
    { "latent_block", blocks_without_latents,
      "latent_head_block=4, but sample-30b-a3b makes no keys", "latent_head_block=8" },
    { "latent_block", blocks_beyond_heads, "latent_head_block=64, but a rank has 32 heads",
      "at most 32, or 0" },
    { "attention_order", order_through_latents, "attention_deterministic=1, but sample-30b-a3b",
      "attention_deterministic=0" },
    { "token_budget", budget_below_the_longest, "= 32,000 tokens", "tokens_per_gpu=8192" },
    { "token_budget", budget_and_micro_batch, "micro_batch 2", "leave micro_batch at 1" },
    { "reference_weights", reference_of_nothing, "no reference model", "rl=reference" },
    { "packing", packing_without_lengths, "no lengths of pieces are given", "--lengths" },
    { "packing", piece_beyond_a_row, "9,000 tokens", "at least 9000" },
    { "padding", pieces_of_odd_length, "7 pad tokens", "fewer ranks of cp" },
    { "optimizer", muon_in_buckets, "offload=optimizer streams buckets of 1000000 parameters",
      "optimizer=adamw" },
    { "optimizer", muon_on_adapters, "updates matrices of the layers, and lora_rank=16 trains none",
      "lora_rank=0" },
    { "optimizer", muon_without_matrices, "optimizer=muon, but no matrix of a layer is trained",
      "freeze less" },
    { "lora", rank_of_hidden, "is no low rank where hidden states have", "lora_rank of 8 to 256" },
    { "lora", adapters_of_nothing, "lora_targets names no matrix that sample-30b-a3b has",
      "lora_targets=attention,mlp,experts" },
    { "lora", adapters_and_frozen, "lora_rank=16 freezes all weights; frozen names some",
      "frozen=none" },
    { "lora", adapters_and_prediction, "trains adapters alone, but model.mtp=1", "model.mtp=0" },
    { "frozen", frozen_and_absent, "frozen=shared_expert, dense_mlp, which sample-30b-a3b lacks",
      "it has embedding, head, norms, attention, router, experts" },
    { "frozen", frozen_tied_head, "frozen=head, which sample-30b-a3b lacks", "frozen=embedding" },
    { "frozen", frozen_wholly, "nothing is trained", "lora_rank=16" },
    { "offload", offload_without_budget, "sco_host_bytes=0, and offload has checkpoints",
      "sco_host_bytes" },
    { "offload", one_slot, "slots=1", "slots=2" },
    { "vocab", p08_vocab, "padded to 152064, 395 rows more", "padded" },
    { "tied_head", tied_stages, "head and embedding are tied but sit on stages 0 and 1", "pp=1" },
    { "context_length", beyond_context, "8,192 tokens is beyond the 4,096", "" },
    { "bubble", p21_bubble, "(8 - 1) / (4 + 8 - 1) = 64 %", "32" },
    { "expert_domain", wide_ep,
      "16 GPUs leaves the NVLink domain of 8: 50 GB/s a GPU instead of "
      "450, 9.0 times slower",
      "ep up to 8" },
    { "tensor_domain", wide_tp, "a tensor-parallel group of 16 GPUs leaves", "tp up to 8" },
};
const int legality_example_count = sizeof legality_examples / sizeof *legality_examples;
