/* simulator.c - the step of one rank: state, the schedule of micro-batches on its stage, the
 * reduction at the end. */
#include "tests/simulator/rank.h"

#include "base/layout/rows.h"

#include <stdlib.h>
#include <string.h>

struct run run_of(const struct rank *s, int index)
{
    int n = s->l->vpp, length = s->layers / n;
    return (struct run){ index * length, (index + 1) * length, index == 0, index == n - 1 };
}

/* Further tokens that each token's state foretells: every stage has them with its inputs. */
static int predicted_tokens(const struct rank *s)
{
    return s->m->mtp_trained ? s->m->mtp_layers : 0;
}

/* Numbers of 4 bytes that there are of a token: ids, targets, those of each prediction; positions
 * in packed pieces; advantages and what each pass for log-probabilities gave. */
static int input_tensors(const struct rank *s)
{
    unsigned rl = s->p->rl;
    int passes = ((rl & RL_OLD) != 0) + ((rl & RL_REFERENCE) != 0);
    return 2 + predicted_tokens(s) + (s->pieces > 0) + (rl ? 1 + passes : 0);
}

struct pass *begin_pass(struct rank *s, int micro_batch)
{
    struct pass *pass = &s->passes[micro_batch];
    size_t layers = (size_t)s->layers + (size_t)s->predictions;
    pass->micro_batch = micro_batch;
    pass->choices = calloc(layers, sizeof pass->choices[0]);
    pass->latent_sum = calloc(layers, sizeof pass->latent_sum[0]);
    pass->kept = calloc(layers, sizeof pass->kept[0]);
    for (int i = 0; i < input_tensors(s); i++)
        pass->inputs[i] = make(s, ITEM_INPUTS, 4 * s->T);
    if (s->pieces > 0) /* where each begins, and the end */
        pass->offsets = make(s, ITEM_INPUTS, 4 * (s->pieces + 1));
    return pass;
}

void end_pass(struct rank *s, struct pass *pass)
{
    for (int i = 0; i < input_tensors(s); i++)
        drop(s, &pass->inputs[i]);
    drop(s, &pass->offsets);
    free(pass->choices);
    free(pass->latent_sum);
    free(pass->kept);
}

static bool reaches_head(const struct rank *s, const struct run *run)
{
    return s->has_head && run->last;
}

/* The embedding, or what came from the stage before, is the input of the run's first layer. */
static int forward_layers(struct rank *s, struct pass *pass, const struct run *run)
{
    int use = 0;
    begin_order(s, run, reaches_head(s, run));
    if (s->has_embedding && run->first) {
        begin_use(s, use);
        make_checkpoint(s);
        end_use(s, use++);
    }
    for (int i = run->from; i < run->to; i++) {
        enter(s, SIM_FORWARD, pass->micro_batch, s->first + i);
        begin_use(s, use);
        if (i == run->from && !(s->has_embedding && run->first))
            make_checkpoint(s);
        make_extras(s, pass, i);
        layer_forward(s, pass, i, forward_mode(s, i));
        end_use(s, use++);
    }
    return use;
}

/* From the first loss to the main one the head is in use. */
static int head_and_losses(struct rank *s, struct pass *pass, int use)
{
    bool predicts = s->predictions > 0;
    int head = predicts ? use + 1 : use;
    if (predicts)
        predictions_forward(s, pass, use);
    enter(s, SIM_LOSS, pass->micro_batch,
          s->predictions > 0 ? s->m->layers + s->predictions - 1 : -1);
    begin_use(s, head);
    struct unit_gradients gradients = open_head(s);
    if (predicts)
        predictions_backward(s, pass, use);
    enter(s, SIM_LOSS, pass->micro_batch, -1);
    play_loss(s, pass, &pass->state[0]);
    end_use(s, head);
    close_gradients(s, &gradients);
    return head + 1;
}

static void forward(struct rank *s, int micro_batch, int index)
{
    struct run run = run_of(s, index);
    bool embeds = s->has_embedding && run.first;
    enter(s, SIM_FORWARD, micro_batch, embeds ? -1 : s->first + run.from);
    struct pass *pass = run.first ? begin_pass(s, micro_batch) : &s->passes[micro_batch];
    int use = forward_layers(s, pass, &run);
    if (reaches_head(s, &run))
        s->next_use = head_and_losses(s, pass, use);
}

