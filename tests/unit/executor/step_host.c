/* Ranks on the host. */
#include "tests/unit/executor/step_fixture.h"

const bool step_has_latents = true;

struct fabric *step_open_fabric(int *argc, char ***argv, struct diag_list *reterr)
{
    return fabric_mpi_open(argc, argv, reterr);
}

struct backend *step_open_backend(struct diag_list *reterr)
{
    return backend_host_open(reterr);
}

void step_close_backend(struct backend *backend)
{
    backend->ops->close(backend);
}
