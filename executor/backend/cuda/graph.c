#include "executor/backend/cuda/graph.h"

#include "executor/backend/cuda/cuda.h"

#include <string.h>

enum { ENGINES = 16, ALIGNMENT = 16 };

/* Ids of inner tensors, far from those of real ones. */
enum { FIRST_INNER = 1000 };

void graph_open(struct graph *g, cudnnHandle_t handle, struct diag_list *errors)
{
    memset(g, 0, sizeof *g);
    g->handle = handle;
    g->errors = errors;
    g->next_virtual = FIRST_INNER;
}

void graph_close(struct graph *g)
{
    while (g->owned_count > 0)
        (void)cudnnBackendDestroyDescriptor(g->owned[--g->owned_count]);
    g->plan = NULL;
}

static void check(struct graph *g, cudnnStatus_t status, const char *call)
{
    if (!g->failed && cuda_check_dnn(status, call, g->errors) != 0)
        g->failed = true;
}

static cudnnBackendDescriptor_t create(struct graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    if (g->failed)
        return NULL;
    if (g->owned_count == GRAPH_DESCRIPTORS) {
        (void)cuda_refuse(g->errors, "cuDNN graph: more than %d descriptors", GRAPH_DESCRIPTORS);
        g->failed = true;
        return NULL;
    }
    check(g, cudnnBackendCreateDescriptor(type, &descriptor), "cudnnBackendCreateDescriptor");
    if (descriptor)
        g->owned[g->owned_count++] = descriptor;
    return descriptor;
}

static void set(struct graph *g, cudnnBackendDescriptor_t descriptor,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values)
{
    char call[64];
    (void)snprintf(call, sizeof call, "cudnnBackendSetAttribute %d", (int)name);
    if (!g->failed)
        check(g, cudnnBackendSetAttribute(descriptor, name, type, count, values), call);
}

static void set_descriptor(struct graph *g, cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    set(g, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(struct graph *g, cudnnBackendDescriptor_t descriptor, const char *call)
{
    if (!g->failed)
        check(g, cudnnBackendFinalize(descriptor), call);
}

static void add_operation(struct graph *g, cudnnBackendDescriptor_t operation, const char *call)
{
    finalize(g, operation, call);
    if (!g->failed && g->operation_count == GRAPH_OPERATIONS) {
        (void)cuda_refuse(g->errors, "cuDNN graph: more than %d operations", GRAPH_OPERATIONS);
        g->failed = true;
    }
    if (!g->failed)
        g->operations[g->operation_count++] = operation;
}

struct graph_shape graph_packed(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct graph_shape){ { a, b, c, d }, { b * c * d, c * d, d, 1 } };
}

static cudnnBackendDescriptor_t make_tensor(struct graph *g, int64_t id, cudnnDataType_t type,
                                            const struct graph_shape *shape, bool is_inner,
                                            bool is_value)
{
    const int64_t alignment = ALIGNMENT;
    cudnnBackendDescriptor_t t = create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, GRAPH_DIMENSIONS, shape->dims);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, GRAPH_DIMENSIONS, shape->strides);
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (is_inner)
        set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inner);
    if (is_value)
        set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_value);
    finalize(g, t, "cudnnBackendFinalize of a tensor");
    return t;
}

cudnnBackendDescriptor_t graph_tensor(struct graph *g, int64_t id, cudnnDataType_t type,
                                      struct graph_shape shape)
{
    return make_tensor(g, id, type, &shape, false, false);
}

cudnnBackendDescriptor_t graph_value(struct graph *g, int64_t id, cudnnDataType_t type)
{
    struct graph_shape one = graph_packed(1, 1, 1, 1);
    return make_tensor(g, id, type, &one, false, true);
}

cudnnBackendDescriptor_t graph_inner(struct graph *g, cudnnDataType_t type,
                                     struct graph_shape shape)
{
    return make_tensor(g, g->next_virtual++, type, &shape, true, false);
}

void graph_matmul(struct graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                  cudnnBackendDescriptor_t c)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t kind = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(g, kind, "cudnnBackendFinalize of a product");
    cudnnBackendDescriptor_t operation = create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    add_operation(g, operation, "cudnnBackendFinalize of a product's operation");
}

