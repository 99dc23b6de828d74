/* marks.h - the ranges of a step and its operations as NVTX ranges, for profilers such as Nsight
 * Systems. Nothing happens, and nothing is loaded, when none listens. */
#ifndef RANKFIT_EXECUTOR_TRACE_CUDA_MARKS_H
#define RANKFIT_EXECUTOR_TRACE_CUDA_MARKS_H

#include "executor/primitive/observe.h"

struct observer marks_observer(void);

#endif
