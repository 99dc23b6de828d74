/* kernels.h - what runs on the GPU when, told by CUDA's profiling library: kernels, copies and
 * fills of this process, each with the operation that asked for it. The library is looked for when
 * a trace begins and is part of no other run. */
#ifndef RANKFIT_EXECUTOR_TRACE_CUDA_KERNELS_H
#define RANKFIT_EXECUTOR_TRACE_CUDA_KERNELS_H

#include "executor/trace/trace.h"

#include <cuda_runtime_api.h>

struct kernels;

/* Notes from now on. One at a time in a process. NULL with a diagnostic: the program was built
 * without the library's header, it is not there, or it refuses (another tool profiles already). */
struct kernels *kernels_open(struct trace *trace, struct diag_list *reterr);

/* What a stream is called in the trace. */
void kernels_name_stream(struct kernels *kernels, cudaStream_t stream, const char *name);

/* All streams have been waited for: adds everything to the trace, whose names live until
 * kernels_close. */
int kernels_finish(struct kernels *kernels, struct diag_list *reterr);
void kernels_close(struct kernels *kernels);

#endif
