/* model.h - the facts of one Transformer: sizes, which kind each layer is, what is tied. Read from
 * models/NAME.yaml or from a Hugging Face config.json; an unknown architecture is refused by name.
 * Knows nothing of layouts, dtypes of a run, or memory. */
#ifndef RANKFIT_BASE_MODEL_MODEL_H
#define RANKFIT_BASE_MODEL_MODEL_H

#include "base/diag.h"
#include "base/json.h"
#include "base/tree.h"

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_MAX_LAYERS = 512, MODEL_MAX_PARTS = 24, ROUTER_MAX_GROUPS = 64 };

/* What mixes tokens in a layer. */
enum mixer {
    MIXER_GQA,        /* softmax attention over everything before (or gqa.window_tokens of it) */
    MIXER_GDN,        /* gated delta net */
    MIXER_LOCAL,      /* softmax attention over gqa.local_tokens: a sliding window or chunks */
    MIXER_MLA,        /* softmax attention over keys and values made from latents */
    MIXER_DSA,        /* the same over the top-k keys that the layer's own indexer chooses */
    MIXER_DSA_SHARED, /* ... that the last layer with an indexer has chosen */
    MIXER_LIGHTNING,  /* linear attention with a fixed decay a head */
    MIXER_MAMBA,      /* Mamba-2: a selective state space */
    MIXER_NONE,       /* the layer is a feed-forward half alone */
    MIXER_OTHER,      /* a kind that model.parts counts and whose step has no list */
    MIXER_COUNT
};
enum ffn { FFN_DENSE, FFN_MOE, FFN_NONE, FFN_OTHER, FFN_COUNT };

/* How rotary embedding is stretched beyond the tokens that it was trained with (rope.c). */
enum rope_form {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_OTHER, /* a form that only files know */
    ROPE_FORM_COUNT
};

/* `low`, `high`: of llama3 low_freq_factor and high_freq_factor, of YaRN beta_slow and beta_fast.
 * A factor of 0 stands for 1. */
struct rope_scaling {
    int form; /* enum rope_form */
    double factor;
    int64_t original_tokens;
    double low, high;
    bool unrounded;         /* YaRN's bounds are not rounded to whole pairs */
    double rotation_factor; /* of cosines and sines */
    double score_factor;    /* of the scores */
};

/* Grouped-query attention. window_tokens 0: full causal. With latents (struct mla) these are the
 * heads that attention sees: kv_heads equals heads, head_dim is nope_dim + rope_dim. */
struct gqa {
    int heads, kv_heads, head_dim;
    bool qk_norm;      /* RMSNorm over head_dim of every query and key head */
    bool qk_norm_wide; /* RMSNorm over all query heads together, and over all key heads */
    bool output_gate;  /* the query projection is twice as wide; sigmoid gate before the output */
    bool qkv_bias, output_bias;
    bool sinks;             /* one learned logit a head beside the scores */
    double rotary_fraction; /* of head_dim, 0..1 */
    double rope_theta;
    bool rope_adjacent; /* pairs are neighbors (2i, 2i + 1), not (i, i + half) */
    struct rope_scaling rope;
    int window_tokens;
    int local_tokens;   /* what a MIXER_LOCAL layer sees; 0: the model has none */
    bool local_chunked; /* the local layers see their own chunk of the sequence, not a window */
};

/* Latent attention: queries and keys-values go through latents of q_rank (0: queries do not) and
 * kv_rank; a head has nope_dim + rope_dim for queries and keys, value_dim for values. */
struct mla {
    int q_rank, kv_rank, nope_dim, rope_dim, value_dim;
};

/* The indexer of sparse attention: heads x dim scores against one key of dim a token. */
struct indexer {
    int heads, dim, top_k;
};

/* Lightning attention: queries, keys, values and gate of heads x head_dim each. */
struct lightning {
    int heads, head_dim;
};