static void layer_again(struct rank *s, struct pass *pass, int i, int use)
{
    enter(s, SIM_BACKWARD, pass->micro_batch, s->first + i);
    begin_use(s, use);
    struct unit_gradients gradients = open_gradients(s, &s->layer[i], NULL);
    if (is_recomputed(s, i))
        layer_forward(s, pass, i, REPLAY);
    layer_backward(s, pass, i);
    end_use(s, use);
    close_gradients(s, &gradients);
}

static void backward(struct rank *s, int micro_batch, int index)
{
    struct run run = run_of(s, index);
    struct pass *pass = &s->passes[micro_batch];
    int use = s->next_use;
    enter(s, SIM_BACKWARD, micro_batch, s->first + run.to - 1);
    if (!reaches_head(s, &run)) {
        use = 0;
        begin_order(s, NULL, false);
        for (int i = run.to - 1; i >= run.from; i--)
            s->order[s->uses++] = i;
        pass->dx = make(s, ITEM_LAYER_WORKING, 2 * s->N * s->H);
    }
    for (int i = run.to - 1; i >= run.from; i--)
        layer_again(s, pass, i, use++);
    if (s->has_embedding && run.first) {
        enter(s, SIM_BACKWARD, micro_batch, -1);
        struct unit_gradients gradients = open_gradients(s, &s->embedding, NULL);
        drop(s, &pass->dx);
        close_gradients(s, &gradients);
    }
    drop(s, &pass->dx);
    drop_old(s);
    if (run.first)
        end_pass(s, pass);
}

/* Passes before the first backward: 1F1B, or interleaved. */
static int warm_up(const struct rank *s)
{
    int p = s->l->pp - s->stage - 1, v = s->l->vpp, all = s->micro_batches * v;
    int before = v == 1 ? p : 2 * p + (v - 1) * s->l->pp;
    return before < all - 1 ? before : all - 1;
}

/* The n-th pass of the stage: micro-batches in groups of as many as there are stages, run by run.
 */
static void pass_of(const struct rank *s, int n, int *ret_micro_batch, int *ret_run)
{
    int v = s->l->vpp, m = s->micro_batches, group = v == 1 ? 1 : s->l->pp;
    int first = n / (group * v) * group, size = m - first < group ? m - first : group;
    int within = n - first * v;
    *ret_run = within / size;
    *ret_micro_batch = first + within % size;
}

static void play_micro_batches(struct rank *s)
{
    int v = s->l->vpp, all = s->micro_batches * v, ahead = warm_up(s), mb, run;
    for (int n = 0; n < all + ahead; n++) {
        if (n < all) {
            pass_of(s, n, &mb, &run);
            forward(s, mb, run);
        }
        if (n >= ahead) {
            pass_of(s, n - ahead, &mb, &run);
            backward(s, mb, v - 1 - run);
        }
    }
}

/* A transfer to or from each neighbour, of states and of gradients: what comes is copied from its
 * buffer, what goes is written into it. Interleaved stages are a ring. */
static void make_transfers(struct rank *s)
{
    int neighbours = (s->stage > 0) + (s->stage < s->l->pp - 1);
    if (s->l->vpp > 1)
        neighbours = 2;
    for (int i = 0; i < 2 * neighbours; i++)
        (void)make(s, ITEM_PIPELINE_BUFFERS, 2 * s->N * s->H);
}

