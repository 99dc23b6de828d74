/* Parts of a step's time by hand, from the shapes of published configurations and the tables of
 * ARCHITECTURE.md alone: a layer of DeepSeek-V3, one of GLM-5.2, gathers of experts, a step with
 * prediction layers, and what else moves bytes. Every number is worked out in the comment above it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_sample.h"
#include "planner/predict/step_time.h"
#include "tests/support/asked.h"
#include "tests/support/near.h"

#include <math.h>

static struct sample s;
static struct step_time time_of;

/* A product FLOP takes 1 / 1e14 s, attention's too, a byte of an elementwise kernel 1 / 1e12 s; no
 * operation has a latency. */
static void machine(void)
{
    sample_init(&s);
    struct hardware *h = &s.hardware;
    sample_round_machine(h);
    h->gemm_efficiency = 1;
    h->attention_forward_efficiency = h->attention_backward_efficiency = 1;
    h->expert_gemm_efficiency = 1;
    h->expert_gemm_call_seconds = 1e-30; /* fine keys are there: no plateau */
}

static double item(enum time_item which)
{
    return time_of.item_seconds[which];
}

/* What one more layer of the model's kind adds: embedding, loss and the like fall out. Recompute as
 * said; gradients are zeroed beside the forward. */
static double layer_item(enum time_item which, uint64_t seq)
{
    s.model.layers = 3;
    step_time_compute(asked(sample_input(&s, seq)), &time_of);
    double three = item(which);
    s.model.layers = 2;
    step_time_compute(asked(sample_input(&s, seq)), &time_of);
    return three - item(which);
}

static void check(enum time_item which, uint64_t seq, double seconds)
{
    assert_near(layer_item(which, seq), seconds, 1e-9, time_item_names[which]);
}

static void mixture(int hidden)
{
    s.model.hidden = hidden;
    s.model.moe = (struct moe){ .experts = 256, .top_k = 8, .width = 2048, .shared_width = 2048 };
    s.model.dense_width = 0;
    memset(s.model.layer_ffn, FFN_MOE, sizeof s.model.layer_ffn);
}

/* DeepSeek-V3: H 7168; 128 heads of 128 + 64 and 128; latents of 1536 and 512; 256 experts, 8 a
 * token, and a shared one, of width 2048. Sixteen ranks: ep 8 x e_fsdp 2, fsdp 16. */
static void deepseek(enum recompute recompute)
{
    machine();
    mixture(7168);
    s.model.gqa = (struct gqa){ .heads = 128, .kv_heads = 128, .head_dim = 192 };
    s.model.mla = (struct mla){ 1536, 512, 128, 64, 128 };
    memset(s.model.layer_mixer, MIXER_MLA, sizeof s.model.layer_mixer);
    s.choices.layout.fsdp = 16;
    s.choices.layout.ep = 8;
    s.choices.layout.e_fsdp = 2;
    s.choices.primitives.recompute = recompute;
}

/* Weights that a token multiplies by:
 *     q down 7168 x 1536                        11,010,048
 *     keys and values down 7168 x (512 + 64)     4,128,768
 *     q up 1536 x 128 x 192                     37,748,736
 *     keys and values up 512 x 128 x 256        16,777,216
 *     output 128 x 128 x 7168                  117,440,512
 *     router 7168 x 256                          1,835,008
 *     shared expert, gate and up                29,360,128
 *     shared expert, down                       14,680,064
 * together 232,980,480; the replay ends before the last, 218,300,416. 2 FLOPs each and token,
 * forward; 4 backward. */
static void deepseek_products(void **state)
{
    (void)state;
    deepseek(RECOMPUTE_NONE);
    check(TIME_MATMUL, 4096, 4096 * 6.0 * 232980480 / 1e14);
    deepseek(RECOMPUTE_FULL);
    check(TIME_MATMUL, 4096, 4096 * (6.0 * 232980480 + 2.0 * 218300416) / 1e14);
}

/* 4096 tokens send 32,768 rows, and balanced as many come. A row: 7168 x 4096 gate and up, 2048 x
 * 7168 down, 44,040,192 weights; the replay ends with the first, 29,360,128. */
static void deepseek_experts(void **state)
{
    (void)state;
    deepseek(RECOMPUTE_NONE);
    check(TIME_EXPERTS, 4096, 32768 * 6.0 * 44040192 / 1e14);
    deepseek(RECOMPUTE_FULL);
    check(TIME_EXPERTS, 4096, 32768 * (6.0 * 44040192 + 2.0 * 29360128) / 1e14);
}

/* A query sees 2048 keys on average: 2 x 128 x (192 + 128) x 2048 FLOPs = 167,772,160 a token;
 * forward, 2.5 backward, and a replay. */