/* Mamba-2: heads x head_dim channels, `groups` pairs of input and output vectors of `state`. */
struct mamba {
    int heads, head_dim, state, groups, conv_width, chunk_tokens;
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
    int latent;                /* width that routed experts work at; 0: hidden */
    bool router_bias;          /* one number an expert: a bias, or a correction of the choice */
    bool expert_bias;
    bool sigmoid; /* experts are scored by a sigmoid, not by a softmax over all */
    /* The choice is limited to the experts of group_limit of `groups` groups of adjacent experts; 0
     * or 1 group: no limit. */
    int groups, group_limit;
    double scaling; /* factor of the weights of a token's experts; 0: none */
};

/* A vision tower. One merger joins merge x merge patches into the text model's width, `deepstack`
 * further ones feed deeper layers. adapter_in, adapter_out: of towers that end in an MLP of their
 * own and a projection (Llama 4), which have a class token too; 0 otherwise. */
struct vision {
    int depth, width, mlp_width, heads, patch, temporal_patch, merge, in_channels, positions;
    int deepstack, adapter_in, adapter_out;
    bool final_norm;
    bool listed; /* its tensors are model.parts, not rows of the tables */
};

/* Tensors that no row of the tables has: those of towers of other makers, and of layers that no
 * step is known of. Only counted: which layers hold them is not kept. */
struct model_part {
    char name[48];     /* "vision blocks" */
    uint8_t component; /* enum component */
    bool lookup;       /* a table of which a token uses one row */
    int times;
    uint64_t params; /* of each */
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
    struct mla mla;                        /* kv_rank 0: none */
    struct indexer indexer;                /* heads 0: none */
    struct lightning lightning;            /* heads 0: none */
    struct mamba mamba;                    /* heads 0: none */
    int dense_width;                       /* 0: no dense MLP layer */
    bool mlp_ungated;                      /* every MLP is up, activation, down; no gate */
    bool mlp_bias;                         /* dense MLPs have biases */
    struct moe moe;                        /* experts 0: no MoE layer */
    uint8_t layer_mixer[MODEL_MAX_LAYERS]; /* enum mixer */
    uint8_t layer_ffn[MODEL_MAX_LAYERS];   /* enum ffn */
    int mtp_layers;                        /* multi-token-prediction layers of the checkpoint */
    bool mtp_trained;                      /* --set model.mtp=1 */
    struct vision vision;                  /* depth 0: none */
    bool vision_trained;                   /* --set model.vision=trained */
    bool vision_frozen;                    /* =frozen: its weights are held; else it is not there */
    int part_count;
    struct model_part parts[MODEL_MAX_PARTS];
    char unplanned[128]; /* parts without a list of operations; then it is counted, not planned */
    char unrun[128];     /* arithmetic that no executor does; budgets need not know it */
};

struct hf;         /* hf.h */
struct name_style; /* row.h */

/* One architecture that rankfit reads. Adding a family is adding a row (family.c). */
struct model_family {
    const char *architecture; /* "Qwen3MoeForCausalLM" */
    const char *model_type;   /* "qwen3_moe" */
    const char *text_key;     /* where the text model's keys are: NULL for the root */
    const char *reads;        /* one line for `rankfit list` */
    void (*read)(struct hf *hf);
    const char *tensor_prefix;      /* of the text trunk's tensor names: "model." */
    bool stacked_experts;           /* the checkpoint keeps all experts of a layer in one tensor */
    const struct name_style *names; /* how its tensors are called; NULL: as those of Llama */
    const char
        *defaults; /* of its class, for keys that a file lacks: "head_dim 128, ..."; or NULL */
    bool flat;     /* a file without text_key has the text model's keys at the root */
};
extern const struct model_family model_families[];
extern const size_t model_family_count;

/* The row of an architecture, or NULL. */
const struct model_family *model_family_find(const char *architecture);

