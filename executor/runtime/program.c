#include "executor/runtime/program.h"
#include "base/text.h"
#include "base/units.h"
#include "executor/fabric/progress.h"
#include "executor/runtime/calibration.h"
#include "executor/runtime/dump.h"
#include "executor/runtime/fault.h"
#include "executor/runtime/options.h"
#include "executor/runtime/question.h"
#include "executor/runtime/rehearse.h"
#include "executor/runtime/replay.h"
#include "executor/runtime/trainer.h"
#include "executor/runtime/watch.h"
#include "executor/runtime/weights.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum status { STATUS_DONE = 0, STATUS_WRONG_QUESTION = 2, STATUS_FAILED = 3 };

struct run {
    const struct program *program;
    struct run_options options;
    struct plan plan;
    struct data data;
    struct machine machine;
    struct trainer trainer;
    struct record record;
    struct dump dump;
    struct safetensors *weights; /* NULL: drawn from the seed */
    struct replay replay;
    struct rehearse rehearse; /* one rank of the plan's world alone, where asked for */
    struct fault fault;
    struct watch *watch;
    struct trace *trace; /* NULL: nobody asks for one */
    struct diag_list errors;
};

/* Who holds the device's memory, behind the hint of an error that may come of it. */
static void add_memory(struct run *run)
{
    const struct arena *arena = run->trainer.work.arena;
    struct diag_list *errors = &run->errors;
    struct arena_record record = { 0 };
    char held[320], before[320];

    if (arena)
        arena_record(arena, &record);
    if (errors->count == 0 || !run->program->tell_memory ||
        !run->program->tell_memory(&run->machine, errors, record.extent_bytes, held, sizeof held))
        return;
    (void)text_copy(before, sizeof before, errors->items[errors->count - 1].hint);
    (void)diag_hint(errors, "%s%s%s", before, before[0] ? "; " : "", held);
}

/* A fault that other ranks cannot know of: its cause is printed and every rank ends. Of ranks that
 * fail at the same moment one speaks. */
static void fail_all(struct run *run)
{
    struct fabric *f = run->machine.fabric;
    if (progress_may_tell(f->progress)) {
        (void)fprintf(stderr, "rank %d of %d:\n", f->rank, f->world);
        add_memory(run);
        diag_list_print(stderr, &run->errors);
        (void)fflush(stderr);
    }
    f->ops->abort(f, STATUS_FAILED);
    _exit(STATUS_FAILED);
}

/* True on all ranks when any of them has an error; the lowest of those prints it. */
static bool any_errors(struct run *run)
{
    struct fabric *f = run->machine.fabric;
    struct diag_list ignored = { 0 };
    double *failed = calloc((size_t)f->world, sizeof *failed);
    int lowest = 0;

    if (!failed)
        diag_no_memory(&run->errors);
    if (!failed || run->errors.no_memory) {
        fail_all(run);
        return true;
    }
    failed[f->rank] = run->errors.errors > 0;
    progress_wait(f->progress, "sum_doubles");
    if (f->ops->sum_doubles(f->all, failed, f->world, &ignored) != 0)
        fail_all(run);
    progress_waited(f->progress);
    while (lowest < f->world && failed[lowest] == 0)
        lowest++;
    free(failed);
    if (lowest == f->rank)
        diag_list_print(stderr, &run->errors);
    return lowest < f->world;
}

static void open_inputs(struct run *run)
{
    const struct run_options *o = &run->options;
    const struct plan *plan = &run->plan;

    run->data = (struct data){ .seed = (uint64_t)o->seed, .vocab = plan->model.vocab };
    if (o->data)
        (void)data_open(&run->data, o->data, o->data_format, plan->seq_tokens, plan->model.vocab,
                        &run->errors);
    if (o->weights)
        (void)weights_open(o->weights, &plan->model, &run->weights, &run->errors);
    if (o->replay)
        (void)replay_open(o->replay, plan, &run->replay, &run->errors);
}

/* Everything that can be wrong with the question. */
static bool question_is_wrong(struct run *run)
{
    if (plan_load(run->options.plan, &run->plan, &run->errors) == 0) {
        int started = run->machine.fabric->world;
        (void)rehearse_open(&run->rehearse, &run->options, &run->plan, started, &run->errors);
        if (run->rehearse.world.world > 0)
            started = run->rehearse.world.world;
        (void)question_check(run->program->backend, &run->plan, run->options.plan, started,
                             &run->errors);
        open_inputs(run);
    }
    (void)question_check_output(run->options.measurement, &run->errors);
    if (run->options.dump)
        (void)question_check_output(run->options.dump, &run->errors);
    if (run->options.save)
        (void)question_check_output(run->options.save, &run->errors);
    if (run->options.trace)
        (void)question_check_output(run->options.trace, &run->errors);
    return any_errors(run);
}

