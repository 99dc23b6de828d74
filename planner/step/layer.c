#include "planner/step/layer.h"

#include <string.h>

enum { HALF_MIXER, HALF_FFN, HALVES };
enum { OPS_MAX = 96, TENSORS_MAX = 128, ENTRIES_MAX = 160 };

/* One entry of an order that exists under the kind's conditions. opens: a new point begins with it,
 * or with one before it that does not exist. index: of the operation in its list. */
struct placed {
    const struct step_entry *entry;
    const struct step_op *op;
    bool opens;
    uint8_t half, zone, index;
};

/* Forward or backward of both halves in the order run. */
struct sequence {
    int count;
    struct placed entries[ENTRIES_MAX];
};

/* What is known of the operations and tensors of one mode. Tensors are numbered through both
 * halves. */
struct analysis {
    bool alive[HALVES][OPS_MAX];
    bool needed[TENSORS_MAX];    /* an operation that runs reads it, or the pass is for it */
    bool available[TENSORS_MAX]; /* there before the pass begins */
};

struct builder {
    const struct step_kind *kind;
    enum step_schedule schedule;
    struct sequence forward, backward;
    bool in_forward[HALVES][OPS_MAX];
    bool exists[TENSORS_MAX];   /* the forward makes it */
    bool saved[2][TENSORS_MAX]; /* [recomputed]: backward reads it, and it has a fate */
};

static const struct step_list *half_of(const struct step_kind *kind, int half)
{
    return half == HALF_MIXER ? kind->mixer : kind->ffn;
}

static int number_of(const struct step_kind *kind, int half, uint8_t tensor)
{
    if (tensor < TENSOR_FIRST_OWN || half == HALF_MIXER)
        return tensor;
    return tensor + kind->mixer->tensor_count - TENSOR_FIRST_OWN;
}

/* The row of a tensor; NULL: it belongs to whoever runs the layer. */
static const struct step_tensor *tensor_of(const struct step_kind *kind, int number)
{
    const struct step_list *mixer = kind->mixer, *ffn = kind->ffn;
    if (number < TENSOR_FIRST_OWN) {
        bool mixes = number < mixer->tensor_count && mixer->tensors[number].name;
        const struct step_list *list = mixes ? mixer : ffn;
        return number < list->tensor_count && list->tensors[number].name ? &list->tensors[number]
                                                                         : NULL;
    }
    const struct step_tensor *tensor =
        number < mixer->tensor_count
            ? &mixer->tensors[number]
            : &ffn->tensors[number - mixer->tensor_count + TENSOR_FIRST_OWN];
    return tensor->name ? tensor : NULL;
}

static bool holds(uint32_t when, uint32_t unless, uint32_t conditions)
{
    return (when & ~conditions) == 0 && (unless & conditions) == 0;
}

static bool is_routed(const struct step_tensor *tensor)
{
    return tensor->rows == ROWS_SENT || tensor->rows == ROWS_RECV;
}

/* Of a capped schedule nothing of a chunk's rows is saved. */
static enum step_fate fate_of(const struct builder *b, int number)
{
    const struct step_tensor *tensor = tensor_of(b->kind, number);
    if (!tensor || (b->schedule == SCHEDULE_CAPPED && is_routed(tensor)))
        return FATE_REMADE;
    return (enum step_fate)tensor->fate;
}

/* Saved from the forward of a layer even where that is recomputed. */
static bool is_kept(const struct builder *b, int number)
{
    enum step_fate fate = fate_of(b, number);
    return fate == FATE_CARRIED || (fate == FATE_ATTENDED && (b->kind->when & WHEN_KEEP_ATTENTION));
}

