/* What would fit if the question were another. Every entry is derived anew before it is offered. */
#include "base/text.h"
#include "base/units.h"
#include "planner/derive/neighbour.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_roots.h>
#include <math.h>

/* What fits does so early in the walk; a deeper look would cost more than the hint is worth. */
enum { MOST_WORLDS = 32, SEQUENCE_UNIT = 1024, MOST_STRETCHES = 4, MOST_VISITS = 80 };

/* Whether a question has a layout that fits; its peak and choices. Without memory nothing does. */
static bool fits(const struct question *q, struct decision *ret)
{
    struct space space;
    space_init(&space, q);
    struct budget_input facts = space_budget_input(&space, NULL);
    space.predictor = predictor_open(&facts, PREDICTOR_MANY_LAYOUTS);
    bool found = space.predictor && decide_degrees(&space, MOST_VISITS, ret) &&
                 ret->chosen.verdict == VERDICT_FITS;
    predictor_close(space.predictor);
    return found;
}

static struct nearest *append(struct answer *answer)
{
    if (answer->nearest_count == ANSWER_MAX_NEAREST)
        return NULL;
    struct nearest *nearest = &answer->nearest[answer->nearest_count++];
    *nearest = (struct nearest){ .gpus = 0 };
    return nearest;
}

static bool fits_on(const struct question *q, int gpus, struct decision *ret)
{
    struct question more = *q;
    more.gpus = gpus;
    return gpus <= LAYOUT_MAX_RANKS && fits(&more, ret);
}

/* The next larger number of GPUs worth asking about: below a node powers of two; then 1, 5/4, 3/2
 * and 7/4 of a power of two of nodes, since worlds with large odd factors divide badly. */
static int next_gpus(const struct question *q, int gpus)
{
    int node = q->hardware->gpus_per_node > 0 ? q->hardware->gpus_per_node : 1, power = 1;

    while (power <= gpus)
        power *= 2;
    if (gpus < node)
        return power < node ? power : node;
    int nodes = gpus / node, quarter = 1;
    while (quarter * 8 <= nodes)
        quarter *= 2;
    return (nodes / quarter + 1) * quarter * node;
}

/* Whether more GPUs help at all: a look at a few far larger worlds. */
static bool more_gpus_help(const struct question *q)
{
    static const int factors[] = { 2, 8, 64 };
    struct decision decision;

    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (q->gpus <= LAYOUT_MAX_RANKS / factors[i] && fits_on(q, q->gpus * factors[i], &decision))
            return true;
    return false;
}

static void more_gpus(const struct question *q, struct answer *ret)
{
    struct decision decision;
    int gpus = q->gpus, tries = 0;

    /* ranks of a host share one memory: more of them get less each */
    if (q->hardware->host || !more_gpus_help(q))
        return;
    do {
        if (gpus > LAYOUT_MAX_RANKS / 2 || ++tries > MOST_WORLDS)
            return;
        gpus = next_gpus(q, gpus);
    } while (!fits_on(q, gpus, &decision));
    struct nearest *nearest = append(ret);
    if (!nearest)
        return;
    size_t used = 0;
    nearest->gpus = gpus;
    nearest->peak_bytes = decision.chosen.worst.peak_bytes;
    text_append(nearest->change, sizeof nearest->change, &used, "%d GPUs instead of %d", gpus,
                q->gpus);
}

/* The recommended layout's distance from the limit as a function of the sequence. */
struct stretch {
    const struct space *space;
    const struct choices *choices;
};

static double over_limit(double seq_tokens, void *context)
{
    const struct stretch *stretch = (const struct stretch *)context;
    struct budget_input in = space_budget_input(stretch->space, stretch->choices);
    struct rank_budget worst;

    in.seq_tokens = (uint64_t)seq_tokens;
    if (predict_once(&in, &worst, NULL) != 0)
        return 1; /* no memory: nothing is promised */
    return (double)worst.peak_upper_bytes - (double)stretch->space->limit_bytes;
}

/* The sequence at which the layout just fills the limit; 0 when even the shortest does not fit. */
static uint64_t root_sequence(const struct stretch *stretch)
{
    gsl_function function = { .function = over_limit, .params = (void *)(uintptr_t)stretch };
    double low = SEQUENCE_UNIT, high = (double)stretch->space->q->seq_tokens;
    uint64_t root = 0;

    if (high <= low || over_limit(low, function.params) > 0)
        return 0;
    if (over_limit(high, function.params) <= 0)
        return (uint64_t)high;
    gsl_root_fsolver *solver = gsl_root_fsolver_alloc(gsl_root_fsolver_brent);
    if (!solver)
        return 0;
    if (gsl_root_fsolver_set(solver, &function, low, high) == GSL_SUCCESS) {
        for (int i = 0; i < 60 && high - low > SEQUENCE_UNIT / 4.0; i++) {
            if (gsl_root_fsolver_iterate(solver) != GSL_SUCCESS)
                break;
            low = gsl_root_fsolver_x_lower(solver);
            high = gsl_root_fsolver_x_upper(solver);
        }
        root = (uint64_t)low;
    }
    gsl_root_fsolver_free(solver);
    return root;
}

