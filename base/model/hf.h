/* hf.h - reading a Hugging Face config.json: the keys that many families share, each with its
 * position in errors. A family's own keys are read in its family_*.c. Private to base/model. */
#ifndef RANKFIT_BASE_MODEL_HF_H
#define RANKFIT_BASE_MODEL_HF_H

#include "base/model/model.h"

enum { HF_MAX_SIZE = 1 << 24 }; /* no width, head count or expert count is larger */

/* map[key] as an int in min..max. need: an error when it is absent. Returns 1, 0 (absent) or -1. */
int hf_int(const struct node *map, const char *key, bool need, int64_t min, int *ret,
           struct diag_list *reterr);

/* Sizes, attention heads, norms, rope, tied embeddings: what every decoder of the Llama line has.
 * head_dim absent or null is hidden / heads; num_key_value_heads absent or null is heads. A
 * rotary fraction that the caller set beforehand is the class default, else 1. */
int hf_read_decoder(const struct node *text, const struct node *root, struct model *ret,
                    struct diag_list *reterr);

/* Routed experts of the Qwen families: num_experts, num_experts_per_tok, moe_intermediate_size. */
int hf_read_experts(const struct node *text, struct model *ret, struct diag_list *reterr);

/* An error for each of `keys` whose value is not neutral (null, false, 0, empty): they change the
 * parameters or the arithmetic in a way that `ret` cannot say. */
int hf_refuse(const struct node *map, const char *const *keys, size_t count,
              struct diag_list *reterr);

/* An error unless map[key] is absent or the text `value`. */
int hf_expect_text(const struct node *map, const char *key, const char *value,
                   struct diag_list *reterr);

/* Visits `layer_types`, one text a layer; the length must be `layers`. Returns 1 when read, 0 when
 * absent, -1 on error. visit returns -1 when it does not know the text. */
int hf_layer_types(const struct node *text, int layers,
                   int (*visit)(const char *type, int layer, void *context), void *context,
                   struct diag_list *reterr);

/* The families' readers, rows of model_families. */
int family_llama_read(const struct node *text, const struct node *root, struct model *ret,
                      struct diag_list *reterr);
int family_qwen2_read(const struct node *text, const struct node *root, struct model *ret,
                      struct diag_list *reterr);
int family_qwen3_read(const struct node *text, const struct node *root, struct model *ret,
                      struct diag_list *reterr);
int family_qwen3_moe_read(const struct node *text, const struct node *root, struct model *ret,
                          struct diag_list *reterr);
int family_qwen3_5_read(const struct node *text, const struct node *root, struct model *ret,
                        struct diag_list *reterr);
int family_qwen3_5_moe_read(const struct node *text, const struct node *root, struct model *ret,
                            struct diag_list *reterr);

#endif
