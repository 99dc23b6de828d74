/* kernels_absent.c - in the place of kernels.c where CUDA's profiling library had no header. */
#include "executor/trace/cuda/kernels.h"

struct kernels *kernels_open(struct trace *trace, struct diag_list *reterr)
{
    (void)trace;
    (void)diag_error(reterr, (struct pos){ 0 },
                     "--trace on GPUs: rankfit-cuda was built without CUDA's profiling library");
    (void)diag_hint(reterr, "with cupti.h of the CUDA toolkit there, build again");
    return NULL;
}

void kernels_name_stream(struct kernels *kernels, cudaStream_t stream, const char *name)
{
    (void)kernels, (void)stream, (void)name;
}

int kernels_finish(struct kernels *kernels, struct diag_list *reterr)
{
    (void)kernels, (void)reterr;
    return 0;
}

void kernels_close(struct kernels *kernels)
{
    (void)kernels;
}
