/* routes.c - who gets how many rows of a layer: host lists, small beside the rows themselves. */
#include "executor/primitive/moe/moe.h"

#include <stdlib.h>
#include <string.h>

int moe_saved_open(struct moe_saved *saved, const struct work *work)
{
    size_t experts = (size_t)work->plan->model.moe.experts;
    size_t ep = (size_t)work->plan->choices.layout.ep;

    memset(saved, 0, sizeof *saved);
    saved->counts = calloc(experts, sizeof *saved->counts);
    saved->arrivals = calloc(experts, sizeof *saved->arrivals);
    saved->offsets = calloc(experts / ep + 1, sizeof *saved->offsets);
    saved->send_rows = calloc(ep, sizeof *saved->send_rows);
    saved->recv_rows = calloc(ep, sizeof *saved->recv_rows);
    bool all =
        saved->counts && saved->arrivals && saved->offsets && saved->send_rows && saved->recv_rows;
    return all ? 0 : diag_error(work->errors, (struct pos){ 0 }, "no memory left for routes");
}

void moe_saved_close(struct moe_saved *saved)
{
    free(saved->counts);
    free(saved->arrivals);
    free(saved->offsets);
    free(saved->send_rows);
    free(saved->recv_rows);
    memset(saved, 0, sizeof *saved);
}

int64_t moe_sent_rows(const struct moe_call *call)
{
    return call->batch->tokens * call->state->work->plan->model.moe.top_k;
}

struct moe_shape moe_shape(const struct moe_call *call)
{
    const struct plan *plan = call->state->work->plan;
    int ep = plan->choices.layout.ep;
    return (struct moe_shape){ .tokens = call->batch->tokens,
                               .hidden = plan->model.hidden,
                               .width = plan->model.moe.width,
                               .sent = moe_sent_rows(call),
                               .received = call->saved->received,
                               .experts = plan->model.moe.experts,
                               .local = plan->model.moe.experts / ep,
                               .top_k = plan->model.moe.top_k,
                               .exchanges = ep > 1,
                               .unit = state_layer_unit(call->layer) };
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

bool moe_give_choices(const struct moe_call *call)
{
    struct work *w = call->state->work;
    const struct plan *plan = w->plan;
    const struct moe *moe = &plan->model.moe;
    int64_t sent = moe_sent_rows(call);

    if (!w->given && plan->routing.kind == ROUTING_NATURAL)
        return false;
    if (!work_runs(w))
        return true;
    int *choices = calloc((size_t)sent, sizeof *choices);
    if (!choices) {
        no_memory(w);
        return true;
    }
    for (int64_t i = 0; i < call->batch->tokens; i++)
        choose(call, call->batch->first_token + (uint64_t)i, choices + i * moe->top_k);
    WORK_OP(w, upload, call->saved->choices.data, choices, (uint64_t)sent * sizeof(int32_t));
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
        memcpy(w->noted->layers[call->layer] + (call->batch->first_token + i) * top_k,
               choices + i * top_k, top_k * sizeof *choices);
    free(choices);
}

/* Load statistics: the largest arrival of each layer and micro-batch. */
static void log_rows(const struct moe_call *call)
{
    struct work *w = call->state->work;
    if (!w->routed)
        return;
    struct routed_rows *rows = &w->routed[call->batch->index * w->plan->model.layers + call->layer];
    rows->layer = call->layer;
    rows->micro_batch = call->batch->index;
    rows->rows_sent = (uint64_t)moe_sent_rows(call);
    if ((uint64_t)call->saved->received > rows->rows_received)
        rows->rows_received = (uint64_t)call->saved->received;
}

void moe_plan_exchange(const struct moe_call *call)
{
    struct work *w = call->state->work;
    struct moe_saved *s = call->saved;
    const struct moe_shape shape = moe_shape(call);
    int local = shape.local, ep = shape.experts / local;

    s->received = shape.exchanges ? (int64_t)w->plan->dispatch_bound_rows : shape.sent;
    if (!work_runs(w))
        return;
    note_choices(call);
    WORK_FABRIC(w, exchange_counts, w->mesh->groups[MESH_EXPERTS], s->counts, s->arrivals, local);
    for (int p = 0; p < ep; p++) {
        s->send_rows[p] = s->recv_rows[p] = 0;
        for (int e = 0; e < local; e++) {
            s->send_rows[p] += s->counts[p * local + e];
            s->recv_rows[p] += s->arrivals[p * local + e];
        }
    }
    for (int e = 0; e < local; e++) {
        s->offsets[e + 1] = s->offsets[e];
        for (int p = 0; p < ep; p++)
            s->offsets[e + 1] += s->arrivals[p * local + e];
    }
    s->received = s->offsets[local];
    log_rows(call);
}

/* Rows arrive by member, then by expert; they are wanted by expert, then by member. */
static void fill_map(const struct moe_saved *s, int ep, int local, int32_t *map)
{
    int64_t arrival = 0;
    for (int p = 0; p < ep; p++)
        for (int e = 0; e < local; e++) {
            int64_t place = s->offsets[e];
            for (int before = 0; before < p; before++)
                place += s->arrivals[before * local + e];
            for (int64_t row = 0; row < s->arrivals[p * local + e]; row++)
                map[place + row] = (int32_t)arrival++;
        }
}

void moe_upload_map(const struct moe_call *call)
{
    struct work *w = call->state->work;
    const struct moe_shape shape = moe_shape(call);

    if (!work_runs(w))
        return;
    int32_t *map = calloc((size_t)shape.received + 1, sizeof *map);
    if (!map) {
        no_memory(w);
        return;
    }
    fill_map(call->saved, shape.experts / shape.local, shape.local, map);
    WORK_OP(w, upload, call->saved->map.data, map, (uint64_t)shape.received * sizeof *map);
    free(map);
}

void moe_send(const struct moe_call *call, bool back, const struct buffer *from,
              const struct buffer *to, uint64_t row_bytes)
{
    struct work *w = call->state->work;
    const struct moe_saved *s = call->saved;
    const int64_t *sent = back ? s->recv_rows : s->send_rows;
    const int64_t *received = back ? s->send_rows : s->recv_rows;
    WORK_FABRIC(w, all_to_all_rows, w->mesh->groups[MESH_EXPERTS], from->data, sent, to->data,
                received, row_bytes);
}

struct expert_linear moe_gate_up(const struct moe_call *call)
{
    const struct moe_shape shape = moe_shape(call);
    const struct primitives *p = &call->state->work->plan->choices.primitives;
    return (struct expert_linear){
        .linear = { .in = shape.hidden, .out = 2 * shape.width, .gradient_type = p->grad_dtype },
        .experts = shape.local,
        .offsets = call->saved->offsets,
        .weight_stride = 2 * shape.width * shape.hidden
    };
}

struct expert_linear moe_down(const struct moe_call *call)
{
    const struct moe_shape shape = moe_shape(call);
    const struct primitives *p = &call->state->work->plan->choices.primitives;
    return (struct expert_linear){
        .linear = { .in = shape.width, .out = shape.hidden, .gradient_type = p->grad_dtype },
        .experts = shape.local,
        .offsets = call->saved->offsets,
        .weight_stride = shape.width * shape.hidden
    };
}
