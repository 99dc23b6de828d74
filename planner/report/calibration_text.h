/* calibration_text.h - what a calibration found, for people and as JSON. */
#ifndef RANKFIT_PLANNER_REPORT_CALIBRATION_TEXT_H
#define RANKFIT_PLANNER_REPORT_CALIBRATION_TEXT_H

#include "planner/calibrate/calibration.h"
#include "planner/report/text.h"

struct calibration_report {
    const char *name; /* of the hardware file */
    const struct points *points;
    const struct hardware *base;
    const struct calibration *calibration;
};

/* Fits with their residuals, values beside those of the base, and what was kept. */
void report_calibration_text(const struct calibration_report *report, struct text_style style);
/* rankfit.calibration/1 */
struct json *report_calibration_json(const struct calibration_report *report);

/* The head of the hardware file, as comment lines of YAML: machine and residuals. malloc'd; NULL
 * when the system has no memory left. */
char *report_calibration_comment(const struct calibration_report *report);

#endif
