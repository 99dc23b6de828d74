/* hf.h - reading a Hugging Face config.json: the keys that many families share, each with its
 * position in errors. A family's own keys are read in its family_*.c. A key that no reader asked
 * for is refused unless it is neutral or in the table of keys that do not matter (hf_keys.c).
 * Private to base/model. */
#ifndef RANKFIT_BASE_MODEL_HF_H
#define RANKFIT_BASE_MODEL_HF_H

#include "base/model/tensor.h"

enum { HF_MAX_SIZE = 1 << 24 }; /* no width, head count or expert count is larger */
enum { HF_MAX_ASKED = 96 };

/* One map of the file being read, and the keys that its reader has asked for. */
struct hf {
    const struct node *map;
    struct hf *root; /* the outermost map; of a flat file the map itself */
    struct model *model;
    struct diag_list *errors;
    const char *place;    /* before its keys where they are named: "vision_config.", or "" */
    const char *defaults; /* of absent keys in the family's class: "head_dim 128, ..." */
    const char *asked[HF_MAX_ASKED];
    size_t asked_count;
    char taken[256]; /* of the root: the defaults that were taken, as `defaults` is written */
    size_t taken_used;
};

void hf_init(struct hf *hf, const struct node *map, struct hf *root, struct model *model,
             struct diag_list *errors);

/* A value that is no constant of the class, but follows from others. */
void hf_taken(struct hf *hf, const char *key, const char *value);
/* One line for all the defaults that were taken. */
void hf_say_defaults(const struct hf *root);

/* The key matters to nothing that a model holds, in this family. */
void hf_note(struct hf *hf, const char *key);
void hf_note_all(struct hf *hf); /* of the whole map, which is refused for another reason */
void hf_notes(struct hf *hf, const char *const *keys, size_t count);

/* map[key], or a key that other files use for the same, where present: 1; -1 with an error. Where
 * the key is absent, the default of the class: 1; without one, or where it is null: 0, `ret`
 * untouched. */
int hf_int(struct hf *hf, const char *key, int64_t min, int *ret);
int hf_real(struct hf *hf, const char *key, double min, double max, double *ret);
int hf_bool(struct hf *hf, const char *key, bool *ret);
int hf_text(struct hf *hf, const char *key, const char **ret);
int hf_list(struct hf *hf, const char *key, const struct node **ret);

/* The same; absent and without a default is an error. */
int hf_need(struct hf *hf, const char *key, int64_t min, int *ret);

/* A run of numbers that go straight into the model. */
struct hf_field {
    const char *key;
    size_t offset; /* of an int in struct model */
    int min;
    bool need;
};
void hf_fields(struct hf *hf, const struct hf_field *fields, size_t count);

/* Where the key is, or its map where it is not. */
struct pos hf_place(const struct hf *hf, const char *key);

/* An error unless map[key] is absent or the value. */
int hf_expect_text(struct hf *hf, const char *key, const char *value);
int hf_expect_int(struct hf *hf, const char *key, int64_t value);
int hf_expect_bool(struct hf *hf, const char *key, bool value);

/* The activation of MLPs under `key`: others than silu are noted, since no executor runs them. */
void hf_activation(struct hf *hf, const char *key);

/* Tensors that no row of the tables has (struct model_part): `times` parts of `params` each. */
void hf_part(struct hf *hf, enum component component, const char *name, int times, uint64_t params);
/* The same of a lookup table, of which a token uses one row. */
void hf_lookup(struct hf *hf, enum component component, const char *name, uint64_t params);
/* Parameters of a matrix [out, in], with a bias or without; of a norm over `width`. */
uint64_t linear_params(int64_t in, int64_t out, bool bias);
uint64_t norm_params(int64_t width, bool bias);

/* The step of `what` has no list of operations; no executor runs `what`. */
void hf_unplanned(struct hf *hf, const char *what);
void hf_unrun(struct hf *hf, const char *what);

/* num_nextn_predict_layers of a family whose MTP layers are not described. */
void hf_warn_prediction(struct hf *hf);

/* For each key that was not asked for, is not neutral (null, false, 0, empty) and is not known to
 * be without influence: an error where its name speaks of what tensors are made of, else a warning.
 */
void hf_refuse_rest(struct hf *hf);
bool hf_key_is_irrelevant(const char *key);
bool hf_key_is_structural(const char *key);

/* One text or number per layer, read from a list; the length must be `layers`. kind_of gives a
 * kind, or -1 for what it does not know. Returns 1 when read, 0 when absent, -1 on error. */
int hf_layer_list(struct hf *hf, const char *key, int layers, int (*kind_of)(const struct node *),
                  uint8_t *ret);

/* The same for a text of one letter a layer. */
int hf_layer_letters(struct hf *hf, const char *key, int layers, int (*kind_of)(char letter),
                     uint8_t *ret);

/* Sizes, attention heads, norms, rope, tied embeddings: what every decoder of the Llama line has.
 * num_key_value_heads absent or null is heads. A rotary fraction that the caller set beforehand is
 * the class default, else 1. All layers are MIXER_GQA and FFN_DENSE afterwards. */
void hf_sizes(struct hf *hf);
/* The same with head_dim: hidden / heads where absent or null. */
void hf_decoder(struct hf *hf);
/* The same with intermediate_size, the width of the dense MLPs. */
void hf_dense_decoder(struct hf *hf);
void hf_layer_count(struct hf *hf); /* the part of it that reads num_hidden_layers */

/* Norms behind attention and behind the MLP, in addition to those before them. */
void hf_post_norms(struct hf *hf);

