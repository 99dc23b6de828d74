#include "base/model/hf.h"
#include "base/model/row.h"

#include <string.h>

#define STYLE(list) .renames = (list), .rename_count = sizeof(list) / sizeof((list)[0])

/* Mixtral calls gate, down and up w1, w2 and w3; MiniMax likewise. */
static const struct rename mixtral_renames[] = {
    { "mlp.experts.{e}.gate_proj.", "block_sparse_moe.experts.{e}.w1." },
    { "mlp.experts.{e}.up_proj.", "block_sparse_moe.experts.{e}.w3." },
    { "mlp.experts.{e}.down_proj.", "block_sparse_moe.experts.{e}.w2." },
    { "mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias" },
    { "mlp.gate.", "block_sparse_moe.gate." },
};
static const struct rename deepseek_renames[] = {
    { "mlp.shared_expert.", "mlp.shared_experts." },
    { "fc.", "eh_proj." },
    { "pre_fc_norm_embedding.", "enorm." },
    { "pre_fc_norm_hidden.", "hnorm." },
    { "norm.", "shared_head.norm." },
};
static const struct rename gpt_oss_renames[] = {
    { "mlp.gate.e_score_correction_bias", "mlp.router.bias" },
    { "mlp.gate.", "mlp.router." },
};
static const struct rename llama4_renames[] = {
    { "mlp.gate.", "feed_forward.router." },
    { "mlp.", "feed_forward." },
};
static const struct rename nemotron_renames[] = {
    { "input_layernorm.", "norm." },
    { "post_attention_layernorm.", "norm." },
    { "self_attn.", "mixer." },
    { "mlp.shared_expert.", "mixer.shared_experts." },
    { "mlp.", "mixer." },
    { "fc.", "layers.0.eh_proj." },
    { "pre_fc_norm_embedding.", "layers.0.enorm." },
    { "pre_fc_norm_hidden.", "layers.0.hnorm." },
    { "norm.", "layers.1.final_layernorm." },
};
static const struct rename moon_renames[] = {
    { "mlp.shared_expert.", "mlp.shared_experts." },
    { "merger.norm.", "pre_norm." },
    { "merger.linear_fc1.", "proj.0." },
    { "merger.linear_fc2.", "proj.2." },
    { "pos_embed.", "patch_embed.pos_emb." },
    { "final_norm.", "encoder.final_layernorm." },
    { "norm1.", "norm0." },
    { "norm2.", "norm1." },
    { "attn.qkv.", "wqkv." },
    { "attn.proj.", "wo." },
    { "mlp.linear_fc1.", "mlp.fc0." },
    { "mlp.linear_fc2.", "mlp.fc1." },
};

static const struct name_style mixtral_names = { STYLE(mixtral_renames) };
static const struct name_style deepseek_names = { STYLE(deepseek_renames),
                                                  .final_norm = "model.norm.weight",
                                                  .mtp_in_layers = true };
static const struct name_style gpt_oss_names = { STYLE(gpt_oss_renames), .experts_in_out = true };
static const struct name_style next_names = { .delta_joint = true };
static const struct name_style vl_moe_names = { .experts_in_out = true };
static const struct name_style llama4_names = { STYLE(llama4_renames),
                                                .head = "language_model.lm_head.weight",
                                                .vision = "", .projector = "multi_modal_projector.",
                                                .experts_in_out = true };
static const struct name_style llama4_text_names = { STYLE(llama4_renames),
                                                     .experts_in_out = true };
static const struct name_style nemotron_names = { STYLE(nemotron_renames),
                                                  .embedding = "backbone.embeddings.weight",
                                                  .final_norm = "backbone.norm_f.weight",
                                                  .halves = true };
static const struct name_style moon_names = {
    STYLE(moon_renames), .head = "language_model.lm_head.weight", .vision = "vision_tower.",
    .vision_blocks = "encoder.blocks", .projector = "mm_projector."
};

