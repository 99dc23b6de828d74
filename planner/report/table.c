#include "planner/report/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { CELL_MAX = 512, COLUMN_GAP = 2 };

void table_cell(struct table *table, const char *format, ...)
{
    char text[CELL_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (table->cell_count == table->cell_room) {
        int room = table->cell_room ? 2 * table->cell_room : 64;
        const char **cells = realloc(table->cells, (size_t)room * sizeof *cells);
        if (!cells)
            return;
        table->cells = cells;
        table->cell_room = room;
    }
    size_t kept = length < 0 ? 0 : (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
    const char *copy = pool_copy_text(&table->pool, text, kept);
    table->cells[table->cell_count++] = copy ? copy : "";
}

static void print_margin(const char *label, FILE *out)
{
    (void)fprintf(out, "%-*s", TEXT_MARGIN, label);
}

static const char *cell_at(const struct table *table, int index)
{
    return index < table->cell_count ? table->cells[index] : "";
}

/* Nothing is written after the last cell that is not empty, so that no line ends in blanks. */
static void print_row(const struct table *table, int first, const int *widths, FILE *out)
{
    int end = table->columns;
    while (end > 0 && !cell_at(table, first + end - 1)[0])
        end--;
    for (int column = 0; column < end; column++) {
        const char *cell = cell_at(table, first + column);
        if (column > 0)
            (void)fprintf(out, "%*s", COLUMN_GAP, "");
        if (!(table->left & 1u << column))
            (void)fprintf(out, "%*s", widths[column], cell);
        else if (column + 1 < end)
            (void)fprintf(out, "%-*s", widths[column], cell);
        else
            (void)fputs(cell, out);
    }
    (void)fputc('\n', out);
}

void table_print(const struct table *table, const char *label, FILE *out)
{
    int widths[TABLE_MAX_COLUMNS] = { 0 };
    for (int i = 0; i < table->cell_count; i++) {
        int width = (int)strlen(table->cells[i]);
        int *widest = &widths[i % table->columns];
        if (width > *widest)
            *widest = width;
    }
    for (int first = 0; first < table->cell_count; first += table->columns) {
        print_margin(first == 0 ? label : "", out);
        print_row(table, first, widths, out);
    }
}

void table_done(struct table *table)
{
    free(table->cells);
    pool_done(&table->pool);
    *table = (struct table){ 0 };
}

void text_wrap(const char *label, const char *text, int indent, FILE *out)
{
    int column = TEXT_MARGIN;
    print_margin(label, out);
    for (const char *word = text; *word;) {
        int blanks = (int)strspn(word, " ");
        int length = (int)strcspn(word + blanks, " ");
        if (length == 0)
            break;
        if (column + blanks + length > TEXT_WIDTH && column > TEXT_MARGIN + indent) {
            (void)fprintf(out, "\n%*s", TEXT_MARGIN + indent, "");
            column = TEXT_MARGIN + indent;
            blanks = 0;
        }
        (void)fprintf(out, "%*s%.*s", blanks, "", length, word + strspn(word, " "));
        column += blanks + length;
        word += strspn(word, " ") + (size_t)length;
    }
    (void)fputc('\n', out);
}

struct scale scale_for(uint64_t largest_bytes)
{
    if (largest_bytes >= UINT64_C(1000000000))
        return (struct scale){ "GB", 1e9, 2 };
    return (struct scale){ "MB", 1e6, 3 };
}

double scaled(struct scale scale, uint64_t bytes)
{
    return (double)bytes / scale.bytes;
}
