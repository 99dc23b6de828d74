/* best.c - the layout by search: the best pessimistic step that fits, and of equally fast ones the
 * roomiest. Host memory is used where it was asked for or nothing else fits. */
#include "planner/derive/decide.h"
#include "planner/search/search.h"

#include <stdlib.h>
#include <string.h>

/* From so many GPUs on a search is worth threads of its own. */
enum { LARGE_WORLD = 64 };

void best_options(const struct question *q, struct search_options *ret)
{
    *ret = (struct search_options){ .objective = q->objective,
                                    .threads = q->gpus > LARGE_WORLD ? 0 : 1,
                                    .kinds = true,
                                    .no_smallest = true };
}

/* Layouts that are compared with one that a search found are split alike. */
void note_lighter_end(struct space *space, const struct layout *found)
{
    struct layout l = *found;
    if (l.pp == 1 || l.vpp > 1 || !space->open_stages)
        return;
    for (space->lighter = 0; space->lighter < space->q->model->layers; space->lighter++) {
        space_split_layers(space, &l);
        if (!memcmp(l.stage_layers, found->stage_layers, (size_t)l.pp * sizeof *l.stage_layers))
            return;
    }
    space->lighter = 0;
}

struct degrees degrees_of(const struct layout *l)
{
    return (struct degrees){ .tp = l->tp,
                             .pp = l->pp,
                             .cp = l->cp,
                             .ep = l->ep,
                             .etp = l->etp,
                             .fsdp = l->fsdp,
                             .e_fsdp = l->e_fsdp };
}

static bool fits(const struct search_result *result)
{
    return result->any && result->best.verdict == VERDICT_FITS;
}

/* Without host memory; with it where nothing fits so and no key was set: a layout that a person
 * spelled out is judged as it is. -1: no memory. */
static int search_best(struct space *space, struct search_result *ret, bool *ret_uses_host)
{
    const struct question *q = space->q;
    struct search_options options;
    struct search_result *with_host;
    struct diag_list errors = { .count = 0 };
    best_options(q, &options);
    *ret_uses_host = false;
    if (search_run(q, &options, ret, &errors) != 0)
        return -1;
    space->layouts += (long)ret->layouts;
    space->legal += (long)ret->legal;
    space->fitting += (long)ret->judged;
    if (fits(ret) || q->fixed.set != 0 || q->hardware->host || !ret->possible)
        return 0;
    with_host = calloc(1, sizeof *with_host);
    if (!with_host)
        return -1;
    options.host_memory = options.fits_only = true;
    int rc = search_run(q, &options, with_host, &errors);
    if (rc == 0 && fits(with_host)) {
        *ret = *with_host;
        *ret_uses_host = true;
    }
    free(with_host);
    return rc;
}

/* Where nothing fits, not even tightly, the smallest that the ordered decisions come to. */
bool decide_best(struct space *space, struct decision *ret)
{
    struct search_result *result = calloc(1, sizeof *result);
    bool uses_host = false;
    if (!result || search_best(space, result, &uses_host) != 0) {
        space->no_memory = true;
        free(result);
        return false;
    }
    if (!result->any) {
        free(result);
        bool found = decide_degrees(space, DECIDE_MOST_VISITS, ret);
        if (found)
            space_fill(space, &ret->chosen);
        return found;
    }
    *ret = (struct decision){ .chosen = result->best,
                              .degrees = degrees_of(&result->best.choices.layout),
                              .found = true,
                              .searched = true,
                              .uses_host = uses_host,
                              .best_seconds = result->fastest_seconds };
    note_lighter_end(space, &result->best.choices.layout);
    free(result);
    return true;
}
