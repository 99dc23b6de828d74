/* host_main.c - the program rankfit-host: the host backend, ranks joined by MPI. */
#include "executor/runtime/program.h"
#include "executor/runtime/versions.h"

static int open_host(struct machine *machine, struct diag_list *reterr)
{
    struct record_machine *record = &machine->record;

    machine->backend = backend_host_open(reterr);
    record_host_device(record->device, sizeof record->device);
    versions_describe(record->versions, sizeof record->versions);
    return machine->backend ? 0 : -1;
}

int main(int argc, char **argv)
{
    static const struct program host = { .name = "rankfit-host",
                                         .where = "this machine's processors",
                                         .backend = "host",
                                         .open = open_host };
    return program_main(&host, argc, argv);
}
