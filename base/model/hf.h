/* hf.h - reading a Hugging Face config.json: the keys that many families share, each with its
 * position in errors. A family's own keys are read in its family_*.c. A key that no reader asked
 * for is refused unless it is neutral or in the table of keys that do not matter (hf_keys.c).
 * Private to base/model. */
#ifndef RANKFIT_BASE_MODEL_HF_H
#define RANKFIT_BASE_MODEL_HF_H

#include "base/model/model.h"

enum { HF_MAX_SIZE = 1 << 24 }; /* no width, head count or expert count is larger */
enum { HF_MAX_ASKED = 96 };

/* One map of the file being read, and the keys that its reader has asked for. */
struct hf {
    const struct node *map;
    struct hf *root; /* the outermost map; of a flat file the map itself */
    struct model *model;
    struct diag_list *errors;
    const char *asked[HF_MAX_ASKED];
    size_t asked_count;
};

void hf_init(struct hf *hf, const struct node *map, struct hf *root, struct model *model,
             struct diag_list *errors);

/* The key matters to nothing that a model holds, in this family. */
void hf_note(struct hf *hf, const char *key);
void hf_note_all(struct hf *hf); /* of the whole map, which is refused for another reason */
void hf_notes(struct hf *hf, const char *const *keys, size_t count);

/* map[key] where present: 1; absent: 0, `ret` untouched; -1 with an error. */
int hf_int(struct hf *hf, const char *key, int64_t min, int *ret);
int hf_real(struct hf *hf, const char *key, double min, double max, double *ret);
int hf_bool(struct hf *hf, const char *key, bool *ret);
int hf_text(struct hf *hf, const char *key, const char **ret);
int hf_list(struct hf *hf, const char *key, const struct node **ret);

/* The same; absent is an error. */
int hf_need(struct hf *hf, const char *key, int64_t min, int *ret);

/* A run of numbers that go straight into the model. */
struct hf_field {
    const char *key;
    size_t offset; /* of an int in struct model */
    int min;
    bool need;
};
void hf_fields(struct hf *hf, const struct hf_field *fields, size_t count);

/* An error unless map[key] is absent or the value. */
int hf_expect_text(struct hf *hf, const char *key, const char *value);
int hf_expect_int(struct hf *hf, const char *key, int64_t value);
int hf_expect_bool(struct hf *hf, const char *key, bool value);

/* For each key that was not asked for, is not neutral (null, false, 0, empty) and is not known to
 * be without influence: an error where its name speaks of what tensors are made of, else a warning.
 */
void hf_refuse_rest(struct hf *hf);
bool hf_key_is_irrelevant(const char *key);
bool hf_key_is_structural(const char *key);

/* One text or number a layer, read from a list; the length must be `layers`. kind_of gives a kind,
 * or -1 for what it does not know. Returns 1 when read, 0 when absent, -1 on error. */
int hf_layer_list(struct hf *hf, const char *key, int layers, int (*kind_of)(const struct node *),
                  uint8_t *ret);

/* The same for a text of one letter a layer. */
int hf_layer_letters(struct hf *hf, const char *key, int layers, int (*kind_of)(char letter),
                     uint8_t *ret);

/* Sizes, attention heads, norms, rope, tied embeddings: what every decoder of the Llama line has.
 * head_dim absent or null is hidden / heads; num_key_value_heads absent or null is heads. A
 * rotary fraction that the caller set beforehand is the class default, else 1. All layers are
 * MIXER_GQA and FFN_DENSE afterwards. */
void hf_decoder(struct hf *hf);
void hf_layer_count(struct hf *hf); /* the part of it that reads num_hidden_layers */

/* sliding_window over every layer, where the class has it without further conditions. */
void hf_window(struct hf *hf);

/* Experts in every layer but those of mlp_only_layers and decoder_sparse_step (Qwen), or but the
 * first first_k_dense_replace and by moe_layer_freq or mlp_layer_types (DeepSeek). */
void hf_sparse_layers_qwen(struct hf *hf);
void hf_sparse_layers_deepseek(struct hf *hf);

/* num_experts, num_experts_per_tok, moe_intermediate_size. */
void hf_experts_qwen(struct hf *hf);
/* n_routed_experts, n_shared_experts and how they are chosen; the layers too. */
void hf_experts_deepseek(struct hf *hf);
/* num_local_experts, num_experts_per_tok; as wide as intermediate_size. */
void hf_experts_local(struct hf *hf);

/* vision_config of the root, by the kind of tower. */
void hf_vision_qwen(struct hf *hf);
void hf_vision_moon(struct hf *hf);
void hf_vision_llama4(struct hf *hf);

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
void family_deepseek_sparse_read(struct hf *hf);
void family_kimi_vl_read(struct hf *hf);
void family_glm4_moe_read(struct hf *hf);
void family_gpt_oss_read(struct hf *hf);
void family_minimax_m1_read(struct hf *hf);
void family_minimax_m2_read(struct hf *hf);
void family_nemotron_read(struct hf *hf);

#endif
