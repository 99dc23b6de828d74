/* calibration.h - from points that an executor measured to the values of a hardware file: one form
 * of planner/predict each, fitted with its residual. Knows nothing of measuring, of files and of
 * how results are shown. */
#ifndef RANKFIT_PLANNER_CALIBRATE_CALIBRATION_H
#define RANKFIT_PLANNER_CALIBRATE_CALIBRATION_H

#include "base/hardware/hardware.h"
#include "base/plan/points.h"

enum { CALIBRATION_MAX_FITS = 24, CALIBRATION_MAX_VALUES = 64 };

/* How well the points of one form are met, relative to each. */
struct calibration_fit {
    const char *name; /* "dense matmuls" */
    size_t points;
    double rms, worst;
    char worst_point[80];
};

struct calibration_value {
    const char *key; /* of hardware_keys */
    double value;    /* whole for keys that are bytes or counts */
    int fit;         /* of fits; -1: read as it is */
    size_t points;
};

struct calibration {
    int fit_count, value_count;
    struct calibration_fit fits[CALIBRATION_MAX_FITS];
    struct calibration_value values[CALIBRATION_MAX_VALUES];
};

/* What the points settle, over the base's peaks (a host's peaks are the best that was measured). A
 * kind without points leaves its keys alone; a value that its key cannot take is a warning and left
 * out. -1 with a diagnostic when nothing can be fitted. */
int calibration_compute(const struct points *points, const struct hardware *base,
                        struct calibration *ret, struct diag_list *reterr);

/* The spread that half of the timed points exceed; 0 where none tells. */
double calibration_unrest(const struct points *points);

/* NULL: the key was not measured. */
const struct calibration_value *calibration_value(const struct calibration *calibration,
                                                  const char *key);

/* The hardware file: values measured with their source, all others as the base file's root has
 * them. For file_write_document. */
struct json *calibration_document(const struct calibration *calibration,
                                  const struct points *points, const struct node *base,
                                  const char *name);

#endif
