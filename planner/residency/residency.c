#include "planner/residency/residency.h"

#include "base/checked.h"
#include "planner/residency/tables.h"

#include <string.h>

const struct residency_table *const residency_mixer_forward[MIXER_COUNT] = {
    [MIXER_GQA] = &residency_attention_forward,
    [MIXER_GDN] = &residency_delta_forward,
    [MIXER_LOCAL] = &residency_attention_forward,
    [MIXER_MLA] = &residency_latent_forward,
    [MIXER_DSA] = &residency_sparse_forward,
    [MIXER_DSA_SHARED] = &residency_sparse_forward,
    [MIXER_LIGHTNING] = &residency_lightning_forward,
    [MIXER_MAMBA] = &residency_mamba_forward,
    [MIXER_NONE] = &residency_no_mixer,
};
const struct residency_table *const residency_mixer_backward[MIXER_COUNT] = {
    [MIXER_GQA] = &residency_attention_backward,
    [MIXER_GDN] = &residency_delta_backward,
    [MIXER_LOCAL] = &residency_attention_backward,
    [MIXER_MLA] = &residency_latent_backward,
    [MIXER_DSA] = &residency_sparse_backward,
    [MIXER_DSA_SHARED] = &residency_sparse_backward,
    [MIXER_LIGHTNING] = &residency_lightning_backward,
    [MIXER_MAMBA] = &residency_mamba_backward,
    [MIXER_NONE] = &residency_no_mixer,
};
const struct residency_table *const residency_ffn_forward[FFN_COUNT] = {
    [FFN_DENSE] = &residency_dense_forward,
    [FFN_MOE] = &residency_moe_forward,
    [FFN_NONE] = &residency_no_ffn_forward,
};
const struct residency_table *const residency_ffn_backward[FFN_COUNT] = {
    [FFN_DENSE] = &residency_dense_backward,
    [FFN_MOE] = &residency_moe_backward,
    [FFN_NONE] = &residency_no_ffn_backward,
};

static bool keeps(enum residency_mode mode)
{
    return mode != RESIDENCY_FORWARD;
}

static bool is_backward(enum residency_mode mode)
{
    return mode == RESIDENCY_BACKWARD || mode == RESIDENCY_BACKWARD_SAVED;
}

static bool is_saved(enum residency_mode mode)
{
    return mode == RESIDENCY_FORWARD_SAVED || mode == RESIDENCY_BACKWARD_SAVED;
}

static bool applies(const struct residency_row *row, unsigned when)
{
    return (row->when & ~when) == 0 && (row->unless & when) == 0;
}

bool residency_row_applies(const struct residency_row *row, const struct residency_shape *shape)
{
    return applies(row, shape->when);
}

static uint64_t tensor_bytes(uint64_t rows, uint64_t width, uint64_t bytes)
{
    uint64_t size = mul3_sat(rows, width, bytes);
    return size > UINT64_MAX - 255 ? UINT64_MAX : (size + 255) & ~UINT64_C(255);
}

uint64_t residency_row_bytes(const struct residency_row *row, const struct residency_shape *shape)
{
    return tensor_bytes(shape->rows[row->rows], shape->width[row->width], row->bytes);
}

/* Saved from the forward of a layer that is recomputed otherwise. */
static bool is_attended(const struct residency_row *row, unsigned when)
{
    return row->stays == STAYS_ATTENDED && (when & WHEN_KEEPS_ATTENTION);
}

static enum owner owner_in_mode(const struct residency_row *row, unsigned when,
                                enum residency_mode mode)
{
    if ((row->stays && is_saved(mode)) || is_attended(row, when))
        return OWNER_SAVED;
    return (enum owner)row->owner;
}

/* What holds of rows in a mode, of a layer with this second half. */
static unsigned conditions(const struct residency_shape *shape, enum residency_mode mode,
                           enum ffn ffn)
{
    unsigned when = shape->when | (mode == RESIDENCY_REPLAY ? WHEN_REPLAY : 0);
    bool attended = mode == RESIDENCY_REPLAY && (shape->when & WHEN_KEEPS_ATTENTION);
    when |= attended ? WHEN_ATTENDED : 0;
    when |= mode == RESIDENCY_FORWARD_SAVED && ffn != FFN_NONE ? WHEN_X1_SAVED : 0;
    return when | (is_saved(mode) ? WHEN_SAVED : 0);
}

/* Adds one half of a layer, its steps from `first` on. Kept tensors made in this half stay to
 * `final` in a forward or replay, and have been there from step 0 in a backward; in a replay too
 * where it does not attend. */
