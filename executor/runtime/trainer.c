#include "executor/runtime/trainer.h"
#include "base/checked.h"
#include "executor/primitive/optimizer/optimizer.h"

#include <stdlib.h>
#include <string.h>

uint64_t trainer_first_sequence(const struct plan *plan, int data_rank, int micro_batch)
{
    const struct layout *l = &plan->choices.layout;
    return ((uint64_t)micro_batch * (uint64_t)layout_dp(l) + (uint64_t)data_rank) *
           (uint64_t)l->micro_batch;
}

int64_t trainer_batch_tokens(const struct plan *plan)
{
    return (int64_t)layout_local_tokens(&plan->choices.layout, plan->seq_tokens);
}

struct zigzag trainer_order(const struct plan *plan, int rank)
{
    const struct layout *l = &plan->choices.layout;
    return (struct zigzag){ .seq_tokens = (int64_t)plan->seq_tokens,
                            .cp = l->cp,
                            .rank = layout_coordinate(l, AXIS_CP, rank) };
}

static int no_memory(struct trainer *t)
{
    t->work.failed = true;
    return diag_error(t->work.errors, (struct pos){ 0 }, "no memory left for the run's lists");
}

/* How the rows of each pass are spread over its chunks. */
static int open_chunk_lists(struct trainer *t, size_t passes)
{
    size_t chunks = (size_t)t->work.plan->choices.primitives.moe_chunks;

    t->chunk_rows = calloc(passes * chunks, sizeof *t->chunk_rows);
    if (!t->chunk_rows)
        return no_memory(t);
    for (size_t i = 0; i < passes; i++) {
        t->work.routed[i].chunk_count = chunks;
        t->work.routed[i].chunk_rows_received = t->chunk_rows + i * chunks;
    }
    return 0;
}

static int open_lists(struct trainer *t)
{
    const struct plan *plan = t->work.plan;
    size_t tokens = (size_t)trainer_batch_tokens(plan);
    size_t passes = (size_t)plan->choices.layout.micro_batches * (size_t)plan->model.layers;

    t->ids = calloc(tokens, sizeof *t->ids);
    t->targets = calloc(tokens, sizeof *t->targets);
    t->work.routed = calloc(passes, sizeof *t->work.routed);
    if (!t->ids || !t->targets || !t->work.routed)
        return no_memory(t);
    return plan->choices.primitives.moe == MOE_CHUNKED ? open_chunk_lists(t, passes) : 0;
}

int trainer_keep_hidden(struct trainer *t)
{
    const struct plan *plan = t->work.plan;
    size_t batches = (size_t)plan->choices.layout.micro_batches;
    size_t values = (size_t)trainer_batch_tokens(plan) * (size_t)plan->model.hidden;

    t->hidden = calloc(batches * values, sizeof *t->hidden);
    return t->hidden ? 0 : no_memory(t);
}

/* Seconds since *begun, which moves on to now. What was asked for before is then done. */
static double lap(struct work *w, double *begun)
{
    work_sync(w);
    double now = work_clock(), ret = now - *begun;
    *begun = now;
    return ret;
}

static void load_batch(struct trainer *t, int step, const struct micro_batch *batch)
{
    const struct plan *plan = t->work.plan;
    const struct zigzag *order = &batch->order;
    int64_t length = zigzag_run_tokens(order);
    uint64_t first = (uint64_t)(step - 1) * (uint64_t)plan->global_batch +
                     trainer_first_sequence(plan, mesh_data_rank(&t->mesh), batch->index);

    for (int64_t row = 0; work_runs(&t->work) && row < batch->tokens; row += length) {
        uint64_t token = (uint64_t)zigzag_token(order, row);
        data_run(t->data, first + token / plan->seq_tokens, plan->seq_tokens,
                 token % plan->seq_tokens, (uint64_t)length, t->ids + row, t->targets + row);
    }
    WORK_OP(&t->work, upload, batch->ids.data, t->ids, batch->ids.bytes);
    WORK_OP(&t->work, upload, batch->targets.data, t->targets, batch->targets.bytes);
}

static struct micro_batch batch_of(const struct trainer *t, int index)
{
    const struct plan *plan = t->work.plan;
    uint64_t first = trainer_first_sequence(plan, mesh_data_rank(&t->mesh), index);
    uint64_t values = mul_sat((uint64_t)trainer_batch_tokens(plan), (uint64_t)plan->model.hidden);
    return (struct micro_batch){
        .index = index,
        .tokens = trainer_batch_tokens(plan),
        .first_token = first * plan->seq_tokens,
        .order = trainer_order(plan, t->mesh.fabric->rank),
        .loss_scale = 1 / ((double)plan->global_batch * (double)plan->seq_tokens),
        .hidden = t->hidden ? t->hidden + (uint64_t)index * values : NULL,
    };
}

