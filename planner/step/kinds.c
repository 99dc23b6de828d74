#include "planner/step/step.h"

extern const struct step_list step_gqa, step_delta_net, step_mla, step_dsa, step_lightning,
    step_mamba, step_no_mixer, step_dense, step_moe, step_no_ffn;

const struct step_list *const step_mixers[MIXER_COUNT] = {
    [MIXER_GQA] = &step_gqa,       [MIXER_GDN] = &step_delta_net,
    [MIXER_LOCAL] = &step_gqa,     [MIXER_MLA] = &step_mla,
    [MIXER_DSA] = &step_dsa,       [MIXER_DSA_SHARED] = &step_dsa,
    [MIXER_MAMBA] = &step_mamba,   [MIXER_LIGHTNING] = &step_lightning,
    [MIXER_NONE] = &step_no_mixer,
};

const struct step_list *const step_ffns[FFN_COUNT] = {
    [FFN_DENSE] = &step_dense,
    [FFN_MOE] = &step_moe,
    [FFN_NONE] = &step_no_ffn,
};
