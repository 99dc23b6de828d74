/* graph.h - a cuDNN operation graph put together from tensors and operations, planned and run. The
 * first failure sticks: later calls do nothing, graph_plan reports. Tensors have four dimensions.
 * Knows nothing of attention. */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_GRAPH_H
#define RANKFIT_EXECUTOR_BACKEND_CUDA_GRAPH_H

#include "base/diag.h"

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

enum { GRAPH_DESCRIPTORS = 192, GRAPH_OPERATIONS = 48, GRAPH_DIMENSIONS = 4 };

struct graph {
    cudnnHandle_t handle;
    struct diag_list *errors;
    bool failed;
    cudnnBackendDescriptor_t owned[GRAPH_DESCRIPTORS];
    int owned_count;
    cudnnBackendDescriptor_t operations[GRAPH_OPERATIONS];
    int operation_count;
    int64_t next_virtual;
    cudnnBackendDescriptor_t plan;
    int64_t workspace_bytes; /* of the plan */
};

struct graph_shape {
    int64_t dims[GRAPH_DIMENSIONS], strides[GRAPH_DIMENSIONS];
};

/* errors: where failures until graph_plan returns go. */
void graph_open(struct graph *g, cudnnHandle_t handle, struct diag_list *errors);
void graph_close(struct graph *g);

/* Rows after rows, nothing between. */
struct graph_shape graph_packed(int64_t a, int64_t b, int64_t c, int64_t d);

/* A tensor in memory, known by its id (from 1) when run; one value on the host; a result that stays
 * inside. */
cudnnBackendDescriptor_t graph_tensor(struct graph *g, int64_t id, cudnnDataType_t type,
                                      struct graph_shape shape);
cudnnBackendDescriptor_t graph_value(struct graph *g, int64_t id, cudnnDataType_t type);
cudnnBackendDescriptor_t graph_inner(struct graph *g, cudnnDataType_t type,
                                     struct graph_shape shape);

void graph_matmul(struct graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                  cudnnBackendDescriptor_t c);
/* y = mode(x, b, t); b and t NULL where the mode has fewer operands. */
void graph_pointwise(struct graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                     cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                     cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y);
/* y = each element's own index along the axis. */
void graph_index(struct graph *g, int64_t axis, cudnnBackendDescriptor_t x,
                 cudnnBackendDescriptor_t y);
void graph_reduce(struct graph *g, cudnnReduceTensorOp_t kind_of_sum, cudnnBackendDescriptor_t x,
                  cudnnBackendDescriptor_t y);
void graph_reshape(struct graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);

/* Ends the building: the first engine that the library's heuristics offer and that accepts the
 * graph. 0, or -1 with a diagnostic that names `what`. */
int graph_plan(struct graph *g, const char *what);

/* Runs on the handle's stream. */
int graph_run(const struct graph *g, const int64_t *ids, void **pointers, int count,
              void *workspace, const char *what, struct diag_list *reterr);

#endif
