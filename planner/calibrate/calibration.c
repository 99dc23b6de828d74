#include "planner/calibrate/form.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct hardware_key *find_key(const char *key)
{
    for (size_t i = 0; i < hardware_key_count; i++)
        if (strcmp(hardware_keys[i].key, key) == 0)
            return &hardware_keys[i];
    return NULL;
}

/* As many digits as a measurement has; sizes and counts are whole. */
static double rounded(const struct hardware_key *key, double value)
{
    if (key->type == HARDWARE_BYTES || key->type == HARDWARE_INT)
        return round(value);
    char digits[32];
    (void)snprintf(digits, sizeof digits, "%.4g", value);
    return strtod(digits, NULL);
}

void form_put(struct calibration *c, const char *name, double value, int fit, size_t points,
              struct diag_list *reterr)
{
    const struct hardware_key *key = find_key(name);
    if (!key || c->value_count == CALIBRATION_MAX_VALUES)
        return;
    if (key->fine && !(value > 0)) /* what is not there is not said */
        return;
    if (!isfinite(value) || value < key->min || value > key->max) {
        diag_warning(reterr, (struct pos){ 0 },
                     "%s comes out as %.4g, outside %g to %g: kept as it "
                     "was",
                     name, value, key->min, key->max);
        (void)diag_hint(reterr, "are the peaks of the base file this machine's? see --hardware");
        return;
    }
    c->values[c->value_count++] = (struct calibration_value){
        .key = key->key, .value = rounded(key, value), .fit = fit, .points = points
    };
}

int form_note(struct calibration *c, const char *name, const struct fit *fit,
              const struct points *points, const size_t *index, size_t count)
{
    if (c->fit_count == CALIBRATION_MAX_FITS)
        return -1;
    struct calibration_fit *note = &c->fits[c->fit_count];
    *note = (struct calibration_fit){
        .name = name, .points = count, .rms = fit->rms, .worst = fit->worst
    };
    (void)point_describe(&points->points[index[fit->worst_row]], note->worst_point,
                         sizeof note->worst_point);
    return c->fit_count++;
}

const struct calibration_value *calibration_value(const struct calibration *calibration,
                                                  const char *key)
{
    for (int i = 0; i < calibration->value_count; i++)
        if (strcmp(calibration->values[i].key, key) == 0)
            return &calibration->values[i];
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double calibration_unrest(const struct points *points)
{
    size_t count = 0;
    double *spreads = calloc(points->count + 1, sizeof *spreads);
    for (size_t i = 0; spreads && i < points->count; i++)
        if (points->points[i].spread > 0)
            spreads[count++] = points->points[i].spread;
    if (count > 0)
        qsort(spreads, count, sizeof *spreads, by_value);
    double ret = count > 0 ? spreads[count / 2] : 0;
    free(spreads);
    return ret;
}

int calibration_compute(const struct points *points, const struct hardware *base,
                        struct calibration *ret, struct diag_list *reterr)
{
    static int (*const forms[])(
        const struct form_input *, struct calibration *,
        struct diag_list *) = { form_products,    form_attention, form_delta, form_passes,
                                form_collectives, form_overlap,   form_held };
    struct form_input in = { .points = points,
                             .flops = base->bf16_flops_per_second,
                             .memory = base->memory_bytes_per_second,
                             .link = base->link_bytes_per_second,
                             .host = base->host,
                             .ring_channels = base->ring_channels };
    *ret = (struct calibration){ 0 };
    int status = form_peaks(&in, ret, reterr);
    for (size_t i = 0; i < sizeof forms / sizeof *forms && status == 0; i++)
        status = forms[i](&in, ret, reterr);
    return status;
}
