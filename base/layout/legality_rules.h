/* legality_rules.h - the check functions behind legality_rules, one file a subject, and what they
 * share. Private to base/layout: everybody else goes through legality.h. */
#ifndef RANKFIT_BASE_LAYOUT_LEGALITY_RULES_H
#define RANKFIT_BASE_LAYOUT_LEGALITY_RULES_H

#include "base/layout/legality.h"

typedef int legality_check_function(const struct legality_input *in, struct diag_list *reterr);

/* legality_world.c: degrees, worlds, shard groups, domains */
legality_check_function legality_degrees, legality_dense_world, legality_expert_world,
    legality_dense_shards, legality_expert_shards, legality_expert_domain, legality_tensor_domain;

/* legality_model.c: what the model's sizes allow */
legality_check_function legality_experts, legality_expert_width, legality_no_experts,
    legality_heads, legality_kv_heads, legality_linear_heads, legality_mlp_width, legality_vocab,
    legality_tied_head, legality_context_length, legality_shared_choices;

/* legality_stage.c: pipeline stages and batches */
legality_check_function legality_stage_count, legality_stage_sum, legality_stage_empty,
    legality_virtual_stages, legality_batch, legality_virtual_groups, legality_bubble;

/* legality_primitive.c: primitives against layout, model and each other */
legality_check_function legality_sequence, legality_context, legality_linear_context, legality_state_pass,
    legality_ulysses_heads, legality_head_split, legality_moe, legality_moe_cap,
    legality_wgrad_delay, legality_recompute_layers, legality_vocab_group, legality_vocab_strip,
    legality_offload, legality_offload_idle, legality_units_idle, legality_exchange,
    legality_loss_tile, legality_latent_block, legality_attention_order, legality_ulysses_repeat,
    legality_selective_recompute, legality_keep_attention;

/* legality_trained.c: what is trained, and by what */
legality_check_function legality_optimizer, legality_lora, legality_lora_idle, legality_frozen;
/* legality_rows.c: rows of tokens, pieces and padding, passes of reinforcement learning */
legality_check_function legality_token_budget, legality_reference, legality_packing,
    legality_padding;

/* legality_model.c */
bool model_has_mixer(const struct model *model, enum mixer mixer);
bool model_has_softmax(const struct model *model); /* of any form, in prediction layers too */
bool model_has_linear(const struct model *model);
int64_t linear_heads(const struct model *model); /* 0: no linear attention */
int64_t common_divisor(int64_t a, int64_t b);

/* "4 or 8": the divisors of `amount` next to `degree`, below and above. Returns ret. */
const char *nearest_divisors(int64_t amount, int64_t degree, char *ret, size_t size);

/* "1, 2, 4": every divisor of `amount`. Returns ret. */
const char *all_divisors(int64_t amount, char *ret, size_t size);

/* True when tp, cp, pp and the data-parallel degrees fill the world: rules about batches wait for
 * that, so that one mistake is not reported twice. */
bool world_is_filled(const struct legality_input *in);

#endif
