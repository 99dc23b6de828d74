#include "planner/derive/neighbour.h"

#include "base/text.h"
#include "planner/derive/reason.h"
#include "planner/search/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One degree of a neighbour, multiplied and divided. */
struct move {
    size_t offset; /* of an int in struct degrees */
    int times, by;
    bool open;
};

static int *degree_at(struct degrees *degrees, size_t offset)
{
    return (int *)(void *)((char *)degrees + offset);
}

static bool same_layout(const struct candidate *a, const struct candidate *b)
{
    const struct layout *x = &a->choices.layout, *y = &b->choices.layout;
    return x->tp == y->tp && x->pp == y->pp && x->cp == y->cp && x->ep == y->ep && x->etp == y->etp;
}

static void insert(struct answer *answer, const struct candidate *candidate)
{
    int at = 0;

    if (same_layout(candidate, &answer->recommended))
        return;
    for (int i = 0; i < answer->candidate_count; i++)
        if (same_layout(candidate, &answer->candidates[i]))
            return;
    while (at < answer->candidate_count && !candidate_better(candidate, &answer->candidates[at]))
        at++;
    if (at == ANSWER_MAX_CANDIDATES)
        return;
    if (answer->candidate_count < ANSWER_MAX_CANDIDATES)
        answer->candidate_count++;
    for (int i = answer->candidate_count - 1; i > at; i--)
        answer->candidates[i] = answer->candidates[i - 1];
    answer->candidates[at] = *candidate;
}

/* A neighbour keeps the sharding, its widths where they are full, and what saves memory at no cost
 * in time. */
static struct space narrowed(const struct space *space, const struct choices *chosen)
{
    struct space narrow = *space;
    const struct primitives *p = &chosen->primitives;

    narrow.sharding = (struct knob){ .count = 1, .values = { (int)p->sharding } };
    if (p->loss == LOSS_LINEAR_CE)
        narrow.loss = (struct knob){ .count = 1, .values = { LOSS_LINEAR_CE } };
    narrow.full_widths_only = chosen->layout.d_rep == 1 && chosen->layout.e_rep == 1;
    return narrow;
}

static void try_neighbour(struct space *space, const struct decision *decision,
                          const struct degrees *degrees, struct answer *ret)
{
    struct decision other = *decision;
    struct settings lean = space_leanest(space);

    other.degrees = *degrees;
    if (space->open_fsdp)
        other.degrees.fsdp = 0;
    if (space->open_e_fsdp)
        other.degrees.e_fsdp = 0;
    if (!alternative(space, &other.degrees, &lean, &other.chosen))
        return;
    decide_settings(space, &other);
    insert(ret, &other.chosen);
}

void neighbours_write(struct space *space, const struct decision *decision, struct answer *ret)
{
    const struct move moves[] = {
        { offsetof(struct degrees, cp), 2, 1, space->open_cp },
        { offsetof(struct degrees, cp), 4, 1, space->open_cp },
        { offsetof(struct degrees, cp), 1, 2, space->open_cp },
        { offsetof(struct degrees, cp), 1, 4, space->open_cp },
        { offsetof(struct degrees, pp), 2, 1, space->open_pp },
        { offsetof(struct degrees, pp), 1, 2, space->open_pp },
        { offsetof(struct degrees, tp), 2, 1, space->open_tp },
        { offsetof(struct degrees, tp), 1, 2, space->open_tp },
        { offsetof(struct degrees, ep), 2, 1, space->open_ep && space->has_moe },
        { offsetof(struct degrees, ep), 1, 2, space->open_ep && space->has_moe },
        { offsetof(struct degrees, ep), 1, decision->degrees.ep,
          space->open_ep && space->has_moe && gathers_cross_network(space) },
    };
    struct space narrow = narrowed(space, &decision->chosen.choices);

    ret->candidate_count = 0;
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        struct degrees degrees = decision->degrees;
        int *value = degree_at(&degrees, moves[i].offset);
        if (!moves[i].open || *value % moves[i].by != 0)
            continue;
        *value = *value / moves[i].by * moves[i].times;
        try_neighbour(&narrow, decision, &degrees, ret);
    }
    space->layouts = narrow.layouts;
    space->legal = narrow.legal;
    space->fitting = narrow.fitting;
}

/* A choice that is open, and the values that are tried instead: of degrees multiples and parts of
 * the chosen one, and 1. */
struct turn {
    const char *key;
    size_t offset; /* of an int in struct degrees */
    bool open;
};

static int other_values(int chosen, int ret[5])
{
    const int values[] = { chosen * 2, chosen * 4, chosen % 2 ? 0 : chosen / 2,
                           chosen % 4 ? 0 : chosen / 4, 1 };
    int count = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        bool known = values[i] == 0 || values[i] == chosen;
        for (int k = 0; k < count; k++)
            known |= ret[k] == values[i];
        if (!known)
            ret[count++] = values[i];
    }
    return count;
}

static void fix(struct fixed_choices *fixed, const char *key, const char *value)
{
    struct diag_list ignored = { .count = 0 };
    if (!choice_is_fixed(fixed, key))
        (void)choice_set(fixed, key, value, (struct pos){ 0 }, &ignored);
}