static void deepseek_attention(void **state)
{
    (void)state;
    deepseek(RECOMPUTE_NONE);
    check(TIME_ATTENTION, 4096, 4096 * 3.5 * 167772160 / 1e14);
    deepseek(RECOMPUTE_FULL);
    check(TIME_ATTENTION, 4096, 4096 * 4.5 * 167772160 / 1e14);
}

/* Bytes a token that kernels read and write, 2 an element, of the mixer:
 *     p1 x to n1                            2 x 2 x 7168                         28,672
 *     p3 latents normed                     2 x 2 x (1536 + 512)                  8,192
 *     p4 queries rotated                    2 x 2 x 24,576                       98,304
 *        keys of their own part 128 x 128 and the shared 64: 2 x (16,384 + 64 + 24,576)
 *                                                                                82,048
 *     p6 residual copied                    2 x 2 x 7168                         28,672
 *     forward                                                                   245,888
 *     q3 queries, keys again                98,304 + 82,048                     180,352
 *     q6 their gradients rotated back, taken apart                              180,352
 *        latents normed again, and the norms' gradients (two read, one written)
 *                                           (4 + 6) x 2048                       20,480
 *     q7 n1 again                                                                28,672
 *     q9 x, dn1, dx read, dx written        4 x 2 x 7168                         57,344
 *     backward                                                                  467,200
 * of the feed-forward half, R = S = 8 rows a token:
 *     m1 norm                                                                    28,672
 *     m2 logits to probabilities fp32 2 x 4 x 256, choices and weights 2 x 4 x 8  2,112
 *        sorted: choices read, slots written, counts: 3 x 4 x 8                       96
 *     m3 rows to send                       2 x 7168 x (1 + 8)                  129,024
 *     m5 into expert order                  2 x 2 x 7168 x 8                    229,376
 *     m7 SwiGLU                             2 x (4096 + 2048) x 8                98,304
 *     m9 into source order                                                      229,376
 *     m11 rows, x1 and output               2 x 7168 x (8 + 2)                  143,360
 *     m13 shared SwiGLU                     2 x 3 x 2048                         12,288
 *     forward                                                                   872,608
 *     s1 n2 again                                                                28,672
 *     s2 SwiGLU again                                                            12,288
 *     s3 das, hs, dhs                       2 x 5 x 2048                         20,480
 *     b1, b3 as m3, m5                      129,024 + 229,376                   358,400
 *     b4 SwiGLU again                                                            98,304
 *     b6 da, h, dh                          2 x 5 x 2048 x 8                    163,840
 *     b9 as m9, b11 rows, dn2 read, written 229,376 + 143,360                   372,736
 *     b12 probabilities, dlogits fp32       2 x 4 x 256                           2,048
 *     b13 norm                                                                   57,344
 *     backward                                                                1,114,112
 * The replay goes to p6, m1 to m6: 245,888 + 28,672 + 2,208 + 129,024 + 229,376 = 635,168.
 * Beside it, of each micro-batch, the gradients' buffers: of the dense part, 232,980,480 + 14,336 +
 * 1,536 + 512 of norms = 232,996,864, a multiple of 64 x 16; zeroed 4, added to the slice 12 / 16:
 * 4.75 B each; of 32 experts, 44,040,192 each, over 2 ranks 4 + 12 / 2 = 10 B each. */
static void deepseek_kernels(void **state)
{
    double buffers = 4.75 * 232996864 + 10 * 32.0 * 44040192;
    (void)state;
    deepseek(RECOMPUTE_NONE);
    check(TIME_ELEMENTWISE, 4096, (4096 * (245888.0 + 467200 + 872608 + 1114112) + buffers) / 1e12);
    deepseek(RECOMPUTE_FULL);
    check(TIME_ELEMENTWISE, 4096,
          (4096 * (245888.0 + 467200 + 872608 + 1114112 + 635168) + buffers) / 1e12);
}

/* An exchange: 32,768 rows of 14,336 B; of eight parts seven leave, over links of 1e11. Two forward
 * and backward, one in the replay. */
static void deepseek_exchange(void **state)
{
    double one = 32768.0 * 14336 * 7 / 8 / 1e11;
    (void)state;
    deepseek(RECOMPUTE_NONE);
    check(TIME_EXPOSED_EXCHANGE, 4096, 4 * one);
    deepseek(RECOMPUTE_FULL);
    check(TIME_EXPOSED_EXCHANGE, 4096, 5 * one);
}