static void add_half(const struct builder *b, int half, bool backward, struct sequence *ret)
{
    const struct step_list *list = half_of(b->kind, half);
    const struct step_order *orders = backward ? list->backward : list->forward;
    bool chunked = orders[b->schedule].zone[ZONE_CHUNK].count > 0;
    const struct step_order *order = chunked ? &orders[b->schedule] : &orders[SCHEDULE_PLAIN];
    for (int zone = 0; zone < ZONE_COUNT; zone++)
        for (int i = 0, opens = 0; i < order->zone[zone].count; i++) {
            const struct step_entry *entry = &order->zone[zone].entries[i];
            const struct step_op *op = &list->ops[entry->op];
            opens |= !entry->joined;
            if (!holds(op->when, op->unless, b->kind->when) ||
                !holds(entry->when, entry->unless, b->kind->when))
                continue;
            /* the mixer of a backward comes after the chunks of the other half */
            int at = backward && half == HALF_MIXER ? ZONE_AFTER : zone;
            ret->entries[ret->count++] =
                (struct placed){ entry, op, opens, (uint8_t)half, (uint8_t)at, entry->op };
            opens = 0;
        }
}

static void builder_init(const struct step_kind *kind, enum step_schedule schedule,
                         struct builder *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->kind = kind;
    ret->schedule = schedule;
    add_half(ret, HALF_MIXER, false, &ret->forward);
    add_half(ret, HALF_FFN, false, &ret->forward);
    add_half(ret, HALF_FFN, true, &ret->backward);
    add_half(ret, HALF_MIXER, true, &ret->backward);
    for (int i = 0; i < ret->forward.count; i++) {
        const struct placed *p = &ret->forward.entries[i];
        ret->in_forward[p->half][p->index] = true;
        for (int k = 0; k < OP_MAKES && p->op->makes[k]; k++)
            ret->exists[number_of(kind, p->half, p->op->makes[k])] = true;
    }
}

static bool has(unsigned components, uint8_t component)
{
    return (components >> component & 1u) != 0;
}

static const struct step_op *gemm_of(const struct step_kind *kind, const struct placed *p)
{
    bool gradient = p->op->kind == OP_WGRAD || p->op->kind == OP_DGRAD;
    return gradient ? &half_of(kind, p->half)->ops[p->op->gemm.of] : NULL;
}

/* Runs for what it does to the layer's state or to the gradient stream. */
static bool is_root(const struct step_kind *kind, const struct placed *p)
{
    if (p->op->kind == OP_WGRAD)
        return has(kind->trained | kind->adapted, gemm_of(kind, p)->gemm.component);
    if (p->op->makes[0] == TENSOR_NONE)
        return p->op->kind == OP_MARK || has(kind->trained, p->op->gemm.component);
    return p->op->makes[0] == TENSOR_DX;
}

/* Whether somebody waits for a result. What is there already is not made again; an operation of the
 * backward alone changes it. */
static bool is_wanted(const struct builder *b, const struct analysis *a, const struct placed *p)
{
    bool again = b->in_forward[p->half][p->index];
    for (int i = 0; i < OP_MAKES && p->op->makes[i]; i++) {
        int number = number_of(b->kind, p->half, p->op->makes[i]);
        if (a->needed[number] && !(again && a->available[number]))
            return true;
    }
    return false;
}

/* The tensors that an operation cannot do without, by number; returns how many. */
static int reads_of(const struct builder *b, const struct placed *p, int *ret)
{
    int count = 0;
    for (int i = 0; i < OP_READS && p->op->reads[i]; i++)
        ret[count++] = number_of(b->kind, p->half, p->op->reads[i]);
    for (int i = 0; i < OP_ALSO && p->op->also[i]; i++)
        if (!(p->op->also_unless & b->kind->when))
            ret[count++] = number_of(b->kind, p->half, p->op->also[i]);
    return count;
}

/* Operations that run: those with an effect, and whatever makes something for them. */
static void find_alive(const struct builder *b, const struct sequence *s, struct analysis *a)
{
    int reads[OP_READS + OP_ALSO];
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = s->count - 1; i >= 0; i--) {
            const struct placed *p = &s->entries[i];
            if (a->alive[p->half][p->index] || (!is_root(b->kind, p) && !is_wanted(b, a, p)))
                continue;
            a->alive[p->half][p->index] = changed = true;
            int count = reads_of(b, p, reads);
            for (int k = 0; k < count; k++)
                a->needed[reads[k]] = true;
        }
    }
}

