/* cuda_device.h - which GPU a rank has, and what of its memory and software is whose. Knows nothing
 * of plans. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_CUDA_DEVICE_H
#define RANKFIT_EXECUTOR_RUNTIME_CUDA_DEVICE_H

#include "base/diag.h"

#include <stddef.h>
#include <stdint.h>

struct cuda_device {
    int index;              /* among those that CUDA shows */
    uint64_t others_bytes;  /* taken before this process came; 0 where the driver does not say */
    uint64_t context_bytes; /* of this process's context */
    char driver[64];        /* "580.95.05", or "" */
};

/* The GPU of the rank that is number `local` of `ranks` on this machine; makes its context. -1 with
 * a diagnostic: no GPU, fewer than ranks, a driver too old. */
int cuda_device_open(struct cuda_device *device, int local, int ranks, struct diag_list *reterr);

/* What this process holds of the device now, by the device's own account. */
uint64_t cuda_device_held_bytes(const struct cuda_device *device);

/* "NVIDIA H200" */
void cuda_device_name(const struct cuda_device *device, char *ret, size_t size);
/* "driver 580.95.05, CUDA 13.0, cuBLASLt 13.1.0, cuDNN 9.14.0, NCCL 2.28.3" */
void cuda_device_versions(const struct cuda_device *device, char *ret, size_t size);

#endif
