#include "base/checked.h"
#include "planner/derive/derive.h"

const char *const verdict_names[] = {
    [VERDICT_FITS] = "fits",
    [VERDICT_TIGHT] = "tight",
    [VERDICT_DOES_NOT_FIT] = "does_not_fit",
};

const char *const policy_names[POLICY_COUNT + 1] = { "best", "articles", NULL };
const char *const objective_names[OBJECTIVE_COUNT + 1] = { "throughput", "headroom", "gpus",
                                                           "gpu-hours", NULL };

/* Ranks of the fullest node when the world fills nodes one after another. */
static int ranks_of_a_node(const struct question *q)
{
    int node = q->hardware->gpus_per_node;
    return node > 0 && node < q->gpus ? node : q->gpus;
}

uint64_t question_memory_bytes(const struct question *q)
{
    uint64_t bytes = q->hardware->memory_bytes;
    return q->hardware->host && q->gpus > 0 ? bytes / (uint64_t)ranks_of_a_node(q) : bytes;
}

uint64_t question_host_room(const struct question *q)
{
    const struct hardware *h = q->hardware;
    uint64_t ranks = h->gpus_per_node > 0 ? (uint64_t)h->gpus_per_node : 1;
    bool known = !h->host && h->host_memory_bytes > 0;

    return known ? h->host_memory_bytes / ranks : UINT64_MAX;
}

uint64_t question_limit_bytes(const struct question *q)
{
    uint64_t memory = question_memory_bytes(q);
    uint64_t kept = add_sat(q->headroom_bytes, q->reserve_bytes);
    return kept < memory ? memory - kept : 0;
}

int64_t question_global_batch(const struct question *q)
{
    int micro_batch = question_micro_batch(q);
    return q->global_batch > 0 ? q->global_batch : (int64_t)q->gpus * micro_batch;
}

int question_micro_batch(const struct question *q)
{
    if (choice_is_fixed(&q->fixed, "micro_batch"))
        return q->fixed.values.layout.micro_batch;
    return q->micro_batch > 0 ? q->micro_batch : 1;
}
