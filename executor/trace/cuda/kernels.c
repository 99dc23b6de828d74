#include "executor/trace/cuda/kernels.h"

#include "base/text.h"

#include <ctype.h>
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if CUPTI_API_VERSION >= 130000
#define KERNEL_RECORD CUpti_ActivityKernel10
#define COPY_RECORD CUpti_ActivityMemcpy6
#else
#define KERNEL_RECORD CUpti_ActivityKernel9
#define COPY_RECORD CUpti_ActivityMemcpy5
#endif

enum { BUFFER_BYTES = 4 << 20, BUFFER_ALIGNMENT = 64, NAME_TEXT = 96, NAMES_MAX = 2048 };

static const struct pos nowhere = { NULL, 0, 0 };

/* The functions of the library that are called. */
struct library {
    void *shared;
    CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc,
                                      CUpti_BuffersCallbackCompleteFunc);
    CUptiResult (*enable)(CUpti_ActivityKind);
    CUptiResult (*disable)(CUpti_ActivityKind);
    CUptiResult (*flush)(uint32_t);
    CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);
    CUptiResult (*push)(CUpti_ExternalCorrelationKind, uint64_t);
    CUptiResult (*pop)(CUpti_ExternalCorrelationKind, uint64_t *);
    CUptiResult (*timestamp)(uint64_t *);
    CUptiResult (*stream_id)(CUcontext, CUstream, uint8_t, uint32_t *);
    CUptiResult (*result_text)(CUptiResult, const char **);
};

/* A kernel as the library tells it: in what order its records come is not said. */
struct launched {
    const char *name;
    uint32_t stream, correlation;
    uint64_t begin, end;
};

/* Which operation asked for the call of this number. */
struct asked {
    uint32_t correlation, operation;
};

/* Names as the library has them, and ours. */
struct known_name {
    const char *theirs;
    char ours[NAME_TEXT];
};

struct kernels {
    struct library library;
    struct trace *trace;
    int64_t offset; /* from the library's clock to trace_now */
    pthread_mutex_t lock;
    struct launched *launched;
    size_t launched_count, launched_room;
    struct asked *asked;
    size_t asked_count, asked_room;
    struct known_name *names[NAMES_MAX];
    size_t name_count;
    uint64_t lost;
};

/* The library's callbacks know no context. Set while a trace is taken. */
static struct kernels *_Atomic current;

