/* host_main.c - the program rankfit-host: the host backend, ranks joined by MPI. */
#include "base/units.h"
#include "executor/runtime/program.h"
#include "executor/runtime/versions.h"

static int rehearse(struct machine *machine, struct diag_list *reterr)
{
    struct fabric *alone = fabric_rehearsal_open(machine->fabric, machine->rehearsal, reterr);
    if (!alone)
        return -1;
    machine->fabric = alone;
    return 0;
}

/* Less what the process holds already. Memory here is used where it is touched: what lives counts,
 * not what is reserved. */
static int limit_memory(struct machine *machine, struct diag_list *reterr)
{
    uint64_t process = record_rss_bytes();
    char wanted[32], there[32];

    if (machine->memory_limit <= process)
        return diag_error(reterr, (struct pos){ 0 },
                          "memory for the context: %s bytes wanted by the process, %s there",
                          units_format_count(wanted, sizeof wanted, process),
                          units_format_count(there, sizeof there, machine->memory_limit));
    machine->live_limit = machine->memory_limit - process;
    return 0;
}

static int open_host(struct machine *machine, struct diag_list *reterr)
{
    struct record_machine *record = &machine->record;

    if (machine->memory_limit > 0 && limit_memory(machine, reterr) != 0)
        return -1;
    machine->backend = backend_host_open(reterr);
    record_host_device(record->device, sizeof record->device);
    versions_describe(record->versions, sizeof record->versions);
    if (!machine->backend)
        return -1;
    return machine->rehearsal ? rehearse(machine, reterr) : 0;
}

int main(int argc, char **argv)
{
    static const struct program host = { .name = "rankfit-host",
                                         .where = "this machine's processors",
                                         .backend = "host",
                                         .open = open_host };
    return program_main(&host, argc, argv);
}