/* Whether the backward's own order makes a tensor of the forward again. */
static bool is_made_in_backward(const struct builder *b, int number)
{
    for (int i = 0; i < b->backward.count; i++) {
        const struct placed *p = &b->backward.entries[i];
        if (!b->in_forward[p->half][p->index])
            continue;
        for (int k = 0; k < OP_MAKES && p->op->makes[k]; k++)
            if (number_of(b->kind, p->half, p->op->makes[k]) == number)
                return true;
    }
    return false;
}

static int tensor_count(const struct step_kind *kind)
{
    return kind->mixer->tensor_count + kind->ffn->tensor_count - TENSOR_FIRST_OWN;
}

static void analyse_backward(struct builder *b, bool recomputed, struct analysis *a)
{
    memset(a, 0, sizeof *a);
    for (int t = 0; t < tensor_count(b->kind); t++)
        a->available[t] = b->exists[t] && fate_of(b, t) != FATE_REMADE &&
                          !(recomputed && !is_kept(b, t) && is_made_in_backward(b, t));
    find_alive(b, &b->backward, a);
    for (int t = 0; t < tensor_count(b->kind); t++) {
        b->saved[recomputed][t] = a->available[t] && a->needed[t];
        a->available[t] = b->saved[recomputed][t];
    }
}

static void analyse_forward(const struct builder *b, enum step_mode mode, struct analysis *a)
{
    bool saves = mode == MODE_FORWARD_SAVED, again = mode == MODE_RECOMPUTE;
    memset(a, 0, sizeof *a);
    a->needed[TENSOR_OUTPUT] = a->needed[TENSOR_X1] = !again;
    for (int t = 0; t < tensor_count(b->kind); t++) {
        a->available[t] = again && b->saved[1][t] && is_kept(b, t);
        if (saves ? b->saved[0][t] : again && b->saved[1][t])
            a->needed[t] = true;
    }
    find_alive(b, &b->forward, a);
}

/* Places of the operations that run: points of each zone, one for those that are joined. */
struct places {
    int points[ZONE_COUNT];
    uint8_t point[ENTRIES_MAX];
    bool runs[ENTRIES_MAX];
};

static void find_places(const struct sequence *s, const struct analysis *a, struct places *ret)
{
    int open[ZONE_COUNT] = { 0 }; /* a new point begins with the next operation that runs */
    memset(ret, 0, sizeof *ret);
    for (int i = 0; i < s->count; i++) {
        const struct placed *p = &s->entries[i];
        open[p->zone] |= p->opens;
        ret->runs[i] = a->alive[p->half][p->index];
        if (!ret->runs[i])
            continue;
        ret->points[p->zone] += open[p->zone];
        open[p->zone] = 0;
        ret->point[i] = (uint8_t)(ret->points[p->zone] - 1);
    }
}

/* Where an entry is at work for a chunk that is counted from: its own, the first, the last. */
static struct step_place place_of(const struct placed *p, uint8_t point)
{
    return (struct step_place){ p->zone, point, (int8_t)-p->entry->chunk, p->entry->late };
}

/* Whether a place comes later than another that counts from the same chunk. */
static bool is_later(const struct step_place *a, const struct step_place *b)
{
    if (a->zone != b->zone)
        return a->zone > b->zone;
    if (a->late != b->late)
        return a->late;
    if (a->chunk != b->chunk)
        return a->chunk > b->chunk;
    return a->point > b->point;
}

/* A tensor's life so far. */
struct life {
    bool made, ends;
    struct step_place first, last;
};

static void touch(struct life *life, const struct step_place *place, bool makes)
{
    if (makes && (!life->made || is_later(&life->first, place))) {
        life->first = *place;
        life->made = true;
    }
    if (!life->ends || is_later(place, &life->last)) {
        life->last = *place;
        life->ends = true;
    }
}