const struct model_family model_families[] = {
    { "LlamaForCausalLM", "llama", NULL, "Llama 2 and 3: grouped-query attention, dense MLP",
      family_llama_read, "model.", false, NULL },
    { "Llama4ForConditionalGeneration", "llama4", "text_config",
      "Llama 4: chunked and full attention, experts with a shared one, vision tower",
      family_llama4_read, "language_model.model.", true, &llama4_names,
      "num_key_value_heads 8, head_dim 128, num_experts_per_tok 1, num_local_experts 16, "
      "attention_chunk_size 8192, interleave_moe_layer_step 1, intermediate_size 8192, "
      "intermediate_size_mlp 16384, rope_theta 500000" },
    { "Llama4ForCausalLM", "llama4_text", NULL, "Llama 4, text only", family_llama4_read, "model.",
      true, &llama4_text_names,
      "num_key_value_heads 8, head_dim 128, num_experts_per_tok 1, attention_chunk_size 8192, "
      "rope_theta 500000" },
    { "MistralForCausalLM", "mistral", NULL, "Mistral: grouped-query attention, sliding or full",
      family_mistral_read, "model.", false, NULL, "num_key_value_heads 8, sliding_window 4096" },
    { "Mistral3ForConditionalGeneration", "mistral3", "text_config",
      "Mistral Small 3.1 and later, Ministral 3: Mistral with a vision tower", family_mistral3_read,
      "language_model.model.", false, NULL },
    { "Ministral3ForCausalLM", "ministral3", NULL, "Ministral 3, text only", family_mistral_read,
      "model.", false, NULL, "num_key_value_heads 8, head_dim 128, rope_theta 1000000" },
    { "MixtralForCausalLM", "mixtral", NULL, "Mixtral: experts in every layer", family_mixtral_read,
      "model.", false, &mixtral_names,
      "num_key_value_heads 8, num_experts_per_tok 2, rope_theta 1000000" },
    { "PhimoeForCausalLM", "phimoe", NULL,
      "Phi-3.5-MoE: Mixtral's experts, norms with biases (counted, not planned)",
      family_phimoe_read, "model.", false, &mixtral_names,
      "num_key_value_heads 8, num_experts_per_tok 2, rope_theta 1000000" },
    { "PhiMoEForCausalLM", "phimoe", NULL, "Phi-3.5-MoE, as its makers name it", family_phimoe_read,
      "model.", false, &mixtral_names,
      "num_key_value_heads 8, num_experts_per_tok 2, rope_theta 1000000" },
    { "Phi3ForCausalLM", "phi3", NULL,
      "Phi-3 and Phi-4, text only: grouped-query attention, dense MLP", family_phi3_read, "model.",
      false, NULL },
    { "Qwen2ForCausalLM", "qwen2", NULL, "Qwen2 and 2.5 dense: biases on queries, keys and values",
      family_qwen2_read, "model.", false, NULL, "num_key_value_heads 32, max_window_layers 28" },
    { "Qwen2MoeForCausalLM", "qwen2_moe", NULL,
      "Qwen1.5 and 2 with routed and shared experts: biases on queries, keys and values",
      family_qwen2_moe_read, "model.", false, NULL,
      "num_key_value_heads 16, num_experts_per_tok 4, decoder_sparse_step 1, "
      "shared_expert_intermediate_size 5632, qkv_bias 1" },
    { "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "text_config",
      "Qwen2.5-VL: Qwen2.5 with a vision tower", family_qwen2_5_vl_read, "model.language_model.",
      false, NULL, "num_key_value_heads 8, rope_theta 1000000", true },
    { "Qwen3ForCausalLM", "qwen3", NULL, "Qwen3 dense: query and key norms", family_qwen3_read,
      "model.", false, NULL, "num_key_value_heads 32, head_dim 128" },
    { "Qwen3MoeForCausalLM", "qwen3_moe", NULL, "Qwen3 with routed experts", family_qwen3_moe_read,
      "model.", false, NULL,
      "num_key_value_heads 4, num_experts_per_tok 8, decoder_sparse_step 1" },
    { "Qwen3VLForConditionalGeneration", "qwen3_vl", "text_config",
      "Qwen3-VL dense: Qwen3 with a vision tower that feeds deeper layers too",
      family_qwen3_vl_read, "model.language_model.", false, NULL,
      "num_key_value_heads 32, head_dim 128, rope_theta 500000" },
    { "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "text_config",
      "Qwen3-VL with routed experts", family_qwen3_vl_moe_read, "model.language_model.", true,
      &vl_moe_names,
      "num_key_value_heads 16, num_experts_per_tok 4, decoder_sparse_step 1, rope_theta 500000" },
    { "Qwen3NextForCausalLM", "qwen3_next", NULL,
      "Qwen3-Next: delta-net hybrid, gated attention, routed and shared experts",
      family_qwen3_next_read, "model.", false, &next_names,
      "num_key_value_heads 2, head_dim 256, num_experts_per_tok 10, decoder_sparse_step 1, "
      "shared_expert_intermediate_size 512, linear_conv_kernel_dim 4, linear_key_head_dim 128, "
      "linear_value_head_dim 128, linear_num_key_heads 16, linear_num_value_heads 32" },
    { "Qwen3_5ForConditionalGeneration", "qwen3_5", "text_config",
      "Qwen3.5 and 3.6 dense: delta-net hybrid, gated attention, vision tower", family_qwen3_5_read,
      "model.language_model.", true, NULL,
      "num_key_value_heads 4, head_dim 256, linear_conv_kernel_dim 4, linear_key_head_dim 128, "
      "linear_value_head_dim 128, linear_num_key_heads 16, linear_num_value_heads 32" },
    { "Qwen3_5ForCausalLM", "qwen3_5_text", NULL, "Qwen3.5 dense, text only", family_qwen3_5_read,
      "model.", true, NULL,
      "num_key_value_heads 4, head_dim 256, linear_conv_kernel_dim 4, linear_key_head_dim 128, "
      "linear_value_head_dim 128, linear_num_key_heads 16, linear_num_value_heads 32" },
    { "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "text_config",
      "Qwen3.5 with routed and shared experts, delta-net hybrid, vision tower",
      family_qwen3_5_moe_read, "model.language_model.", true, NULL,
      "num_key_value_heads 2, head_dim 256, num_experts_per_tok 8, shared_expert_intermediate_size "
      "512, linear_conv_kernel_dim 4, linear_key_head_dim 128, linear_value_head_dim 128, "
      "linear_num_key_heads 16, linear_num_value_heads 32" },
    { "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", NULL, "Qwen3.5 with experts, text only",
      family_qwen3_5_moe_read, "model.", true, NULL,
      "num_key_value_heads 2, head_dim 256, num_experts_per_tok 8, shared_expert_intermediate_size "
      "512, linear_conv_kernel_dim 4, linear_key_head_dim 128, linear_value_head_dim 128, "
      "linear_num_key_heads 16, linear_num_value_heads 32" },
    { "DeepseekV2ForCausalLM", "deepseek_v2", NULL, "DeepSeek-V2: latent attention, experts",
      family_deepseek_v2_read, "model.", false, &deepseek_names,
      "q_lora_rank 1536, kv_lora_rank 512, qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim "
      "128, n_shared_experts 2, num_experts_per_tok 2" },
    { "DeepseekV3ForCausalLM", "deepseek_v3", NULL,
      "DeepSeek-V3, R1 and Kimi-K2: latent attention, dense layers first, experts",
      family_deepseek_read, "model.", false, &deepseek_names,
      "q_lora_rank 1536, kv_lora_rank 512, qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim "
      "128, n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 3, norm_topk_prob 1, "
      "n_group 8, topk_group 4, routed_scaling_factor 2.5, num_nextn_predict_layers 1" },
    { "DeepseekV32ForCausalLM", "deepseek_v32", NULL,
      "DeepSeek-V3.2: the same with sparse attention", family_deepseek_sparse_read, "model.", false,
      &deepseek_names,
      "q_lora_rank 1536, kv_lora_rank 512, qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim "
      "128, n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 3, norm_topk_prob 1, "
      "n_group 8, topk_group 4, routed_scaling_factor 2.5, index_n_heads 64, index_head_dim 128, "
      "index_topk 2048" },
    { "DeepseekV4ForCausalLM", "deepseek_v4", NULL,
      "DeepSeek-V4: compressed attention, residual streams, experts (counted, not planned)",
      family_deepseek_v4_read, "model.", false, &deepseek_names,
      "head_dim 512, num_key_value_heads 1, q_lora_rank 1024, o_groups 8, o_lora_rank 1024, "
      "index_n_heads 64, index_head_dim 128, hc_mult 4, n_shared_experts 1, num_experts_per_tok 6, "
      "num_hash_layers 3, sliding_window 128, norm_topk_prob 1" },
    { "KimiK25ForConditionalGeneration", "kimi_k25", "text_config",
      "Kimi-K2.5: Kimi-K2 with a vision tower", family_kimi_vl_read, "language_model.model.", false,
      &moon_names,
      "q_lora_rank 1536, kv_lora_rank 512, qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim "
      "128, n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 3, norm_topk_prob 1, "
      "n_group 8, topk_group 4, routed_scaling_factor 2.5, num_nextn_predict_layers 1, "
      "tie_word_embeddings 1" },
    { "Kimi_K25ForConditionalGeneration", "kimi_k25", "text_config",
      "Kimi-K2.5 as transformers names it", family_kimi_vl_read, "language_model.model.", false,
      &moon_names,
      "q_lora_rank 1536, kv_lora_rank 512, qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim "
      "128, n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 3, norm_topk_prob 1, "
      "n_group 8, topk_group 4, routed_scaling_factor 2.5, num_nextn_predict_layers 1, "
      "tie_word_embeddings 1, projection_hidden_size 1152" },
    { "KimiLinearForCausalLM", "kimi_linear", NULL,
      "Kimi-Linear: Kimi delta attention and latent attention, experts (counted, not planned)",
      family_kimi_linear_read, "model.", false, &deepseek_names,
      "kv_lora_rank 512, qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim 128, "
      "n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 1, linear_head_dim 128, "
      "linear_num_heads 32, linear_conv_kernel_dim 4, norm_topk_prob 1" },
    { "BailingMoeForCausalLM", "bailing_moe", NULL,
      "Ling 1: grouped-query attention, routed and shared experts", family_bailing_read, "model.",
      false, &deepseek_names },
    { "BailingMoeV2ForCausalLM", "bailing_moe_v2", NULL,
      "Ling 2: the same with head norms and dense layers first", family_bailing_read, "model.",
      false, &deepseek_names },
    { "BailingHybridForCausalLM", "bailing_hybrid", NULL,
      "Ling hybrids: Kimi delta attention and gated latent attention, experts (counted, not "
      "planned)",
      family_bailing_hybrid_read, "model.", false, &deepseek_names,
      "head_dim 128, kv_lora_rank 512, qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim 128, "
      "n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 2, layer_group_size 6, "
      "short_conv_kernel_size 4, norm_topk_prob 1, rope_theta 6000000" },
    { "Glm4MoeForCausalLM", "glm4_moe", NULL,
      "GLM-4.5 to 4.7: grouped-query attention, dense layers first, experts", family_glm4_moe_read,
      "model.", false, &deepseek_names,
      "num_key_value_heads 8, n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 1, "
      "norm_topk_prob 1, num_nextn_predict_layers 1" },
    { "Glm4MoeLiteForCausalLM", "glm4_moe_lite", NULL,
      "GLM-4.7-Flash: latent attention, dense layers first, experts", family_deepseek_read,
      "model.", false, &deepseek_names,
      "q_lora_rank 768, kv_lora_rank 512, qk_nope_head_dim 192, qk_rope_head_dim 64, v_head_dim "
      "256, n_shared_experts 1, num_experts_per_tok 4, first_k_dense_replace 1, norm_topk_prob 1, "
      "routed_scaling_factor 1.8" },
    { "GlmMoeDsaForCausalLM", "glm_moe_dsa", NULL,
      "GLM-5 to 5.2: latent and sparse attention, indexers of their own or shared, experts",
      family_deepseek_sparse_read, "model.", false, &deepseek_names,
      "q_lora_rank 2048, kv_lora_rank 512, qk_nope_head_dim 192, qk_rope_head_dim 64, v_head_dim "
      "256, n_shared_experts 1, num_experts_per_tok 8, first_k_dense_replace 3, norm_topk_prob 1, "
      "routed_scaling_factor 2.5, index_n_heads 32, index_head_dim 128, index_topk 2048" },
    { "GlmForCausalLM", "glm", NULL, "GLM-4 dense of 2024", family_glm_read, "model.", false, NULL,
      "num_key_value_heads 2, head_dim 128, attention_bias 1" },
    { "Glm4ForCausalLM", "glm4", NULL,
      "GLM-4 dense of 2025: norms behind attention and MLP too (counted, not planned)",
      family_glm4_read, "model.", false, NULL,
      "num_key_value_heads 2, head_dim 128, attention_bias 1" },
    { "Gemma3ForCausalLM", "gemma3_text", NULL, "Gemma 3, text only (counted, not planned)",
      family_gemma3_read, "model.", false, NULL,
      "num_attention_heads 8, num_key_value_heads 4, head_dim 256, vocab_size 262208, "
      "sliding_window 4096, tie_word_embeddings 1, rope_theta 1000000" },
    { "Gemma3ForConditionalGeneration", "gemma3", "text_config",
      "Gemma 3: windows in most layers, norms before and behind both halves, vision tower "
      "(counted, not planned)",
      family_gemma3_read, "model.language_model.", false, NULL,
      "hidden_size 2304, intermediate_size 9216, num_hidden_layers 26, num_attention_heads 8, "
      "num_key_value_heads 4, head_dim 256, vocab_size 262208, sliding_window 4096, "
      "tie_word_embeddings 1, rope_theta 1000000" },
    { "Gemma4ForCausalLM", "gemma4_text", NULL, "Gemma 4, text only (counted, not planned)",
      family_gemma4_read, "model.", true, NULL,
      "num_key_value_heads 4, head_dim 256, global_head_dim 512, sliding_window 512, "
      "hidden_size_per_layer_input 256, vocab_size_per_layer_input 262144, tie_word_embeddings 1, "
      "rope_theta 1000000" },
    { "Gemma4ForConditionalGeneration", "gemma4", "text_config",
      "Gemma 4: heads of two sizes, keys and values of earlier layers, towers of images and sound "
      "(counted, not planned)",
      family_gemma4_read, "model.language_model.", true, NULL,
      "num_key_value_heads 4, head_dim 256, global_head_dim 512, sliding_window 512, "
      "hidden_size_per_layer_input 256, vocab_size_per_layer_input 262144, tie_word_embeddings 1, "
      "rope_theta 1000000" },
    { "GptOssForCausalLM", "gpt_oss", NULL,
      "gpt-oss: sliding and full attention with sinks, experts with biases", family_gpt_oss_read,
      "model.", true, &gpt_oss_names,
      "num_key_value_heads 8, head_dim 64, num_experts_per_tok 4, sliding_window 128, "
      "attention_bias 1, rope_theta 150000" },
    { "MiniMaxM1ForCausalLM", "minimax_m1", NULL,
      "MiniMax-M1: lightning and softmax attention, experts", family_minimax_m1_read, "model.",
      false, &mixtral_names, "num_key_value_heads 8, num_experts_per_tok 2" },
    { "MiniMaxText01ForCausalLM", "minimax_text_01", NULL, "MiniMax-Text-01: as M1",
      family_minimax_m1_read, "model.", false, &mixtral_names,
      "num_key_value_heads 8, num_experts_per_tok 2" },
    { "MiniMaxForCausalLM", "minimax", NULL, "MiniMax-Text-01 and M1 by newer files",
      family_minimax_m1_read, "model.", false, &mixtral_names,
      "num_key_value_heads 8, num_experts_per_tok 2, rope_theta 1000000" },
    { "MiniMaxM2ForCausalLM", "minimax_m2", NULL,
      "MiniMax-M2: softmax attention with wide norms, experts", family_minimax_m2_read, "model.",
      false, &mixtral_names,
      "num_key_value_heads 8, head_dim 128, num_experts_per_tok 8, use_qk_norm 1, use_routing_bias "
      "1, rope_theta 5000000" },
    { "MiniMaxM3SparseForConditionalGeneration", "minimax_m3_vl", "text_config",
      "MiniMax-M3: attention over chosen blocks, experts with a shared one, vision tower (counted, "
      "not planned)",
      family_minimax_m3_read, "model.language_model.", true, NULL,
      "num_key_value_heads 4, head_dim 128, num_experts_per_tok 4, dense_intermediate_size 12288, "
      "shared_intermediate_size 3072, index_n_heads 4, index_head_dim 128, rotary_dim 64, "
      "projector_hidden_size 6144, rope_theta 5000000" },
    { "MiMoForCausalLM", "mimo", NULL, "MiMo: Qwen2 with an MTP layer", family_mimo_read, "model.",
      false, NULL, "num_key_value_heads 32" },
    { "MiMoV2FlashForCausalLM", "mimo_v2_flash", NULL,
      "MiMo-V2: windows with sinks in most layers, heads of two sizes, experts (counted, not "
      "planned)",
      family_mimo_v2_read, "model.", false, &deepseek_names,
      "num_key_value_heads 4, head_dim 192, v_head_dim 128, num_experts_per_tok 8, norm_topk_prob "
      "1, first_k_dense_replace 1" },
    { "NemotronHForCausalLM", "nemotron_h", NULL,
      "Nemotron-H and Nemotron 3: Mamba-2, attention, MLPs or experts, one a layer",
      family_nemotron_read, "backbone.", false, &nemotron_names,
      "num_key_value_heads 8, head_dim 128, mamba_num_heads 128, mamba_head_dim 64, ssm_state_size "
      "128, n_groups 8, conv_kernel 4, chunk_size 128, moe_shared_expert_intermediate_size 7688, "
      "num_experts_per_tok 2, norm_topk_prob 1" },
    { "DeciLMForCausalLM", "nemotron-nas", NULL,
      "Llama-Nemotron Super and Ultra: Llama with blocks changed one by one (counted, not planned)",
      family_deci_read, "model.", false, NULL },
    { "Olmo2ForCausalLM", "olmo2", NULL,
      "OLMo 2: norms behind attention and MLP (counted, not planned)", family_olmo2_read, "model.",
      false, NULL },
    { "Olmo3ForCausalLM", "olmo3", NULL,
      "OLMo 3: the same with windows in most layers (counted, not planned)", family_olmo3_read,
      "model.", false, NULL, "sliding_window 4096, rope_theta 500000" },
    { "OlmoeForCausalLM", "olmoe", NULL, "OLMoE: norms over all heads, experts in every layer",
      family_olmoe_read, "model.", false, NULL, "num_experts_per_tok 8" },
    { "Ernie4_5ForCausalLM", "ernie4_5", NULL, "ERNIE 4.5 dense", family_ernie_read, "model.",
      false, NULL,
      "num_key_value_heads 2, head_dim 128, tie_word_embeddings 1, rope_theta 500000" },
    { "Ernie4_5_MoeForCausalLM", "ernie4_5_moe", NULL, "ERNIE 4.5 with routed and shared experts",
      family_ernie_moe_read, "model.", false, &deepseek_names,
      "num_key_value_heads 4, num_experts_per_tok 6, moe_num_shared_experts 2, "
      "moe_layer_start_index 1, moe_layer_interval 1, tie_word_embeddings 1, rope_theta 500000" },
    { "SeedOssForCausalLM", "seed_oss", NULL, "Seed-OSS: biases on queries, keys and values",
      family_seed_oss_read, "model.", false, NULL,
      "num_key_value_heads 8, head_dim 128, attention_bias 1" },
    { "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", NULL,
      "Hunyuan dense: head norms behind rope", family_hunyuan_read, "model.", false, NULL,
      "use_qk_norm 1" },
    { "HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", NULL, "Hunyuan with routed and shared experts",
      family_hunyuan_moe_read, "model.", false, &deepseek_names, "use_qk_norm 1, moe_topk 1" },
    { "Dots1ForCausalLM", "dots1", NULL,
      "dots.llm1: head norms, dense layers first, routed and shared experts", family_dots1_read,
      "model.", false, &deepseek_names },
    { "LongcatFlashForCausalLM", "longcat_flash", NULL,
      "LongCat-Flash: two of attention and MLP a layer, experts next to the first (counted, not "
      "planned)",
      family_longcat_read, "model.", false, &deepseek_names,
      "q_lora_rank 1536, kv_lora_rank 512, qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim "
      "128, moe_topk 12, zero_expert_num 256, rope_theta 10000000" },
    { "GraniteForCausalLM", "granite", NULL,
      "Granite 3 dense: scaled embeddings, residuals and logits", family_granite_read, "model.",
      false, NULL },
    { "GraniteMoeForCausalLM", "granitemoe", NULL, "Granite 3 with experts",
      family_granite_moe_read, "model.", false, NULL, "num_experts_per_tok 2" },
    { "GraniteMoeSharedForCausalLM", "granitemoeshared", NULL,
      "Granite with routed and shared experts", family_granite_moe_read, "model.", false, NULL,
      "num_experts_per_tok 2" },
    { "GraniteMoeHybridForCausalLM", "granitemoehybrid", NULL,
      "Granite 4: Mamba-2 and attention, experts with a shared one or alone an MLP",
      family_granite_hybrid_read, "model.", false, NULL,
      "num_experts_per_tok 2, shared_intermediate_size 1024, mamba_n_heads 128, mamba_d_state 256, "
      "mamba_n_groups 1, mamba_d_conv 4, mamba_chunk_size 256, mamba_expand 2" },
    { "SmolLM3ForCausalLM", "smollm3", NULL, "SmolLM3: no rope in every fourth layer",
      family_smollm3_read, "model.", false, NULL,
      "num_key_value_heads 4, no_rope_layer_interval 4, tie_word_embeddings 1, rope_theta "
      "2000000" },
    { "Step3p5ForCausalLM", "step3p5", NULL,
      "Step 3.5: gates of heads, windows, experts with a shared one (counted, not planned)",
      family_step_read, "model.", false, &deepseek_names,
      "num_key_value_heads 8, head_dim 128, num_experts_per_tok 8, share_expert_dim 1280, "
      "use_moe_router_bias 1" },
    { "Step3p7ForConditionalGeneration", "step3p7", "text_config",
      "Step 3.7: the same with a vision tower (counted, not planned)", family_step_read,
      "model.language_model.", false, &deepseek_names,
      "num_key_value_heads 8, head_dim 128, num_experts_per_tok 8, share_expert_dim 1280, "
      "use_moe_router_bias 1" },
};
const size_t model_family_count = sizeof model_families / sizeof model_families[0];

const struct model_family *model_family_find(const char *architecture)
{
    for (size_t i = 0; i < model_family_count; i++) {
        if (strcmp(model_families[i].architecture, architecture) == 0)
            return &model_families[i];
    }
    return NULL;
}

bool model_experts_in_out(const struct model *model)
{
    const struct model_family *family = model_family_find(model->architecture);
    return family && family->stacked_experts && family->names && family->names->experts_in_out &&
           model->moe.experts > 0;
}

bool model_delta_joint(const struct model *model)
{
    const struct model_family *family = model_family_find(model->architecture);
    return family && family->names && family->names->delta_joint;
}
