/* routes.c - who gets how many rows of a layer: host lists, small beside the rows themselves. */
#include "base/checked.h"
#include "executor/primitive/moe/moe.h"

#include <stdlib.h>
#include <string.h>

static int chunks_of(const struct plan *plan)
{
    const struct primitives *p = &plan->choices.primitives;
    return p->moe == MOE_CHUNKED ? p->moe_chunks : 1;
}

/* The next `count` entries of one allocation. */
static int64_t *cut(int64_t **lists, size_t count)
{
    int64_t *ret = *lists;
    *lists += count;
    return ret;
}

/* Drawing takes longer than a short sequence's attention. What all layers and micro-batches drew is
 * kept while it is small. */
static const uint64_t MOST_DRAWN_BYTES = UINT64_C(1) << 30;

static int open_drawn(struct moe_saved *saved, const struct plan *plan)
{
    const struct layout *l = &plan->choices.layout;
    uint64_t each = mul3_sat(layout_local_tokens(l, plan->seq_tokens),
                             (uint64_t)plan->model.moe.top_k, sizeof **saved->drawn);
    uint64_t all = mul3_sat(each, (uint64_t)l->micro_batches, (uint64_t)plan->model.layers);

    if (all > MOST_DRAWN_BYTES)
        return 0;
    saved->batches = l->micro_batches;
    saved->drawn = calloc((size_t)saved->batches, sizeof *saved->drawn);
    return saved->drawn ? 0 : -1;
}

int moe_saved_open(struct moe_saved *saved, const struct work *work)
{
    size_t experts = (size_t)work->plan->model.moe.experts;
    size_t ep = (size_t)work->plan->choices.layout.ep;
    size_t chunks = (size_t)chunks_of(work->plan), local = experts / ep;
    size_t each = 2 * experts + local + 1 + 2 * ep;

    memset(saved, 0, sizeof *saved);
    saved->count = (int)chunks;
    saved->chunks = calloc(chunks, sizeof *saved->chunks);
    saved->lists = calloc(chunks * (each + 2 * experts), sizeof *saved->lists);
    if (!saved->chunks || !saved->lists || open_drawn(saved, work->plan) != 0)
        return diag_error(work->errors, (struct pos){ 0 }, "no memory left for routes");
    int64_t *lists = saved->lists;
    for (size_t i = 0; i < chunks; i++) {
        struct moe_chunk *c = &saved->chunks[i];
        c->counts = cut(&lists, experts);
        c->arrivals = cut(&lists, experts);
        c->offsets = cut(&lists, local + 1);
        c->send_rows = cut(&lists, ep);
        c->recv_rows = cut(&lists, ep);
    }
    saved->outgoing = cut(&lists, chunks * experts);
    saved->incoming = cut(&lists, chunks * experts);
    return 0;
}

void moe_saved_close(struct moe_saved *saved)
{
    for (int i = 0; saved->drawn && i < saved->batches; i++)
        free(saved->drawn[i]);
    free(saved->drawn);
    free(saved->chunks);
    free(saved->lists);
    memset(saved, 0, sizeof *saved);
}

struct moe_shape moe_shape(const struct moe_call *call)
{
    const struct plan *plan = call->state->work->plan;
    int ep = plan->choices.layout.ep;
    return (struct moe_shape){ .tokens = call->batch->tokens,
                               .hidden = plan->model.hidden,
                               .width = plan->model.moe.width,
                               .experts = plan->model.moe.experts,
                               .local = plan->model.moe.experts / ep,
                               .top_k = plan->model.moe.top_k,
                               .exchanges = ep > 1,
                               .unit = state_layer_unit(call->layer) };
}

