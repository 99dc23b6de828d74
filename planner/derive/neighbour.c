#include "planner/derive/neighbour.h"
#include "planner/derive/reason.h"

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
