/* budget_sample.h - small models, machines and layouts for tests of budgets and times, built by
 * hand. */
#ifndef RANKFIT_TESTS_PLANNER_BUDGET_SAMPLE_H
#define RANKFIT_TESTS_PLANNER_BUDGET_SAMPLE_H

#include "planner/predict/budget.h"

#include "base/hardware/hardware.h"

#include <string.h>

struct sample {
    struct model model;
    struct model_sizes sizes;
    struct hardware hardware;
    struct choices choices;
    struct budget_input in;
};

/* Two layers; hidden 64; 4 heads and 2 key heads of 16; dense width 96; vocabulary 1000. */
static inline void sample_model(struct model *m)
{
    memset(m, 0, sizeof *m);
    m->layers = 2;
    m->hidden = 64;
    m->vocab = 1000;
    m->gqa = (struct gqa){ .heads = 4, .kv_heads = 2, .head_dim = 16, .rotary_fraction = 1 };
    m->dense_width = 96;
    for (int i = 0; i < MODEL_MAX_LAYERS; i++) {
        m->layer_mixer[i] = MIXER_GQA;
        m->layer_ffn[i] = FFN_DENSE;
    }
}

/* All layers mixture of experts: `experts` of width 32, `top_k` a token. */
static inline void sample_moe(struct model *m, int experts, int top_k)
{
    m->moe = (struct moe){ .experts = experts, .top_k = top_k, .width = 32 };
    m->dense_width = 0;
    memset(m->layer_ffn, FFN_MOE, sizeof m->layer_ffn);
}

static inline void sample_layout(struct layout *l)
{
    memset(l, 0, sizeof *l);
    l->tp = l->pp = l->vpp = l->cp = l->ep = l->etp = 1;
    l->fsdp = l->d_rep = l->e_fsdp = l->e_rep = 1;
    l->micro_batch = l->micro_batches = 1;
}

/* A GPU of round rates, in nodes of eight; memory, links and network are reached in full. */
static inline void sample_round_machine(struct hardware *h)
{
    h->host = false;
    h->memory_bytes_per_second = 1e12;
    h->bf16_flops_per_second = 1e14;
    h->gpus_per_node = h->domain_gpus = 8;
    h->link_bytes_per_second = 1e11;
    h->network_bytes_per_second = 1e10;
    h->memory_efficiency = h->gather_efficiency = h->exchange_efficiency = 1;
    h->network_efficiency = 1;
}

/* Call after model and layout are set. */
static inline struct budget_input *sample_input(struct sample *s, uint64_t seq)
{
    struct layout *l = &s->choices.layout;
    model_sizes_init(&s->sizes, &s->model);
    layout_split_layers(l, s->model.layers);
    s->in = (struct budget_input){ .model = &s->model,
                                   .sizes = &s->sizes,
                                   .hardware = &s->hardware,
                                   .choices = &s->choices,
                                   .gpus = layout_world(l),
                                   .seq_tokens = seq,
                                   .routing = { .kind = ROUTING_BALANCED },
                                   .routing_quantile = 0.99 };
    return &s->in;
}

static inline void sample_init(struct sample *s)
{
    memset(s, 0, sizeof *s);
    sample_model(&s->model);
    sample_layout(&s->choices.layout);
    s->choices.primitives = primitives_default();
    s->hardware.host = true;
    s->hardware.workspace_bytes = 4096;
}

#endif