/* Gathers of the layer. Dense: sixteen ranks in two domains; a ring crosses by the adapters of all
 * eight, 8e10: 2 x 232,996,864 x 15/16 B. Experts: two ranks, eight apart, one in each domain, by
 * one adapter, 1e10: 2 x 1,409,286,144 x 1/2 B. Reduced in fp32, twice as many bytes. */
static const double dense_gather = 2.0 * 232996864 * 15 / 16 / 8e10;
static const double expert_gather = 2.0 * 1409286144 / 2 / 1e10;

/* Nothing ahead: all of it is exposed, forward, backward and reduced. */
static void experts_gathered_when_needed(void **state)
{
    (void)state;
    deepseek(RECOMPUTE_FULL);
    s.choices.primitives.prefetch_units = 0;
    s.choices.primitives.comm_streams = 1;
    check(TIME_EXPOSED_GATHER, 4096, (2 + 2) * (dense_gather + expert_gather));
    assert_near(time_of.gather_seconds_per_unit, dense_gather + expert_gather, 1e-12, "s");
}

/* Seconds of the forward and of replay and backward, from the sums above: products, experts,
 * attention and kernels at `tokens` tokens of `seq` each. */
static double forward_seconds(double tokens)
{
    double flops = 2.0 * 232980480 + 8 * 2.0 * 44040192 + 167772160 * tokens / 4096;
    return tokens * (flops / 1e14 + (245888.0 + 872608) / 1e12);
}

static double backward_seconds(double tokens)
{
    double replay = 2.0 * 218300416 + 8 * 2.0 * 29360128 + 167772160 * tokens / 4096;
    double back = 4.0 * 232980480 + 8 * 4.0 * 44040192 + 2.5 * 167772160 * tokens / 4096;
    return tokens * ((replay + back) / 1e14 + (467200.0 + 1114112 + 635168) / 1e12);
}

/* One unit ahead at 4096 tokens: dense 5.46 ms and experts 140.9 ms against a forward of about
 * 59 ms: the rest is exposed, backward hides it. At 16,384 tokens both hide, and on one stream
 * the reductions alone are left; on a stream of their own these hide too, but for what the ends of
 * the step leave, which a further layer does not add to. */
static void experts_gathered_ahead(void **state)
{
    double gather = dense_gather + expert_gather;
    (void)state;
    deepseek(RECOMPUTE_FULL);
    s.choices.primitives.prefetch_units = 1;
    s.choices.primitives.comm_streams = 1;
    assert_true(forward_seconds(4096) < gather && gather < backward_seconds(4096));
    check(TIME_EXPOSED_GATHER, 4096, gather - forward_seconds(4096) + 2 * gather);
    assert_true(gather < forward_seconds(16384));
    check(TIME_EXPOSED_GATHER, 16384, 2 * gather);
    s.choices.primitives.comm_streams = 2;
    assert_true(3 * gather > backward_seconds(4096));
    check(TIME_EXPOSED_GATHER, 4096,
          gather - forward_seconds(4096) + 3 * gather - backward_seconds(4096));
    assert_true(3 * gather < backward_seconds(16384));
    check(TIME_EXPOSED_GATHER, 16384, 0);
    s.hardware.gather_contention = 0.25; /* of what hides: 4 gathers in all */
    check(TIME_EXPOSED_GATHER, 16384, 0.25 * 4 * gather);
}

/* GLM-5.2: H 6144; 64 heads of 192 + 64 and 256; latents of 2048 and 512; an indexer of 32 heads of
 * 128 that chooses 2048 keys; experts as above. One rank. */
static void glm(enum recompute recompute)
{
    machine();
    mixture(6144);
    s.model.gqa = (struct gqa){ .heads = 64, .kv_heads = 64, .head_dim = 256 };
    s.model.mla = (struct mla){ 2048, 512, 192, 64, 256 };
    s.model.indexer = (struct indexer){ 32, 128, 2048 };
    memset(s.model.layer_mixer, MIXER_DSA, sizeof s.model.layer_mixer);
    s.choices.primitives.recompute = recompute;
}

/* Weights that a token multiplies by:
 *     q down 6144 x 2048                        12,582,912
 *     keys down 6144 x (512 + 64)                3,538,944
 *     q up 2048 x 64 x 256                      33,554,432
 *     absorbed, 64 x 192 x 512                   6,291,456
 *     values out of latents, 64 x 512 x 256      8,388,608
 *     output 64 x 256 x 6144                   100,663,296
 *     the mixer                                165,019,648
 *     index queries 2048 x 32 x 128              8,388,608
 *     index key and weights 6144 x (128 + 32)      983,040
 *     router 6144 x 256                          1,572,864
 *     shared expert, gate and up 25,165,824, down 12,582,912
 * together 213,712,896. Backward multiplies absorbed queries and values again, 14,680,064; the
 * replay all but shared down, 201,129,984. */