static void rank_init(struct rank *s, const struct sim_job *job, struct sim_result *ledger)
{
    const struct layout *l = &job->choices->layout;
    const struct rows_input rows = { job->choices, job->seq_tokens, job->lengths };
    memset(s, 0, sizeof *s);
    memset(ledger, 0, sizeof *ledger);
    *s = (struct rank){ .job = job, .m = job->model, .l = l, .ledger = ledger };
    s->p = &job->choices->primitives;
    s->stage = layout_coordinate(l, AXIS_PP, job->rank);
    s->first = layout_first_layer(l, s->stage);
    s->layers = l->stage_layers[s->stage];
    s->has_embedding = s->stage == 0;
    s->has_head = s->stage == l->pp - 1;
    s->predictions = s->has_head ? predicted_tokens(s) : 0;
    s->tp = (uint64_t)l->tp;
    s->cp = (uint64_t)l->cp;
    s->micro_batches = rows_micro_batches(&rows);
    s->longest = sim_longest(job);
    s->pieces = sim_pieces(job);
    s->A = (uint64_t)l->micro_batch * sim_row(job);
    s->T = s->A / s->cp;
    s->N = s->T / s->tp;
    s->H = (uint64_t)job->model->hidden;
    s->rows = sim_rows(job);
    s->most_alive = (uint64_t)(s->layers / l->vpp) * (uint64_t)(warm_up(s) + 1);
    s->passes = calloc((size_t)s->micro_batches, sizeof s->passes[0]);
    units_init(s);
    count_adapted(s);
}

uint64_t sim_rows(const struct sim_job *job)
{
    const struct layout *l = &job->choices->layout;
    const struct moe *moe = &job->model->moe;
    uint64_t tokens = (uint64_t)l->micro_batch * sim_row(job) / (uint64_t)(l->cp * l->tp);
    struct routing_shape shape = { tokens, moe->top_k, moe->experts, l->ep };
    struct routing_load load;
    if (moe->experts == 0)
        return 0;
    if (l->ep == 1)
        return tokens * (uint64_t)moe->top_k * (uint64_t)l->etp;
    routing_load(&job->routing, &shape, layout_coordinate(l, AXIS_EP, job->rank), 0.99, &load);
    return load.point_rows * (uint64_t)l->etp;
}

static void play_step(struct rank *s)
{
    play_micro_batches(s);
    enter(s, SIM_REDUCE, 0, -1);
    reduce_state(s);
    enter(s, SIM_OPTIMIZER, 0, -1);
    make_moments(s);
    play_optimizer(s);
    end_phase(s);
}

static void play_nothing(struct rank *s)
{
    (void)s;
}

static void play(const struct sim_job *job, bool first_step, void (*what)(struct rank *s),
                 struct sim_result *ret)
{
    struct rank *s = calloc(1, sizeof *s);
    rank_init(s, job, ret);
    s->first_step = first_step;
    s->phase = (struct sim_phase){ SIM_START, s->stage, 0, -1 };
    ret->live[ITEM_WORKSPACE] = ret->max[ITEM_WORKSPACE] = job->hardware->workspace_bytes;
    ret->total = job->hardware->workspace_bytes;
    make_state(s);
    make_transfers(s);
    if (s->p->offload & OFFLOAD_CHECKPOINTS)
        ret->host_bytes += host_checkpoints(s) * make_size(2 * s->N * s->H);
    what(s);
    units_done(s);
    free(s->passes);
    free(s);
}

void simulate(const struct sim_job *job, struct sim_result *ret)
{
    play(job, false, play_step, ret);
}

void simulate_first(const struct sim_job *job, struct sim_result *ret)
{
    play(job, true, play_step, ret);
}

void simulate_log_probabilities(const struct sim_job *job, struct sim_result *ret)
{
    play(job, false, play_forward_alone, ret);
}

void simulate_rest(const struct sim_job *job, struct sim_result *ret)
{
    play(job, false, play_nothing, ret);
}

/* Rank 0 writes the units of all stages, the others send those of their own. */
uint64_t simulate_save(const struct sim_job *job)
{
    const struct layout *l = &job->choices->layout;
    int ranks = l->tp * l->cp * l->fsdp * l->d_rep;
    uint64_t most = 0;
    for (int stage = 0; stage < l->pp; stage++) {
        struct rank *s = calloc(1, sizeof *s);
        struct sim_result nothing;
        struct sim_job there = *job;
        there.rank = stage * ranks;
        rank_init(s, &there, &nothing);
        bool sees = job->rank == 0 || job->rank / ranks == stage;
        uint64_t bytes = sees ? save_most(s, job->rank == 0) : 0;
        most = bytes > most ? bytes : most;
        units_done(s);
        free(s->passes);
        free(s);
    }
    return most;
}