struct router moe_router(const struct moe_call *call, int64_t rows)
{
    const struct moe *moe = &call->state->work->plan->model.moe;
    const struct moe_shape shape = moe_shape(call);
    return (struct router){ .rows = rows,
                            .experts = shape.experts,
                            .top_k = shape.top_k,
                            .normalize_top_k = moe->normalize_top_k,
                            .sigmoid = moe->sigmoid,
                            .correction = state_weight(call->state, shape.unit, ROLE_CORRECTION),
                            .groups = moe->groups,
                            .group_limit = moe->group_limit,
                            .scaling = (float)moe->scaling };
}

static int no_memory(struct work *w)
{
    w->failed = true;
    return diag_error(w->errors, (struct pos){ 0 }, "no memory left for routes");
}

/* The experts of one token: from the book, else drawn from the profile. */
static void choose(const struct moe_call *call, uint64_t token, int32_t *ret)
{
    const struct work *w = call->state->work;
    int top_k = w->plan->model.moe.top_k;

    if (w->given)
        memcpy(ret, w->given->layers[call->layer] + token * (uint64_t)top_k,
               (size_t)top_k * sizeof *ret);
    else
        routing_draw(&w->plan->routing, w->seed, call->layer, token, top_k,
                     w->plan->model.moe.experts, ret);
}

/* Where the choices of this micro-batch are kept; NULL: nowhere. A book may change. */
static int32_t **kept_choices(const struct moe_call *call)
{
    const struct moe_saved *s = call->saved;
    bool keeps = !call->state->work->given && call->batch->index < s->batches;
    return keeps ? &s->drawn[call->batch->index] : NULL;
}

/* NULL without memory. */
static int32_t *draw_choices(const struct moe_call *call, int64_t count, bool directed)
{
    struct work *w = call->state->work;
    int top_k = w->plan->model.moe.top_k;
    int32_t *ret = calloc((size_t)count, sizeof *ret);

    if (!ret) {
        no_memory(w);
        return NULL;
    }
    if (directed)
        w->peers->choices(w->peers, call->layer, call->batch->index, ret);
    for (int64_t i = 0; i < call->batch->tokens && !directed; i++)
        choose(call, batch_token(call->batch, i), ret + i * top_k);
    return ret;
}

bool moe_give_choices(const struct moe_call *call)
{
    struct work *w = call->state->work;
    const struct plan *plan = w->plan;
    const struct moe *moe = &plan->model.moe;
    int64_t sent = call->batch->tokens * moe->top_k;

    bool directed = w->peers && w->peers->choices;
    if (!w->given && !directed && plan->routing.kind == ROUTING_NATURAL)
        return false;
    if (!work_runs(w))
        return true;
    int32_t **kept = kept_choices(call);
    int32_t *choices = kept && *kept ? *kept : draw_choices(call, sent, directed);
    if (!choices)
        return true;
    WORK_OP(w, upload, call->saved->choices.data, choices, (uint64_t)sent * sizeof *choices);
    if (kept)
        *kept = choices;
    else
        free(choices);
    return true;
}

/* What the router chose, into the book of who asks. */
static void note_choices(const struct moe_call *call)
{
    struct work *w = call->state->work;
    size_t top_k = (size_t)w->plan->model.moe.top_k;
    size_t tokens = (size_t)call->batch->tokens;
    int32_t *choices = w->noted ? calloc(tokens * top_k, sizeof *choices) : NULL;

    if (!w->noted)
        return;
    if (!choices) {
        no_memory(w);
        return;
    }
    WORK_OP(w, download, choices, call->saved->choices.data, tokens * top_k * sizeof *choices);
    work_sync(w);
    for (size_t i = 0; i < tokens; i++)
        memcpy(w->noted->layers[call->layer] + (batch_token(call->batch, (int64_t)i)) * top_k,
               choices + i * top_k, top_k * sizeof *choices);
    free(choices);
}

