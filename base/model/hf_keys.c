/* hf_keys.c - keys of config.json files that change neither a tensor nor the work done on it, in
 * any architecture: what generation, tokenizers, serving and training recipes keep there. And the
 * words by which a key that no table knows may be about tensors. */
#include "base/model/hf.h"

#include <string.h>

static const char *const irrelevant[] = {
    /* what the file is, who wrote it */
    "_name_or_path",
    "_commit_hash",
    "architectures",
    "auto_map",
    "model_type",
    "tokenizer_class",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "torchscript",
    "use_bfloat16",
    "name",
    "title",
    "pretraining_tp",
    "ep_size",
    "language_model_only",
    /* tokens; see also the endings */
    "bad_words_ids",
    "begin_suppress_tokens",
    "suppress_tokens",
    "id2label",
    "label2id",
    "num_labels",
    "ignore_index",
    "video_placeholder",
    /* generation */
    "use_cache",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "max_length",
    "min_length",
    "length_penalty",
    "repetition_penalty",
    "diversity_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "early_stopping",
    "exponential_decay_length_penalty",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_router_logits",
    "return_dict",
    "return_dict_in_generate",
    "remove_invalid_values",
    "num_logits_to_keep",
    "chunk_size_feed_forward",
    "task_specific_params",
    "problem_type",
    "finetuning_task",
    "prefix",
    "generation_config",
    "max_model_len",
    /* how weights are stored: the same tensors in fewer bits */
    "quantization_config",
    "compression_config",
    "expert_dtype",
    /* training recipes */
    "initializer_range",
    "initializer_factor",
    "attention_dropout",
    "hidden_dropout",
    "residual_dropout",
    "embd_pdrop",
    "resid_pdrop",
    "attn_pdrop",
    "dropout",
    "classifier_dropout",
    "router_aux_loss_coef",
    "router_z_loss_coef",
    "router_jitter_noise",
    "router_warming_up",
    "aux_loss_alpha",
    "seq_aux",
    "rescale_prenorm_residual",
    "residual_in_fp32",
    /* positions: how far, and how stretched; theta and fraction are read where they are */
    "rope_scaling",
    "rope_parameters",
    "rope_theta",
    "rope_interleave",
    "rope_type",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "initial_context_length",
    "max_position_embeddings",
    "mrope_section",
    "rope_interleaved",
    "attn_temperature_tuning",
    "attn_scale",
    "floor_scale",
    /* how kernels run */
    "_attn_implementation_autoset",
    "_experts_implementation",
    "experts_implementation",
    "_attn_implementation",
    "attn_implementation",
    "use_mamba_kernels",
    "mamba_ssm_dtype",
    "mamba_ssm_cache_dtype",
    "moe_router_dtype",
    "router_dtype",
    "moe_shared_expert_overlap",
    "indexer_rope_interleave",
    "use_unified_vision_chunk",
    "use_flash_attention",
};

static const char *const endings[] = { "_token_id", "_token_ids", "_token_index" };

static bool ends_with(const char *key, const char *ending)
{
    size_t length = strlen(key), tail = strlen(ending);
    return length > tail && strcmp(key + length - tail, ending) == 0;
}

bool hf_key_is_irrelevant(const char *key)
{
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_with(key, endings[i]))
            return true;
    for (size_t i = 0; i < sizeof irrelevant / sizeof irrelevant[0]; i++)
        if (strcmp(irrelevant[i], key) == 0)
            return true;
    return false;
}

static const char *const structural[] = {
    "n",          "num",       "size",         "sizes",      "dim",      "dims",     "width",
    "depth",      "hidden",    "intermediate", "layer",      "layers",   "block",    "blocks",
    "head",       "heads",     "group",        "groups",     "expert",   "experts",  "moe",
    "mlp",        "ffn",       "attn",         "attention",  "rank",     "lora",     "proj",
    "projection", "projector", "bias",         "biases",     "norm",     "norms",    "gate",
    "gated",      "gates",     "conv",         "kernel",     "state",    "ssm",      "mamba",
    "latent",     "latents",   "index",        "indexer",    "share",    "shared",   "mtp",
    "nextn",      "vision",    "audio",        "tie",        "tied",     "embed",    "embedding",
    "embeddings", "vocab",     "adapter",      "ratio",      "ratios",   "mult",     "pattern",
    "type",       "types",     "interval",     "freq",       "step",     "window",   "chunk",
    "sink",       "sinks",     "linear",       "router",     "routed",   "routing",  "topk",
    "channels",   "patch",     "act",          "activation", "residual", "parallel", "cross",
    "encoder",    "decoder",   "compress",     "q",          "k",        "v",        "o",
    "kv",         "qk",        "qkv",          "hc",         "tower",    "config",   "configs",
};

static bool is_structural_word(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof structural / sizeof structural[0]; i++)
        if (strlen(structural[i]) == length && strncmp(structural[i], word, length) == 0)
            return true;
    return false;
}

bool hf_key_is_structural(const char *key)
{
    while (*key != '\0') {
        size_t length = strcspn(key, "_");
        if (is_structural_word(key, length))
            return true;
        key += length + (key[length] == '_');
    }
    return false;
}