static void glm_products(void **state)
{
    (void)state;
    glm(RECOMPUTE_NONE);
    check(TIME_MATMUL, 4096, 4096 * (6.0 * 213712896 + 2.0 * 14680064) / 1e14);
    glm(RECOMPUTE_FULL);
    check(TIME_MATMUL, 4096, 4096 * (6.0 * 213712896 + 2.0 * (14680064 + 201129984)) / 1e14);
    memset(s.model.layer_mixer, MIXER_DSA_SHARED, sizeof s.model.layer_mixer);
    check(TIME_MATMUL, 4096,
          4096 * (6.0 * (213712896 - 9371648) + 2.0 * (14680064 + 201129984 - 9371648)) / 1e14);
}

/* 37,748,736 weights a row, 25,165,824 of them gate and up; 8 rows a token. */
static void glm_experts(void **state)
{
    (void)state;
    glm(RECOMPUTE_FULL);
    check(TIME_EXPERTS, 4096, 32768 * (6.0 * 37748736 + 2.0 * 25165824) / 1e14);
}

/* Of 4096 tokens the first 2048 see all keys before them, 1024 on average, the others choose 2048:
 * 1536. A key takes 2 x 64 x (512 + 64 + 512) FLOPs: 213,909,504 a token. Scores of 2048 keys on
 * average, 2 x 32 x 128 each: 16,777,216, never again; backward those of the chosen keys,
 * 12,582,912, 2.5 times as attention. */
static void glm_attention(void **state)
{
    (void)state;
    glm(RECOMPUTE_NONE);
    check(TIME_ATTENTION, 4096, 4096 * (3.5 * 213909504 + 16777216 + 2.5 * 12582912) / 1e14);
    glm(RECOMPUTE_FULL);
    check(TIME_ATTENTION, 4096, 4096 * (4.5 * 213909504 + 16777216 + 2.5 * 12582912) / 1e14);
    memset(s.model.layer_mixer, MIXER_DSA_SHARED, sizeof s.model.layer_mixer);
    check(TIME_ATTENTION, 4096, 4096 * 4.5 * 213909504 / 1e14);
}

/* Bytes a token of the mixer:
 *     x1 norm                               4 x 6144                             24,576
 *     x3 latents normed                     4 x (2048 + 512)                     10,240
 *        index queries and key rotated      4 x (4096 + 128)                     16,896
 *     x5 scores fp32 written, read 8 x 2048, choices int32 4 x 2048              24,576
 *     x6 64 of each head's query and of the key rotated    4 x 65 x 64           16,640
 *     x9 residual                                                                24,576
 *     forward                                                                   117,504
 *     y4 as x6                                                                   16,640
 *     y6 gradients of latents fp32 zeroed 4 x 576, y7 rounded 6 x 576             5,760
 *     y7 rotated back                                                            16,640
 *     y8 scores and gradients fp32 written, read       16 x 2048                 32,768
 *        index queries rotated again and back 8 x 4096, key with its norm 10 x 128
 *                                                                                34,048
 *     y9 latents normed again, norms' gradients       10 x 2560                  25,600
 *     y10 n1 again 24,576, y12 norm 8 x 6144                                     73,728
 *     backward                                                                  205,184
 * of the feed-forward half without an exchange:
 *     m1 24,576, m2 2,112 + 96, m5 2 x 6144 x (1 + 8) = 110,592, m7 98,304,
 *     m11 2 x 6144 x (8 + 2) = 122,880, m13 12,288: forward                     370,848
 *     s1 24,576, s2 12,288, s3 20,480, b3 110,592, b4 98,304, b6 163,840,
 *     b11 122,880, b12 2,048, b13 49,152: backward                              604,160
 * The replay: the mixer without x5, 92,928, m1 to m5, 137,376: 230,304. */
static void glm_kernels(void **state)
{
    (void)state;
    glm(RECOMPUTE_NONE);
    check(TIME_ELEMENTWISE, 4096, 4096 * (117504.0 + 205184 + 370848 + 604160) / 1e12);
    glm(RECOMPUTE_FULL);
    check(TIME_ELEMENTWISE, 4096, 4096 * (117504.0 + 205184 + 370848 + 604160 + 230304) / 1e12);
}

/* Two layers of hidden 64 on two stages of four ranks, a prediction layer, four micro-batches of
 * 256 tokens. Padded to 64 x 4: a layer 30,848 to 30,976; the prediction unit, a layer, a join of
 * 64 x 128 and three norms, 39,232 to 39,424; embedding 64,000; head and norm 64,064 to 64,256. */