void question_fix_degrees(struct question *q, const struct degrees *d)
{
    const struct {
        const char *key;
        int value;
    } rows[] = {
        { "tp", d->tp }, { "pp", d->pp }, { "cp", d->cp }, { "ep", d->ep }, { "etp", d->etp }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", rows[i].value);
        fix(&q->fixed, rows[i].key, text);
    }
}

/* With all degrees fixed, the leanest settings: how many bytes are missing, or the rule that
 * refuses them. */
static void ask_leanest(const struct question *q, struct neighbour *ret)
{
    struct space space;
    space_init(&space, q);
    struct degrees degrees = space_fixed_degrees(&space);
    struct settings lean = space_leanest(&space);
    struct budget_input facts = space_budget_input(&space, NULL);
    struct diag_list faults = { .count = 0 };
    struct choices choices;
    lean.linear_context = (enum linear_context)space_linear_contexts(&space, degrees.cp).values[0];
    space_complete(&space, &degrees, &lean, &choices);
    struct legality_input in = space_legality_input(&space, &choices);
    ret->standing = NEIGHBOUR_ILLEGAL;
    if (legality_check(&in, &faults) != 0) {
        for (int i = 0; i < faults.count && !ret->rule[0]; i++)
            if (faults.items[i].severity == SEVERITY_ERROR)
                (void)text_copy(ret->rule, sizeof ret->rule, faults.items[i].what);
        return;
    }
    facts.choices = &choices;
    struct rank_budget worst;
    if (predict_once(&facts, &worst, NULL) != 0)
        return;
    ret->standing = NEIGHBOUR_TOO_LARGE;
    ret->missing_bytes =
        worst.peak_upper_bytes > space.limit_bytes ? worst.peak_upper_bytes - space.limit_bytes : 0;
}

static int ask_neighbour(const struct space *space, const struct question *q, bool uses_host,
                         struct neighbour *ret, struct search_result *result)
{
    struct search_options options;
    struct diag_list errors = { .count = 0 };
    best_options(space->q, &options);
    options.threads = 1;
    options.fastest = true;
    options.host_memory = uses_host;
    if (search_run(q, &options, result, &errors) != 0)
        return -1;
    if (result->any) {
        ret->standing = NEIGHBOUR_FITS;
        ret->candidate = result->best;
    } else {
        ask_leanest(q, ret);
    }
    return 0;
}

static struct neighbour *add(struct neighbours *all, const char *key, int value, const char *name)
{
    struct neighbour *ret = &all->items[all->count++];
    *ret = (struct neighbour){ .key = key, .value = value };
    (void)snprintf(ret->name, sizeof ret->name, "%s %s", key, name);
    return ret;
}

/* Degrees: all are fixed, one of them at another value. */
static int turn_degrees(const struct space *space, const struct decision *decision,
                        struct neighbours *ret, struct search_result *result)
{
    const struct turn turns[] = {
        { "ep", offsetof(struct degrees, ep), space->open_ep && space->has_moe },
        { "cp", offsetof(struct degrees, cp), space->open_cp },
        { "pp", offsetof(struct degrees, pp), space->open_pp },
        { "tp", offsetof(struct degrees, tp), space->open_tp },
        { "etp", offsetof(struct degrees, etp), space->open_etp && space->has_moe },
    };
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        struct degrees degrees = decision->degrees;
        int values[5], *degree = degree_at(&degrees, turns[i].offset);
        int count = turns[i].open ? other_values(*degree, values) : 0;
        for (int k = 0; k < count && ret->count < NEIGHBOURS_MAX; k++) {
            struct question q = *space->q;
            char text[16];
            *degree = values[k];
            if (values[k] > q.gpus)
                continue;
            question_fix_degrees(&q, &degrees);
            (void)snprintf(text, sizeof text, "%d", values[k]);
            if (ask_neighbour(space, &q, decision->uses_host,
                              add(ret, turns[i].key, values[k], text), result) != 0)
                return -1;
        }
    }
    return 0;
}

static int turn_sharding(const struct space *space, const struct decision *decision,
                         struct neighbours *ret, struct search_result *result)
{
    static const enum sharding others[] = { SHARDING_REPLICATED, SHARDING_ZERO1, SHARDING_FSDP };
    for (size_t i = 0; i < sizeof others / sizeof *others && space->sharding.count > 1; i++) {
        struct question q = *space->q;
        if (others[i] == decision->chosen.choices.primitives.sharding ||
            ret->count == NEIGHBOURS_MAX)
            continue;
        question_fix_degrees(&q, &decision->degrees);
        fix(&q.fixed, "sharding", sharding_names[others[i]]);
        struct neighbour *added = add(ret, "sharding", 0, sharding_names[others[i]]);
        (void)text_copy(added->name, sizeof added->name, sharding_names[others[i]]);
        if (ask_neighbour(space, &q, decision->uses_host, added, result) != 0)
            return -1;
    }
    return 0;
}

int neighbours_search(struct space *space, const struct decision *decision, struct neighbours *ret,
                      struct answer *ret_answer)
{
    struct search_result *result = calloc(1, sizeof *result);
    ret->count = 0;
    if (!result || turn_degrees(space, decision, ret, result) != 0 ||
        turn_sharding(space, decision, ret, result) != 0) {
        free(result);
        return -1;
    }
    free(result);
    for (int i = 0; i < ret->count; i++)
        if (ret->items[i].standing == NEIGHBOUR_FITS)
            insert(ret_answer, &ret->items[i].candidate);
    return 0;
}