/* The phase's first act in a real step. */
static void enter(struct trainer *t, enum run_phase phase, int step)
{
    work_begin(&t->work, OBSERVED_PHASE, "%s", run_phase_names[phase]);
    if (work_runs(&t->work) && t->options.on_phase)
        work_note(&t->work, t->options.on_phase(phase, step, t->options.context, t->work.errors));
}

/* Its last: what it took is told. */
static void leave(struct trainer *t, enum phase_time phase, double *begun)
{
    t->phase_seconds[phase] += lap(&t->work, begun);
    work_end(&t->work);
}

static double run_micro_batch(struct trainer *t, int step, int index)
{
    struct work *w = &t->work;
    struct micro_batch batch = batch_of(t, index);
    double begun = work_clock();

    work_begin(w, OBSERVED_PHASE, "micro-batch %d", index);
    enter(t, RUN_PHASE_FORWARD, step);
    arena_phase(w->arena, "forward micro-batch %d embedding", index);
    batch.ids = work_take_tensor(w, OWNER_TOKENS, batch.tokens, 1, sizeof(int32_t));
    batch.targets = work_take_tensor(w, OWNER_TOKENS, batch.tokens, 1, sizeof(int32_t));
    load_batch(t, step, &batch);
    transformer_forward(&t->transformer, &batch);
    leave(t, PHASE_TIME_FORWARD, &begun);
    enter(t, RUN_PHASE_LOSS, step);
    transformer_loss(&t->transformer, &batch);
    leave(t, PHASE_TIME_LOSS, &begun);
    enter(t, RUN_PHASE_BACKWARD, step);
    transformer_backward(&t->transformer, &batch);
    work_give(w, &batch.ids);
    work_give(w, &batch.targets);
    leave(t, PHASE_TIME_BACKWARD, &begun);
    work_end(w);
    return batch.loss_sum * batch.loss_scale;
}

static void finish_step(struct trainer *t, int step, struct step_result *ret)
{
    struct work *w = &t->work;
    double begun = work_clock();

    enter(t, RUN_PHASE_REDUCE, step);
    arena_phase(w->arena, "reduce");
    state_reduce(&t->state);
    leave(t, PHASE_TIME_REDUCE, &begun);
    if (t->on_gradients && work_runs(w))
        t->on_gradients(t, t->on_gradients_context);
    (void)lap(w, &begun);
    enter(t, RUN_PHASE_OPTIMIZER, step);
    arena_phase(w->arena, "optimizer");
    ret->gradient_norm = state_gradient_norm(&t->state);
    optimizer_adamw(&t->state, ret->gradient_norm, step);
    WORK_FABRIC(w, sum_doubles, w->mesh->fabric->all, &ret->loss, 1);
    leave(t, PHASE_TIME_OPTIMIZER, &begun);
}

/* All work is done: finish_step has looked at the clock. */
static double communication_seconds(const struct work *w)
{
    struct fabric *f = w->mesh->fabric;
    return f->ops->busy_seconds ? f->ops->busy_seconds(f) : w->communication_seconds;
}

/* The step as both passes walk it. */
static void walk_step(struct trainer *t, int step, struct step_result *ret)
{
    struct work *w = &t->work;

    memset(t->phase_seconds, 0, sizeof t->phase_seconds);
    memset(ret, 0, sizeof *ret);
    w->communication_seconds = 0;
    work_begin(w, OBSERVED_PHASE, "step %d", step);
    arena_mark_step(w->arena);
    state_zero_gradients(&t->state);
    for (int i = 0; i < w->plan->choices.layout.micro_batches && !w->failed; i++)
        ret->loss += run_micro_batch(t, step, i);
    finish_step(t, step, ret);
    work_end(w);
    t->phase_seconds[PHASE_TIME_COMMUNICATION] = communication_seconds(w);
}

static bool moves_by_copies(const struct trainer *t)
{
    const struct fabric_ops *ops = t->mesh.fabric->ops;
    return t->work.plan->choices.primitives.exchange == EXCHANGE_COPY && ops->window_source;
}