/* Load statistics: the largest arrival of each layer and micro-batch, and how it was spread. */
static void log_rows(const struct moe_call *call)
{
    struct work *w = call->state->work;
    const struct moe_saved *s = call->saved;
    uint64_t sent = 0, received = 0;

    for (int i = 0; i < s->count; i++) {
        sent += (uint64_t)s->chunks[i].sent;
        received += (uint64_t)s->chunks[i].received;
    }
    if (!w->routed)
        return;
    struct routed_rows *rows = &w->routed[call->batch->index * w->plan->model.layers + call->layer];
    rows->layer = call->layer;
    rows->micro_batch = call->batch->index;
    rows->rows_sent = sent;
    if (received <= rows->rows_received)
        return;
    rows->rows_received = received;
    for (size_t i = 0; i < rows->chunk_count; i++)
        rows->chunk_rows_received[i] = (uint64_t)s->chunks[i].received;
}

/* Rows of a run of `tokens` that a rank has room for: what all senders can send here, and on a
 * device no more than the run's own load: of a profile the one exceeded once in ten thousand, of
 * the router's own choices the run's part of the layer's. */
static int64_t chunk_room(const struct plan *plan, const struct moe_shape *shape, int64_t tokens)
{
    const double quantile = 0.9999;
    int most = shape->top_k < shape->local ? shape->top_k : shape->local;
    int ep = shape->experts / shape->local;
    int64_t bound = (int64_t)plan->dispatch_bound_rows, room = (int64_t)ep * most * tokens;
    const struct routing_shape source = { (uint64_t)tokens, shape->top_k, shape->experts, ep };
    struct routing_load load = { .upper_rows = div_up(mul_sat((uint64_t)bound, (uint64_t)tokens),
                                                      (uint64_t)shape->tokens) };

    room = room < bound ? room : bound;
    if (room == 0 || plan->hardware.host)
        return room;
    if (plan->routing.kind != ROUTING_NATURAL)
        routing_load(&plan->routing, &source, -1, quantile, &load);
    return load.upper_rows < (uint64_t)room ? (int64_t)load.upper_rows : room;
}

/* Runs of ceil(tokens / n). */
static void cut_tokens(const struct moe_call *call)
{
    const struct moe_saved *s = call->saved;
    const struct plan *plan = call->state->work->plan;
    const struct moe_shape shape = moe_shape(call);
    int64_t run = (shape.tokens + s->count - 1) / s->count;

    for (int i = 0; i < s->count; i++) {
        struct moe_chunk *c = &s->chunks[i];
        c->first = run * i < shape.tokens ? run * i : shape.tokens;
        c->tokens = run < shape.tokens - c->first ? run : shape.tokens - c->first;
        c->sent = c->tokens * shape.top_k;
        c->room = c->sent;
        if (shape.exchanges)
            c->room = s->count > 1 ? chunk_room(plan, &shape, c->tokens)
                                   : (int64_t)plan->dispatch_bound_rows;
        c->received = c->room;
    }
}

/* One chunk's places among its own rows, and the loads of its experts. */
static void sort_chunk(const struct moe_call *call, const struct moe_chunk *c)
{
    struct work *w = call->state->work;
    const struct moe_shape shape = moe_shape(call);
    uint64_t choice = (uint64_t)c->first * (uint64_t)shape.top_k;

    WORK_OP(w, sort_choices, c->tokens, shape.top_k, shape.experts,
            element_at(call->saved->choices.data, choice, sizeof(int32_t)),
            element_at(call->saved->slots.data, choice, sizeof(int32_t)), c->counts);
}

/* All chunks' loads in one exchange: by member, then chunk, then expert. */
static void exchange_loads(const struct moe_call *call)
{
    struct work *w = call->state->work;
    const struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    int local = shape.local, ep = shape.experts / local, per_member = s->count * local;

    for (int p = 0; p < ep; p++)
        for (int i = 0; i < s->count; i++)
            for (int e = 0; e < local; e++)
                s->outgoing[p * per_member + i * local + e] = s->chunks[i].counts[p * local + e];
    if (w->peers)
        work_note(w, w->peers->arrivals(w->peers, call->layer, call->batch->index, s->outgoing,
                                        s->incoming, w->errors));
    else
        WORK_FABRIC(w, exchange_counts, w->mesh->groups[MESH_EXPERTS], s->outgoing, s->incoming,
                    per_member);
    for (int p = 0; p < ep; p++)
        for (int i = 0; i < s->count; i++)
            for (int e = 0; e < local; e++)
                s->chunks[i].arrivals[p * local + e] = s->incoming[p * per_member + i * local + e];
}

