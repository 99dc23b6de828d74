/* form.h - the forms of planner/predict that calibration fits, one function each, and what they share.
 * Internal to planner/calibrate. */
#ifndef RANKFIT_PLANNER_CALIBRATE_FORM_H
#define RANKFIT_PLANNER_CALIBRATE_FORM_H

#include "planner/calibrate/calibration.h"
#include "planner/calibrate/fit.h"

/* Peaks that efficiencies are of. */
struct form_input {
    const struct points *points;
    double flops, memory, link; /* a second */
    bool host;                  /* whose peaks are the best measured, so that nothing is faster */
    int ring_channels;
};

/* Adds the key with its value; warns and leaves out what the key cannot take. fit: -1, or of a fit
 * that was added. */
void form_put(struct calibration *c, const char *key, double value, int fit, size_t points,
              struct diag_list *reterr);
/* The place of a new fit of that name; -1 where there is no room. `rows` are of points[index[i]].
 */
int form_note(struct calibration *c, const char *name, const struct fit *fit,
              const struct points *points, const size_t *index, size_t count);

/* Each returns 0, where its points are missing too. */
int form_peaks(struct form_input *in, struct calibration *ret, struct diag_list *reterr);
int form_products(const struct form_input *in, struct calibration *ret, struct diag_list *reterr);
int form_attention(const struct form_input *in, struct calibration *ret, struct diag_list *reterr);
int form_delta(const struct form_input *in, struct calibration *ret, struct diag_list *reterr);
int form_passes(const struct form_input *in, struct calibration *ret, struct diag_list *reterr);
int form_collectives(const struct form_input *in, struct calibration *ret,
                     struct diag_list *reterr);
int form_overlap(const struct form_input *in, struct calibration *ret, struct diag_list *reterr);
int form_held(const struct form_input *in, struct calibration *ret, struct diag_list *reterr);

#endif
