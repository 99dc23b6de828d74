/* cuda_main.c - the program rankfit-cuda: the CUDA backend, one GPU a rank, ranks started by MPI
 * and joined by NCCL. */
#include "executor/backend/cuda/streams.h"
#include "executor/fabric/nccl/fabric_nccl.h"
#include "executor/fabric/progress.h"
#include "executor/runtime/cuda_device.h"
#include "executor/runtime/program.h"
#include "executor/trace/cuda/kernels.h"
#include "executor/trace/cuda/marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the device says of itself, beside what the arena says. */
struct gpu {
    struct cuda_device device;
    const struct fabric *fabric;
    bool rehearses;
    struct kernels *kernels; /* while a trace is taken */
};

static uint64_t communicator_bytes(const struct gpu *gpu)
{
    if (!gpu->fabric)
        return 0;
    return gpu->rehearses ? fabric_rehearsal_communicator_bytes(gpu->fabric)
                          : fabric_nccl_device_bytes(gpu->fabric);
}

static uint64_t rest_of(uint64_t whole, uint64_t part)
{
    return whole > part ? whole - part : 0;
}

/* The device's figure only grows, so that its largest is what it is now. What neither context nor
 * arena nor communicators hold is the libraries': modules, handles, their own buffers. */
static void add_device(const void *context, struct measured_rank *rank)
{
    const struct gpu *gpu = context;
    uint64_t held = cuda_device_held_bytes(&gpu->device);
    uint64_t communicators = communicator_bytes(gpu);
    uint64_t rest = rest_of(rest_of(held, gpu->device.context_bytes), communicators);

    rank->device_bytes = held;
    rank->modelled_bytes = gpu->rehearses ? communicators : 0;
    rank->item_bytes[ITEM_CONTEXT] = gpu->device.context_bytes;
    rank->item_bytes[ITEM_COMMUNICATORS] = communicators;
    rank->item_bytes[ITEM_MODULES] = rest_of(rest, rank->arena_extent_bytes);
    rank->item_bytes[ITEM_SLACK] = rest_of(rank->arena_extent_bytes, rank->arena_live_bytes);
    for (int i = 0; i < ITEM_COUNT; i++)
        if (!item_in_arena((enum item)i))
            rank->item_max_bytes[i] = rank->item_bytes[i];
}

static int open_gpu(struct machine *machine, struct gpu *gpu, struct diag_list *reterr)
{
    const struct progress *here = machine->fabric->progress; /* of this machine's ranks */

    if (cuda_device_open(&gpu->device, here->own, here->count, reterr) != 0)
        return -1;
    if (machine->memory_limit > 0 &&
        cuda_device_limit(&gpu->device, machine->memory_limit, reterr) != 0)
        return -1;
    machine->backend = backend_cuda_open(gpu->device.index, reterr);
    if (!machine->backend)
        return -1;
    gpu->rehearses = machine->rehearsal != NULL;
    struct fabric *fabric = gpu->rehearses
                                ? fabric_rehearsal_open_cuda(machine->fabric, machine->backend,
                                                             machine->rehearsal, reterr)
                                : fabric_nccl_open(machine->fabric, machine->backend, reterr);
    if (!fabric)
        return -1;
    gpu->fabric = machine->fabric = fabric;
    return 0;
}

static uint64_t held_bytes(const void *context)
{
    return cuda_device_held_bytes(&((const struct gpu *)context)->device);
}

static int open_cuda(struct machine *machine, struct diag_list *reterr)
{
    struct record_machine *record = &machine->record;
    struct gpu *gpu = calloc(1, sizeof *gpu);

    record->context = gpu;
    if (!gpu)
        return diag_error(reterr, (struct pos){ 0 }, "no memory left");
    if (open_gpu(machine, gpu, reterr) != 0)
        return -1;
    record->add_device = add_device;
    machine->observers.list[machine->observers.count++] = marks_observer();
    machine->device = (struct calibrate_device){ .context = gpu,
                                                 .context_bytes = gpu->device.context_bytes,
                                                 .memory_bytes = cuda_device_total_bytes(),
                                                 .held_bytes = held_bytes,
                                                 .pin = cuda_device_pin,
                                                 .unpin = cuda_device_unpin };
    cuda_device_name(&gpu->device, record->device, sizeof record->device);
    cuda_device_versions(&gpu->device, record->versions, sizeof record->versions);
    return 0;
}

/* The libraries have words of their own for a device that is full, and some just fail. */
static bool may_be_memory(const struct diag_list *errors)
{
    enum { LITTLE_BYTES = 64 << 20 };
    static const char *const words[] = { "memory", "allocation", "ALLOC" };

    for (int i = 0; i < errors->count; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (strstr(errors->items[i].what, words[k]) || strstr(errors->items[i].hint, words[k]))
                return true;
    return cuda_device_free_bytes() < LITTLE_BYTES;
}

static bool tell_memory(const struct machine *machine, const struct diag_list *errors,
                        uint64_t arena_bytes, char *ret, size_t size)
{
    const struct gpu *gpu = machine->record.context;

    if (!gpu || gpu->device.context_bytes == 0 || !may_be_memory(errors))
        return false;
    uint64_t communicators = communicator_bytes(gpu);
    uint64_t known = gpu->device.context_bytes + communicators + arena_bytes;
    (void)snprintf(ret, size,
                   "on the device: context %" PRIu64 ", communicators %" PRIu64 ", arena %" PRIu64
                   ", libraries %" PRIu64 ", free %" PRIu64,
                   gpu->device.context_bytes, communicators, arena_bytes,
                   rest_of(cuda_device_held_bytes(&gpu->device), known), cuda_device_free_bytes());
    return true;
}

static struct gpu *gpu_of(struct machine *machine)
{
    union {
        const void *kept;
        struct gpu *made;
    } gpu = { .kept = machine->record.context };
    return gpu.made;
}

static int trace_begin(struct machine *machine, struct trace *trace, struct diag_list *reterr)
{
    struct gpu *gpu = gpu_of(machine);

    gpu->kernels = kernels_open(trace, reterr);
    if (!gpu->kernels)
        return -1;
    kernels_name_stream(gpu->kernels, backend_cuda_stream(machine->backend, STREAM_COMPUTE),
                        "compute stream");
    kernels_name_stream(gpu->kernels, backend_cuda_stream(machine->backend, STREAM_COMMUNICATION),
                        "communication stream");
    for (int i = 1; backend_cuda_lane(machine->backend, i); i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "lane %d of experts", i);
        kernels_name_stream(gpu->kernels, backend_cuda_lane(machine->backend, i), name);
    }
    return 0;
}

/* The last step has waited for everything. */
static int trace_end(struct machine *machine, struct trace *trace, struct diag_list *reterr)
{
    (void)trace;
    return kernels_finish(gpu_of(machine)->kernels, reterr);
}

static void close_cuda(struct machine *machine)
{
    struct gpu *gpu = gpu_of(machine);
    if (gpu) {
        kernels_close(gpu->kernels);
        cuda_device_close(&gpu->device);
    }
    free(gpu);
    machine->record.context = NULL;
}

int main(int argc, char **argv)
{
    static const struct program cuda = { .name = "rankfit-cuda",
                                         .where = "GPUs",
                                         .backend = "cuda",
                                         .open = open_cuda,
                                         .trace_begin = trace_begin,
                                         .trace_end = trace_end,
                                         .tell_memory = tell_memory,
                                         .close = close_cuda };
    return program_main(&cuda, argc, argv);
}
