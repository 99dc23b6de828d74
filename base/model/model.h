/* model.h - the facts of one Transformer: sizes, which kind each layer is, what is tied. Read from
 * models/NAME.yaml or from a Hugging Face config.json; an unknown architecture is refused by name.
 * Knows nothing of layouts, dtypes of a run, or memory. */
#ifndef RANKFIT_BASE_MODEL_MODEL_H
#define RANKFIT_BASE_MODEL_MODEL_H

#include "base/diag.h"
#include "base/tree.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { MODEL_MAX_LAYERS = 512 };

enum mixer { MIXER_GQA, MIXER_GDN, MIXER_COUNT }; /* softmax attention; gated delta net */
enum ffn { FFN_DENSE, FFN_MOE, FFN_COUNT };

/* Grouped-query attention. window_tokens 0: full causal. */
struct gqa {
    int heads, kv_heads, head_dim;
    bool qk_norm;     /* RMSNorm over head_dim of every query and key head */
    bool output_gate; /* the query projection is twice as wide; sigmoid gate before the output */
    bool qkv_bias;
    double rotary_fraction; /* of head_dim, 0..1 */
    double rope_theta;
    int window_tokens;
};

/* Gated delta net: widths K = key_heads * key_dim, V = value_heads * value_dim. */
struct gdn {
    int key_heads, value_heads, key_dim, value_dim, conv_width;
};

struct moe {
    int experts, top_k, width; /* width: one expert's intermediate size */
    int shared_width;          /* sum over shared experts; 0: none */
    bool shared_gate;          /* scalar sigmoid gate on the shared expert */
    bool normalize_top_k;      /* the k weights sum to one */
};

struct vision {
    int depth, width, mlp_width, heads, patch, temporal_patch, merge, in_channels, positions;
};

struct model {
    char name[64];         /* "qwen3.5-35b-a3b" */
    char title[64];        /* "Qwen3.5-35B-A3B" */
    char architecture[64]; /* as config.json names it; a row of model_families */
    int layers, hidden;
    int64_t vocab;
    bool tied;
    double norm_eps;
    bool norm_zero_centred; /* weight stored as w, applied as 1 + w */
    int64_t context_tokens; /* 0: not said */
    struct gqa gqa;
    struct gdn gdn;
    int dense_width;                       /* 0: no dense MLP layer */
    struct moe moe;                        /* experts 0: no MoE layer */
    uint8_t layer_mixer[MODEL_MAX_LAYERS]; /* enum mixer */
    uint8_t layer_ffn[MODEL_MAX_LAYERS];   /* enum ffn */
    int mtp_layers;                        /* multi-token-prediction layers of the checkpoint */
    bool mtp_trained;                      /* --set model.mtp=1 */
    struct vision vision;                  /* depth 0: none */
    bool vision_trained;                   /* --set model.vision=trained */
};

/* One architecture that rankfit reads. Adding a family is adding a row (family.c). */
struct model_family {
    const char *architecture; /* "Qwen3MoeForCausalLM" */
    const char *model_type;   /* "qwen3_moe" */
    const char *text_key;     /* where the text model's keys are: NULL for the root */
    const char *reads;        /* one line for `rankfit list` */
    int (*read)(const struct node *text, const struct node *root, struct model *ret,
                struct diag_list *reterr);
    const char *tensor_prefix; /* of the text trunk's tensor names: "model." */
    bool stacked_experts;      /* the checkpoint keeps all experts of a layer in one tensor */
};
extern const struct model_family model_families[];
extern const size_t model_family_count;

/* The row of an architecture, or NULL. */
const struct model_family *model_family_find(const char *architecture);

/* NAME, FILE (native YAML or config.json) or DIR holding config.json. */
int model_load(const char *name_or_path, struct model *ret, struct diag_list *reterr);

/* From a parsed document: a Hugging Face configuration or the native form (key `architecture`). */
int model_from_node(const struct node *root, struct model *ret, struct diag_list *reterr);

/* The native form, complete: model_from_node(model_to_json(m)) equals m. */
json_t *model_to_json(const struct model *model);

/* Applies `model.FIELD=value` of --set ("layers" keeps the first layers and cuts the patterns;
 * "mtp"=0|1, "vision"=frozen|trained, and every number by its native key, with or without its
 * section: "experts" or "moe.experts"; the tower's only with it: "vision.depth"). Consistency is
 * model_check's, after the last one. */
int model_set(struct model *model, const char *field, const char *value, struct pos at,
              struct diag_list *reterr);

/* Every inconsistency of the facts at once (heads % kv_heads, top_k > experts, absurd sizes...). */
int model_check(const struct model *model, struct pos at, struct diag_list *reterr);

static inline int model_query_width(const struct model *m)
{
    return m->gqa.heads * m->gqa.head_dim;
}

static inline int model_kv_width(const struct model *m)
{
    return m->gqa.kv_heads * m->gqa.head_dim;
}

#endif
