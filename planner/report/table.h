/* table.h - text in aligned columns under a label in the left margin. Knows nothing of what the
 * cells mean. */
#ifndef RANKFIT_PLANNER_REPORT_TABLE_H
#define RANKFIT_PLANNER_REPORT_TABLE_H

#include "base/pool.h"

#include <stdint.h>
#include <stdio.h>

enum { TABLE_MAX_COLUMNS = 12, TEXT_MARGIN = 8, TEXT_WIDTH = 100 };

/* A zeroed table with `columns` set is empty. left: bit i for each column that is text (ragged
 * right); the others are numbers, aligned at the right. */
struct table {
    int columns;
    unsigned left;
    int cell_count, cell_room;
    const char **cells;
    struct pool pool;
};

/* Fills the next cell, row by row. A table without memory left stays short, never wrong. */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes the table: `label` in the margin of the first line, blanks before the others. */
void table_print(const struct table *table, const char *label, FILE *out);
void table_done(struct table *table);

/* One paragraph, broken between words at TEXT_WIDTH, the margin filled as above; later lines are
 * indented by `indent` more. */
void text_wrap(const char *label, const char *text, int indent, FILE *out);

/* The unit in which a set of sizes is shown: GB, or MB where the largest is under 1 GB. */
struct scale {
    const char *unit;
    double bytes;
    int decimals;
};
struct scale scale_for(uint64_t largest_bytes);
double scaled(struct scale scale, uint64_t bytes);

#endif
