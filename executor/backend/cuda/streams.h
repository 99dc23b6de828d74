/* streams.h - the CUDA backend's streams, for a fabric that orders its transfers against them. */
#ifndef RANKFIT_EXECUTOR_BACKEND_CUDA_STREAMS_H
#define RANKFIT_EXECUTOR_BACKEND_CUDA_STREAMS_H

#include "executor/backend/backend.h"

#include <cuda_runtime_api.h>

/* Of a backend that backend_cuda_open made; valid until it is closed. */
cudaStream_t backend_cuda_stream(const struct backend *b, enum stream s);
/* The streams beside that of computation which products of experts run on, from 1; NULL: no more.
 */
cudaStream_t backend_cuda_lane(const struct backend *b, int lane);

#endif
