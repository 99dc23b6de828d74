/* The liveness tables of latents, of sparse attention and of states, step by step: bytes a token of
 * T = 256, so that every tensor is a multiple of 256 bytes. Hidden 8; no feed-forward half. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/residency/residency.h"

#include <string.h>

static const uint64_t T = 256;

static void begin(struct residency_shape *shape)
{
    memset(shape, 0, sizeof *shape);
    shape->rows[ROWS_ONE] = 1;
    shape->rows[ROWS_NORM] = shape->rows[ROWS_TOKENS] = T;
    shape->rows[ROWS_ALL] = 4 * T;
    shape->width[WIDTH_HIDDEN] = 8;
}

static void evaluate(const struct residency_shape *shape, enum mixer mixer,
                     enum residency_mode mode, struct residency *ret)
{
    struct residency_half halves[RESIDENCY_HALVES] = { { false } };
    residency_evaluate(shape, mixer, FFN_NONE, mode, halves, ret);
}

static void assert_steps(const struct residency *r, enum owner owner, const uint64_t *want,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (r->live[i][owner] != want[i] * T)
            print_error("step %zu: %ju a token, not %ju\n", i, (uintmax_t)(r->live[i][owner] / T),
                        (uintmax_t)want[i]);
        assert_int_equal(r->live[i][owner], want[i] * T);
    }
}

/* 2 heads of 2 + 1 for queries and keys, 2 for values; latents of 4 and 2. */
static void latent_shape(struct residency_shape *shape)
{
    begin(shape);
    shape->width[WIDTH_HEADS] = 2;
    shape->width[WIDTH_QUERY] = shape->width[WIDTH_KEY] = 6;
    shape->width[WIDTH_QUERY_LATENT] = 4;
    shape->width[WIDTH_LATENT] = 2;
    shape->width[WIDTH_LATENT_KEY] = 3;
    shape->width[WIDTH_EXPANDED] = 8;
    shape->width[WIDTH_VALUE] = 4;
    shape->width[WIDTH_BLOCK_EXPANDED] = 4;
    shape->width[WIDTH_BLOCK_KEY] = 3;
    shape->width[WIDTH_ABSORBED] = 6;
    shape->width[WIDTH_ABSORBED_OUT] = 4;
    shape->width[WIDTH_INDEX_QUERY] = 4;
    shape->width[WIDTH_INDEX_KEY] = 2;
    shape->width[WIDTH_INDEX_HEADS] = 2;
    shape->width[WIDTH_CHOICES] = 5;
    shape->width[WIDTH_INDEX_TILE] = 10 * T;
}

static void expanded_latents(void **state)
{
    (void)state;
    static const uint64_t want[] = {
        16,                      /* n1 */
        16 + 8 + 6,              /* n1, both latents */
        8 + 6 + 8 + 4 + 12 + 16, /* latents, normed, q, kv */
        6 + 12 + 16 + 12 + 12,   /* latent, q, kv, rotated q and k */
        16 + 12 + 12,            /* nothing to gather */
        16 + 12 + 12 + 8 + 8,    /* kv, q, k, o, lse */
        8 + 16,                  /* o, x1 */
    };
    struct residency_shape shape;
    struct residency r;
    latent_shape(&shape);
    evaluate(&shape, MIXER_MLA, RESIDENCY_FORWARD, &r);
    assert_steps(&r, OWNER_WORKING, want, sizeof want / sizeof want[0]);
    assert_int_equal(r.steps, 8);
    assert_int_equal(r.live[7][OWNER_OUTPUT], 16 * T);
    evaluate(&shape, MIXER_MLA, RESIDENCY_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * (8 + 6 + 12 + 16 + 8 + 8));
}

/* Four ranks: 3 of latents a token of each, bf16, and one of two heads expanded: 4 and 3. kv is not
 * kept but made again. Backward: the block's gradients, and those of all latents in fp32. */
static void gathered_latents(void **state)
{
    (void)state;
    struct residency_shape shape;
    struct residency r;
    latent_shape(&shape);
    shape.when = WHEN_GATHER_KV;
    evaluate(&shape, MIXER_MLA, RESIDENCY_FORWARD, &r);
    assert_int_equal(r.max[OWNER_CONTEXT], 4 * T * (6 + 8 + 6));
    assert_int_equal(r.live[4][OWNER_CONTEXT], T * 6 + 4 * T * 6);
    evaluate(&shape, MIXER_MLA, RESIDENCY_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * (8 + 6 + 12 + 8 + 8));
    evaluate(&shape, MIXER_MLA, RESIDENCY_BACKWARD_SAVED, &r);
    assert_int_equal(r.max[OWNER_CONTEXT], 4 * T * (6 + 2 * (8 + 6) + 12));
}

static void chosen_keys(void **state)
{
    (void)state;
    static const uint64_t want[] = {
        16,                             /* n1 */
        16 + 8 + 6 + 4 + 8,             /* n1, latents, index key and weights */
        8 + 6 + 4 + 8 + 8 + 12 + 8 + 6, /* and normed, q, index query, latents */
        4 + 8 + 12 + 8 + 6,             /* nothing to gather */
        4 + 8 + 12 + 8 + 6 + 10,        /* a tile of scores */
        12 + 6 + 12,                    /* q, latents, absorbed q */
        6 + 12 + 8 + 8,                 /* latents, absorbed q, latent o, lse */
        8 + 8,                          /* latent o, o */
        8 + 16,                         /* o, x1 */
    };
    struct residency_shape shape;
    struct residency r;
    latent_shape(&shape);
    evaluate(&shape, MIXER_DSA, RESIDENCY_FORWARD, &r);
    assert_steps(&r, OWNER_WORKING, want, sizeof want / sizeof want[0]);
    assert_int_equal(r.kept, 0);
    evaluate(&shape, MIXER_DSA, RESIDENCY_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * (8 + 6 + 4 + 8 + 12 + 8 + 20 + 8 + 8));
    /* where the layer is recomputed its choices belong to the checkpoints */
    evaluate(&shape, MIXER_DSA, RESIDENCY_REPLAY, &r);
    assert_int_equal(r.kept, T * (8 + 6 + 4 + 8 + 12 + 8 + 8 + 8));
}

