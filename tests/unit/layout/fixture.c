#include "tests/unit/layout/fixture.h"

#include <string.h>

static struct model sample_model(void)
{
    struct model m = { .name = "sample-30b-a3b",
                       .layers = 48,
                       .hidden = 2048,
                       .vocab = 151936,
                       .context_tokens = 262144 };
    m.gqa = (struct gqa){ .heads = 32,
                          .kv_heads = 4,
                          .head_dim = 128,
                          .qk_norm = true,
                          .rotary_fraction = 1.0,
                          .rope_theta = 1e6 };
    m.moe = (struct moe){ .experts = 128, .top_k = 8, .width = 768 };
    memset(m.layer_ffn, FFN_MOE, sizeof m.layer_ffn);
    return m;
}

void fixture_init(struct fixture *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    fixture->model = sample_model();
    fixture->hardware = (struct hardware){ .name = "test",
                                           .domain_gpus = 8,
                                           .link_bytes_per_second = 450e9,
                                           .network_bytes_per_second = 50e9 };
    fixture->choices.primitives = primitives_default();
    fixture->choices.layout =
        (struct layout){ .tp = 1, .pp = 1, .vpp = 1, .cp = 1, .ep = 8, .etp = 1, .micro_batch = 1 };
    fixture->input = (struct legality_input){ .model = &fixture->model,
                                              .hardware = &fixture->hardware,
                                              .choices = &fixture->choices,
                                              .gpus = 8,
                                              .seq_tokens = 8192,
                                              .global_batch = 8 };
    fixture_derive(fixture);
}

void fixture_derive(struct fixture *fixture)
{
    struct layout *l = &fixture->choices.layout;

    l->fsdp = fixture->input.gpus / (l->tp * l->cp * l->pp);
    l->e_fsdp = fixture->input.gpus / (l->etp * l->ep * l->pp);
    l->d_rep = l->e_rep = 1;
    layout_split_layers(l, fixture->model.layers);
    l->micro_batches =
        l->fsdp > 0 ? (int)(fixture->input.global_batch / ((int64_t)l->fsdp * l->micro_batch)) : 0;
}
