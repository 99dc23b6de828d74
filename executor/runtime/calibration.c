#include "executor/runtime/calibration.h"
#include "base/file.h"
#include "base/text.h"

#include <string.h>
#include <time.h>

static void describe(const struct machine *machine, const char *backend, struct points *points)
{
    time_t now = time(NULL);
    struct tm day;
    (void)text_copy(points->backend, sizeof points->backend, backend);
    (void)text_copy(points->device, sizeof points->device, machine->record.device);
    (void)text_copy(points->versions, sizeof points->versions, machine->record.versions);
    if (gmtime_r(&now, &day))
        (void)strftime(points->date, sizeof points->date, "%Y-%m-%d", &day);
}

int calibration_run(const struct machine *machine, const char *backend, const char *path,
                    bool quick, void (*tell)(const char *what), struct diag_list *reterr)
{
    const struct calibration calibration = { .backend = machine->backend,
                                             .fabric = machine->fabric,
                                             .device = machine->device,
                                             .host = strcmp(backend, "host") == 0,
                                             .quick = quick,
                                             .tell = tell };
    struct points points = { 0 };
    describe(machine, backend, &points);
    int ret = calibrate(&calibration, &points, reterr);
    if (ret == 0 && machine->fabric->rank == 0) {
        struct json *document = points_to_json(&points);
        ret = file_write_document(path, document, reterr);
        json_free(document);
    }
    points_done(&points);
    return ret;
}
