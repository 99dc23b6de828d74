/* Ranks on GPUs, one each: one backend for all steps of a test, since the fabric lives on it. Where
 * there are too few GPUs the test is skipped. */
#include "tests/unit/executor/step_fixture.h"

#include "executor/fabric/nccl/fabric_nccl.h"
#include "executor/fabric/progress.h"
#include "executor/runtime/cuda_device.h"

#include <stdlib.h>

enum { SKIPPED = 77 };

static struct backend *opened;

const bool step_has_latents = false;

struct fabric *step_open_fabric(int *argc, char ***argv, struct diag_list *reterr)
{
    struct cuda_device device;
    struct fabric *host = fabric_mpi_open(argc, argv, reterr);
    if (!host)
        return NULL;
    if (cuda_device_open(&device, host->progress->own, host->progress->count, reterr) != 0) {
        diag_list_print(stderr, reterr);
        host->ops->close(host);
        exit(SKIPPED);
    }
    opened = backend_cuda_open(device.index, reterr);
    return opened ? fabric_nccl_open(host, opened, reterr) : NULL;
}

struct backend *step_open_backend(struct diag_list *reterr)
{
    (void)reterr;
    return opened;
}

void step_close_backend(struct backend *backend)
{
    (void)backend; /* the next step's as well */
}