static void predicting(void)
{
    machine();
    s.model.mtp_layers = 1;
    s.model.mtp_trained = true;
    s.choices.layout.pp = 2;
    s.choices.layout.fsdp = s.choices.layout.e_fsdp = 4;
    s.choices.layout.micro_batches = 4;
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    s.choices.primitives.prefetch_units = 0;
    s.choices.primitives.comm_streams = 1;
}

static void compute(uint64_t seq)
{
    step_time_compute(asked(sample_input(&s, seq)), &time_of);
}

/* The last stage is the slowest: its layer of 30,720 weights, the prediction's, the join of 8,192,
 * and two losses, each of three products of 256 x 64 x 1000. 4 x 256 x 128 x 64 FLOPs of attention
 * forward, 2.5 backward, in both layers. */
static void prediction_products(void **state)
{
    (void)state;
    predicting();
    compute(256);
    assert_near(item(TIME_MATMUL), 4 * 256 * 6.0 * (2 * 30720 + 8192) / 1e14, 1e-9, "s");
    assert_near(item(TIME_ATTENTION), 4 * 2 * 3.5 * 4 * 256 * 128 * 64 / 1e14, 1e-9, "s");
    double loss = 6.0 * 256 * 64 * 1000 / 1e14 + (6.0 * 256 * 1000 + 10.0 * 256 * 64) / 1e12;
    assert_near(item(TIME_LOSS), 4 * 2 * loss, 1e-9, "s");
}

/* Bytes a token. A layer, Q 64, K 32, F 96: norms and residuals 4 x 256, rotated 4 x 96, SwiGLU
 * 6 x 96: 1,984 forward; rotated again 384 and back with norms 6 x 96, SwiGLU again 576 and back
 * 10 x 96, norms again 2 x 256 and back 2 x 512: 4,032. The join: looked up 256, two norms 512,
 * both once more; norms back 2 x 6 x 64, to which a loss adds, 128; the embedding's gradient (2 +
 * 8) x 64: 3,072. Four gradient buffers, zeroed 4 and added 12 / 4: 7 B an element. */
static void prediction_kernels(void **state)
{
    double buffers = 7 * (30976.0 + 39424 + 64000 + 64256);
    (void)state;
    predicting();
    compute(256);
    assert_near(item(TIME_ELEMENTWISE), 4 * (256 * (2 * (1984.0 + 4032) + 3072) + buffers) / 1e12,
                1e-9, "s");
}

/* Nothing ahead: the layer gathered twice, the prediction unit with the embedding and the head
 * once, all reduced in fp32, among four ranks of one domain. */
static void prediction_gathers(void **state)
{
    double ring = 3.0 / 4 / 1e11;
    (void)state;
    predicting();
    compute(256);
    assert_near(item(TIME_EXPOSED_GATHER), 4 * (30976 * 8.0 + (39424 + 64000 + 64256) * 6.0) * ring,
                1e-9, "s");
    /* with all the time there is, what a pass begins and ends with: the layer's weights, which
     * come again beside the loss, and its gradients */
    s.hardware.bf16_flops_per_second = 1e9;
    s.choices.primitives.prefetch_units = 1;
    s.choices.primitives.comm_streams = 2;
    compute(256);
    assert_near(item(TIME_EXPOSED_GATHER), 4 * 30976 * 6.0 * ring, 1e-9, "s");
}

/* Both stages sum a rank's slice of the embedding's gradient, 16,000 fp32, over two ranks: half of
 * it there and half back. The last updates its layer, head, predictions and the embedding, 26 + 2 x
 * 4 B an element. */
static void prediction_ends(void **state)
{
    (void)state;
    predicting();
    compute(256);
    assert_near(item(TIME_REDUCE), 64000 / 1e11, 1e-9, "s");
    assert_near(item(TIME_OPTIMIZER), 34 * (30976.0 + 39424 + 64000 + 64256) / 4 / 1e12, 1e-9, "s");
    assert_near(item(TIME_BUBBLE),
                (time_of.seconds - item(TIME_BUBBLE) - item(TIME_REDUCE) - item(TIME_OPTIMIZER)) /
                    4,
                1e-9, "s");
}

/* Frozen layers freeze nothing of a prediction: a product less in the stage's own layer alone. */
static void prediction_of_a_frozen_trunk(void **state)
{
    (void)state;
    predicting();
    s.choices.primitives.frozen = 1U << COMPONENT_ATTENTION | 1U << COMPONENT_DENSE_MLP;
    compute(256);
    assert_near(item(TIME_MATMUL), 4 * 256 * (4.0 * 30720 + 6.0 * (30720 + 8192)) / 1e14, 1e-9,
                "s");
}

