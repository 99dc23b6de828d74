#include "base/layout/legality.h"
#include "base/layout/legality_rules.h"
#include "base/text.h"

#include <ctype.h>
#include <string.h>

/* The first row guards the others: with a degree below 1 nothing can be divided by it. */
const struct legality_rule legality_rules[] = {
    { "degrees", SEVERITY_ERROR,
      "every degree is at least 1 and small enough to be a number of ranks", legality_degrees },
    { "dense_world", SEVERITY_ERROR, "pp x tp x cp divides the GPUs; what remains is dp",
      legality_dense_world },
    { "expert_world", SEVERITY_ERROR, "pp x etp x ep divides the GPUs; what remains is e_dp",
      legality_expert_world },
    { "dense_shards", SEVERITY_ERROR, "fsdp x d_rep = dp", legality_dense_shards },
    { "expert_shards", SEVERITY_ERROR, "e_fsdp x e_rep = e_dp", legality_expert_shards },
    { "experts", SEVERITY_ERROR, "ep divides the experts of a layer", legality_experts },
    { "expert_width", SEVERITY_ERROR, "etp divides the width of an expert", legality_expert_width },
    { "no_experts", SEVERITY_ERROR, "ep and etp are 1 for a model without experts",
      legality_no_experts },
    { "heads", SEVERITY_ERROR, "tp divides the query heads", legality_heads },
    { "kv_heads", SEVERITY_ERROR,
      "tp divides the key/value heads; this engine does not replicate them", legality_kv_heads },
    { "linear_heads", SEVERITY_ERROR, "tp divides the key and value heads of linear attention",
      legality_linear_heads },
    { "mlp_width", SEVERITY_ERROR, "tp divides the widths of dense MLP and shared expert",
      legality_mlp_width },
    { "stage_count", SEVERITY_ERROR, "pp is at most the layers, and stage_layers has pp entries",
      legality_stage_count },
    { "stage_sum", SEVERITY_ERROR, "the layers of the stages sum to the model's",
      legality_stage_sum },
    { "stage_empty", SEVERITY_ERROR, "every stage holds at least one layer", legality_stage_empty },
    { "virtual_stages", SEVERITY_ERROR,
      "vpp divides the layers of every stage and needs pp above 1", legality_virtual_stages },
    { "batch", SEVERITY_ERROR, "global batch = dp x micro-batch x micro-batches", legality_batch },
    { "virtual_groups", SEVERITY_ERROR,
      "under vpp above 1 pp divides the micro-batches, which pass a stage in groups of pp",
      legality_virtual_groups },
    { "sequence", SEVERITY_ERROR,
      "the sequence splits into equal parts: 2 x cp of them in zig-zag order, tp inside a rank",
      legality_sequence },
    { "context", SEVERITY_ERROR, "cp above 1 has a context primitive, and only then",
      legality_context },
    { "linear_context", SEVERITY_ERROR,
      "linear attention under cp above 1 has a linear_context primitive, and only then",
      legality_linear_context },
    { "ulysses_heads", SEVERITY_ERROR,
      "under ulysses cp x tp divides the query heads, and kv heads divide evenly or repeat evenly",
      legality_ulysses_heads },
    { "head_split", SEVERITY_ERROR,
      "under head_split cp x tp divides the heads of linear attention", legality_head_split },
    { "state_pass", SEVERITY_ERROR,
      "under state_pass a rank's runs, half of its tokens each, hold the convolution's halo",
      legality_state_pass },
    { "moe", SEVERITY_ERROR,
      "a chunked or capped schedule needs experts and at least 2 chunks; plain has 1",
      legality_moe },
    { "moe_cap", SEVERITY_ERROR, "moe_cap_tokens belongs to moe=capped", legality_moe_cap },
    { "wgrad_delay", SEVERITY_ERROR, "wgrad_delay needs a chunked schedule with more chunks",
      legality_wgrad_delay },
    { "exchange", SEVERITY_ERROR,
      "copy engines move equal shares inside one NVLink domain: every chunk's tokens x k over ep",
      legality_exchange },
    { "recompute_layers", SEVERITY_ERROR,
      "recompute_layers is at most the layers of a stage and needs recompute",
      legality_recompute_layers },
    { "vocab_group", SEVERITY_ERROR,
      "ring_dtp has a vocab_group of at least 2 that divides dp and the vocabulary, and only it",
      legality_vocab_group },
    { "vocab_strip", SEVERITY_ERROR, "vocab_strip is at most the vocabulary and needs linear_ce",
      legality_vocab_strip },
    { "loss_tile", SEVERITY_ERROR, "loss_tile_tokens belongs to loss=linear_ce and loss=full",
      legality_loss_tile },
    { "latent_block", SEVERITY_ERROR, "latent_head_block needs latents, and at most a rank's heads",
      legality_latent_block },
    { "attention_order", SEVERITY_ERROR,
      "attention_deterministic is for attention with keys of its own, not through latents",
      legality_attention_order },
    { "token_budget", SEVERITY_ERROR,
      "tokens_per_gpu x cp holds the longest prompt and response, in one row a micro-batch",
      legality_token_budget },
    { "reference_weights", SEVERITY_ERROR, "reference_weights=host needs rl=reference",
      legality_reference },
    { "packing", SEVERITY_ERROR,
      "pieces of several lengths are packed, and a row holds the longest", legality_packing },
    { "offload", SEVERITY_ERROR,
      "offloaded checkpoints exist and have a host budget; the optimizer has two slots",
      legality_offload },
    { "optimizer", SEVERITY_ERROR,
      "optimizer=muon has matrices to update, on the device, and no adapters", legality_optimizer },
    { "lora", SEVERITY_ERROR,
      "adapters have a rank below the hidden size, matrices to go with, and are all that is "
      "trained",
      legality_lora },
    { "frozen", SEVERITY_ERROR, "frozen names components that the model has, and not all of them",
      legality_frozen },
    { "lora_idle", SEVERITY_WARNING, "lora_targets matters only under lora_rank",
      legality_lora_idle },
    { "offload_idle", SEVERITY_WARNING, "bucket_params and slots matter only for offload=optimizer",
      legality_offload_idle },
    { "units_idle", SEVERITY_WARNING,
      "prefetch_units matters only for sharding=fsdp, comm_streams for it and zero2",
      legality_units_idle },
    { "ulysses_repeat", SEVERITY_WARNING,
      "under ulysses no more ranks than key/value heads: beyond them each head travels repeatedly",
      legality_ulysses_repeat },
    { "selective_recompute", SEVERITY_WARNING,
      "recompute=selective makes core attention again; with fused attention nothing is saved",
      legality_selective_recompute },
    { "keep_attention", SEVERITY_WARNING,
      "keep_attention is for layers that are recomputed and attend to keys",
      legality_keep_attention },
    { "vocab", SEVERITY_WARNING,
      "a vocabulary that tp does not divide is padded to a multiple of 128 x tp", legality_vocab },
    { "tied_head", SEVERITY_WARNING,
      "a tied head on another stage is a second copy of the embedding", legality_tied_head },
    { "shared_choices", SEVERITY_WARNING,
      "layers that attend to what an earlier layer's indexer chose are on its stage",
      legality_shared_choices },
    { "padding", SEVERITY_WARNING, "pieces and rows without padding lose no throughput",
      legality_padding },
    { "context_length", SEVERITY_WARNING, "the sequence is within what the model was made for",
      legality_context_length },
    { "bubble", SEVERITY_WARNING, "at least as many micro-batches as stages", legality_bubble },
    { "expert_domain", SEVERITY_WARNING, "the expert group stays inside one NVLink domain",
      legality_expert_domain },
    { "tensor_domain", SEVERITY_WARNING, "the tensor-parallel group stays inside one NVLink domain",
      legality_tensor_domain },
};
const size_t legality_rule_count = sizeof legality_rules / sizeof *legality_rules;

