#include "executor/runtime/record.h"
#include "base/file.h"
#include "base/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct diag_list *reterr)
{
    return diag_error(reterr, (struct pos){ 0 }, "no memory left for the measurement");
}

int record_open(struct record *record, const struct plan *plan, int steps, struct diag_list *reterr)
{
    size_t chunks = (size_t)plan->choices.primitives.moe_chunks;

    memset(record, 0, sizeof *record);
    record->room = steps;
    record->passes = plan->choices.layout.micro_batches * plan->model.layers;
    record->routed = calloc((size_t)record->passes, sizeof *record->routed);
    record->chunk_rows = calloc((size_t)record->passes * chunks, sizeof *record->chunk_rows);
    record->seconds = calloc((size_t)steps, sizeof *record->seconds);
    record->loss = calloc((size_t)steps, sizeof *record->loss);
    return record->seconds && record->loss && record->routed && record->chunk_rows
               ? 0
               : no_memory(reterr);
}

void record_close(struct record *record)
{
    free(record->seconds);
    free(record->loss);
    free(record->routed);
    free(record->chunk_rows);
    memset(record, 0, sizeof *record);
}

static void keep_rows(struct record *record, const struct routed_rows *routed)
{
    uint64_t *chunk_rows = record->chunk_rows;

    for (int i = 0; i < record->passes; i++) {
        struct routed_rows *kept = &record->routed[i];
        *kept = routed[i];
        if (kept->chunk_count == 0)
            continue;
        memcpy(chunk_rows, kept->chunk_rows_received, kept->chunk_count * sizeof *chunk_rows);
        kept->chunk_rows_received = chunk_rows;
        chunk_rows += kept->chunk_count;
    }
}

void record_step(struct record *record, struct trainer *t, const struct step_result *result)
{
    struct arena_record memory;

    arena_record(t->work.arena, &memory);
    if (record->steps == 0 || memory.live_peak_bytes > record->memory.live_peak_bytes) {
        record->memory = memory;
        keep_rows(record, t->work.routed);
    }
    trainer_measure(t);
    if (record->steps == record->room)
        return;
    record->seconds[record->steps] = result->seconds;
    record->loss[record->steps++] = result->loss;
}