static void plan_chunk(struct moe_chunk *c, int ep, int local)
{
    for (int p = 0; p < ep; p++) {
        c->send_rows[p] = c->recv_rows[p] = 0;
        for (int e = 0; e < local; e++) {
            c->send_rows[p] += c->counts[p * local + e];
            c->recv_rows[p] += c->arrivals[p * local + e];
        }
    }
    for (int e = 0; e < local; e++) {
        c->offsets[e + 1] = c->offsets[e];
        for (int p = 0; p < ep; p++)
            c->offsets[e + 1] += c->arrivals[p * local + e];
    }
    c->received = c->offsets[local];
}

void moe_plan_exchange(const struct moe_call *call)
{
    struct work *w = call->state->work;
    const struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);

    cut_tokens(call);
    for (int i = 0; i < s->count; i++)
        sort_chunk(call, &s->chunks[i]);
    if (!work_runs(w))
        return;
    note_choices(call);
    exchange_loads(call);
    for (int i = 0; i < s->count; i++)
        plan_chunk(&s->chunks[i], shape.experts / shape.local, shape.local);
    log_rows(call);
}

/* Rows arrive by member, then by expert; they are wanted by expert, then by member. */
static void fill_map(const struct moe_chunk *c, int ep, int local, int32_t *map)
{
    int64_t arrival = 0;
    for (int p = 0; p < ep; p++)
        for (int e = 0; e < local; e++) {
            int64_t place = c->offsets[e];
            for (int before = 0; before < p; before++)
                place += c->arrivals[before * local + e];
            for (int64_t row = 0; row < c->arrivals[p * local + e]; row++)
                map[place + row] = (int32_t)arrival++;
        }
}

void moe_upload_map(const struct moe_call *call, const struct moe_chunk *chunk)
{
    struct work *w = call->state->work;
    const struct moe_shape shape = moe_shape(call);

    if (!work_runs(w))
        return;
    int32_t *map = calloc((size_t)chunk->received + 1, sizeof *map);
    if (!map) {
        no_memory(w);
        return;
    }
    fill_map(chunk, shape.experts / shape.local, shape.local, map);
    WORK_OP(w, upload, chunk->map.data, map, (uint64_t)chunk->received * sizeof *map);
    free(map);
}

struct buffer moe_take_rows(const struct moe_call *call, const struct moe_chunk *chunk,
                            enum owner owner, int64_t width, uint64_t element_bytes)
{
    return work_take_rows(call->state->work, owner, chunk->received, chunk->room, width,
                          element_bytes);
}

struct expert_linear moe_gate_up(const struct moe_call *call, const struct moe_chunk *chunk)
{
    const struct moe_shape shape = moe_shape(call);
    const struct primitives *p = &call->state->work->plan->choices.primitives;
    return (struct expert_linear){
        .linear = { .in = shape.hidden, .out = 2 * shape.width, .gradient_type = p->grad_dtype },
        .experts = shape.local,
        .offsets = chunk->offsets,
        .weight_stride = 2 * shape.width * shape.hidden
    };
}

struct expert_linear moe_down(const struct moe_call *call, const struct moe_chunk *chunk)
{
    const struct moe_shape shape = moe_shape(call);
    const struct primitives *p = &call->state->work->plan->choices.primitives;
    return (struct expert_linear){
        .linear = { .in = shape.width, .out = shape.hidden, .gradient_type = p->grad_dtype },
        .experts = shape.local,
        .offsets = chunk->offsets,
        .weight_stride = shape.width * shape.hidden
    };
}
