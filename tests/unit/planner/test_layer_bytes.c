/* What layers hold, point by point of a pass, added up by hand: bytes per token of T = 256, so that
 * every tensor is a multiple of 256 bytes. Hidden 8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/predict/layer_bytes.h"

#include <string.h>

static const uint64_t T = 256;

static struct step_sizes sizes;
static struct step_kind kind;
static struct step_layer layer;

static void begin(enum mixer mixer, enum ffn ffn)
{
    memset(&sizes, 0, sizeof sizes);
    sizes.chunks.count = 1;
    sizes.rows[ROWS_ONE] = 1;
    sizes.rows[ROWS_NORM] = sizes.rows[ROWS_TOKENS] = T;
    sizes.rows[ROWS_ALL] = 4 * T;
    sizes.width[WIDTH_ONE] = 1;
    sizes.width[WIDTH_HIDDEN] = 8;
    kind = (struct step_kind){ .mixer = step_mixers[mixer], .ffn = step_ffns[ffn], .trained = ~0U };
}

static void fold(enum step_mode mode, struct layer_bytes *ret)
{
    step_layer_init(&kind, &layer);
    layer_bytes_fold(&layer.pass[mode], &sizes, ret);
}

/* Of an item at one point of a pass without chunks. */
static uint64_t live_at(const struct step_pass *pass, enum item item, int point)
{
    uint64_t bytes = 0;
    for (int i = 0; i < pass->count; i++) {
        const struct step_life *life = &pass->lives[i];
        int made = life->made.point + (life->made.zone > 0 ? pass->points[ZONE_BEFORE] : 0);
        int last = life->last.point + (life->last.zone > 0 ? pass->points[ZONE_BEFORE] : 0);
        if (life->item == item && made <= point && point <= last)
            bytes += tensor_bytes(sizes.rows[life->rows], sizes.width[life->width], life->bytes);
    }
    return bytes;
}

static void assert_points(enum step_mode mode, enum item item, const uint64_t *want, int count)
{
    const struct step_pass *pass = &layer.pass[mode];
    assert_int_equal(pass->points[ZONE_CHUNK], 0);
    for (int i = 0; i < count; i++) {
        uint64_t got = live_at(pass, item, i);
        if (got != want[i] * T)
            print_error("point %d: %ju per token, not %ju\n", i, (uintmax_t)(got / T),
                        (uintmax_t)want[i]);
    }
    for (int i = 0; i < count; i++)
        assert_int_equal(live_at(pass, item, i), want[i] * T);
}

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

/* Q 4, K 2, heads 2; an MLP of no width. */
static void attention(void **state)
{
    struct layer_bytes r;
    (void)state;
    begin(MIXER_GQA, FFN_DENSE);
    sizes.width[WIDTH_QUERY] = 4;
    sizes.width[WIDTH_KEY] = 2;
    sizes.width[WIDTH_QKV] = 8;
    sizes.width[WIDTH_HEADS] = 2;
    static const uint64_t want[] = {
        16,                 /* n1 */
        16 + 16,            /* n1, qkv */
        16 + 8 + 4,         /* qkv, qr, kr */
        16 + 8 + 4 + 8 + 8, /* and o, lse */
        8 + 16,             /* o, x1 */
        16 + 16,            /* x1, n2 */
    };
    fold(MODE_FORWARD, &r);
    assert_points(MODE_FORWARD, ITEM_LAYER_WORKING, want, COUNT(want));
    assert_int_equal(r.kept, 0);
    fold(MODE_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * (16 + 8 + 8 + 16)); /* qkv, o, lse, x1 */
    assert_int_equal(r.max[SLOT_SAVED], r.kept);
}

/* 2 heads of 2 + 1 for queries and keys, 2 for values; latents of 4 and 2. */
static void latent_sizes(void)
{
    sizes.width[WIDTH_HEADS] = 2;
    sizes.width[WIDTH_QUERY] = sizes.width[WIDTH_KEY] = 6;
    sizes.width[WIDTH_QUERY_LATENT] = 4;
    sizes.width[WIDTH_LATENT] = 2;
    sizes.width[WIDTH_LATENT_KEY] = 3;
    sizes.width[WIDTH_EXPANDED] = 8;
    sizes.width[WIDTH_VALUE] = 4;
    sizes.width[WIDTH_BLOCK_EXPANDED] = 4;
    sizes.width[WIDTH_BLOCK_KEY] = 3;
    sizes.width[WIDTH_ABSORBED] = 6;
    sizes.width[WIDTH_ABSORBED_OUT] = 4;
    sizes.width[WIDTH_INDEX_QUERY] = 4;
    sizes.width[WIDTH_INDEX_KEY] = 2;
    sizes.width[WIDTH_INDEX_HEADS] = 2;
    sizes.width[WIDTH_CHOICES] = 5;
    sizes.width[WIDTH_INDEX_TILE] = 10 * T;
}