/* The value behind `key` of a file of "key: value" lines, blanks skipped; "" when there is none. */
static void find_line(const char *path, const char *key, char *ret, size_t size)
{
    char line[512];
    FILE *file = fopen(path, "re");

    ret[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        (void)snprintf(ret, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (file)
        (void)fclose(file);
}

uint64_t record_rss_bytes(void)
{
    char kilobytes[64];
    find_line("/proc/self/status", "VmHWM", kilobytes, sizeof kilobytes);
    return (uint64_t)strtoull(kilobytes, NULL, 10) * 1024;
}

void record_host_device(char *ret, size_t size)
{
    find_line("/proc/cpuinfo", "model name", ret, size);
    if (ret[0] == '\0')
        (void)text_copy(ret, size, "host");
}

static void fill_rank(const struct record *record, const struct trainer *t,
                      struct measured_rank *ret)
{
    const struct arena_record *memory = &record->memory;

    *ret = (struct measured_rank){ .rank = t->mesh.fabric->rank,
                                   .arena_live_bytes = memory->live_peak_bytes,
                                   .arena_extent_bytes = memory->extent_bytes,
                                   .arena_room_bytes = memory->room_bytes,
                                   .rss_bytes = record_rss_bytes(),
                                   .routed = record->routed,
                                   .steps = (size_t)record->steps,
                                   .step_seconds = record->seconds,
                                   .loss = record->loss };
    (void)text_copy(ret->peak_phase, sizeof ret->peak_phase, memory->peak_phase);
    memcpy(ret->item_bytes, memory->item_at_peak, sizeof ret->item_bytes);
    memcpy(ret->item_max_bytes, memory->item_max, sizeof ret->item_max_bytes);
    memcpy(ret->phase_seconds, t->phase_seconds, sizeof ret->phase_seconds);
    if (record->machine.add_device)
        record->machine.add_device(record->machine.context, ret);
}

/* The rows of layers that route, moved together. */
static size_t pack_routed(const struct record *record, struct routed_rows *ret)
{
    size_t count = 0;

    for (int i = 0; i < record->passes; i++)
        if (record->routed[i].rows_sent > 0)
            ret[count++] = record->routed[i];
    return count;
}

static struct json *own_document(const struct record *record, const struct trainer *t)
{
    const struct plan *plan = t->work.plan;
    struct measured_rank rank;
    const struct fabric *f = t->mesh.fabric;
    struct measurement m = { .steps = record->steps,
                             .rank_count = 1,
                             .ranks = &rank,
                             .traced = record->machine.traced,
                             .rehearsed_world = f->alone ? f->world : 0 };
    struct routed_rows *routed = calloc((size_t)record->passes, sizeof *routed);

    if (!routed)
        return NULL;
    fill_rank(record, t, &rank);
    rank.routed = routed;
    rank.routed_count = pack_routed(record, routed);
    (void)text_copy(m.plan_digest, sizeof m.plan_digest, plan->digest);
    (void)text_copy(m.backend, sizeof m.backend, record->machine.backend);
    (void)text_copy(m.device, sizeof m.device, record->machine.device);
    (void)text_copy(m.versions, sizeof m.versions, record->machine.versions);
    struct json *document = measurement_to_json(&m);
    free(routed);
    return document;
}

/* Rank 0's document with the ranks of all others. */
static void merge(struct json *document, char *const *texts, const uint64_t *bytes, int count)
{
    struct json *ranks = json_list();
    for (int i = 0; i < count; i++) {
        json_t *own = json_loadb(texts[i], bytes[i], 0, NULL);
        json_append(ranks, json_of(json_incref(json_array_get(json_object_get(own, "ranks"), 0))));
        json_decref(own);
    }
    json_put(document, "ranks", ranks);
}

/* Nobody goes on before the file stands: a fault in the next step must not cost this one's. */
static int wait_for_writer(struct fabric *f, struct diag_list *reterr)
{
    progress_wait(f->progress, "barrier");
    int ret = f->ops->barrier(f->all, reterr);
    progress_waited(f->progress);
    return ret;
}

static int gather_and_write(struct fabric *f, struct json *document, const char *text,
                            const char *path, struct diag_list *reterr)
{
    char **texts = calloc((size_t)f->world, sizeof *texts);
    uint64_t *bytes = calloc((size_t)f->world, sizeof *bytes);
    int ret = texts && bytes ? 0 : no_memory(reterr);

    progress_wait(f->progress, "gather_text");
    if (ret == 0)
        ret = f->ops->gather_text(f->all, text, strlen(text), texts, bytes, reterr);
    progress_waited(f->progress);
    if (ret == 0 && f->rank == 0 && texts && bytes) {
        merge(document, texts, bytes, f->world);
        ret = file_write_document(path, document, reterr);
    }
    if (ret == 0)
        ret = wait_for_writer(f, reterr);
    for (int i = 0; texts && i < f->world; i++)
        free(texts[i]);
    free(texts);
    free(bytes);
    return ret;
}

/* A rehearsed rank is all there is. */
static int gather_or_write(struct fabric *f, struct json *document, const char *text,
                           const char *path, struct diag_list *reterr)
{
    return f->alone ? file_write_document(path, document, reterr)
                    : gather_and_write(f, document, text, path, reterr);
}

int record_write(const struct record *record, const struct trainer *trainer, const char *path,
                 struct diag_list *reterr)
{
    struct json *document = own_document(record, trainer);
    char *text = json_render(document, JSON_FORM_BARE);
    int ret = text ? gather_or_write(trainer->mesh.fabric, document, text, path, reterr)
                   : no_memory(reterr);
    free(text);
    json_free(document);
    return ret;
}