static void add_pointwise(struct graph *g, cudnnBackendDescriptor_t kind,
                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                          cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y)
{
    const float one = 1.0F;
    finalize(g, kind, "cudnnBackendFinalize of a pointwise kind");
    cudnnBackendDescriptor_t operation = create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    if (b)
        set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t)
        set_descriptor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    set(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
    add_operation(g, operation, "cudnnBackendFinalize of a pointwise operation");
}

void graph_pointwise(struct graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                     cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                     cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t kind = create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    add_pointwise(g, kind, x, b, t, y);
}

void graph_index(struct graph *g, int64_t axis, cudnnBackendDescriptor_t x,
                 cudnnBackendDescriptor_t y)
{
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t kind = create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(g, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    add_pointwise(g, kind, x, NULL, NULL, y);
}

void graph_reduce(struct graph *g, cudnnReduceTensorOp_t kind_of_sum, cudnnBackendDescriptor_t x,
                  cudnnBackendDescriptor_t y)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t kind = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(g, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
        &kind_of_sum);
    finalize(g, kind, "cudnnBackendFinalize of a reduction");
    cudnnBackendDescriptor_t operation = create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(g, operation, "cudnnBackendFinalize of a reduction's operation");
}

void graph_reshape(struct graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t operation = create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(g, operation, "cudnnBackendFinalize of a reshape");
}

/* The engines that the heuristics offer for the operations, best first. */
static int64_t find_engines(struct graph *g, cudnnBackendDescriptor_t *engines)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    cudnnBackendDescriptor_t all = create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count,
        g->operations);
    set(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->handle);
    finalize(g, all, "cudnnBackendFinalize of the operation graph");
    cudnnBackendDescriptor_t heuristics = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
    set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(g, heuristics, "cudnnBackendFinalize of the heuristics");
    for (int i = 0; i < ENGINES; i++)
        engines[i] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!g->failed)
        check(g,
              cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES, &count, engines),
              "cudnnBackendGetAttribute of the engines");
    return count < ENGINES ? count : ENGINES;
}

/* A plan of one engine, or NULL: the engine refuses the graph on this device. */
static cudnnBackendDescriptor_t try_engine(struct graph *g, cudnnBackendDescriptor_t engine)
{
    cudnnBackendDescriptor_t plan = create(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
    set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->handle);
    return !g->failed && cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS ? plan : NULL;
}

int graph_plan(struct graph *g, const char *what)
{
    cudnnBackendDescriptor_t engines[ENGINES] = { NULL };
    int64_t count = find_engines(g, engines), got = 0;
    for (int64_t i = 0; i < count && !g->failed && !g->plan; i++)
        g->plan = try_engine(g, engines[i]);
    if (!g->failed && !g->plan) {
        char detail[200] = "";
        cudnnGetLastErrorString(detail, sizeof detail);
        (void)cuda_refuse(g->errors, "cuDNN: none of %lld engines takes the graph: %s",
                          (long long)count, detail);
        g->failed = true;
    }
    if (!g->failed)
        check(g,
              cudnnBackendGetAttribute(g->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &got, &g->workspace_bytes),
              "cudnnBackendGetAttribute of the workspace");
    if (g->failed)
        (void)diag_hint(g->errors, "while planning %s", what);
    g->errors = NULL;
    return g->failed ? -1 : 0;
}

int graph_run(const struct graph *g, const int64_t *ids, void **pointers, int count,
              void *workspace, const char *what, struct diag_list *reterr)
{
    struct graph pack;
    graph_open(&pack, g->handle, reterr);
    cudnnBackendDescriptor_t variant = create(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&pack, variant, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    set(&pack, variant, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
        pointers);
    set(&pack, variant, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(&pack, variant, "cudnnBackendFinalize of the arguments");
    if (!pack.failed)
        check(&pack, cudnnBackendExecute(g->handle, g->plan, variant), "cudnnBackendExecute");
    if (pack.failed)
        (void)diag_hint(reterr, "while running %s", what);
    graph_close(&pack);
    return pack.failed ? -1 : 0;
}
