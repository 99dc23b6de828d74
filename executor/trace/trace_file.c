/* trace_file.c - one file of all ranks' events. */
#include "base/file.h"
#include "executor/fabric/progress.h"
#include "executor/trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct diag_list *reterr)
{
    return diag_error(reterr, (struct pos){ 0 }, "no memory left to write the trace");
}

/* When rank 0 began to trace: all ranks count from there. The same rounded number everywhere. */
static int common_origin(const struct trace *trace, struct fabric *f, int64_t *ret,
                         struct diag_list *reterr)
{
    int64_t first = trace->range_count > 0 ? trace->ranges[0].begin : trace_now();
    double origin = (double)(first + trace->offset - 1000); /* a double holds it to 256 ns */
    int status = 0;

    if (!f->alone) {
        origin = f->rank == 0 ? origin : 0;
        progress_wait(f->progress, "sum_doubles");
        status = f->ops->sum_doubles(f->all, &origin, 1, reterr);
        progress_waited(f->progress);
    }
    *ret = (int64_t)origin;
    return status;
}

static int write_file(const char *path, char *const *texts, const uint64_t *bytes, int count,
                      const char *plan_digest, struct diag_list *reterr)
{
    struct file_output *file = NULL;
    char head[200];

    int length = snprintf(head, sizeof head,
                          "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"schema\":"
                          "\"rankfit.trace/1\",\"plan_digest\":\"%s\"},\n\"traceEvents\":[\n",
                          plan_digest);
    if (file_output_begin(path, &file, reterr) != 0)
        return -1;
    int status = file_output_append(file, head, (size_t)length, reterr);
    for (int i = 0; i < count && status == 0; i++) {
        /* the very last comma goes */
        uint64_t kept = i + 1 == count && bytes[i] >= 2 ? bytes[i] - 2 : bytes[i];
        status = file_output_append(file, texts[i], kept, reterr);
    }
    if (status == 0)
        status = file_output_append(file, "\n]}\n", 4, reterr);
    if (status == 0)
        return file_output_commit(file, reterr);
    file_output_discard(file);
    return -1;
}

static int gather_and_write(struct fabric *f, const char *text, uint64_t size, const char *path,
                            const char *plan_digest, struct diag_list *reterr)
{
    char **texts = calloc((size_t)f->world, sizeof *texts);
    uint64_t *bytes = calloc((size_t)f->world, sizeof *bytes);
    int ret = texts && bytes ? 0 : no_memory(reterr);

    progress_wait(f->progress, "gather_text");
    if (ret == 0)
        ret = f->ops->gather_text(f->all, text, size, texts, bytes, reterr);
    progress_waited(f->progress);
    if (ret == 0 && f->rank == 0 && texts && bytes)
        ret = write_file(path, texts, bytes, f->world, plan_digest, reterr);
    for (int i = 0; texts && i < f->world; i++)
        free(texts[i]);
    free(texts);
    free(bytes);
    return ret;
}

int trace_write(const struct trace *trace, struct fabric *f, const char *path, const char *device,
                const char *plan_digest, struct diag_list *reterr)
{
    int64_t origin = 0;
    size_t size = 0;

    if (common_origin(trace, f, &origin, reterr) != 0)
        return -1;
    char *text = trace_text(trace, f->rank, device, origin, &size);
    if (!text)
        return no_memory(reterr);
    const uint64_t bytes = size;
    int ret = f->alone ? write_file(path, &text, &bytes, 1, plan_digest, reterr)
                       : gather_and_write(f, text, bytes, path, plan_digest, reterr);
    free(text);
    return ret;
}
