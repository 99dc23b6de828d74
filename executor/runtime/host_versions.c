#include "executor/runtime/versions.h"

#include <cblas.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

void versions_describe(char *ret, size_t size)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    if (MPI_Get_library_version(mpi, &length) != MPI_SUCCESS)
        mpi[0] = '\0';
    (void)snprintf(ret, size, "%s, %.*s", openblas_get_config(), (int)strcspn(mpi, ","), mpi);
}