static void touch_all(const struct builder *b, const struct placed *p,
                      const struct step_place *place, struct life *lives)
{
    int reads[OP_READS + OP_ALSO], count = reads_of(b, p, reads);
    for (int i = 0; i < count; i++)
        touch(&lives[reads[i]], place, false);
    for (int i = 0; i < OP_HOLDS && p->op->holds[i]; i++)
        touch(&lives[number_of(b->kind, p->half, p->op->holds[i])], place, false);
    for (int i = 0; i < OP_MAKES && p->op->makes[i]; i++)
        touch(&lives[number_of(b->kind, p->half, p->op->makes[i])], place, true);
}

static bool is_chunked(const struct builder *b)
{
    return b->schedule != SCHEDULE_PLAIN;
}

/* Adapters: x A of a GEMM, and in backward x A again and its gradient until dx has it. */
static void add_adapter(const struct builder *b, const struct placed *p,
                        const struct step_place *place, const struct step_place *until,
                        struct step_pass *ret)
{
    const struct step_op *gemm = p->op->kind == OP_WGRAD ? gemm_of(b->kind, p) : p->op;
    bool linear = p->op->kind == OP_GEMM || p->op->kind == OP_GROUPED || p->op->kind == OP_WGRAD;
    if (!linear || !gemm->gemm.adapters || !has(b->kind->adapted, gemm->gemm.component))
        return;
    struct step_life life = {
        .rows = gemm->gemm.rows,
        .width = gemm->gemm.adapters,
        .bytes = 2,
        .item = gemm->kind == OP_GROUPED ? ITEM_EXPERT_WORKING : ITEM_LAYER_WORKING,
        .each_chunk = is_chunked(b) && (gemm->gemm.rows == ROWS_RECV),
        .made = *place,
        .last = *place,
    };
    ret->lives[ret->count++] = life;
    if (p->op->kind != OP_WGRAD)
        return;
    life.last = *until;
    ret->lives[ret->count++] = life;
}

/* Where the gradient of the input of a weight's GEMM is made. */
static struct step_place input_place(const struct sequence *s, const struct places *places,
                                     const struct placed *weight)
{
    for (int i = 0; i < s->count; i++) {
        const struct placed *p = &s->entries[i];
        if (places->runs[i] && p->half == weight->half && p->op->kind == OP_DGRAD &&
            p->op->gemm.of == weight->op->gemm.of)
            return place_of(p, places->point[i]);
    }
    return (struct step_place){ 0 };
}

static bool is_backward(enum step_mode mode)
{
    return mode == MODE_BACKWARD || mode == MODE_BACKWARD_SAVED;
}

static bool is_saved_mode(enum step_mode mode)
{
    return mode == MODE_FORWARD_SAVED || mode == MODE_BACKWARD_SAVED;
}

/* Whether a pass leaves a tensor for backward, or found it. */
static bool is_kept_in(const struct builder *b, enum step_mode mode, int number)
{
    if (is_saved_mode(mode))
        return b->saved[0][number];
    return b->saved[1][number] && (mode != MODE_FORWARD || is_kept(b, number));
}

static void add_life(const struct builder *b, enum step_mode mode, int number,
                     const struct life *life, const int *points, struct step_pass *ret)
{
    const struct step_tensor *tensor = tensor_of(b->kind, number);
    bool kept = is_kept_in(b, mode, number), saved = is_saved_mode(mode);
    bool there = kept && (is_backward(mode) || (mode == MODE_RECOMPUTE && is_kept(b, number)));
    if (!tensor || (!life->made && !there))
        return;
    if (!saved && b->saved[1][number] && fate_of(b, number) == FATE_CARRIED)
        return; /* counted with the checkpoints */
    struct step_life *ret_life = &ret->lives[ret->count++];
    *ret_life = (struct step_life){
        .tensor = tensor,
        .rows = tensor->rows,
        .width = tensor->width,
        .bytes = tensor->bytes,
        .item = tensor->item,
        .each_chunk = is_chunked(b) && is_routed(tensor),
        .kept = kept,
        .output = number == TENSOR_OUTPUT,
        .made = life->first,
        .last = life->last,
    };
    if (kept && (saved || is_kept(b, number)))
        ret_life->item = ITEM_LAYER_SAVED;
    if (there)
        ret_life->made = (struct step_place){ 0 };
    if (kept && !is_backward(mode)) /* to the end of the pass */
        ret_life->last = (struct step_place){
            .zone = ZONE_AFTER,
            .point = (uint8_t)(points[ZONE_AFTER] > 0 ? points[ZONE_AFTER] - 1 : 0)
        };
}