/* A tied head: with the norm, padded to 256, the embedding is gathered and reduced once more; on
 * two stages both hold it, and sum its gradient. */
static void tied_heads(void **state)
{
    double ring = 3.0 / 4 / 1e11;
    (void)state;
    predicting();
    s.model.mtp_trained = false;
    s.model.tied = true;
    compute(256);
    assert_near(item(TIME_REDUCE), 64000 / 1e11, 1e-9, "s");
    assert_near(item(TIME_EXPOSED_GATHER), 4 * (30976 * 8.0 + (64000 + 256) * 6.0) * ring, 1e-9,
                "s");
    s.choices.layout.pp = 1;
    compute(256);
    assert_near(item(TIME_REDUCE), 0, 1e-9, "s");
    assert_near(item(TIME_EXPOSED_GATHER),
                4 * (2 * 30976 * 8.0 + (64000 + 64000 + 256) * 6.0) * ring, 1e-9, "s");
}

/* Four layers on the first of two stages, the slowest; nothing to predict, 256 elements each of
 * embedding and head. Both of its passes begin with a gather, and the last ends with a reduction;
 * interleaved, those of each of two runs do. */
static void passes_begin_with_a_gather(void **state)
{
    struct layout *l = &s.choices.layout;
    double ring = 3.0 / 4 / 1e11;
    (void)state;
    predicting();
    s.model.mtp_trained = false;
    s.model.layers = 6;
    s.model.vocab = 1;
    s.hardware.bf16_flops_per_second = 1e9; /* time enough to hide the rest */
    s.choices.primitives.prefetch_units = 1;
    s.choices.primitives.comm_streams = 2;
    for (l->vpp = 1; l->vpp <= 2; l->vpp++) {
        (void)sample_input(&s, 256);
        l->stage_layers[0] = 4;
        l->stage_layers[1] = 2;
        step_time_compute(asked(&s.in), &time_of);
        assert_near(item(TIME_EXPOSED_GATHER), 4 * (l->vpp * 30976 * 8.0 + 256 * 6.0) * ring, 1e-9,
                    "s");
    }
}

/* Two ranks of tp, [256, 64] bf16: half of 32,768 B comes or goes in each collective. A layer has 4
 * forward and 6 backward; embedding and head two each; the softmax sums 4 B and 8 B a token both
 * ways. At the end two norms a layer and nothing else is whole. A routed MLP has no such
 * collectives; a shared expert has. */
static void split_products(void **state)
{
    double one = 16384 / 1e11, softmax = 2 * 256 * (4 + 8.0) / 2 / 1e11;
    (void)state;
    machine();
    s.choices.layout.tp = 2;
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    compute(256);
    assert_near(item(TIME_EXPOSED_TENSOR), (2 * 10 + 4) * one + softmax, 1e-9, "s");
    assert_near(item(TIME_REDUCE), 2 * 128 * 4 / 1e11, 1e-9, "s");
    sample_moe(&s.model, 4, 2);
    compute(256);
    assert_near(item(TIME_EXPOSED_TENSOR), (2 * 5 + 4) * one + softmax, 1e-9, "s");
    s.model.moe.shared_width = 32;
    compute(256);
    assert_near(item(TIME_EXPOSED_TENSOR), (2 * 10 + 4) * one + softmax, 1e-9, "s");
}

/* Two ranks that split each expert: 512 rows of either go to both and come back, 1,024 rows of 128
 * B of which half stay; four times a layer. */
static void split_experts(void **state)
{
    (void)state;
    machine();
    sample_moe(&s.model, 4, 2);
    s.choices.layout.etp = s.choices.layout.fsdp = 2;
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    compute(256);
    assert_near(item(TIME_EXPOSED_EXCHANGE), 2 * 4 * 1024 * 64.0 / 1e11, 1e-9, "s");
}

/* The vocabulary around two of four ranks: each holds half, and the two that share it gather 32,000
 * bf16 and sum their gradient, fp32, half of it each. Rounds go beside the products here. */
static void circulating_heads(void **state)
{
    (void)state;
    predicting();
    s.model.mtp_trained = false;
    s.choices.layout.pp = 1;
    s.hardware.memory_bytes_per_second = 1e9; /* rounds hide behind slow kernels */
    s.choices.primitives.loss = LOSS_RING_DTP;
    s.choices.primitives.vocab_group = 2;
    compute(256);
    assert_near(item(TIME_EXPOSED_GATHER),
                4 * ((2 * 30976 * 8.0 + 64000 * 6.0) * 3.0 / 4 + 32128 * 6.0 / 2) / 1e11, 1e-9,
                "s");
}