/* All latents beside all index keys; fp32 gradients of all latents. */
static void gathered_choices(void **state)
{
    (void)state;
    struct residency_shape shape;
    struct residency r;
    latent_shape(&shape);
    shape.when = WHEN_GATHER_KV | WHEN_CONTEXT;
    evaluate(&shape, MIXER_DSA, RESIDENCY_FORWARD, &r);
    assert_int_equal(r.max[OWNER_CONTEXT], 4 * T * (6 + 4) + T * 6);
    evaluate(&shape, MIXER_DSA, RESIDENCY_BACKWARD, &r);
    assert_int_equal(r.max[OWNER_CONTEXT], 4 * T * (6 + 4 + 12));
}

/* In 10, channels 6, inner 3, heads 2, a tile of 4; states of 2 elements a token. */
static void mamba(void **state)
{
    (void)state;
    static const uint64_t want[] = {
        16,                           /* n1 */
        16 + 20,                      /* n1, in */
        20 + 12,                      /* in, channels */
        20 + 12 + 8 + 8 + 16 + 8 + 6, /* and dt, decay, products, states, y */
        20 + 6 + 6,                   /* in, y, gated y */
        6 + 16,                       /* gated y, x1 */
    };
    static const uint64_t back[] = {
        20 + 6 + 6,                                  /* in, y, gated y */
        20 + 6 + 6,                                  /* in, y, dy */
        20 + 6 + 6 + 20,                             /* and d in */
        20 + 6 + 20 + 12 + 8 + 8,                    /* in, dy, d in, channels, dt, decay */
        20 + 6 + 20 + 12 + 8 + 8 + 32 + 16 + 12 + 8, /* and pairs of products, states, d */
        20 + 20 + 12 + 8 + 12 + 8,                   /* in, d in, channels, dt, their d */
        20 + 16,                                     /* d in, n1 */
        20 + 16,                                     /* d in, dn1 */
        16,
    };
    struct residency_shape shape;
    struct residency r;
    begin(&shape);
    shape.width[WIDTH_MAMBA_IN] = 10;
    shape.width[WIDTH_MAMBA_CHANNELS] = 6;
    shape.width[WIDTH_MAMBA_INNER] = 3;
    shape.width[WIDTH_MAMBA_HEADS] = 2;
    shape.width[WIDTH_MAMBA_TILE] = 4;
    shape.width[WIDTH_MAMBA_STATES] = 2 * T;
    evaluate(&shape, MIXER_MAMBA, RESIDENCY_FORWARD, &r);
    assert_steps(&r, OWNER_WORKING, want, sizeof want / sizeof want[0]);
    evaluate(&shape, MIXER_MAMBA, RESIDENCY_BACKWARD, &r);
    assert_steps(&r, OWNER_WORKING, back, sizeof back / sizeof back[0]);
}

/* Heads x head dim 3; states of 2 elements a token. */
static void lightning(void **state)
{
    (void)state;
    static const uint64_t want[] = {
        16,             /* n1 */
        16 + 18 + 6,    /* n1, qkv, gate */
        18 + 6 + 18,    /* qkv, gate, active qkv */
        6 + 18 + 8 + 6, /* gate, active qkv, states, o */
        6 + 6 + 6,      /* gate, o, gated o */
        6 + 16,         /* gated o, x1 */
    };
    struct residency_shape shape;
    struct residency r;
    begin(&shape);
    shape.width[WIDTH_LIGHTNING] = 3;
    shape.width[WIDTH_LIGHTNING_THREE] = 9;
    shape.width[WIDTH_LIGHTNING_STATES] = 2 * T;
    evaluate(&shape, MIXER_LIGHTNING, RESIDENCY_FORWARD, &r);
    assert_steps(&r, OWNER_WORKING, want, sizeof want / sizeof want[0]);
    evaluate(&shape, MIXER_LIGHTNING, RESIDENCY_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * (18 + 6 + 6));
}

/* A layer that is an MLP alone has no x1: its input is the checkpoint. Width 4, gate and up 8. */
static void a_half_alone(void **state)
{
    (void)state;
    struct residency_half halves[RESIDENCY_HALVES] = { { false } };
    struct residency_shape shape;
    struct residency r;
    begin(&shape);
    shape.when = WHEN_ALONE;
    shape.width[WIDTH_DENSE] = 4;
    shape.width[WIDTH_DENSE_TWO] = 8;
    residency_evaluate(&shape, MIXER_NONE, FFN_DENSE, RESIDENCY_FORWARD, halves, &r);
    static const uint64_t want[] = { 16, 16 + 16, 16 + 8, 8 };
    assert_steps(&r, OWNER_WORKING, want, 4);
    assert_int_equal(r.steps, 4);
    residency_evaluate(&shape, MIXER_NONE, FFN_DENSE, RESIDENCY_FORWARD_SAVED, halves, &r);
    assert_int_equal(r.kept, T * 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expanded_latents),
        cmocka_unit_test(gathered_latents),
        cmocka_unit_test(chosen_keys),
        cmocka_unit_test(gathered_choices),
        cmocka_unit_test(mamba),
        cmocka_unit_test(lightning),
        cmocka_unit_test(a_half_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
