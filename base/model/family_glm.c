/* GLM: GLM-4.5 to 4.7 with grouped-query attention, dense layers first, experts chosen as
 * DeepSeek-V3 does; GLM-4 dense, of which the later ones have norms behind both halves too. */
#include "base/model/hf.h"

/* Biases of queries, keys and values only. */
static void read_bias(struct hf *hf)
{
    hf_bool(hf, "attention_bias", &hf->model->gqa.qkv_bias);
}

void family_glm4_moe_read(struct hf *hf)
{
    struct model *m = hf->model;
    m->gqa.rotary_fraction = 0.5;
    hf_decoder(hf);
    read_bias(hf);
    hf_bool(hf, "use_qk_norm", &m->gqa.qk_norm);
    hf_experts_deepseek(hf, "sigmoid");
    hf_int(hf, "num_nextn_predict_layers", 0, &m->mtp_layers);
}

/* Rope turns adjacent dimensions. */
void family_glm_read(struct hf *hf)
{
    hf->model->gqa.rotary_fraction = 0.5;
    hf_dense_decoder(hf);
    read_bias(hf);
    hf->model->gqa.rope_adjacent = true;
}

void family_glm4_read(struct hf *hf)
{
    family_glm_read(hf);
    hf_post_norms(hf);
}
