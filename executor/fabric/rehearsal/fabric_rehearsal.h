/* fabric_rehearsal.h - the fabric of one process that plays a rank of a larger world. Contract:
 *   What it does: groups are those of the plan's world. A collective fills buffers of true size
 *   from what this rank has, and takes the time that the plan's machine would need for it (wire.h).
 *   What is exchanged: rows to this rank itself arrive as they were sent, those of others are rows
 *   of its own again; a gather repeats this rank's share; a sum over the group is the sum over this
 *   rank's own slices, a sum in place its own values as often as there are members. All values stay
 *   finite and of a likely size; they are no result.
 *   What it must preserve: bytes of every buffer, order of calls, which of them are waited for
 *   where (as in fabric/nccl: a call that is complete on return is so for the compute stream).
 *   What communicators would hold is counted from the hardware's facts, and on a device taken.
 *   How many rows peers send is not known here: see peers.h in executor/runtime.
 *   How it is tested: each call by hand (tests/unit/executor/test_rehearsal.c); every rank's arena
 *   against that of a real run, to the byte (tests/paired/test_rehearsal.c). */
#ifndef RANKFIT_EXECUTOR_FABRIC_REHEARSAL_FABRIC_REHEARSAL_H
#define RANKFIT_EXECUTOR_FABRIC_REHEARSAL_FABRIC_REHEARSAL_H

#include "base/hardware/hardware.h"
#include "executor/backend/backend.h"
#include "executor/fabric/fabric.h"

/* `rank` of a world of `world` ranks on such machines, which must outlive the fabric. `host`, of
 * one process, belongs to the new fabric from then on, unless NULL is returned. */
struct rehearsal_world {
    const struct hardware *hardware;
    int rank, world;
};

/* Buffers in host memory. */
struct fabric *fabric_rehearsal_open(struct fabric *host, const struct rehearsal_world *world,
                                     struct diag_list *reterr);

/* Buffers in device memory. `cuda`: backend_cuda_open's, which must outlive every call but close.
 * In a library of its own, for programs with CUDA. */
struct fabric *fabric_rehearsal_open_cuda(struct fabric *host, struct backend *cuda,
                                          const struct rehearsal_world *world,
                                          struct diag_list *reterr);

/* What the communicators made and used so far would hold of a device. */
uint64_t fabric_rehearsal_communicator_bytes(const struct fabric *f);

#endif
