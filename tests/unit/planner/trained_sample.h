/* trained_sample.h - two models of real size for tests of what is trained, as their published
 * configurations have them. */
#ifndef RANKFIT_TESTS_PLANNER_TRAINED_SAMPLE_H
#define RANKFIT_TESTS_PLANNER_TRAINED_SAMPLE_H

#include "budget_sample.h"
#include "tests/support/random.h"

/* Llama-3.1-8B. A layer: q and o 4096 x 4096 = 16,777,216 each; k and v 1024 x 4096 = 4,194,304
 * each; gate, up and down 14336 x 4096 = 58,720,256 each; two norms of 4096. Matrices of a layer
 * 218,103,808, a layer 218,112,000; embedding 128256 x 4096 = 525,336,576, head as much and a norm
 * of 4096; 8,030,261,248 in all. */
static inline void sample_llama(struct sample *s)
{
    sample_init(s);
    s->hardware.host = false;
    s->model.layers = 32;
    s->model.hidden = 4096;
    s->model.vocab = 128256;
    s->model.gqa = (struct gqa){ .heads = 32, .kv_heads = 8, .head_dim = 128 };
    s->model.dense_width = 14336;
}

/* Qwen3-30B-A3B. A layer: q and o 4096 x 2048 = 8,388,608 each; k and v 512 x 2048 = 1,048,576
 * each; norms of q and k 128 each; router 128 x 2048 = 262,144; two norms of 2048; dense part
 * 19,140,864. 128 experts of 3 x 768 x 2048 = 4,718,592: 603,979,776. Embedding 151936 x 2048 =
 * 311,164,928, head as much and a norm of 2048; 30,532,122,624 in all. */
static inline void sample_qwen(struct sample *s)
{
    sample_init(s);
    s->hardware.host = false;
    s->model.layers = 48;
    s->model.hidden = 2048;
    s->model.vocab = 151936;
    s->model.gqa = (struct gqa){ .heads = 32, .kv_heads = 4, .head_dim = 128, .qk_norm = true };
    s->model.dense_width = 0;
    s->model.moe = (struct moe){ .experts = 128, .top_k = 8, .width = 768 };
    memset(s->model.layer_ffn, FFN_MOE, sizeof s->model.layer_ffn);
}

/* A machine of 1e14 FLOP/s of which products reach all, and for which bytes and calls cost
 * nothing. */
static inline void sample_flops(struct sample *s)
{
    struct hardware *h = &s->hardware;
    h->bf16_flops_per_second = 1e14;
    h->gemm_efficiency = h->expert_gemm_efficiency = 1;
    h->expert_gemm_call_seconds = 1e-30; /* no plateau */
    h->attention_forward_efficiency = h->attention_backward_efficiency = 1;
    h->memory_bytes_per_second = 1e30;
    h->memory_efficiency = 1;
    h->gpus_per_node = h->domain_gpus = 8;
    h->link_bytes_per_second = 1e11;
    h->network_bytes_per_second = 1e10;
    h->gather_efficiency = h->exchange_efficiency = h->network_efficiency = 1;
}

/* low..high */
static inline int sample_pick(uint64_t *seed, int low, int high)
{
    return low + (int)random_below(seed, (uint64_t)high - (uint64_t)low + 1);
}

/* One of the two models in a layout that suits it. */
static inline void sample_draw(struct sample *s, uint64_t *seed)
{
    struct layout *l = &s->choices.layout;
    struct primitives *p = &s->choices.primitives;
    bool moe = sample_pick(seed, 0, 1) == 1;
    if (moe)
        sample_qwen(s);
    else
        sample_llama(s);
    l->tp = 1 << sample_pick(seed, 0, 1);
    l->cp = 1 << sample_pick(seed, 0, 1);
    l->fsdp = 1 << sample_pick(seed, 0, 4);
    l->ep = moe ? 1 << sample_pick(seed, 0, 2) : 1;
    int world = l->tp * l->cp * l->fsdp;
    l->ep = l->ep > world ? 1 : l->ep;
    l->e_fsdp = world / l->ep;
    p->sharding = (enum sharding)sample_pick(seed, 0, 3);
    p->grad_dtype = (enum dtype)sample_pick(seed, 0, 1);
    p->recompute = sample_pick(seed, 0, 1) ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    p->context = l->cp > 1 ? CONTEXT_ALLGATHER_KV : CONTEXT_NONE;
}

#endif