static void add_table(const struct residency_table *table, const struct residency_shape *shape,
                      unsigned when, enum residency_mode mode, int first, int final,
                      struct residency *ret)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct residency_row *row = &table->rows[i];
        if (!applies(row, when))
            continue;
        uint64_t bytes = residency_row_bytes(row, shape);
        bool attended = is_attended(row, when), stays = (row->stays && keeps(mode)) || attended;
        bool there = stays && (is_backward(mode) || (attended && mode == RESIDENCY_REPLAY));
        int made = there ? 0 : first + row->made;
        int last = stays && !is_backward(mode) ? final : first + row->last;
        enum owner owner = owner_in_mode(row, when, mode);
        for (int step = made; step <= last; step++)
            ret->live[step][owner] = add_sat(ret->live[step][owner], bytes);
        if (stays)
            ret->kept = add_sat(ret->kept, bytes);
    }
}

/* The fullest step so far of those without the output. */
static void raise_bare(const uint64_t *live, struct residency *ret)
{
    uint64_t total = 0;
    for (int owner = 0; owner < OWNER_COUNT; owner++)
        total = add_sat(total, owner == OWNER_OUTPUT ? 0 : live[owner]);
    if (total <= ret->bare)
        return;
    ret->bare = total;
    memcpy(ret->bare_live, live, sizeof ret->bare_live);
    ret->bare_live[OWNER_OUTPUT] = 0;
}

static void find_peak(struct residency *ret)
{
    memset(ret->max, 0, sizeof ret->max);
    memset(ret->bare_live, 0, sizeof ret->bare_live);
    ret->peak = ret->bare = 0;
    ret->peak_step = 0;
    for (int step = 0; step < ret->steps; step++) {
        uint64_t total = 0;
        for (int owner = 0; owner < OWNER_COUNT; owner++) {
            uint64_t bytes = ret->live[step][owner];
            total = add_sat(total, bytes);
            ret->max[owner] = bytes > ret->max[owner] ? bytes : ret->max[owner];
        }
        raise_bare(ret->live[step], ret);
        if (total > ret->peak) {
            ret->peak = total;
            ret->peak_step = step;
        }
    }
}

/* Puts a chunked half into one step and raises the owners' maxima to those within it. */
static void fold_chunks(const struct residency_half *half, int step, struct residency *ret)
{
    uint64_t beside[OWNER_COUNT], bare[OWNER_COUNT];
    memcpy(beside, ret->live[step], sizeof beside);
    ret->kept = add_sat(ret->kept, half->kept);
    for (int owner = 0; owner < OWNER_COUNT; owner++) {
        ret->live[step][owner] = add_sat(beside[owner], half->live[owner]);
        bare[owner] = add_sat(beside[owner], half->bare_live[owner]);
    }
    find_peak(ret);
    raise_bare(bare, ret);
    for (int owner = 0; owner < OWNER_COUNT; owner++) {
        uint64_t most = add_sat(beside[owner], half->max[owner]);
        ret->max[owner] = most > ret->max[owner] ? most : ret->max[owner];
    }
}

/* The feed-forward half comes after the mixer in forward, before it in backward. */
static void chunked_evaluate(const struct residency_shape *shape, enum mixer mixer,
                             enum residency_mode mode, struct residency_half *half,
                             struct residency *ret)
{
    bool backward = is_backward(mode);
    if (!half->known)
        residency_chunks(shape, mode, half);
    const struct residency_table *table =
        backward ? residency_mixer_backward[mixer] : residency_mixer_forward[mixer];
    ret->steps = table->steps + 1;
    ret->kept = 0;
    memset(ret->live, 0, (size_t)ret->steps * sizeof ret->live[0]);
    add_table(table, shape, conditions(shape, mode, FFN_MOE), mode, backward ? 1 : 0,
              ret->steps - 1, ret);
    fold_chunks(half, backward ? 0 : table->steps, ret);
}

void residency_evaluate(const struct residency_shape *shape, enum mixer mixer, enum ffn ffn,
                        enum residency_mode mode, struct residency_half *halves,
                        struct residency *ret)
{
    bool backward = is_backward(mode);
    unsigned when = conditions(shape, mode, ffn);
    if (ffn == FFN_MOE && (shape->chunks.count > 1 || shape->chunks.capped)) {
        bool alone = (shape->when & WHEN_ALONE) != 0;
        chunked_evaluate(shape, mixer, mode,
                         &halves[alone ? RESIDENCY_MODES + (int)mode : (int)mode], ret);
        return;
    }
    const struct residency_table *one =
        backward ? residency_ffn_backward[ffn] : residency_mixer_forward[mixer];
    const struct residency_table *two =
        backward ? residency_mixer_backward[mixer] : residency_ffn_forward[ffn];
    ret->steps = one->steps + two->steps;
    ret->kept = 0;
    memset(ret->live, 0, (size_t)ret->steps * sizeof ret->live[0]);
    add_table(one, shape, when, mode, 0, ret->steps - 1, ret);
    add_table(two, shape, when, mode, one->steps, ret->steps - 1, ret);
    find_peak(ret);
}