static void expanded_latents(void **state)
{
    static const uint64_t want[] = {
        16,                      /* n1 */
        16 + 8 + 6,              /* n1, both latents */
        8 + 6 + 8 + 4 + 12 + 16, /* latents, normed, q, kv */
        6 + 12 + 16 + 12 + 12,   /* latent, q, kv, rotated q and k */
        16 + 12 + 12 + 8 + 8,    /* kv, q, k, o, lse */
        8 + 16,                  /* o, x1 */
    };
    struct layer_bytes r;
    (void)state;
    begin(MIXER_MLA, FFN_NONE);
    latent_sizes();
    fold(MODE_FORWARD, &r);
    assert_points(MODE_FORWARD, ITEM_LAYER_WORKING, want, COUNT(want));
    assert_int_equal(r.live[SLOT_OUTPUT] + r.max[SLOT_OUTPUT], 16 * T);
    fold(MODE_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * (8 + 6 + 12 + 16 + 8 + 8));
}

/* Four ranks: 3 of latents a token of each, bf16, and one of two heads expanded: 4 and 3. kv is not
 * kept but made again. Backward: the block's gradients, and those of all latents in fp32. */
static void gathered_latents(void **state)
{
    struct layer_bytes r;
    (void)state;
    begin(MIXER_MLA, FFN_NONE);
    latent_sizes();
    kind.when = WHEN_GATHER_KV | WHEN_CONTEXT;
    fold(MODE_FORWARD, &r);
    assert_int_equal(r.max[SLOT_CONTEXT], 4 * T * (6 + 8 + 6));
    assert_int_equal(live_at(&layer.pass[MODE_FORWARD], ITEM_KV_GATHER, 4), T * 6 + 4 * T * 6);
    fold(MODE_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * (8 + 6 + 12 + 8 + 8));
    fold(MODE_BACKWARD_SAVED, &r);
    assert_int_equal(r.max[SLOT_CONTEXT], 4 * T * (6 + 2 * (8 + 6) + 12));
}

static void chosen_keys(void **state)
{
    static const uint64_t want[] = {
        16,                             /* n1 */
        16 + 8 + 6 + 4 + 8,             /* n1, latents, index key and weights */
        8 + 6 + 4 + 8 + 8 + 12 + 8 + 6, /* and normed, q, index query, latents */
        4 + 8 + 12 + 8 + 6 + 10,        /* a tile of scores */
        12 + 6 + 12,                    /* q, latents, absorbed q */
        6 + 12 + 8 + 8,                 /* latents, absorbed q, latent o, lse */
        8 + 8,                          /* latent o, o */
        8 + 16,                         /* o, x1 */
    };
    struct layer_bytes r;
    (void)state;
    begin(MIXER_DSA, FFN_NONE);
    latent_sizes();
    kind.when = WHEN_INDEXER;
    fold(MODE_FORWARD, &r);
    assert_points(MODE_FORWARD, ITEM_LAYER_WORKING, want, COUNT(want));
    assert_int_equal(r.kept, 0);
    fold(MODE_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * (8 + 6 + 4 + 8 + 12 + 8 + 20 + 8 + 8));
    /* where the layer is recomputed its choices belong to the checkpoints */
    fold(MODE_RECOMPUTE, &r);
    assert_int_equal(r.kept, T * (8 + 6 + 4 + 8 + 12 + 8 + 8 + 8));
}

/* All latents with all index keys; fp32 gradients of all latents. */
static void gathered_choices(void **state)
{
    struct layer_bytes r;
    (void)state;
    begin(MIXER_DSA, FFN_NONE);
    latent_sizes();
    kind.when = WHEN_GATHER_KV | WHEN_CONTEXT | WHEN_INDEXER;
    fold(MODE_FORWARD, &r);
    assert_int_equal(r.max[SLOT_CONTEXT], 4 * T * (6 + 4) + T * 6);
    fold(MODE_BACKWARD, &r);
    assert_int_equal(r.max[SLOT_CONTEXT], 4 * T * (6 + 4 + 12));
}

