/* GLM-4.5 to 4.7: grouped-query attention with biases on queries, keys and values, dense layers
 * first, experts chosen as DeepSeek-V3 does. */
#include "base/model/hf.h"

void family_glm4_moe_read(struct hf *hf)
{
    struct model *m = hf->model;
    m->gqa.rotary_fraction = 0.5;
    hf_decoder(hf);
    hf_bool(hf, "attention_bias", &m->gqa.qkv_bias);
    hf_bool(hf, "use_qk_norm", &m->gqa.qk_norm);
    hf_experts_deepseek(hf);
    hf_int(hf, "num_nextn_predict_layers", 0, &m->mtp_layers);
}
