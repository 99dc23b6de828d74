/* held.c - what of a device's memory is held beside tensors: context, libraries, communicators. */
#include "executor/calibrate/bench.h"

#include "base/text.h"

#include <stdlib.h>

static uint64_t held(const struct bench *b)
{
    const struct calibrate_device *d = &b->calibration->device;
    return d->held_bytes(d->context);
}

static int add(struct bench *b, const char *name, uint64_t bytes, int ranks)
{
    struct point point = {
        .kind = POINT_HELD, .bytes = (double)bytes, .ranks = ranks, .repeats = 1
    };
    (void)text_copy(point.name, sizeof point.name, name);
    return bench_add(b, &point);
}

/* Names of what is added at each stage of a communicator's life. */
struct stages {
    const char *opened, *gathered, *exchanged;
};

static int note_growth(struct bench *b, const char *name, uint64_t *before, int ranks)
{
    if (b->ops->sync(b->backend, STREAM_COMPUTE, b->errors) != 0 ||
        b->ops->sync(b->backend, STREAM_COMMUNICATION, b->errors) != 0)
        return -1;
    uint64_t now = held(b), grown = now > *before ? now - *before : 0;
    *before = now;
    return add(b, name, grown, ranks);
}

/* One communicator of all ranks, in ascending or descending order: the fabric shares those whose
 * ranks are in the same order. */
static int measure(struct bench *b, const int *ranks, const struct stages *stages,
                   struct group **ret_group)
{
    enum { BYTES = 1 << 20 };
    struct fabric *f = b->calibration->fabric;
    uint64_t before = held(b), each = (uint64_t)BYTES;
    int count = f->world;
    int64_t *rows = calloc((size_t)count, sizeof *rows);
    char *send = bench_take(b, each * (uint64_t)count),
         *recv = bench_take(b, each * (uint64_t)count);
    int ret = rows && send && recv ? 0 : diag_error(b->errors, (struct pos){ 0 }, "no memory left");
    for (int i = 0; rows && i < count; i++)
        rows[i] = 1;
    if (ret == 0)
        ret = f->ops->group_open(f, ranks, count, ret_group, b->errors);
    if (ret == 0)
        ret = note_growth(b, stages->opened, &before, count);
    if (ret == 0)
        ret = f->ops->all_gather(*ret_group, send, recv, each, b->errors);
    if (ret == 0)
        ret = note_growth(b, stages->gathered, &before, count);
    if (ret == 0)
        ret = f->ops->all_to_all_rows(*ret_group, send, rows, recv, rows, each, b->errors);
    if (ret == 0)
        ret = note_growth(b, stages->exchanged, &before, count);
    free(rows);
    bench_clear(b);
    return ret;
}

/* The same of an exchange by copies, beside the block that it goes through; a machine without copy
 * engines between GPUs has none. */
static int measure_copies(struct bench *b, const int *ranks)
{
    const uint64_t each = UINT64_C(1) << 20;
    struct fabric *f = b->calibration->fabric;
    uint64_t before = held(b), whole = each * (uint64_t)f->world;
    struct group *group = NULL;
    struct diag_list why = { 0 };
    bool refused = false;
    int64_t *rows = calloc((size_t)f->world, sizeof *rows);
    if (!rows)
        return diag_error(b->errors, (struct pos){ 0 }, "no memory left");
    for (int i = 0; i < f->world; i++)
        rows[i] = 1;
    int ret = f->ops->group_open_copies(f, ranks, f->world, &group, &why);
    if (bench_any(b, ret != 0, &refused) != 0)
        refused = true;
    struct arena_source source = f->ops->window_source(f);
    ret = refused ? 0 : note_growth(b, "copies communicator", &before, f->world);
    char *block = refused || ret != 0 ? NULL : source.reserve(source.context, 2 * whole);
    before = held(b);
    if (block)
        ret = f->ops->all_to_all_rows(group, block, rows, block + whole, rows, each, b->errors);
    if (block && ret == 0)
        ret = note_growth(b, "copies exchange", &before, f->world);
    if (block)
        source.release(source.context, block, 2 * whole);
    if (group)
        f->ops->group_close(f, group);
    free(rows);
    return ret;
}

int bench_communicators(struct bench *b)
{
    static const struct stages first = { "first communicator", "its first gather",
                                         "its first exchange" },
                               next = { "next communicator", "next gather", "next exchange" };
    struct fabric *f = b->calibration->fabric;
    int *up = calloc((size_t)f->world, sizeof *up), *down = calloc((size_t)f->world, sizeof *down);
    int ret = up && down ? 0 : diag_error(b->errors, (struct pos){ 0 }, "no memory left");
    for (int i = 0; up && down && i < f->world; i++) {
        up[i] = i;
        down[i] = f->world - 1 - i;
    }
    struct group *groups[2] = { NULL, NULL }; /* the first stands while the next is measured */
    if (ret == 0 && f->world > 1 && b->calibration->device.held_bytes) {
        ret = measure(b, up, &first, &groups[0]);
        if (ret == 0)
            ret = measure(b, down, &next, &groups[1]);
        if (ret == 0 && f->ops->group_open_copies && f->ops->window_source)
            ret = measure_copies(b, up);
    }
    for (int i = 1; i >= 0; i--)
        if (groups[i])
            f->ops->group_close(f, groups[i]);
    free(up);
    free(down);
    return ret;
}

/* Beside context and what we took: modules, handles, the libraries' own buffers. */
int bench_libraries(struct bench *b)
{
    const struct calibrate_device *d = &b->calibration->device;
    uint64_t workspace = b->ops->workspace_bytes(b->backend);
    if (add(b, "workspace", workspace, 0) != 0)
        return -1;
    if (!d->held_bytes)
        return 0;
    uint64_t ours = d->context_bytes + b->block_bytes + workspace, now = held(b);
    return add(b, "context", d->context_bytes, 0) == 0
               ? add(b, "libraries", now > ours ? now - ours : 0, 0)
               : -1;
}
