#include "planner/validate/layer.h"

#include "base/checked.h"
#include "planner/predict/parts.h"
#include "planner/validate/layer_rows.h"

#include <string.h>

enum { DELTA_CHUNK_TOKENS = 64 };

/* What the tables are evaluated for. */
struct sizes {
    uint64_t times[TIMES_COUNT], width[KEPT_WIDTH_COUNT];
};

/* Of all heads, however a rank shares them. */
static uint64_t delta_state(const uint64_t *w)
{
    uint64_t heads = w[WIDTH_DELTA_HEADS];
    return heads > 0 ? w[WIDTH_DELTA_VALUE] * (w[WIDTH_DELTA_KEY] / heads) : 0;
}

static void sizes_init(const struct step_sizes *shape, uint64_t received, enum delta_share share,
                       struct sizes *ret)
{
    const uint64_t *w = shape->width;
    uint64_t sequence = shape->rows[share == DELTA_WHOLE ? ROWS_ALL : ROWS_TOKENS];
    *ret = (struct sizes){
        .times = { [TIMES_ONE] = 1,
                   [TIMES_NORM] = shape->rows[ROWS_NORM],
                   [TIMES_TOKENS] = shape->rows[ROWS_TOKENS],
                   [TIMES_SEQUENCE] = sequence,
                   [TIMES_CHUNKS] = div_up(sequence, DELTA_CHUNK_TOKENS),
                   [TIMES_ROWS] = received },
        .width = { [KEPT_HIDDEN] = w[WIDTH_HIDDEN],
                   [KEPT_QUERY] = w[WIDTH_QUERY],
                   [KEPT_KEY_VALUE] = w[WIDTH_KEY_VALUE],
                   [KEPT_QKV] = w[WIDTH_QKV],
                   [KEPT_HEADS] = w[WIDTH_HEADS],
                   [KEPT_RING] = w[WIDTH_CONTEXT_FORWARD],
                   [KEPT_RING_BACKWARD] = w[WIDTH_CONTEXT_BACKWARD],
                   [KEPT_WORKSPACE] = w[WIDTH_ATTENTION_WORKSPACE],
                   [KEPT_EXPERTS] = w[WIDTH_EXPERTS],
                   [KEPT_GATE_UP] = w[WIDTH_GATE_UP],
                   [KEPT_EXPERT] = w[WIDTH_EXPERT],
                   [KEPT_SHARED_TWO] = w[WIDTH_SHARED_TWO],
                   [KEPT_SHARED] = w[WIDTH_SHARED],
                   [KEPT_ONE] = 1,
                   [KEPT_DELTA_IN] = w[WIDTH_DELTA_IN],
                   [KEPT_DELTA_CONV] = w[WIDTH_DELTA_CONV],
                   [KEPT_DELTA_KEYS] = w[WIDTH_DELTA_CONV] - w[WIDTH_DELTA_VALUE],
                   [KEPT_DELTA_KEY] = w[WIDTH_DELTA_KEY],
                   [KEPT_DELTA_VALUE] = w[WIDTH_DELTA_VALUE],
                   [KEPT_DELTA_HEADS] = w[WIDTH_DELTA_HEADS],
                   [KEPT_DELTA_TILE] = w[WIDTH_DELTA_TILE],
                   [KEPT_DELTA_STATE] = delta_state(w) },
    };
}

static void add_table(const struct kept_table *table, const struct sizes *sizes, uint64_t *live)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct kept_row *row = &table->rows[i];
        uint64_t bytes = mul3_sat(sizes->times[row->times], sizes->width[row->width], row->bytes);
        for (int moment = row->made; moment <= row->last; moment++)
            live[moment] = add_sat(live[moment], bytes);
    }
}

/* Experts in chunks, as engine rankfit has them: the half's fullest moment, between replay and
 * backward of the mixer. Gradient and output of the layer are there throughout. */
static void add_chunked(const struct budget_input *in, const struct step_sizes *shape,
                        uint64_t *live)
{
    struct step_layer layer;
    struct step_kind kind;
    struct layer_bytes bytes;
    uint64_t hidden = mul3_sat(2, shape->rows[ROWS_NORM], shape->width[WIDTH_HIDDEN]);
    layer_kind(in, MIXER_NONE, FFN_MOE, &kind);
    step_layer_init(&kind, &layer);
    layer_bytes_fold(&layer.pass[MODE_BACKWARD], shape, &bytes);
    uint64_t x1 = tensor_bytes(shape->rows[ROWS_NORM], shape->width[WIDTH_HIDDEN], 2);
    live[MOE_D_SUM] = add_sat(live[MOE_D_SUM], add_sat(bytes.peak, x1));
    for (int moment = 0; moment < MOMENT_COUNT; moment++)
        live[moment] = add_sat(live[moment], hidden);
}

static const struct kept_table *mixer_table(enum mixer mixer)
{
    return mixer == MIXER_GQA ? &kept_attention : mixer == MIXER_GDN ? &kept_delta_net : NULL;
}

/* The fullest moment; table NULL: experts alone. */
static uint64_t fullest(const struct budget_input *in, const struct kept_table *table,
                        const struct step_sizes *shape, const struct sizes *sizes)
{
    uint64_t live[MOMENT_COUNT] = { 0 }, most = 0;
    if (table)
        add_table(table, sizes, live);
    if (shape->chunks.count > 1)
        add_chunked(in, shape, live);
    else
        add_table(&kept_experts, sizes, live);
    for (int i = 0; i < MOMENT_COUNT; i++)
        most = live[i] > most ? live[i] : most;
    return most;
}

uint64_t engine_layer_bytes(const struct budget_input *in, enum mixer mixer, uint64_t received,
                            enum delta_share share)
{
    const struct kept_table *table = mixer_table(mixer);
    struct step_sizes shape;
    struct sizes sizes;
    if (!table)
        return 0;
    layer_sizes(in, received, &shape);
    layer_sizes_mixer(in, mixer, &shape);
    sizes_init(&shape, received, share, &sizes);
    return fullest(in, table, &shape, &sizes);
}

uint64_t engine_experts_bytes(const struct budget_input *in, uint64_t received)
{
    struct step_sizes shape;
    struct sizes sizes;
    layer_sizes(in, received, &shape);
    sizes_init(&shape, received, DELTA_SHARED, &sizes);
    return fullest(in, NULL, &shape, &sizes);
}