/* attention_bias, where it means all four projections. */
void hf_attention_bias(struct hf *hf);

/* sliding_window over every layer, where the class has it without further conditions. */
void hf_window(struct hf *hf);
/* "sliding_attention": MIXER_LOCAL, "full_attention": MIXER_GQA, others -1. */
int hf_window_kind(const struct node *n);
/* The window of the MIXER_LOCAL layers; of a model that has no others, of all. */
void hf_window_layers(struct hf *hf, int window);

/* a x b of sizes that files hold; at most HF_MAX_SIZE. */
int hf_times(int a, int b);

/* Keys of Hunyuan's attention, dense and with experts, and of Granite's scales. */
void hf_hunyuan_attention(struct hf *hf);
void hf_granite_scales(struct hf *hf);

/* Whether a layer has the kind; how many have. */
bool hf_has(const uint8_t *kinds, const struct model *m, int kind);
int hf_count(const uint8_t *kinds, const struct model *m, int kind);

/* Experts in every layer but those of mlp_only_layers and decoder_sparse_step (Qwen), or but the
 * first first_k_dense_replace and by moe_layer_freq or mlp_layer_types (DeepSeek, with the key of
 * the dense layers' width). hf_sparse_types: mlp_layer_types alone; 1, 0 where absent, -1. */
void hf_sparse_layers_qwen(struct hf *hf);
void hf_sparse_layers_deepseek(struct hf *hf, const char *width);
int hf_sparse_types(struct hf *hf);

/* num_experts, num_experts_per_tok, moe_intermediate_size. */
void hf_experts_qwen(struct hf *hf);
/* n_routed_experts, n_shared_experts and how they are chosen, by `scoring` where scoring_func is
 * absent; the layers too. */
void hf_experts_deepseek(struct hf *hf, const char *scoring);
/* num_local_experts, num_experts_per_tok; as wide as intermediate_size. */
void hf_experts_local(struct hf *hf);
/* Queries, keys and values through latents, in every layer. */
void hf_latents(struct hf *hf);

/* vision_config of the root, by the kind of tower. A file without it is warned of. */
void hf_vision_qwen(struct hf *hf, int deepstack); /* deepstack: of the class */
void hf_vision_moon(struct hf *hf);
void hf_vision_llama4(struct hf *hf);
/* The same with their tensors as parts (hf_tower.c). */
void hf_vision_qwen2(struct hf *hf);
void hf_vision_siglip(struct hf *hf);
void hf_vision_pixtral(struct hf *hf);
void hf_vision_gemma4(struct hf *hf);
void hf_vision_minimax(struct hf *hf);
void hf_vision_step(struct hf *hf);

/* The reader of a tower's map `key`, with its class's defaults; false when the file has none, which
 * is said unless it is optional. */
bool hf_open_tower(struct hf *hf, const char *key, const char *defaults, bool optional,
                   struct hf *ret);

/* The families' readers, rows of model_families. */
void family_llama_read(struct hf *hf);
void family_mistral_read(struct hf *hf);
void family_mixtral_read(struct hf *hf);
void family_llama4_read(struct hf *hf);
void family_qwen2_read(struct hf *hf);
void family_qwen2_moe_read(struct hf *hf);
void family_qwen3_read(struct hf *hf);
void family_qwen3_moe_read(struct hf *hf);
void family_qwen3_vl_read(struct hf *hf);
void family_qwen3_vl_moe_read(struct hf *hf);
void family_qwen3_next_read(struct hf *hf);
void family_qwen3_5_read(struct hf *hf);
void family_qwen3_5_moe_read(struct hf *hf);
void family_deepseek_read(struct hf *hf);
void family_deepseek_v2_read(struct hf *hf);
void family_deepseek_sparse_read(struct hf *hf);
void family_kimi_vl_read(struct hf *hf);
void family_glm4_moe_read(struct hf *hf);
void family_gpt_oss_read(struct hf *hf);
void family_minimax_m1_read(struct hf *hf);
void family_minimax_m2_read(struct hf *hf);
void family_nemotron_read(struct hf *hf);
void family_bailing_read(struct hf *hf);
void family_bailing_hybrid_read(struct hf *hf);
void family_deci_read(struct hf *hf);
void family_deepseek_v4_read(struct hf *hf);
void family_dots1_read(struct hf *hf);
void family_ernie_read(struct hf *hf);
void family_ernie_moe_read(struct hf *hf);
void family_gemma3_read(struct hf *hf);
void family_gemma4_read(struct hf *hf);
void family_glm_read(struct hf *hf);
void family_glm4_read(struct hf *hf);
void family_granite_read(struct hf *hf);
void family_granite_hybrid_read(struct hf *hf);
void family_granite_moe_read(struct hf *hf);
void family_hunyuan_read(struct hf *hf);
void family_hunyuan_moe_read(struct hf *hf);
void family_kimi_linear_read(struct hf *hf);
void family_longcat_read(struct hf *hf);
void family_mimo_read(struct hf *hf);
void family_mimo_v2_read(struct hf *hf);
void family_minimax_m3_read(struct hf *hf);
void family_mistral3_read(struct hf *hf);
void family_olmo2_read(struct hf *hf);
void family_olmo3_read(struct hf *hf);
void family_olmoe_read(struct hf *hf);
void family_phi3_read(struct hf *hf);
void family_phimoe_read(struct hf *hf);
void family_qwen2_5_vl_read(struct hf *hf);
void family_seed_oss_read(struct hf *hf);
void family_smollm3_read(struct hf *hf);
void family_step_read(struct hf *hf);

#endif
