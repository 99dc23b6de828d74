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
    { "degrees", zero_degree },
    { "expert_world", p03_world_too_small },
    { "dense_world", dense_world_too_small },
    { "dense_world", dense_world_uneven },
    { "dense_shards", shards_do_not_fill },
    { "dense_shards", shards_need_copies },
    { "expert_shards", expert_shards_do_not_fill },
    { "experts", experts_uneven },
    { "expert_width", expert_width_uneven },
    { "no_experts", dense_model_with_ep },
    { "kv_heads", p04_kv_heads },
    { "heads", heads_uneven },
    { "linear_heads", linear_heads_uneven },
    { "mlp_width", shared_expert_uneven },
    { "stage_sum", p07_layers_dropped },
    { "stage_sum", p06_even_with_prediction },
    { "stage_count", stage_too_many },
    { "stage_count", pp_beyond_layers },
    { "stage_empty", stage_without_layers },
    { "virtual_stages", vpp_without_pp },
    { "virtual_stages", vpp_uneven },
    { "virtual_groups", vpp_group_broken },
    { "virtual_groups", vpp_group_too_small },
    { "virtual_groups", vpp_group_of_rows },
    { "batch", p21_batch },
    { "batch", batch_too_small },
    { "batch", micro_batches_wrong },
    { "sequence", p09_sequence },
    { "context", context_missing },
    { "context", prediction_attends },
    { "shared_choices", choices_on_another_stage },
    { "context", context_without_cp },
    { "linear_context", linear_context_missing },
    { "linear_context", linear_context_without_layers },
    { "ulysses_heads", p05_ulysses },
    { "ulysses_heads", ulysses_of_neither_heads },
    { "ulysses_repeat", p04_ulysses_repeats },
    { "selective_recompute", p15_selective },
    { "head_split", head_split_uneven },
    { "state_pass", state_pass_short },
    { "moe", chunks_under_plain },
    { "moe_cap", cap_under_plain },
    { "moe_cap", cap_missing },
    { "exchange", copy_without_exchange },
    { "exchange", copy_beyond_domain },
    { "exchange", copy_uneven },
    { "exchange", copy_indivisible },
    { "wgrad_delay", delay_too_long },
    { "recompute_layers", recompute_beyond_stage },
    { "recompute_layers", recompute_layers_without },
    { "keep_attention", attention_kept_anyway },
    { "keep_attention", nothing_attends },
    { "vocab_group", ring_without_group },
    { "vocab_group", group_without_ring },
    { "vocab_strip", strip_without_stream },
    { "vocab_strip", strip_beyond_vocabulary },
    { "loss_tile", tiles_of_ring },
    { "latent_block", blocks_without_latents },
    { "latent_block", blocks_beyond_heads },
    { "attention_order", order_through_latents },
    { "token_budget", budget_below_the_longest },
    { "token_budget", budget_and_micro_batch },
    { "reference_weights", reference_of_nothing },
    { "packing", packing_without_lengths },
    { "packing", piece_beyond_a_row },
    { "padding", pieces_of_odd_length },
    { "optimizer", muon_in_buckets },
    { "optimizer", muon_on_adapters },
    { "optimizer", muon_without_matrices },
    { "lora", rank_of_hidden },
    { "lora", adapters_of_nothing },
    { "lora", adapters_and_frozen },
    { "lora", adapters_and_prediction },
    { "frozen", frozen_and_absent },
    { "frozen", frozen_tied_head },
    { "frozen", frozen_wholly },
    { "offload", offload_without_budget },
    { "offload", one_slot },
    { "vocab", p08_vocab },
    { "tied_head", tied_stages },
    { "context_length", beyond_context },
    { "bubble", p21_bubble },
    { "expert_domain", wide_ep },
    { "tensor_domain", wide_tp },
};
const int legality_example_count = sizeof legality_examples / sizeof *legality_examples;
