#include "executor/runtime/cuda_device.h"
#include "base/text.h"
#include "base/units.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct pos nowhere = { NULL, 0, 0 };

/* The driver's management library, which toolkits come without: its few declarations that are
 * needed here. All return 0 for success. */
struct management_memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct management {
    void *shared; /* the loaded library */
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *ret, unsigned size);
    int (*by_bus)(const char *bus, void **ret);
    int (*memory)(void *device, struct management_memory *ret);
};

/* C has no cast from what dlsym returns to a function; POSIX says that the bits are the same. */
static void find(void *library, const char *name, void *ret_function)
{
    void *found = dlsym(library, name);
    memcpy(ret_function, &found, sizeof found);
}

static int management_open(struct management *m)
{
    memset(m, 0, sizeof *m);
    m->shared = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!m->shared)
        return -1;
    find(m->shared, "nvmlInit_v2", &m->init);
    find(m->shared, "nvmlShutdown", &m->shutdown);
    find(m->shared, "nvmlSystemGetDriverVersion", &m->driver_version);
    find(m->shared, "nvmlDeviceGetHandleByPciBusId_v2", &m->by_bus);
    find(m->shared, "nvmlDeviceGetMemoryInfo_v2", &m->memory);
    if (m->init && m->shutdown && m->driver_version && m->by_bus && m->memory && m->init() == 0)
        return 0;
    (void)dlclose(m->shared);
    return -1;
}

/* Bytes in use before this process takes any. A process that has just ended gives its memory back
 * over some time: asked until two answers a quarter of a second apart agree, ten seconds at most.
 */
static uint64_t settled_use(const struct management *m, void *handle)
{
    const struct timespec pause = { .tv_nsec = 250000000 };
    struct management_memory memory = { .version = sizeof memory | 2U << 24 };
    uint64_t before = UINT64_MAX;

    for (int i = 0; i < 40; i++) {
        if (m->memory(handle, &memory) != 0)
            return 0;
        if (memory.used == before)
            break;
        before = memory.used;
        (void)nanosleep(&pause, NULL);
    }
    return memory.used;
}

/* Without the library the driver stays unnamed and the device is taken for empty. */
static void ask_management(struct cuda_device *device)
{
    struct management m;
    char bus[32] = "";
    void *handle = NULL;

    if (management_open(&m) != 0)
        return;
    if (m.driver_version(device->driver, sizeof device->driver) != 0)
        device->driver[0] = '\0';
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, device->index) == cudaSuccess &&
        m.by_bus(bus, &handle) == 0)
        device->others_bytes = settled_use(&m, handle);
    (void)m.shutdown();
    (void)dlclose(m.shared);
}

static int count_devices(int *ret, struct diag_list *reterr)
{
    int driver = 0, wanted = 0;
    cudaError_t status = cudaGetDeviceCount(ret);

    if (status == cudaSuccess)
        return 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&wanted);
    if (status == cudaErrorInsufficientDriver && driver > 0) {
        diag_error(reterr, nowhere, "the NVIDIA driver is too old: it is for CUDA %d.%d",
                   driver / 1000, driver % 1000 / 10);
        return diag_hint(reterr, "this program needs a driver for CUDA %d.%d or newer",
                         wanted / 1000, wanted % 1000 / 10);
    }
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
        diag_error(reterr, nowhere, "there is no GPU here that CUDA can use");
        return diag_hint(reterr, "%s",
                         driver == 0 ? "no NVIDIA driver is loaded"
                                     : "see nvidia-smi and CUDA_VISIBLE_DEVICES");
    }
    return diag_error(reterr, nowhere, "looking for GPUs: %s", cudaGetErrorString(status));
}

static uint64_t used_bytes(void)
{
    size_t left = 0, all = 0;
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? all - left : 0;
}

int cuda_device_open(struct cuda_device *device, int local, int ranks, struct diag_list *reterr)
{
    int count = 0;

    memset(device, 0, sizeof *device);
    device->index = local;
    if (count_devices(&count, reterr) != 0)
        return -1;
    if (ranks > count) {
        diag_error(reterr, nowhere, "%d ranks on this machine, %d %s", ranks, count,
                   count == 1 ? "GPU" : "GPUs");
        return diag_hint(reterr,
                         "a rank needs a GPU of its own: a plan with --gpus %d, or more "
                         "machines",
                         count);
    }
    ask_management(device);
    cudaError_t status = cudaSetDevice(device->index);
    if (status == cudaSuccess)
        status = cudaFree(NULL);
    if (status == cudaErrorMemoryAllocation)
        return diag_error(reterr, nowhere, "memory for the context: GPU %d has too little",
                          device->index);
    if (status != cudaSuccess)
        return diag_error(reterr, nowhere, "GPU %d cannot be used: %s", device->index,
                          cudaGetErrorString(status));
    device->context_bytes = cuda_device_held_bytes(device);
    return 0;
}

