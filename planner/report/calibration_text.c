#include "planner/report/calibration_text.h"

#include "base/text.h"
#include "planner/report/table.h"

#include <stdlib.h>
#include <string.h>

static double value_of(const struct hardware *hardware, const struct hardware_key *key)
{
    double ret = 0;
    (void)hardware_number(hardware, key, &ret);
    return ret;
}

static void print_fits(const struct calibration_report *r, FILE *out)
{
    struct table table = { .columns = 5, .left = 1 << 0 | 1 << 4 };
    const char *const heads[] = { "", "points", "RMS", "worst", "at" };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (int i = 0; i < r->calibration->fit_count; i++) {
        const struct calibration_fit *fit = &r->calibration->fits[i];
        table_cell(&table, "%s", fit->name);
        table_cell(&table, "%zu", fit->points);
        table_cell(&table, "%.1f %%", 100 * fit->rms);
        table_cell(&table, "%.1f %%", 100 * fit->worst);
        table_cell(&table, "%s", fit->worst_point);
    }
    table_print(&table, "fits", out);
    table_done(&table);
}

static void print_values(const struct calibration_report *r, FILE *out)
{
    struct table table = { .columns = 4, .left = 1 << 0 | 1 << 3 };
    const char *const heads[] = { "", "was", "is", "" };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(&table, "%s", heads[i]);
    for (size_t i = 0; i < hardware_key_count; i++) {
        const struct hardware_key *key = &hardware_keys[i];
        const struct calibration_value *value = calibration_value(r->calibration, key->key);
        if (!value)
            continue;
        table_cell(&table, "%s", key->key);
        table_cell(&table, "%.4g", value_of(r->base, key));
        table_cell(&table, "%.4g", value->value);
        table_cell(&table, "%s", key->unit ? key->unit : "");
    }
    table_print(&table, "values", out);
    table_done(&table);
}

/* What a measured machine could have told and did not. */
static void print_kept(const struct calibration_report *r, FILE *out)
{
    char kept[2048];
    size_t used = 0;
    for (size_t i = 0; i < hardware_key_count; i++) {
        const struct hardware_key *key = &hardware_keys[i];
        bool told = key->type == HARDWARE_TEXT || key->type == HARDWARE_BOOL;
        if (!told && value_of(r->base, key) > 0 && !calibration_value(r->calibration, key->key))
            text_append(kept, sizeof kept, &used, "%s%s", used ? ", " : "", key->key);
    }
    if (used > 0)
        text_wrap("kept", kept, 0, out);
    if (r->points->ranks < 2)
        text_wrap("note",
                  "one rank alone: collectives and communicators are those of the base file "
                  "(--gpus 2 measures them)",
                  0, out);
    if (r->points->quick)
        text_wrap("note", "--quick shows that all works; its figures are no measurement", 0, out);
}

void report_calibration_text(const struct calibration_report *r, struct text_style style)
{
    char machine[512];
    (void)snprintf(machine, sizeof machine, "%s, %s, %zu points, base %s", r->points->device,
                   r->points->versions, r->points->count, r->base->name);
    text_wrap("machine", machine, 0, style.out);
    print_fits(r, style.out);
    print_values(r, style.out);
    print_kept(r, style.out);
}

struct json *report_calibration_json(const struct calibration_report *r)
{
    const struct calibration *c = r->calibration;
    struct json *ret = json_document("rankfit.calibration/1");
    json_put_text(ret, "name", r->name);
    json_put_text(ret, "base", r->base->name);
    json_put_text(ret, "backend", r->points->backend);
    json_put_text(ret, "device", r->points->device);
    json_put_text(ret, "versions", r->points->versions);
    json_put_text(ret, "date", r->points->date);
    json_put_int(ret, "ranks", r->points->ranks);
    json_put_bool(ret, "quick", r->points->quick);
    json_put_u64(ret, "points", r->points->count);
    struct json *fits = json_list(), *values = json_map();
    for (int i = 0; i < c->fit_count; i++) {
        struct json *fit = json_map();
        json_put_text(fit, "name", c->fits[i].name);
        json_put_u64(fit, "points", c->fits[i].points);
        json_put_number(fit, "rms", c->fits[i].rms);
        json_put_number(fit, "worst", c->fits[i].worst);
        json_put_text(fit, "worst_point", c->fits[i].worst_point);
        json_append(fits, fit);
    }
    for (int i = 0; i < c->value_count; i++)
        json_put_number(values, c->values[i].key, c->values[i].value);
    json_put(ret, "fits", fits);
    json_put(ret, "values", values);
    return ret;
}

char *report_calibration_comment(const struct calibration_report *r)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    (void)fprintf(out,
                  "# %s, measured by rankfit calibrate on %s.\n# %s.\n# Residuals of the fits, "
                  "relative: form, points, RMS, worst.\n",
                  r->points->device, r->points->date, r->points->versions);
    for (int i = 0; i < r->calibration->fit_count; i++) {
        const struct calibration_fit *fit = &r->calibration->fits[i];
        (void)fprintf(out, "#   %-28s %4zu %6.1f %% %6.1f %%  %s\n", fit->name, fit->points,
                      100 * fit->rms, 100 * fit->worst, fit->worst_point);
    }
    (void)fprintf(out, "# Values that were not measured are those of %s.\n", r->base->name);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
