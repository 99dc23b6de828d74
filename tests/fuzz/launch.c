/* launch.c - launch files, each input as a script, a TOML and a YAML file; with the model of their
 * options and the choices that they fix. */
#include "planner/launch/read.h"

#include "tests/fuzz/target.h"

#include <stdlib.h>
#include <string.h>

struct launch {
    struct launch_file file;
    struct model model;
    struct fixed_choices fixed;
    struct diag_list errors;
};

static struct diag_list *no_errors(struct launch *launch)
{
    launch->errors.count = launch->errors.errors = launch->errors.dropped = 0;
    return &launch->errors;
}

static void read_as(struct launch *launch, const char *name, const char *text, size_t bytes)
{
    struct diag_list *errors = no_errors(launch);
    int status = launch_read_text(name, text, bytes, &launch->file, errors);
    fuzz_require_told(status, errors);
    if (status == 0 && !launch->file.plan_path) {
        memset(&launch->model, 0, sizeof launch->model);
        memset(&launch->fixed, 0, sizeof launch->fixed);
        errors = no_errors(launch);
        status = launch_model(&launch->file, &launch->model, errors);
        fuzz_require_told(status < 0 ? -1 : 0, errors);
        errors = no_errors(launch);
        fuzz_require_told(launch_complete(&launch->file.settings, 12, errors), errors);
        errors = no_errors(launch);
        fuzz_require_told(
            launch_fix(&launch->file.settings, &launch->model, &launch->fixed, errors), errors);
    }
    launch_done(&launch->file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct launch *launch = calloc(1, sizeof *launch);
    fuzz_require(launch != NULL, "memory", NULL);
    const char *text = bytes > 0 ? (const char *)data : "";
    read_as(launch, "l.sh", text, bytes);
    read_as(launch, "l.toml", text, bytes);
    read_as(launch, "l.yaml", text, bytes);
    free(launch);
    return 0;
}
