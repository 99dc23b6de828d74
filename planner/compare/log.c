#include "planner/compare/log.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const log_metric_names[LOG_METRICS] = { "allocated", "reserved", "device" };

enum { LINE_BYTES = 2048 };
static const double MIB = 1048576.0, MOST_BYTES = 9e18;

struct reader {
    struct log_figures *figures;
    int line;
};

/* The number behind a phrase; thousands may be set off by commas. */
static bool number_after(const char *line, const char *phrase, double *ret, const char **ret_end)
{
    const char *at = strstr(line, phrase);
    char digits[64];
    size_t used = 0;
    if (!at)
        return false;
    at += strlen(phrase);
    while (*at == ' ' || *at == ':' || *at == '.')
        at++;
    for (; isdigit((unsigned char)*at) || *at == '.' || *at == ','; at++)
        if (*at != ',' && used + 1 < sizeof digits)
            digits[used++] = *at;
    digits[used] = '\0';
    *ret = strtod(digits, NULL);
    if (ret_end)
        *ret_end = at;
    return used > 0 && isfinite(*ret);
}

/* "2.29 GiB", "786.00 MiB" behind a phrase. */
static bool size_after(const char *line, const char *phrase, uint64_t *ret)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = { { "GiB", 1073741824.0 }, { "MiB", 1048576.0 }, { "KiB", 1024.0 },
                  { "GB", 1073741824.0 },  { "MB", 1048576.0 },  { "bytes", 1.0 } };
    double number;
    const char *end;
    if (!number_after(line, phrase, &number, &end))
        return false;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strncmp(end, units[i].name, strlen(units[i].name)) == 0 &&
            number * units[i].bytes < MOST_BYTES) {
            *ret = (uint64_t)(number * units[i].bytes);
            return true;
        }
    return false;
}

static void take(struct reader *r, enum log_metric metric, double bytes)
{
    struct log_figures *f = r->figures;
    if (!(bytes > 0 && bytes < MOST_BYTES) || (uint64_t)bytes <= f->bytes[metric])
        return;
    f->bytes[metric] = (uint64_t)bytes;
    f->lines[metric] = r->line;
}

static void take_step(struct reader *r, double seconds)
{
    struct log_figures *f = r->figures;
    if (seconds > 0 && f->step_count < LOG_STEPS_MAX)
        f->step_seconds[f->step_count++] = seconds;
}

/* [Rank 0] (after 2 iterations) memory (MB) | allocated: .. | max allocated: .. | max reserved: ..
 * in 2^20 bytes; and the line of an iteration. */
static void read_megatron(struct reader *r, const char *line)
{
    double number;
    if (strstr(line, "memory (MB)")) {
        if (number_after(line, "max allocated:", &number, NULL))
            take(r, LOG_ALLOCATED, number * MIB);
        if (number_after(line, "max reserved:", &number, NULL))
            take(r, LOG_RESERVED, number * MIB);
    }
    if (number_after(line, "elapsed time per iteration (ms):", &number, NULL))
        take_step(r, number / 1000);
}

/* "  num_layers ...................................... 48" of Megatron's arguments; "Model llama3
 * 8B size: 8,030,261,248 total parameters" of torchtitan. */
static void read_run(struct reader *r, const char *line)
{
    struct log_figures *f = r->figures;
    struct {
        const char *name;
        int *value;
    } numbers[] = { { " world_size ..", &f->world },
                    { " num_layers ..", &f->layers },
                    { " hidden_size ..", &f->hidden } };
    double number;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (number_after(line, numbers[i].name, &number, NULL) && number < 1e6)
            *numbers[i].value = (int)number;
    if (strstr(line, "total parameters") && number_after(line, "size:", &number, NULL) &&
        number < MOST_BYTES)
        f->params = (uint64_t)number;
}

/* step:  2  loss: 10.1  memory: 47.49GiB(50.0%)  tps: 6,000: the memory is the most reserved. */
static void read_torchtitan(struct reader *r, const char *line)
{
    uint64_t bytes;
    if (strstr(line, "step:") && strstr(line, "loss:") && size_after(line, "memory:", &bytes))
        take(r, LOG_RESERVED, (double)bytes);
}