static const CUpti_ActivityKind kinds[] = {
    /* calls first, which what they ask for refers to */
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static bool find(void *library, const char *name, void *ret_function)
{
    void *found = dlsym(library, name);
    memcpy(ret_function, &found, sizeof found);
    return found != NULL;
}

/* By name, then beside the runtime's library and where whole toolkits keep it. */
static void *open_library(void)
{
    char name[32], path[1024];
    Dl_info runtime = { 0 };
    void *anchor = NULL, *ret = NULL;
    cudaError_t (*of_runtime)(int *) = cudaRuntimeGetVersion;

    (void)snprintf(name, sizeof name, "libcupti.so.%d", CUDART_VERSION / 1000);
    ret = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    memcpy(&anchor, &of_runtime, sizeof anchor);
    if (ret || dladdr(anchor, &runtime) == 0 || !runtime.dli_fname)
        return ret;
    static const char *const places[] = { "", "../extras/CUPTI/lib64/" };
    const char *slash = strrchr(runtime.dli_fname, '/');
    for (size_t i = 0; slash && !ret && i < sizeof places / sizeof *places; i++) {
        int length = snprintf(path, sizeof path, "%.*s/%s%s", (int)(slash - runtime.dli_fname),
                              runtime.dli_fname, places[i], name);
        if (length > 0 && (size_t)length < sizeof path)
            ret = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return ret;
}

static int load(struct library *l, struct diag_list *reterr)
{
    l->shared = open_library();
    if (!l->shared) {
        diag_error(reterr, nowhere, "--trace needs CUDA's profiling library, which is not there");
        return diag_hint(reterr, "libcupti.so.%d of the CUDA toolkit, on LD_LIBRARY_PATH",
                         CUDART_VERSION / 1000);
    }
    if (find(l->shared, "cuptiActivityRegisterCallbacks", &l->register_callbacks) &&
        find(l->shared, "cuptiActivityEnable", &l->enable) &&
        find(l->shared, "cuptiActivityDisable", &l->disable) &&
        find(l->shared, "cuptiActivityFlushAll", &l->flush) &&
        find(l->shared, "cuptiActivityGetNextRecord", &l->next_record) &&
        find(l->shared, "cuptiActivityPushExternalCorrelationId", &l->push) &&
        find(l->shared, "cuptiActivityPopExternalCorrelationId", &l->pop) &&
        find(l->shared, "cuptiGetTimestamp", &l->timestamp) &&
        find(l->shared, "cuptiGetStreamIdEx", &l->stream_id) &&
        find(l->shared, "cuptiGetResultString", &l->result_text))
        return 0;
    return diag_error(reterr, nowhere, "CUDA's profiling library lacks functions: too old");
}

static int check(const struct kernels *k, CUptiResult result, const char *what,
                 struct diag_list *reterr)
{
    const char *text = NULL;
    if (result == CUPTI_SUCCESS)
        return 0;
    if (k->library.result_text(result, &text) != CUPTI_SUCCESS || !text)
        text = "unknown";
    return diag_error(reterr, nowhere, "--trace: %s: %s", what, text);
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(BUFFER_ALIGNMENT, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *most = 0; /* as many as there is room for */
}

/* With the lock held: one more entry, or NULL. */
static void *one_more(void *list, size_t *count, size_t *room, size_t size)
{
    void *grown;
    memcpy(&grown, list, sizeof grown);
    if (*count == *room) {
        grown = realloc(grown, (*room ? 2 * *room : 4096) * size);
        if (!grown)
            return NULL;
        memcpy(list, &grown, sizeof grown);
        *room = *room ? 2 * *room : 4096;
    }
    return (char *)grown + (*count)++ * size;
}

/* "_ZN6nested4nameIi..." -> "nested::name", "_Z5plainIi..." -> "plain"; others as they are. */
static void shorten(const char *mangled, char *ret, size_t size)
{
    const char *at = mangled;
    size_t used = 0;

    ret[0] = '\0';
    if (strncmp(mangled, "_Z", 2) == 0) {
        bool nested = mangled[2] == 'N';
        at += 2;
        while (*at && !isdigit((unsigned char)*at) && strchr("NKLS", *at))
            at++;
        while (isdigit((unsigned char)*at) && (nested || used == 0)) {
            char *word;
            unsigned long length = strtoul(at, &word, 10);
            if (length == 0 || length > strlen(word))
                break;
            if (strncmp(word, "_GLOBAL__N_", 11) != 0)
                text_append(ret, size, &used, "%s%.*s", used ? "::" : "", (int)length, word);
            at = word + length;
        }
    }
    if (used == 0)
        text_append(ret, size, &used, "%s", mangled);
}

/* With the lock held. */
static const char *own_name(struct kernels *k, const char *theirs)
{
    for (size_t i = k->name_count; i > 0; i--)
        if (k->names[i - 1]->theirs == theirs)
            return k->names[i - 1]->ours;
    struct known_name *name = k->name_count < NAMES_MAX ? calloc(1, sizeof *name) : NULL;
    if (!name)
        return "kernel";
    name->theirs = theirs;
    shorten(theirs ? theirs : "kernel", name->ours, sizeof name->ours);
    k->names[k->name_count++] = name;
    return name->ours;
}

static void add_launched(struct kernels *k, const char *name, uint32_t stream, uint32_t correlation,
                         uint64_t begin, uint64_t end)
{
    struct launched *entry =
        one_more(&k->launched, &k->launched_count, &k->launched_room, sizeof *entry);
    if (entry)
        *entry = (struct launched){ name, stream, correlation, begin, end };
    else
        k->lost++;
}

static const char *copy_name(uint8_t kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
        return "copy to the device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
        return "copy to the host";
    default:
        return "copy";
    }
}

static void add_asked(struct kernels *k, const CUpti_ActivityExternalCorrelation *r)
{
    struct asked *entry = one_more(&k->asked, &k->asked_count, &k->asked_room, sizeof *entry);
    if (entry)
        *entry = (struct asked){ r->correlationId, (uint32_t)r->externalId };
    else
        k->lost++;
}

static void read_record(struct kernels *k, const void *record, CUpti_ActivityKind kind)
{
    const KERNEL_RECORD *kernel = record;
    const COPY_RECORD *copy = record;
    const CUpti_ActivityMemset4 *fill = record;

    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || kind == CUPTI_ACTIVITY_KIND_KERNEL)
        add_launched(k, own_name(k, kernel->name), kernel->streamId, kernel->correlationId,
                     kernel->start, kernel->end);
    else if (kind == CUPTI_ACTIVITY_KIND_MEMCPY)
        add_launched(k, copy_name(copy->copyKind), copy->streamId, copy->correlationId, copy->start,
                     copy->end);
    else if (kind == CUPTI_ACTIVITY_KIND_MEMSET)
        add_launched(k, "fill", fill->streamId, fill->correlationId, fill->start, fill->end);
    else if (kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)
        add_asked(k, record);
}

/* Called by a thread of the library, or by whoever flushes. */
static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    struct kernels *k = atomic_load(&current);
    CUpti_Activity *record = NULL;

    (void)context, (void)stream, (void)size;
    if (k) {
        (void)pthread_mutex_lock(&k->lock);
        while (valid > 0 && k->library.next_record(buffer, valid, &record) == CUPTI_SUCCESS)
            read_record(k, record, record->kind);
        (void)pthread_mutex_unlock(&k->lock);
    }
    free(buffer);
}