/* Contexts of GLM-5.2 on four ranks, 1,024 tokens each. Ulysses exchanges absorbed queries of 64 x
 * 576 and outputs of 64 x 512, keys of 576 and values of 512 for each rank, three quarters of it;
 * the 2,048 choices of 4,096 tokens, int32, are gathered in each pass. Index keys, 128 of every
 * token: gathered forward and backward, and their fp32 gradients brought home. */
static void sparse_contexts(void **state)
{
    double split = 2.0 * 1024 * (64 * 576 + 64 * 512 + 4 * (576 + 512)) * 3 / 4 / 1e11;
    double chosen = 4.0 * 4096 * 2048 * 3 / 4 / 1e11;
    double index = (2.0 + 2 + 4) * 4096 * 128 * 3 / 4 / 1e11;
    double latents = 2.0 * 4096 * 576 * 3 / 4 / 1e11;
    (void)state;
    glm(RECOMPUTE_NONE);
    s.choices.layout.cp = 4;
    s.choices.primitives.context = CONTEXT_ULYSSES;
    check(TIME_EXPOSED_CONTEXT, 4096, 3 * split + 2 * chosen + index);
    s.choices.primitives.recompute = RECOMPUTE_FULL;
    check(TIME_EXPOSED_CONTEXT, 4096, 4 * split + 3 * chosen + index);
    /* latents gathered in each pass, and fp32 gradients of them, twice the bytes, scattered */
    s.choices.primitives.context = CONTEXT_ALLGATHER_KV;
    check(TIME_EXPOSED_CONTEXT, 4096, (1 + 1 + 1 + 2) * latents + index);
}

/* A delta net of 8 value heads of 16 x 16 and 4 key heads on two ranks, each with two of the four
 * runs of 256 tokens; 2 x 64 + 128 channels. Half of what is gathered travels. Forward: the 3
 * tokens before each run, the states that runs end with and what they make of the state before
 * them, 2,048 fp32 each. Backward: the same once more, with gradients of states, and fp32 gradients
 * of the 3 tokens. Split by heads, of 256 tokens: channels, b and a of half the heads, 136, in, and
 * 64 values home; backward 64 in, 136 in again and 136 home. */
static void recurrent_contexts(void **state)
{
    (void)state;
    machine();
    s.model.gdn = (struct gdn){ 4, 8, 16, 16, 4 };
    memset(s.model.layer_mixer, MIXER_GDN, sizeof s.model.layer_mixer);
    s.choices.layout.cp = 2;
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    s.choices.primitives.linear_context = LINEAR_CONTEXT_STATE_PASS;
    double halo = 4 * 3 * 256.0, states = 4 * 4 * 2048.0;
    check(TIME_EXPOSED_CONTEXT, 256, (2 * 2 * halo + 4 * halo + 4 * states) / 2 / 1e11);
    s.choices.primitives.linear_context = LINEAR_CONTEXT_HEAD_SPLIT;
    check(TIME_EXPOSED_CONTEXT, 256, 2.0 * 256 * (3 * 136 + 2 * 64) / 2 / 1e11);
}

/* A delta rule of 4 us per token of 32 heads of 128 x 128, 8 value heads of 128 x 128: a quarter of
 * the states. Without further keys all of it grows with the states and backward takes 2.7 times as
 * long. With them a quarter of the forward and half of the backward, 3 forwards, stay. */
static void delta_rule_by_heads(void **state)
{
    (void)state;
    machine();
    s.model.gdn = (struct gdn){ 4, 8, 128, 128, 4 };
    memset(s.model.layer_mixer, MIXER_GDN, sizeof s.model.layer_mixer);
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    s.hardware.delta_rule_seconds_per_token = 4e-6;
    check(TIME_LINEAR_ATTENTION, 256, 256 * (1 + 2.7) * 1e-6);
    s.hardware.delta_chain_share = 0.25;
    s.hardware.delta_backward_factor = 3;
    s.hardware.delta_backward_chain_share = 0.5;
    check(TIME_LINEAR_ATTENTION, 256, 256 * (1.75 + 7.5) * 1e-6);
}

/* zero2 on one stage: full gradients of a micro-batch are zeroed, reduced and added as under fsdp,
 * 7 B an element; at the end bf16 weights are gathered. Bytes a token of the embedding: a row read
 * and written, 4 x 64; of its gradient (2 + 8) x 64. */
