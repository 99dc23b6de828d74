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
      family_llama4_read, "language_model.model.", true, &llama4_names },
    { "Llama4ForCausalLM", "llama4_text", NULL, "Llama 4, text only", family_llama4_read, "model.",
      true, &llama4_text_names },
    { "MistralForCausalLM", "mistral", NULL, "Mistral: grouped-query attention, sliding or full",
      family_mistral_read, "model.", false, NULL },
    { "MixtralForCausalLM", "mixtral", NULL, "Mixtral: experts in every layer", family_mixtral_read,
      "model.", false, &mixtral_names },
    { "Qwen2ForCausalLM", "qwen2", NULL, "Qwen2 and 2.5 dense: biases on queries, keys and values",
      family_qwen2_read, "model.", false, NULL },
    { "Qwen2MoeForCausalLM", "qwen2_moe", NULL,
      "Qwen1.5 and 2 with routed and shared experts: biases on queries, keys and values",
      family_qwen2_moe_read, "model.", false, NULL },
    { "Qwen3ForCausalLM", "qwen3", NULL, "Qwen3 dense: query and key norms", family_qwen3_read,
      "model.", false, NULL },
    { "Qwen3MoeForCausalLM", "qwen3_moe", NULL, "Qwen3 with routed experts", family_qwen3_moe_read,
      "model.", false, NULL },
    { "Qwen3VLForConditionalGeneration", "qwen3_vl", "text_config",
      "Qwen3-VL dense: Qwen3 with a vision tower that feeds deeper layers too",
      family_qwen3_vl_read, "model.language_model.", false, NULL },
    { "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "text_config",
      "Qwen3-VL with routed experts", family_qwen3_vl_moe_read, "model.language_model.", true,
      &vl_moe_names },
    { "Qwen3NextForCausalLM", "qwen3_next", NULL,
      "Qwen3-Next: delta-net hybrid, gated attention, routed and shared experts",
      family_qwen3_next_read, "model.", false, &next_names },
    { "Qwen3_5ForConditionalGeneration", "qwen3_5", "text_config",
      "Qwen3.5 dense: delta-net hybrid, gated attention, vision tower", family_qwen3_5_read,
      "model.language_model.", true, NULL },
    { "Qwen3_5ForCausalLM", "qwen3_5_text", NULL, "Qwen3.5 dense, text only", family_qwen3_5_read,
      "model.", true, NULL },
    { "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "text_config",
      "Qwen3.5 with routed and shared experts, delta-net hybrid, vision tower",
      family_qwen3_5_moe_read, "model.language_model.", true, NULL },
    { "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", NULL, "Qwen3.5 with experts, text only",
      family_qwen3_5_moe_read, "model.", true, NULL },
    { "DeepseekV2ForCausalLM", "deepseek_v2", NULL, "DeepSeek-V2: latent attention, experts",
      family_deepseek_read, "model.", false, &deepseek_names },
    { "DeepseekV3ForCausalLM", "deepseek_v3", NULL,
      "DeepSeek-V3, R1 and Kimi-K2: latent attention, dense layers first, experts",
      family_deepseek_read, "model.", false, &deepseek_names },
    { "DeepseekV32ForCausalLM", "deepseek_v32", NULL,
      "DeepSeek-V3.2: the same with sparse attention", family_deepseek_sparse_read, "model.", false,
      &deepseek_names },
    { "KimiK25ForConditionalGeneration", "kimi_k25", "text_config",
      "Kimi-K2.5: Kimi-K2 with a vision tower", family_kimi_vl_read, "language_model.model.", false,
      &moon_names },
    { "Glm4MoeForCausalLM", "glm4_moe", NULL,
      "GLM-4.5 to 4.7: grouped-query attention, dense layers first, experts", family_glm4_moe_read,
      "model.", false, &deepseek_names },
    { "Glm4MoeLiteForCausalLM", "glm4_moe_lite", NULL,
      "GLM-4.7-Flash: latent attention, dense layers first, experts", family_deepseek_read,
      "model.", false, &deepseek_names },
    { "GlmMoeDsaForCausalLM", "glm_moe_dsa", NULL,
      "GLM-5 to 5.2: latent and sparse attention, indexers of their own or shared, experts",
      family_deepseek_sparse_read, "model.", false, &deepseek_names },
    { "GptOssForCausalLM", "gpt_oss", NULL,
      "gpt-oss: sliding and full attention with sinks, experts with biases", family_gpt_oss_read,
      "model.", true, &gpt_oss_names },
    { "MiniMaxM1ForCausalLM", "minimax_m1", NULL,
      "MiniMax-M1: lightning and softmax attention, experts", family_minimax_m1_read, "model.",
      false, &mixtral_names },
    { "MiniMaxText01ForCausalLM", "minimax_text_01", NULL, "MiniMax-Text-01: as M1",
      family_minimax_m1_read, "model.", false, &mixtral_names },
    { "MiniMaxForCausalLM", "minimax", NULL, "MiniMax-Text-01 and M1 by newer files",
      family_minimax_m1_read, "model.", false, &mixtral_names },
    { "MiniMaxM2ForCausalLM", "minimax_m2", NULL,
      "MiniMax-M2: softmax attention with wide norms, experts", family_minimax_m2_read, "model.",
      false, &mixtral_names },
    { "NemotronHForCausalLM", "nemotron_h", NULL,
      "Nemotron-H and Nemotron 3: Mamba-2, attention, MLPs or experts, one a layer",
      family_nemotron_read, "backbone.", false, &nemotron_names },
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
