#include "base/model/hf.h"

#include <string.h>

const struct model_family model_families[] = {
    { "LlamaForCausalLM", "llama", NULL, "Llama 2 and 3: grouped-query attention, dense MLP",
      family_llama_read, "model.", false },
    { "Qwen2ForCausalLM", "qwen2", NULL, "Qwen2 and 2.5 dense: biases on queries, keys and values",
      family_qwen2_read, "model.", false },
    { "Qwen3ForCausalLM", "qwen3", NULL, "Qwen3 dense: query and key norms", family_qwen3_read,
      "model.", false },
    { "Qwen3MoeForCausalLM", "qwen3_moe", NULL, "Qwen3 with routed experts", family_qwen3_moe_read,
      "model.", false },
    { "Qwen3_5ForConditionalGeneration", "qwen3_5", "text_config",
      "Qwen3.5 dense: delta-net hybrid, gated attention, vision tower", family_qwen3_5_read,
      "model.language_model.", true },
    { "Qwen3_5ForCausalLM", "qwen3_5_text", NULL, "Qwen3.5 dense, text only", family_qwen3_5_read,
      "model.", true },
    { "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", "text_config",
      "Qwen3.5 with routed and shared experts, delta-net hybrid, vision tower",
      family_qwen3_5_moe_read, "model.language_model.", true },
    { "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", NULL, "Qwen3.5 with experts, text only",
      family_qwen3_5_moe_read, "model.", true },
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