/* In 10, channels 6, inner 3, heads 2, a tile of 4; states of 2 elements a token. */
static void mamba(void **state)
{
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
        20 + 6 + 6,                                  /* read by the weight's gradient */
        20 + 6 + 6,                                  /* in, y, dy */
        20 + 6 + 6 + 20,                             /* and d in */
        20 + 6 + 20 + 12 + 8 + 8,                    /* in, dy, d in, channels, dt, decay */
        20 + 6 + 20 + 12 + 8 + 8 + 32 + 16 + 12 + 8, /* and pairs of products, states, d */
        20 + 20 + 12 + 8 + 12 + 8,                   /* in, d in, channels, dt, their d */
        20 + 16,                                     /* d in, n1 */
        20 + 16,                                     /* d in, dn1 */
        20 + 16,                                     /* d in, dn1 */
        16,                                          /* dn1 */
    };
    struct layer_bytes r;
    (void)state;
    begin(MIXER_MAMBA, FFN_NONE);
    sizes.width[WIDTH_MAMBA_IN] = 10;
    sizes.width[WIDTH_MAMBA_CHANNELS] = 6;
    sizes.width[WIDTH_MAMBA_INNER] = 3;
    sizes.width[WIDTH_MAMBA_HEADS] = 2;
    sizes.width[WIDTH_MAMBA_TILE] = 4;
    sizes.width[WIDTH_MAMBA_STATES] = 2 * T;
    fold(MODE_FORWARD, &r);
    assert_points(MODE_FORWARD, ITEM_LAYER_WORKING, want, COUNT(want));
    fold(MODE_BACKWARD, &r);
    assert_points(MODE_BACKWARD, ITEM_LAYER_WORKING, back, COUNT(back));
}

/* Heads x head dim 3; states of 2 elements a token. */
static void lightning(void **state)
{
    static const uint64_t want[] = {
        16,             /* n1 */
        16 + 18 + 6,    /* n1, qkv, gate */
        18 + 6 + 18,    /* qkv, gate, active qkv */
        6 + 18 + 8 + 6, /* gate, active qkv, states, o */
        6 + 6 + 6,      /* gate, o, gated o */
        6 + 16,         /* gated o, x1 */
    };
    struct layer_bytes r;
    (void)state;
    begin(MIXER_LIGHTNING, FFN_NONE);
    sizes.width[WIDTH_LIGHTNING] = 3;
    sizes.width[WIDTH_LIGHTNING_THREE] = 9;
    sizes.width[WIDTH_LIGHTNING_STATES] = 2 * T;
    fold(MODE_FORWARD, &r);
    assert_points(MODE_FORWARD, ITEM_LAYER_WORKING, want, COUNT(want));
    fold(MODE_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * (18 + 6 + 6));
}

/* A layer that is an MLP alone has no x1: its input is the checkpoint. Width 4, gate and up 8. */
static void a_half_alone(void **state)
{
    static const uint64_t want[] = { 16, 16 + 16, 16 + 8, 8 };
    struct layer_bytes r;
    (void)state;
    begin(MIXER_NONE, FFN_DENSE);
    sizes.width[WIDTH_DENSE] = 4;
    sizes.width[WIDTH_DENSE_TWO] = 8;
    fold(MODE_FORWARD, &r);
    assert_points(MODE_FORWARD, ITEM_LAYER_WORKING, want, COUNT(want));
    fold(MODE_FORWARD_SAVED, &r);
    assert_int_equal(r.kept, T * 16);
}

/* Nothing behind the attention asks for its output again: its recompute ends with what backward
 * reads. */
static void recompute_ends_early(void **state)
{
    (void)state;
    begin(MIXER_MAMBA, FFN_NONE);
    step_layer_init(&kind, &layer);
    assert_true(layer.recompute.count < layer.forward.count);
    for (int i = 0; i < layer.recompute.count; i++)
        assert_string_not_equal(layer.recompute.ops[i].op->name, "output");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention),
        cmocka_unit_test(expanded_latents),
        cmocka_unit_test(gathered_latents),
        cmocka_unit_test(chosen_keys),
        cmocka_unit_test(gathered_choices),
        cmocka_unit_test(mamba),
        cmocka_unit_test(lightning),
        cmocka_unit_test(a_half_alone),
        cmocka_unit_test(recompute_ends_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
