#include "planner/rules/figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits behind the point of a number as written. */
static int decimals_of(const char *text)
{
    const char *point = strchr(text, '.');
    return point ? (int)strspn(point + 1, "0123456789") : 0;
}

static double rounded_to(double value, int decimals, enum rounding rounding)
{
    char text[64];
    double scale = pow(10, decimals);
    if (rounding == ROUNDING_UP)
        return ceil(value * scale - 1e-9) / scale;
    if (rounding == ROUNDING_DOWN)
        return floor(value * scale + 1e-9) / scale;
    (void)snprintf(text, sizeof text, "%.*f", decimals, value);
    return strtod(text, NULL);
}

/* To so many significant digits. */
static double significant(double value, int digits)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%.*e", digits - 1, value);
    return strtod(text, NULL);
}

bool figure_holds(const struct figure *figure, double value)
{
    double shown = value / figure->unit->factor;
    double published = figure->published / figure->unit->factor;
    if (figure->relation == RELATION_AT_MOST)
        return shown <= published * (1 + 1e-12);
    if (figure->relation == RELATION_AT_LEAST)
        return shown >= published * (1 - 1e-12);
    double near = figure->digits > 0
                      ? significant(shown, figure->digits)
                      : rounded_to(shown, decimals_of(figure->published_text), figure->rounding);
    return fabs(near - published) <= 1e-9 * fabs(published);
}

void figure_format(double value, const char *base, char *ret, size_t size)
{
    const struct unit_of *best = NULL;
    for (size_t i = 0; i < figure_unit_count; i++) {
        const struct unit_of *unit = &figure_units[i];
        bool larger = best && unit->factor > best->factor && fabs(value) >= unit->factor;
        if (strcmp(unit->base, base) == 0 && (!best || larger))
            best = unit;
    }
    if (best && strcmp(best->name, base) != 0)
        (void)snprintf(ret, size, "%.6g %s", value / best->factor, best->name);
    else
        (void)snprintf(ret, size, fabs(value) < 1e6 ? "%.6g" : "%.0f", value);
}