static void whole_weights_split_gradients(void **state)
{
    double elements = 2 * 30976.0 + 64000 + 64256;
    (void)state;
    predicting();
    s.model.mtp_trained = false;
    s.choices.layout.pp = s.choices.layout.micro_batches = 1;
    s.choices.primitives.sharding = SHARDING_ZERO2;
    compute(256);
    assert_near(item(TIME_ELEMENTWISE),
                (256 * (2 * (1984.0 + 4032) + 14 * 64) + 7 * elements) / 1e12, 1e-9, "s");
    assert_near(item(TIME_EXPOSED_GATHER), 4 * elements * 3 / 4 / 1e11, 1e-9, "s");
    assert_near(item(TIME_REDUCE), 2 * elements * 3 / 4 / 1e11, 1e-9, "s");
}

/* The host takes one of two inputs, 32,768 B at 1e10 each way, beside a layer's forward and
 * backward. */
static void half_of_the_inputs_on_the_host(void **state)
{
    double forward = 256 * (2 * 30720 + 4.0 * 128 * 64) / 1e14 + 256 * 1984 / 1e12;
    double backward = 256 * (4 * 30720 + 2.5 * 4 * 128 * 64) / 1e14 + 256 * 4032 / 1e12;
    double sent = 32768 / 1e10;
    (void)state;
    machine();
    s.choices.primitives.recompute = RECOMPUTE_NONE;
    s.choices.primitives.offload = OFFLOAD_CHECKPOINTS;
    s.hardware.host_link_bytes_per_second = 1e10;
    s.choices.primitives.sco_host_bytes = 32768;
    compute(256);
    assert_near(item(TIME_EXPOSED_OFFLOAD), 2 * 0.5 * (2 * sent - forward - backward), 1e-9, "s");
    s.choices.primitives.sco_host_bytes = 65536;
    compute(256);
    assert_near(item(TIME_EXPOSED_OFFLOAD), 2 * (2 * sent - forward - backward), 1e-9, "s");
}

/* A pass for log-probabilities gathers embedding, layers and head once. */
static void passes_without_gradients(void **state)
{
    (void)state;
    machine();
    s.choices.primitives.rl = RL_OLD;
    s.choices.primitives.prefetch_units = 0;
    compute(256);
    double alone = item(TIME_LOGPROBS);
    s.choices.layout.fsdp = s.choices.layout.e_fsdp = 4;
    compute(256);
    assert_near(item(TIME_LOGPROBS) - alone, 2 * (64000 + 2 * 30976.0 + 64256) * 3 / 4 / 1e11, 1e-9,
                "s");
}

/* A tower that is trained is updated with the rest, 34 B an element; of a frozen one nothing. */
static void towers_are_updated(void **state)
{
    static struct diag_list errors;
    (void)state;
    machine();
    assert_int_equal(model_load("qwen3-vl-4b", &s.model, &errors), 0);
    compute(4096);
    double text = item(TIME_OPTIMIZER);
    s.model.vision_frozen = true;
    compute(4096);
    assert_near(item(TIME_OPTIMIZER), text, 1e-12, "s");
    s.model.vision_frozen = false;
    s.model.vision_trained = true;
    compute(4096);
    double tower = (double)s.sizes.counts.by_component[COMPONENT_VISION];
    assert_near(item(TIME_OPTIMIZER) - text, 34 * tower / 1e12, 1e-5, "s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deepseek_products),
        cmocka_unit_test(deepseek_experts),
        cmocka_unit_test(deepseek_attention),
        cmocka_unit_test(deepseek_kernels),
        cmocka_unit_test(deepseek_exchange),
        cmocka_unit_test(experts_gathered_when_needed),
        cmocka_unit_test(experts_gathered_ahead),
        cmocka_unit_test(glm_products),
        cmocka_unit_test(glm_experts),
        cmocka_unit_test(glm_attention),
        cmocka_unit_test(glm_kernels),
        cmocka_unit_test(prediction_products),
        cmocka_unit_test(prediction_kernels),
        cmocka_unit_test(prediction_gathers),
        cmocka_unit_test(prediction_ends),
        cmocka_unit_test(prediction_of_a_frozen_trunk),
        cmocka_unit_test(tied_heads),
        cmocka_unit_test(passes_begin_with_a_gather),
        cmocka_unit_test(split_products),
        cmocka_unit_test(split_experts),
        cmocka_unit_test(circulating_heads),
        cmocka_unit_test(sparse_contexts),
        cmocka_unit_test(recurrent_contexts),
        cmocka_unit_test(delta_rule_by_heads),
        cmocka_unit_test(whole_weights_split_gradients),
        cmocka_unit_test(half_of_the_inputs_on_the_host),
        cmocka_unit_test(passes_without_gradients),
        cmocka_unit_test(towers_are_updated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