/* Copies go to the peers' arenas at the places that tensors have in this rank's. */
static int check_places(struct trainer *t)
{
    struct group *members = t->mesh.groups[MESH_EXPERTS];
    int count = group_info(members)->count;
    int64_t *values = calloc(2 * (size_t)count, sizeof *values);
    int64_t mine = (int64_t)(arena_fingerprint(t->work.arena) >> 1);
    if (!values)
        return no_memory(t);

    for (int i = 0; i < count; i++)
        values[i] = mine;
    int failed =
        t->mesh.fabric->ops->exchange_counts(members, values, values + count, 1, t->work.errors);
    for (int i = 0; i < count && !failed; i++)
        if (values[count + i] != mine) {
            diag_error(t->work.errors, (struct pos){ 0 },
                       "rank %d lays its tensors out otherwise than member %d of its expert group",
                       t->mesh.fabric->rank, i);
            failed = diag_hint(t->work.errors, "exchange=sm needs no common places");
        }
    free(values);
    return failed;
}

static int reserve(struct trainer *t)
{
    struct work *w = &t->work;
    struct step_result ignored;

    w->dry = true;
    if (state_open(&t->state, w) != 0 || transformer_open(&t->transformer, &t->state) != 0)
        return -1;
    t->workspace = work_take(w, OWNER_WORKSPACE, w->backend->ops->workspace_bytes(w->backend));
    walk_step(t, 1, &ignored);
    if (w->failed || arena_pack(w->arena, w->errors) != 0)
        return -1;
    if (moves_by_copies(t) && check_places(t) != 0)
        return -1;
    w->dry = false;
    arena_resident(w->arena, &t->workspace);
    w->backend->ops->set_workspace(w->backend, t->workspace.data);
    state_resident(&t->state);
    return 0;
}

int trainer_open_with(struct trainer *t, const struct plan *plan, struct fabric *fabric,
                      struct backend *backend, const struct data *data,
                      const struct trainer_options *options, struct diag_list *reterr)
{
    memset(t, 0, sizeof *t);
    t->data = data;
    t->options = *options;
    t->work = (struct work){ .plan = plan,
                             .backend = backend,
                             .mesh = &t->mesh,
                             .errors = reterr,
                             .seed = options->seed,
                             .progress = fabric->progress,
                             .observers = options->observers };
    bool copies = plan->choices.primitives.exchange == EXCHANGE_COPY;
    if (mesh_open(&t->mesh, fabric, &plan->choices.layout, copies, reterr) != 0 ||
        open_lists(t) != 0)
        return -1;
    const struct arena_source source = moves_by_copies(t) ? fabric->ops->window_source(fabric)
                                                          : backend->ops->arena_source(backend);
    t->work.arena = arena_open(&source);
    if (!t->work.arena)
        return no_memory(t);
    arena_fail_at(t->work.arena, options->refused_take);
    arena_limit(t->work.arena, options->live_limit);
    if (reserve(t) != 0)
        return -1;
    state_initialise(&t->state);
    arena_record_reset(t->work.arena);
    return t->work.failed ? -1 : 0;
}

int trainer_open(struct trainer *t, const struct plan *plan, struct fabric *fabric,
                 struct backend *backend, const struct data *data, uint64_t seed,
                 struct diag_list *reterr)
{
    const struct trainer_options options = { .seed = seed };
    return trainer_open_with(t, plan, fabric, backend, data, &options, reterr);
}

void trainer_close(struct trainer *t)
{
    if (t->state.work) {
        transformer_close(&t->transformer);
        state_close(&t->state);
    }
    arena_close(t->work.arena);
    if (t->mesh.fabric)
        mesh_close(&t->mesh);
    free(t->ids);
    free(t->targets);
    free(t->hidden);
    free(t->work.routed);
    free(t->chunk_rows);
    memset(t, 0, sizeof *t);
}

void trainer_measure(struct trainer *t)
{
    const struct plan *plan = t->work.plan;
    int passes = plan->choices.layout.micro_batches * plan->model.layers;

    arena_record_reset(t->work.arena);
    for (int i = 0; i < passes; i++) {
        struct routed_rows *rows = &t->work.routed[i];
        rows->rows_received = 0;
        for (size_t chunk = 0; chunk < rows->chunk_count; chunk++)
            rows->chunk_rows_received[chunk] = 0;
    }
}

int trainer_step(struct trainer *t, int step, struct step_result *ret)
{
    double begun = work_clock();
    walk_step(t, step, ret);
    ret->seconds = work_clock() - begun;
    return t->work.failed ? -1 : 0;
}