uint64_t cuda_device_held_bytes(const struct cuda_device *device)
{
    uint64_t used = used_bytes();
    uint64_t others = device->others_bytes + device->ballast_bytes;
    return used > others ? used - others : 0;
}

uint64_t cuda_device_free_bytes(void)
{
    size_t left = 0, all = 0;
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? left : 0;
}

/* Memory comes in grains of this size; less than one stays beyond a limit. */
static const uint64_t grain_bytes = UINT64_C(2) << 20;

/* The next piece of what is too much: most of it, so that what the device takes for the piece
 * itself does not eat into the limit; at the end a grain at a time. */
static uint64_t piece_bytes(uint64_t excess)
{
    uint64_t most = excess / 16 * 15 / grain_bytes * grain_bytes;
    return most > grain_bytes ? most : grain_bytes;
}

/* Takes until no more than `left` bytes are free, or nothing more can be had. */
static void take_ballast(struct cuda_device *device, uint64_t left)
{
    uint64_t before = cuda_device_free_bytes(), now = before, most = UINT64_MAX;

    for (int i = 0; i < BALLAST_PIECES && now >= left + grain_bytes;) {
        uint64_t piece = piece_bytes(now - left);
        piece = piece < most ? piece : most;
        if (cudaMalloc(&device->ballast[i], piece) == cudaSuccess) {
            i++;
        } else {
            device->ballast[i] = NULL;
            (void)cudaGetLastError();
            most = piece / 2 / grain_bytes * grain_bytes;
            if (most == 0)
                break;
        }
        now = cuda_device_free_bytes();
    }
    device->ballast_bytes = before > now ? before - now : 0;
}

int cuda_device_limit(struct cuda_device *device, uint64_t limit, struct diag_list *reterr)
{
    size_t left = 0, all = 0;
    char wanted[32], there[32];

    if (cudaMemGetInfo(&left, &all) != cudaSuccess)
        return diag_error(reterr, nowhere, "GPU %d does not say what memory it has", device->index);
    (void)units_format_count(wanted, sizeof wanted, limit);
    if (limit > all)
        return diag_error(reterr, nowhere, "GPU %d has %s bytes, the memory limit is %s",
                          device->index, units_format_count(there, sizeof there, all), wanted);
    if (limit < device->context_bytes)
        return diag_error(reterr, nowhere, "memory for the context: %s bytes wanted, %s there",
                          units_format_count(there, sizeof there, device->context_bytes), wanted);
    take_ballast(device, limit - device->context_bytes);
    return 0;
}

void cuda_device_close(struct cuda_device *device)
{
    for (int i = 0; i < BALLAST_PIECES; i++)
        if (device->ballast[i])
            (void)cudaFree(device->ballast[i]);
    memset(device->ballast, 0, sizeof device->ballast);
    device->ballast_bytes = 0;
}

uint64_t cuda_device_total_bytes(void)
{
    size_t left = 0, all = 0;
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? all : 0;
}

void *cuda_device_pin(uint64_t bytes)
{
    void *block = NULL;
    if (cudaMallocHost(&block, bytes) == cudaSuccess)
        return block;
    (void)cudaGetLastError(); /* lack of memory is the caller's to judge, not the next call's */
    return NULL;
}

void cuda_device_unpin(void *block)
{
    if (block)
        (void)cudaFreeHost(block);
}

void cuda_device_name(const struct cuda_device *device, char *ret, size_t size)
{
    struct cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device->index) != cudaSuccess)
        (void)text_copy(ret, size, "GPU");
    else
        (void)text_copy(ret, size, properties.name);
}

void cuda_device_versions(const struct cuda_device *device, char *ret, size_t size)
{
    int runtime = 0, nccl = 0;
    int blas = (int)cublasLtGetVersion(), dnn = (int)cudnnGetVersion();

    (void)cudaRuntimeGetVersion(&runtime);
    (void)ncclGetVersion(&nccl);
    (void)snprintf(ret, size,
                   "driver %s, CUDA %d.%d, cuBLASLt %d.%d.%d, cuDNN %d.%d.%d, NCCL %d.%d.%d",
                   device->driver[0] ? device->driver : "unknown", runtime / 1000,
                   runtime % 1000 / 10, blas / 10000, blas / 100 % 100, blas % 100, dnn / 10000,
                   dnn / 100 % 100, dnn % 100, nccl / 10000, nccl / 100 % 100, nccl % 100);
}
