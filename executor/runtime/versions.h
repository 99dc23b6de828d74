/* versions.h - what a measurement was made with. */
#ifndef RANKFIT_EXECUTOR_RUNTIME_VERSIONS_H
#define RANKFIT_EXECUTOR_RUNTIME_VERSIONS_H

#include <stddef.h>

/* "OpenBLAS 0.3.21 ..., Open MPI v4.1.4 ..." */
void versions_describe(char *ret, size_t size);

#endif