/* Where every phase begins: it is noted, and a fault asked for strikes. */
static int enter(enum run_phase phase, int step, void *context, struct diag_list *reterr)
{
    struct run *run = context;
    progress_phase(run->machine.fabric->progress, phase, step);
    return fault_strike(&run->fault, run->machine.fabric->rank, phase, step, reterr);
}

/* The same for what is no part of a step. */
static void enter_or_fail(struct run *run, enum run_phase phase, int step)
{
    if (enter(phase, step, run, &run->errors) != 0)
        fail_all(run);
}

static void keep_gradients(struct trainer *trainer, void *context)
{
    struct run *run = context;
    (void)dump_gradients(trainer, &run->dump);
    trainer->on_gradients = NULL;
}

/* A device has it whole; processors are shared by the ranks of the machine, as the plan has it. */
static uint64_t memory_limit(const struct run *run)
{
    const struct rehearsal_world *world = run->machine.rehearsal;
    int ranks = world ? world->world : run->machine.fabric->progress->count;
    uint64_t limit = (uint64_t)run->options.memory_limit;
    return run->plan.hardware.host ? limit / (uint64_t)ranks : limit;
}

static void open_trace(struct run *run)
{
    const struct program *program = run->program;
    struct machine *machine = &run->machine;

    run->trace = trace_open(&run->errors);
    if (!run->trace ||
        (program->trace_begin && program->trace_begin(machine, run->trace, &run->errors) != 0))
        return;
    machine->record.traced = true;
    machine->observers.list[machine->observers.count++] = trace_observer(run->trace);
}

/* The machine, which may be wanting on some ranks only. */
static bool machine_is_wanting(struct run *run)
{
    enter_or_fail(run, RUN_PHASE_START, 0);
    run->machine.rehearsal = run->rehearse.world.world > 0 ? &run->rehearse.world : NULL;
    run->machine.memory_limit = memory_limit(run);
    if (record_open(&run->record, &run->plan, (int)run->options.steps, &run->errors) == 0)
        (void)run->program->open(&run->machine, &run->errors);
    if (run->options.trace && run->errors.errors == 0)
        open_trace(run);
    run->record.machine = run->machine.record;
    run->record.machine.backend = run->program->backend;
    if (any_errors(run))
        return true;
    watch_transfers(run->watch, run->machine.fabric);
    return false;
}

static void start(struct run *run)
{
    struct trainer *t = &run->trainer;
    const struct fault *fault = &run->fault;
    const struct trainer_options options = {
        .seed = (uint64_t)run->options.seed,
        .refused_take = fault->rank == run->machine.fabric->rank ? (long)fault->take : 0,
        .on_phase = enter,
        .live_limit = run->machine.live_limit,
        .context = run,
        .observers = run->machine.observers,
    };

    if (trainer_open_with(t, &run->plan, run->machine.fabric, run->machine.backend, &run->data,
                          &options, &run->errors) != 0)
        fail_all(run);
    if (run->weights && weights_load(t, run->weights) != 0)
        fail_all(run);
    t->work.given = run->options.replay ? &run->replay.book : NULL;
    if (run->machine.rehearsal &&
        rehearse_cast(&run->rehearse, &run->options, &run->plan, t->work.given, &run->errors) != 0)
        fail_all(run);
    t->work.peers = run->rehearse.peers;
    if (!run->options.dump)
        return;
    t->on_gradients = keep_gradients;
    t->on_gradients_context = run;
    if (trainer_keep_hidden(t) != 0)
        fail_all(run);
}

static void write_dump(struct run *run)
{
    if (dump_hidden(&run->trainer, &run->dump) != 0 ||
        (run->machine.fabric->rank == 0 &&
         dump_write(&run->dump, run->options.dump, &run->errors) != 0))
        fail_all(run);
    free(run->trainer.hidden);
    run->trainer.hidden = NULL;
    dump_done(&run->dump);
}

static void print_progress(const struct run *run, int step, const struct step_result *result)
{
    const struct plan *plan = &run->plan;
    char speed[32], peak[32];
    double tokens = (double)plan->global_batch * (double)plan->seq_tokens;

    if (run->machine.fabric->rank != 0 && !run->machine.fabric->alone)
        return;
    (void)fprintf(stderr, "step %d/%d  loss %.4f  grad norm %.3f  %s tokens/s  live peak %s\n",
                  step, (int)run->options.steps, result->loss, result->gradient_norm,
                  units_format_count(speed, sizeof speed, (uint64_t)(tokens / result->seconds)),
                  units_format_gb(peak, sizeof peak, run->record.memory.live_peak_bytes, 3));
}

