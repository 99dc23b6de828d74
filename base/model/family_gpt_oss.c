/* gpt-oss: attention with sinks and biases, every other layer sliding; experts, router and output
 * with biases. */
#include "base/model/hf.h"

void family_gpt_oss_read(struct hf *hf)
{
    static const char *const no_matter[] = { "experts_per_token", "swiglu_limit", "swiglu_alpha" };
    struct model *m = hf->model;
    bool bias = true;
    hf_decoder(hf);
    hf_experts_local(hf);
    hf_bool(hf, "attention_bias", &bias);
    m->gqa.qkv_bias = m->gqa.output_bias = bias;
    m->gqa.sinks = true;
    m->moe.router_bias = m->moe.expert_bias = true;
    m->gqa.local_tokens = 128;
    hf_int(hf, "sliding_window", 1, &m->gqa.local_tokens);
    for (int i = 0; i < m->layers; i++)
        m->layer_mixer[i] = i % 2 == 0 ? MIXER_LOCAL : MIXER_GQA;
    hf_layer_list(hf, "layer_types", m->layers, hf_window_kind, m->layer_mixer);
    hf_notes(hf, no_matter, sizeof no_matter / sizeof no_matter[0]);
}
