#include "executor/backend/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>

static const struct pos nowhere = { NULL, 0, 0 };

/* What libraries take by themselves: code of kernels as it is first used, plans, buffers. */
static int no_memory(const char *call, const char *said, struct diag_list *reterr)
{
    size_t left = 0, all = 0;
    (void)cudaGetLastError();
    if (cudaMemGetInfo(&left, &all) != cudaSuccess)
        left = 0;
    return diag_error(reterr, nowhere,
                      "memory for 'modules' (kernels and libraries): %s: %s, %zu bytes there", call,
                      said, left);
}

int cuda_check(cudaError_t status, const char *call, struct diag_list *reterr)
{
    if (status == cudaSuccess)
        return 0;
    if (status == cudaErrorMemoryAllocation)
        return no_memory(call, cudaGetErrorString(status), reterr);
    return diag_error(reterr, nowhere, "%s: %s (%s)", call, cudaGetErrorString(status),
                      cudaGetErrorName(status));
}

int cuda_check_lt(cublasStatus_t status, const char *call, struct diag_list *reterr)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
        return no_memory(call, cublasLtGetStatusString(status), reterr);
    return diag_error(reterr, nowhere, "%s: %s (%s)", call, cublasLtGetStatusString(status),
                      cublasLtGetStatusName(status));
}

/* The library keeps the detail of its last error as text. */
int cuda_check_dnn(cudnnStatus_t status, const char *call, struct diag_list *reterr)
{
    char detail[256] = "";
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    cudnnGetLastErrorString(detail, sizeof detail);
    if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return no_memory(call, cudnnGetErrorString(status), reterr);
    return diag_error(reterr, nowhere, "%s: %s: %s", call, cudnnGetErrorString(status), detail);
}

int cuda_refuse(struct diag_list *reterr, const char *format, ...)
{
    char what[300];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return diag_error(reterr, nowhere, "%s", what);
}

int cuda_check_rows(const char *operation, int64_t width, const void *const *pointers, int count,
                    struct diag_list *reterr)
{
    if (width < 1 || width % 8 != 0)
        return cuda_refuse(reterr, "%s: rows of %lld elements, not a multiple of 8", operation,
                           (long long)width);
    for (int i = 0; i < count; i++)
        if ((uintptr_t)pointers[i] % 16 != 0)
            return cuda_refuse(reterr, "%s: operand %d is not at a multiple of 16 bytes", operation,
                               i + 1);
    return 0;
}
