#include "executor/runtime/question.h"
#include "base/layout/capability.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_world(const struct plan *plan, const char *path, int world,
                       struct diag_list *reterr)
{
    int wanted = layout_world(&plan->choices.layout);
    if (wanted == world)
        return 0;
    diag_error(reterr, (struct pos){ .file = path }, "the plan is for %d ranks, %d %s started",
               wanted, world, world == 1 ? "was" : "were");
    return diag_hint(reterr, "mpirun -n %d, or `rankfit run`, which starts as many as it needs",
                     wanted);
}

int question_check(const char *backend, const struct plan *plan, const char *path, int world,
                   struct diag_list *reterr)
{
    int kind = 0;
    while (kind < BACKEND_COUNT - 1 && strcmp(backend_names[kind], backend) != 0)
        kind++;
    int worlds = check_world(plan, path, world, reterr);
    int able = capability_check((enum backend)kind, &plan->model, &plan->choices, reterr);
    return worlds == 0 && able == 0 ? 0 : -1;
}

int question_check_output(const char *path, struct diag_list *reterr)
{
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;

    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return diag_error(reterr, (struct pos){ .file = path }, "cannot be written: %s",
                          strerror(EISDIR));
    if (length >= sizeof folder)
        return diag_error(reterr, (struct pos){ .file = path }, "the path is too long");
    if (length > 0) {
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    if (access(folder, W_OK | X_OK) == 0)
        return 0;
    return diag_error(reterr, (struct pos){ .file = path }, "cannot be written: %s",
                      strerror(errno));
}