/* Both forms of the message, of PyTorch 2 and of those before. */
static void read_out_of_memory(struct reader *r, const char *line)
{
    struct log_figures *f = r->figures;
    uint64_t bytes, reserved;
    if (!strstr(line, "out of memory") || !size_after(line, "Tried to allocate", &bytes))
        return;
    f->out_of_memory = true;
    f->out_of_memory_line = r->line;
    f->request_bytes = bytes > f->request_bytes ? bytes : f->request_bytes;
    if (size_after(line, "total capacity of", &bytes) ||
        size_after(line, "total capacty of", &bytes))
        f->capacity_bytes = bytes;
    if (size_after(line, "this process has", &bytes))
        take(r, LOG_DEVICE, (double)bytes);
    if (size_after(line, "Of the allocated memory", &bytes)) {
        take(r, LOG_ALLOCATED, (double)bytes);
        if (size_after(line, "by PyTorch, and", &reserved))
            take(r, LOG_RESERVED, (double)bytes + (double)reserved);
    }
    /* (GPU 0; 31.74 GiB total capacity; 28.82 GiB already allocated; ... 29.97 GiB reserved */
    const char *brackets = strstr(line, "(GPU ");
    const char *at = brackets ? strchr(brackets, ';') : NULL;
    for (; at; at = strchr(at + 1, ';')) {
        if (!size_after(at, ";", &bytes))
            continue;
        const char *next = strchr(at + 1, ';');
        char part[96];
        (void)snprintf(part, sizeof part, "%.*s", next ? (int)(next - at) : 90, at);
        if (strstr(part, "total capacity"))
            f->capacity_bytes = bytes;
        else if (strstr(part, "already allocated"))
            take(r, LOG_ALLOCATED, (double)bytes);
        else if (strstr(part, "reserved in total"))
            take(r, LOG_RESERVED, (double)bytes);
    }
}

/* | Allocated memory      |  12345 MiB |  23456 MiB | ... of torch.cuda.memory_summary: current and
 * peak. */
static void read_summary(struct reader *r, const char *line)
{
    static const struct {
        const char *name;
        enum log_metric metric;
    } rows[] = { { "| Allocated memory", LOG_ALLOCATED },
                 { "| GPU reserved memory", LOG_RESERVED } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *at = strstr(line, rows[i].name), *current = at ? strchr(at + 2, '|') : NULL;
        const char *peak = current ? strchr(current + 1, '|') : NULL;
        uint64_t bytes;
        if (peak && size_after(peak, "|", &bytes))
            take(r, rows[i].metric, (double)bytes);
    }
}

/* |  45678MiB / 81559MiB | */
static void read_nvidia_smi(struct reader *r, const char *line)
{
    const char *slash = strstr(line, "MiB / ");
    const char *from = slash;
    while (from && from > line && (isdigit((unsigned char)from[-1])))
        from--;
    if (from && from < slash)
        take(r, LOG_DEVICE, strtod(from, NULL) * MIB);
}

/* Colors of terminals are no part of a line. */
static void copy_line(const char *from, size_t bytes, char *ret)
{
    size_t used = 0;
    for (size_t i = 0; i < bytes && used + 1 < LINE_BYTES; i++) {
        if (from[i] == '\033' && i + 1 < bytes && from[i + 1] == '[') {
            for (i += 2; i < bytes && !isalpha((unsigned char)from[i]);)
                i++;
            continue;
        }
        ret[used++] = from[i] == '\0' || from[i] == '\t' ? ' ' : from[i];
    }
    ret[used] = '\0';
}

static bool has_figures(const struct log_figures *f)
{
    bool memory = false;
    for (int m = 0; m < LOG_METRICS; m++)
        memory = memory || f->bytes[m] > 0;
    return memory || f->out_of_memory;
}

int log_read(const char *name, const char *text, size_t bytes, struct log_figures *ret,
             struct diag_list *reterr)
{
    struct reader r = { .figures = ret };
    char line[LINE_BYTES];
    memset(ret, 0, sizeof *ret);
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at;
        copy_line(text + at, length, line);
        r.line++;
        read_megatron(&r, line);
        read_torchtitan(&r, line);
        read_run(&r, line);
        read_out_of_memory(&r, line);
        read_summary(&r, line);
        read_nvidia_smi(&r, line);
        at += length + 1;
    }
    if (has_figures(ret))
        return 0;
    diag_error(reterr, (struct pos){ name, 0, 0 }, "the log has no line about memory");
    return diag_hint(reterr,
                     "the memory report of Megatron-LM, lines of torchtitan and nvidia-smi, "
                     "torch.cuda.memory_summary and PyTorch's message that memory is out "
                     "are read");
}

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double log_seconds(const struct log_figures *figures)
{
    int first = figures->step_count > 1, count = figures->step_count - first;
    if (count < 1)
        return 0;
    double *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted)
        return 0;
    memcpy(sorted, figures->step_seconds + first, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_reals);
    double median = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    free(sorted);
    return median;
}