static void pass_init(const struct builder *b, enum step_mode mode, const struct analysis *a,
                      struct step_pass *ret)
{
    const struct sequence *s = is_backward(mode) ? &b->backward : &b->forward;
    struct life lives[TENSORS_MAX];
    struct places places;
    memset(lives, 0, sizeof lives);
    find_places(s, a, &places);
    ret->count = 0;
    memcpy(ret->points, places.points, sizeof ret->points);
    for (int i = 0; i < s->count; i++) {
        if (!places.runs[i])
            continue;
        struct step_place place = place_of(&s->entries[i], places.point[i]), until = place;
        touch_all(b, &s->entries[i], &place, lives);
        if (s->entries[i].op->kind == OP_WGRAD)
            until = input_place(s, &places, &s->entries[i]);
        if (b->kind->adapted)
            add_adapter(b, &s->entries[i], &place, &until, ret);
    }
    for (int t = 1; t < tensor_count(b->kind); t++)
        add_life(b, mode, t, &lives[t], ret->points, ret);
}

static void add_ops(const struct builder *b, const struct sequence *s, const struct analysis *a,
                    struct step_sequence *ret)
{
    ret->count = 0;
    for (int i = 0; i < s->count; i++) {
        const struct placed *p = &s->entries[i];
        if (!a->alive[p->half][p->index] || p->op->kind == OP_MARK)
            continue;
        ret->ops[ret->count].op = p->op;
        ret->ops[ret->count++].of = gemm_of(b->kind, p);
    }
}

/* Time is that of the plain orders, whatever the chunks. */
static void sequences_init(const struct step_kind *kind, struct step_layer *ret)
{
    struct builder plain;
    struct analysis a;
    builder_init(kind, SCHEDULE_PLAIN, &plain);
    analyse_backward(&plain, false, &a);
    analyse_backward(&plain, true, &a);
    add_ops(&plain, &plain.backward, &a, &ret->backward);
    analyse_forward(&plain, MODE_FORWARD, &a);
    add_ops(&plain, &plain.forward, &a, &ret->forward);
    analyse_forward(&plain, MODE_RECOMPUTE, &a);
    add_ops(&plain, &plain.forward, &a, &ret->recompute);
}

/* Of the chunks of a backward after a saved forward, the operations of the forward. */
static void nested_init(const struct builder *b, const struct analysis *a,
                        struct step_sequence *ret)
{
    ret->count = 0;
    for (int i = 0; i < b->backward.count; i++) {
        const struct placed *p = &b->backward.entries[i];
        bool again = p->zone == ZONE_CHUNK && b->in_forward[p->half][p->index];
        if (again && a->alive[p->half][p->index] && b->schedule == SCHEDULE_CAPPED)
            ret->ops[ret->count++].op = p->op;
    }
}

void step_layer_init(const struct step_kind *kind, struct step_layer *ret)
{
    static const enum step_mode forwards[] = { MODE_FORWARD, MODE_RECOMPUTE, MODE_FORWARD_SAVED };
    struct builder b;
    struct analysis a;
    builder_init(kind, kind->schedule, &b);
    analyse_backward(&b, false, &a);
    pass_init(&b, MODE_BACKWARD_SAVED, &a, &ret->pass[MODE_BACKWARD_SAVED]);
    nested_init(&b, &a, &ret->nested);
    analyse_backward(&b, true, &a);
    pass_init(&b, MODE_BACKWARD, &a, &ret->pass[MODE_BACKWARD]);
    for (int i = 0; i < (int)(sizeof forwards / sizeof forwards[0]); i++) {
        analyse_forward(&b, forwards[i], &a);
        pass_init(&b, forwards[i], &a, &ret->pass[forwards[i]]);
    }
    sequences_init(kind, ret);
}
