/* What this machine gives its programs. */
#include "base/hardware/hardware.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* The limit of the control group, UINT64_MAX where there is none. */
static uint64_t group_limit(const char *path)
{
    uint64_t bytes = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    char line[64] = "";
    if (!fgets(line, sizeof line, file) || sscanf(line, "%" SCNu64, &bytes) != 1)
        bytes = UINT64_MAX; /* "max" */
    (void)fclose(file);
    return bytes;
}

uint64_t hardware_host_memory(void)
{
    static const char *const limits[] = {
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    };
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        uint64_t limit = group_limit(limits[i]);
        if (limit < bytes)
            bytes = limit;
    }
    return bytes;
}

int hardware_host_cores(void)
{
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}
