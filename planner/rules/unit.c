#include "planner/rules/unit.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct unit_of figure_units[] = {
    { "B/token", "bytes/token", 1 },
    { "MB/token", "bytes/token", 1e6 },
    { "B", "bytes", 1 },
    { "MB", "bytes", 1e6 },
    { "GB", "bytes", 1e9 },
    { "TB", "bytes", 1e12 },
    { "GB/s", "bytes/s", 1e9 },
    { "ms", "seconds", 1e-3 },
    { "s", "seconds", 1 },
    { "tokens", "tokens", 1 },
    { "%", "fraction", 1e-2 },
    { "FLOP/token", "FLOP/token", 1 },
    { "GFLOP/token", "FLOP/token", 1e9 },
    { "TFLOP/s", "FLOP/s", 1e12 },
    { "PFLOP/s", "FLOP/s", 1e15 },
    { "parameters", "parameters", 1 },
    { "million", "parameters", 1e6 },
    { "billion", "parameters", 1e9 },
    { "GPUs", "GPUs", 1 },
    { "micro-batches", "micro-batches", 1 },
    { "times", "ratio", 1 },
    { "elements", "elements", 1 },
};
const size_t figure_unit_count = sizeof figure_units / sizeof *figure_units;

const struct unit_of *figure_unit_find(const char *name)
{
    for (size_t i = 0; i < figure_unit_count; i++)
        if (strcmp(figure_units[i].name, name) == 0)
            return &figure_units[i];
    return NULL;
}

int figure_unit_parse(const char *text, const char *base, double *ret)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || !isfinite(number))
        return -1;
    if (!*end) {
        *ret = number;
        return 0;
    }
    const struct unit_of *unit = *end == ' ' ? figure_unit_find(end + 1) : NULL;
    bool fits = unit && (strcmp(base, "any") == 0 || strcmp(unit->base, base) == 0);
    if (!fits)
        return -1;
    *ret = number * unit->factor;
    return 0;
}