/* Whether checkpoints of the model keep all experts of a layer in one tensor, [in, out] each. */
bool model_experts_in_out(const struct model *model);
/* Whether their delta nets have one input matrix in which each key head has its query, key, values
 * and gates side by side, and another of its b and a; else a matrix for each, whole. */
bool model_delta_joint(const struct model *model);

/* NAME, FILE (native YAML or config.json) or DIR holding config.json. */
int model_load(const char *name_or_path, struct model *ret, struct diag_list *reterr);

/* From a parsed document: a Hugging Face configuration or the native form (key `architecture`). */
int model_from_node(const struct node *root, struct model *ret, struct diag_list *reterr);

/* The native form, complete: model_from_node(model_to_json(m)) equals m. */
struct json *model_to_json(const struct model *model);

/* Applies `model.FIELD=value` of --set ("layers" keeps the first layers and cuts the patterns;
 * "mtp"=0|1, "vision"=frozen|trained, and every number by its native key, with or without its
 * section: "experts" or "moe.experts"; the tower's only with it: "vision.depth"). Consistency is
 * model_check's, after the last one. */
int model_set(struct model *model, const char *field, const char *value, struct pos at,
              struct diag_list *reterr);
/* Whether model_set knows a field of that name. */
bool model_has_field(const char *field);

/* Every inconsistency of the facts at once (heads % kv_heads, top_k > experts, absurd sizes...). */
int model_check(const struct model *model, struct pos at, struct diag_list *reterr);

/* An error that names the parts of the model without a list of operations (model.unplanned). */
int model_check_planned(const struct model *model, struct pos at, struct diag_list *reterr);

/* Radians per position of each pair of the first rotary_dim elements of a head, in a sequence of
 * `tokens`: ret[rotary_dim / 2]. */
void model_rope_frequencies(const struct gqa *gqa, int64_t tokens, int rotary_dim, double *ret);

/* Any form of softmax attention, of linear attention; latents. */
static inline bool mixer_is_softmax(enum mixer mixer)
{
    return mixer == MIXER_GQA || mixer == MIXER_LOCAL ||
           (mixer >= MIXER_MLA && mixer <= MIXER_DSA_SHARED);
}

static inline bool mixer_is_linear(enum mixer mixer)
{
    return mixer == MIXER_GDN || mixer == MIXER_LIGHTNING || mixer == MIXER_MAMBA;
}

static inline bool mixer_is_latent(enum mixer mixer)
{
    return mixer >= MIXER_MLA && mixer <= MIXER_DSA_SHARED;
}

/* Whether there are trained prediction layers. */
static inline bool model_predicts(const struct model *m)
{
    return m->mtp_trained && m->mtp_layers > 0;
}

/* The attention of a multi-token-prediction layer: the trunk's full kind; with an indexer of its
 * own where the trunk has indexers. */
static inline enum mixer model_mtp_mixer(const struct model *m)
{
    if (m->mla.kv_rank == 0)
        return MIXER_GQA;
    return m->indexer.heads > 0 ? MIXER_DSA : MIXER_MLA;
}

/* Its feed-forward half has experts where the model has any. */
static inline enum ffn model_mtp_ffn(const struct model *m)
{
    return m->moe.experts > 0 ? FFN_MOE : FFN_DENSE;
}

/* Width of a routed row: the experts' latent, or the hidden width. */
static inline int model_routed_width(const struct model *m)
{
    return m->moe.latent > 0 ? m->moe.latent : m->hidden;
}

/* Matrices of an MLP or expert: gate, up and down, or up and down. */
static inline int model_mlp_matrices(const struct model *m)
{
    return m->mlp_ungated ? 2 : 3;
}

static inline int model_query_width(const struct model *m)
{
    return m->gqa.heads * m->gqa.head_dim;
}

static inline int model_kv_width(const struct model *m)
{
    return m->gqa.kv_heads * m->gqa.head_dim;
}

#endif
