/* cuda_device.h - which GPU a rank has, and what of its memory and software is whose. Knows nothing
 * of plans. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_CUDA_DEVICE_H
#define RANKFIT_EXECUTOR_RUNTIME_CUDA_DEVICE_H

#include "base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pieces that what exceeds a limit is taken in. */
enum { BALLAST_PIECES = 64 };

struct cuda_device {
    int index;              /* among those that CUDA shows */
    uint64_t others_bytes;  /* taken before this process came; 0 where the driver does not say */
    uint64_t context_bytes; /* of this process's context */
    uint64_t ballast_bytes; /* taken from use by cuda_device_limit */
    void *ballast[BALLAST_PIECES];
    char driver[64]; /* "580.95.05", or "" */
};

/* The GPU of the rank that is number `local` of `ranks` on this machine; makes its context. -1 with
 * a diagnostic: no GPU, fewer than ranks, a driver too old. */
int cuda_device_open(struct cuda_device *device, int local, int ranks, struct diag_list *reterr);

/* Leaves this process `limit` bytes in all, its context included, by taking the rest of what is
 * free: to be called before anything else is taken. -1 with a diagnostic when the context alone has
 * more, or the device less. */
int cuda_device_limit(struct cuda_device *device, uint64_t limit, struct diag_list *reterr);
void cuda_device_close(struct cuda_device *device);

/* What this process holds of the device now, by the device's own account, without what it took from
 * its own use. */
uint64_t cuda_device_held_bytes(const struct cuda_device *device);
uint64_t cuda_device_free_bytes(void);

/* What the device gives a program; 0 where it does not say. */
uint64_t cuda_device_total_bytes(void);

/* Page-locked host memory, or NULL. unpin accepts NULL. */
void *cuda_device_pin(uint64_t bytes);
void cuda_device_unpin(void *block);

/* "NVIDIA H200" */
void cuda_device_name(const struct cuda_device *device, char *ret, size_t size);
/* "driver 580.95.05, CUDA 13.0, cuBLASLt 13.1.0, cuDNN 9.14.0, NCCL 2.28.3" */
void cuda_device_versions(const struct cuda_device *device, char *ret, size_t size);

#endif
