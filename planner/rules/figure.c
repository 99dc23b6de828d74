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

static double rounded_to(double value, int decimals, bool up)
{
    char text[64];
    double scale = pow(10, decimals);
    if (up)
        return ceil(value * scale - 1e-9) / scale;
    (void)snprintf(text, sizeof text, "%.*f", decimals, value);
    return strtod(text, NULL);
}

/* Decimals at which a number shows so many significant digits; below 0: tens, hundreds. */
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
                      : rounded_to(shown, decimals_of(figure->published_text), figure->up);
    return fabs(near - published) <= 1e-9 * fabs(published);
}
