#include "base/diag.h"

#include <stdarg.h>
#include <string.h>

/* Names and values out of a file may hold characters that move a terminal's cursor. */
static void mask_controls(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

/* A message that was cut says so instead of ending in the middle of a word. */
static void format_bounded(char *ret, size_t size, const char *format, va_list arguments)
{
    int length = vsnprintf(ret, size, format, arguments);
    if (length < 0) {
        ret[0] = '\0';
        return;
    }
    mask_controls(ret);
    if ((size_t)length < size)
        return;
    size_t cut = size - sizeof "...";
    while (cut > 0 && ((unsigned char)ret[cut] & 0xc0) == 0x80)
        cut--;
    memcpy(ret + cut, "...", sizeof "...");
}

/* A long path keeps its end, which is what tells files apart. */
static void copy_file_name(char *ret, size_t size, const char *file)
{
    size_t length = file ? strlen(file) : 0;
    if (length < size)
        (void)snprintf(ret, size, "%s", file ? file : "");
    else
        (void)snprintf(ret, size, "...%s", file + length - (size - sizeof "..."));
    mask_controls(ret);
}

static void append(struct diag_list *list, enum severity severity, struct pos at,
                   const char *format, va_list arguments)
{
    if (severity == SEVERITY_ERROR)
        list->errors++;
    if (list->count == DIAG_MAX) {
        list->dropped++;
        return;
    }
    struct diag *diag = &list->items[list->count++];
    diag->severity = severity;
    copy_file_name(diag->file, sizeof diag->file, at.file);
    diag->line = at.line;
    diag->column = at.column;
    diag->hint[0] = '\0';
    format_bounded(diag->what, sizeof diag->what, format, arguments);
}

int diag_error(struct diag_list *list, struct pos at, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append(list, SEVERITY_ERROR, at, format, arguments);
    va_end(arguments);
    return -1;
}

int diag_no_memory(struct diag_list *list)
{
    list->errors += !list->no_memory;
    list->no_memory = true;
    return -1;
}

void diag_warning(struct diag_list *list, struct pos at, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append(list, SEVERITY_WARNING, at, format, arguments);
    va_end(arguments);
}

int diag_hint(struct diag_list *list, const char *format, ...)
{
    /* When entries were dropped the newest one is gone, and its hint goes with it. */
    if (list->count == 0 || list->dropped > 0)
        return -1;
    struct diag *diag = &list->items[list->count - 1];
    va_list arguments;
    va_start(arguments, format);
    format_bounded(diag->hint, sizeof diag->hint, format, arguments);
    va_end(arguments);
    return -1;
}

void diag_keep_no_memory(struct diag_list *list, const struct diag_list *discarded)
{
    if (discarded->no_memory)
        (void)diag_no_memory(list);
}

void diag_append(struct diag_list *list, const struct diag_list *more)
{
    int room = DIAG_MAX - list->count;
    int taken = more->count < room ? more->count : room;
    if (taken > 0)
        memcpy(&list->items[list->count], more->items, (size_t)taken * sizeof more->items[0]);
    list->count += taken;
    list->errors += more->errors;
    list->no_memory = list->no_memory || more->no_memory;
    list->dropped += more->dropped + more->count - taken;
}

void diag_print(FILE *out, const struct diag *diag)
{
    if (diag->file[0]) {
        (void)fprintf(out, "%s:", diag->file);
        if (diag->line > 0)
            (void)fprintf(out, "%d:", diag->line);
        if (diag->line > 0 && diag->column > 0)
            (void)fprintf(out, "%d:", diag->column);
        (void)fputc(' ', out);
    }
    (void)fprintf(out, "%s: %s\n", diag->severity == SEVERITY_ERROR ? "error" : "warning",
                  diag->what);
    if (diag->hint[0])
        (void)fprintf(out, "  hint: %s\n", diag->hint);
}

void diag_list_print(FILE *out, const struct diag_list *list)
{
    if (list->no_memory) {
        (void)fputs("error: out of memory\n", out);
        return;
    }
    for (int i = 0; i < list->count; i++)
        diag_print(out, &list->items[i]);
    if (list->dropped > 0)
        (void)fprintf(out, "and %d more\n", list->dropped);
}
