#include "executor/trace/cuda/marks.h"

#include <nvtx3/nvToolsExt.h>
#include <stddef.h>

static void begin(void *context, enum observed what, const char *name)
{
    (void)context, (void)what;
    (void)nvtxRangePushA(name);
}

static void end(void *context)
{
    (void)context;
    (void)nvtxRangePop();
}

struct observer marks_observer(void)
{
    return (struct observer){ begin, end, NULL };
}