/* The measurement is written after every step: what was measured outlives a later fault. */
static void train(struct run *run)
{
    for (int step = 1; step <= (int)run->options.steps; step++) {
        struct step_result result;
        if (trainer_step(&run->trainer, step, &result) != 0)
            fail_all(run);
        record_step(&run->record, &run->trainer, &result);
        print_progress(run, step, &result);
        enter_or_fail(run, RUN_PHASE_SAVE, step);
        if (step == 1 && run->options.dump)
            write_dump(run);
        if (record_write(&run->record, &run->trainer, run->options.measurement, &run->errors) != 0)
            fail_all(run);
    }
}

static void write_trace(struct run *run)
{
    const struct program *program = run->program;

    if (!run->trace)
        return;
    if (program->trace_end && program->trace_end(&run->machine, run->trace, &run->errors) != 0)
        fail_all(run);
    trace_settle(run->trace);
    if (trace_write(run->trace, run->machine.fabric, run->options.trace, run->machine.record.device,
                    run->plan.digest, &run->errors) != 0)
        fail_all(run);
}

static void save(struct run *run)
{
    if (!run->options.save)
        return;
    enter_or_fail(run, RUN_PHASE_SAVE, (int)run->options.steps + 1);
    if (weights_save(&run->trainer, run->options.save) != 0)
        fail_all(run);
}

static void finish(struct run *run)
{
    watch_close(run->watch);
    trace_close(run->trace);
    trainer_close(&run->trainer);
    record_close(&run->record);
    dump_done(&run->dump);
    replay_close(&run->replay);
    rehearse_close(&run->rehearse);
    safetensors_close(run->weights);
    data_close(&run->data);
    if (run->program->close)
        run->program->close(&run->machine);
    if (run->machine.backend)
        run->machine.backend->ops->close(run->machine.backend);
}

static void print_usage(const struct run *run)
{
    if (run->machine.fabric->rank == 0)
        (void)printf("usage: %s %s\nRuns the plan's training step on %s, one process a rank\n"
                     "(mpirun -n WORLD %s ...; `rankfit run PLAN` does so).\n%s",
                     run->program->name, run_options_synopsis, run->program->where,
                     run->program->name, run_options_usage);
}

static void tell_measured(const char *what)
{
    (void)fprintf(stderr, "measuring %s\n", what);
}

/* Of no plan: the machine is all there is to ask for. */
static enum status measure_machine(struct run *run)
{
    const struct run_options *o = &run->options;
    (void)question_check_output(o->calibrate, &run->errors);
    if (any_errors(run))
        return STATUS_WRONG_QUESTION;
    (void)run->program->open(&run->machine, &run->errors);
    if (any_errors(run))
        return STATUS_FAILED;
    watch_transfers(run->watch, run->machine.fabric);
    if (calibration_run(&run->machine, run->program->backend, o->calibrate, o->quick, tell_measured,
                        &run->errors) != 0)
        fail_all(run);
    return STATUS_DONE;
}

static enum status run_plan(struct run *run, int argc, char *const *argv)
{
    (void)run_options_parse(argc, argv, &run->options, &run->errors);
    (void)fault_parse(getenv("RANKFIT_FAULT"), &run->fault, &run->errors);
    if (any_errors(run))
        return STATUS_WRONG_QUESTION;
    if (run->options.help) {
        print_usage(run);
        return STATUS_DONE;
    }
    run->watch =
        watch_open(run->machine.fabric, run->options.stall_seconds, STATUS_FAILED, &run->errors);
    if (!run->watch)
        fail_all(run);
    if (run->options.calibrate)
        return measure_machine(run);
    if (question_is_wrong(run))
        return STATUS_WRONG_QUESTION;
    if (machine_is_wanting(run))
        return STATUS_FAILED;
    start(run);
    train(run);
    write_trace(run);
    save(run);
    return STATUS_DONE;
}

int program_main(const struct program *program, int argc, char **argv)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return STATUS_FAILED;
    run->program = program;
    watch_hold_signals();
    (void)signal(SIGCHLD, SIG_DFL); /* MPI waits for processes of its own */
    (void)signal(SIGXFSZ, SIG_IGN); /* a file beyond its limit is then an error of the write */
    run->machine.fabric = fabric_mpi_open(&argc, &argv, &run->errors);
    if (!run->machine.fabric) {
        diag_list_print(stderr, &run->errors);
        free(run);
        return STATUS_FAILED;
    }
    enum status status = run_plan(run, argc, argv);
    finish(run);
    run->machine.fabric->ops->close(run->machine.fabric);
    free(run);
    return (int)status;
}