/* Sequences that split evenly: zig-zag order needs 2 x cp parts. */
static uint64_t sequence_unit(const struct question *q, const struct layout *l)
{
    uint64_t parts = 2 * (uint64_t)l->cp * (uint64_t)l->tp, unit = SEQUENCE_UNIT;
    while (unit % parts != 0 && unit < q->seq_tokens)
        unit += SEQUENCE_UNIT;
    return unit;
}

/* The longest sequence of any layout tried: the root of one layout, then of the one that fits just
 * beyond it, until none does. Leaves what fits there in *ret; 0: none. */
static uint64_t longest_sequence(const struct space *space, const struct decision *smallest,
                                 struct decision *ret)
{
    struct decision layout = *smallest, beyond;
    struct question shorter = *space->q;
    uint64_t longest = 0;

    for (int i = 0; i < MOST_STRETCHES; i++) {
        const struct stretch stretch = { space, &layout.chosen.choices };
        uint64_t unit = sequence_unit(space->q, &layout.chosen.choices.layout);
        uint64_t tokens = root_sequence(&stretch) / unit * unit;
        shorter.seq_tokens = tokens;
        if (tokens <= longest || !fits(&shorter, ret))
            break;
        longest = tokens;
        shorter.seq_tokens = tokens + unit;
        if (shorter.seq_tokens >= space->q->seq_tokens || !fits(&shorter, &beyond))
            break;
        layout = beyond;
    }
    shorter.seq_tokens = longest;
    return longest > 0 && fits(&shorter, ret) ? longest : 0;
}

static void shorter_sequence(const struct space *space, const struct decision *decision,
                             struct answer *ret)
{
    struct decision found;
    uint64_t tokens = longest_sequence(space, decision, &found);
    struct nearest *nearest = tokens > 0 ? append(ret) : NULL;
    char before[32], after[32];
    size_t used = 0;

    if (!nearest)
        return;
    nearest->seq_tokens = tokens;
    nearest->peak_bytes = found.chosen.worst.peak_bytes;
    text_append(nearest->change, sizeof nearest->change, &used, "%s tokens instead of %s",
                units_format_count(after, sizeof after, tokens),
                units_format_count(before, sizeof before, space->q->seq_tokens));
}

static void offer_set(const struct decision *found, int row, const char *why, struct answer *ret)
{
    struct nearest *nearest = append(ret);
    char value[64];
    size_t used = 0;

    if (!nearest)
        return;
    choice_format(&found->chosen.choices, row, value, sizeof value);
    text_append(nearest->set, sizeof nearest->set, &used, "%s=%s", choice_keys[row].key, value);
    used = 0;
    text_append(nearest->change, sizeof nearest->change, &used, "%s=%s%s", choice_keys[row].key,
                value, why);
    nearest->peak_bytes = found->chosen.worst.peak_bytes;
}

/* Each fixed choice given up in turn, and the value that derivation then takes kept. */
static void give_up_a_choice(const struct question *q, struct answer *ret)
{
    for (size_t row = 0; row < choice_key_count; row++) {
        struct question freer = *q;
        struct decision found;
        char was[64], why[120];
        size_t used = 0;

        if (!(q->fixed.set >> row & 1))
            continue;
        freer.fixed.set &= ~((uint64_t)1 << row);
        if (!fits(&freer, &found))
            continue;
        choice_format(&q->fixed.values, (int)row, was, sizeof was);
        text_append(why, sizeof why, &used, " instead of %s", was);
        offer_set(&found, (int)row, why, ret);
    }
}

/* Settings that derivation never takes by itself, because they change numbers or use the host. */
static void switch_on(const struct question *q, struct answer *ret)
{
    static const struct {
        const char *key, *value, *why;
    } settings[] = {
        { "grad_dtype", "bf16", ": gradients of half the size, summed in bf16" },
        { "offload", "checkpoints", ": layer inputs in host memory" },
        { "offload", "optimizer", ": master weights and moments in host memory" },
        { "logits_dtype", "bf16", ": logits of half the size" },
    };

    if (q->hardware->host)
        return;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct question with = *q;
        struct decision found;
        struct diag_list list;

        list.count = list.errors = list.dropped = 0;
        if (choice_is_fixed(&q->fixed, settings[i].key) ||
            choice_set(&with.fixed, settings[i].key, settings[i].value, (struct pos){ 0 }, &list))
            continue;
        if (fits(&with, &found))
            offer_set(&found, choice_key_find(settings[i].key), settings[i].why, ret);
    }
}

void nearest_write(const struct space *space, const struct decision *decision, struct answer *ret)
{
    gsl_error_handler_t *handler = gsl_set_error_handler_off();

    ret->nearest_count = 0;
    give_up_a_choice(space->q, ret);
    more_gpus(space->q, ret);
    shorter_sequence(space, decision, ret);
    switch_on(space->q, ret);
    gsl_set_error_handler(handler);
}
