/* fabric_nccl.h - the fabric of GPUs: device memory travels through NCCL, host values through the
 * fabric that started the ranks. Calls on device memory are ordered by streams: a call that the
 * interface says is complete on return is complete for whatever the backend's compute stream does
 * next; the host does not wait. One communicator for each distinct group of more than one rank that
 * moves device memory.
 *
 * Sums: fp32 in NCCL's order of ranks. bf16 is added pairwise in fp32 and rounded at every hop of
 * NCCL's ring, once for a group of two; where more are summed and the last bit counts, grad_dtype
 * is fp32. */
#ifndef RANKFIT_EXECUTOR_FABRIC_NCCL_FABRIC_NCCL_H
#define RANKFIT_EXECUTOR_FABRIC_NCCL_FABRIC_NCCL_H

#include "executor/backend/backend.h"
#include "executor/fabric/fabric.h"

/* `host` belongs to the new fabric from then on, unless NULL is returned. `cuda`:
 * backend_cuda_open's, which must outlive every call but close. Its group of all ranks carries host
 * values only. */
struct fabric *fabric_nccl_open(struct fabric *host, struct backend *cuda,
                                struct diag_list *reterr);

/* Device memory that communicators took when they were made and at their first calls. */
uint64_t fabric_nccl_device_bytes(const struct fabric *f);

#endif