/* Whether a text has this key as a word of its own. */
static bool names_key(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = strstr(text, key); at; at = strstr(at + 1, key)) {
        bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (begins && !isalnum((unsigned char)at[length]) && at[length] != '_')
            return true;
    }
    return false;
}

/* What was said of a key that nobody set stands where another that it names was. */
static void place(const struct fixed_choices *fixed, struct diag *diag)
{
    for (size_t i = 0; i < choice_key_count && !diag->file[0]; i++) {
        struct pos at = choice_pos(fixed, choice_keys[i].key);
        if (!at.file || !names_key(diag->what, choice_keys[i].key))
            continue;
        (void)text_copy(diag->file, sizeof diag->file, at.file);
        diag->line = at.line;
        diag->column = at.column;
    }
}

int legality_check(const struct legality_input *in, struct diag_list *reterr)
{
    int errors = 0, first = reterr ? reterr->count : 0;

    for (size_t i = 0; i < legality_rule_count; i++) {
        const struct legality_rule *rule = &legality_rules[i];
        bool error = rule->severity == SEVERITY_ERROR;
        if ((!reterr || errors > 0) && !error) /* what cannot be need not be wise */
            continue;
        if (!rule->check(in, reterr) || !error)
            continue;
        errors++;
        if (!reterr || i == 0)
            break;
    }
    for (int i = first; reterr && i < reterr->count; i++)
        place(in->fixed, &reterr->items[i]);
    return errors;
}