static void on_operation(void *context, uint32_t operation)
{
    struct kernels *k = context;
    uint64_t ignored = 0;
    if (operation > 0)
        (void)k->library.push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, operation);
    else
        (void)k->library.pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &ignored);
}

static int begin(struct kernels *k, struct diag_list *reterr)
{
    uint64_t theirs = 0;

    if (check(k, k->library.register_callbacks(give_buffer, take_buffer), "begin", reterr) != 0)
        return -1;
    for (int i = 0; i < KINDS; i++)
        if (check(k, k->library.enable(kinds[i]), "begin", reterr) != 0)
            return -1;
    int64_t before = trace_now();
    if (check(k, k->library.timestamp(&theirs), "clock", reterr) != 0)
        return -1;
    k->offset = before + (trace_now() - before) / 2 - (int64_t)theirs;
    return 0;
}

struct kernels *kernels_open(struct trace *trace, struct diag_list *reterr)
{
    struct kernels *k = calloc(1, sizeof *k);

    if (!k || pthread_mutex_init(&k->lock, NULL) != 0) {
        (void)diag_error(reterr, nowhere, "no memory left for a trace");
        free(k);
        return NULL;
    }
    k->trace = trace;
    atomic_store(&current, k);
    if (load(&k->library, reterr) != 0 || begin(k, reterr) != 0) {
        kernels_close(k);
        return NULL;
    }
    trace->device = true;
    trace->on_operation = on_operation;
    trace->context = k;
    return k;
}

void kernels_name_stream(struct kernels *k, cudaStream_t stream, const char *name)
{
    uint32_t id = 0;
    if (k->library.stream_id(NULL, stream, 0, &id) == CUPTI_SUCCESS)
        trace_name_stream(k->trace, id, name);
}

static int compare_asked(const void *a, const void *b)
{
    const struct asked *left = a, *right = b;
    return (left->correlation > right->correlation) - (left->correlation < right->correlation);
}

static uint32_t operation_of(const struct kernels *k, uint32_t correlation)
{
    const struct asked wanted = { .correlation = correlation };
    const struct asked *found = k->asked_count == 0 ? NULL
                                                    : bsearch(&wanted, k->asked, k->asked_count,
                                                              sizeof wanted, compare_asked);
    return found ? found->operation : 0;
}

int kernels_finish(struct kernels *k, struct diag_list *reterr)
{
    int ret = check(k, k->library.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "end", reterr);

    k->trace->on_operation = NULL;
    for (int i = 0; i < KINDS; i++)
        (void)k->library.disable(kinds[i]);
    (void)pthread_mutex_lock(&k->lock);
    if (k->asked_count > 0)
        qsort(k->asked, k->asked_count, sizeof *k->asked, compare_asked);
    for (size_t i = 0; i < k->launched_count; i++) {
        const struct launched *l = &k->launched[i];
        const struct trace_kernel kernel = { .name = l->name,
                                             .stream = l->stream,
                                             .operation = operation_of(k, l->correlation),
                                             .begin = (int64_t)l->begin + k->offset,
                                             .end = (int64_t)l->end + k->offset };
        if (k->trace->range_count > 0 && kernel.begin >= k->trace->ranges[0].begin)
            trace_add_kernel(k->trace, &kernel);
    }
    k->trace->dropped += k->lost;
    (void)pthread_mutex_unlock(&k->lock);
    return ret;
}

void kernels_close(struct kernels *k)
{
    if (!k)
        return;
    atomic_store(&current, NULL);
    for (size_t i = 0; i < k->name_count; i++)
        free(k->names[i]);
    free(k->launched);
    free(k->asked);
    (void)pthread_mutex_destroy(&k->lock);
    free(k); /* the library stays loaded: its threads may be in it */
}
