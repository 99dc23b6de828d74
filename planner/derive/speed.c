/* Degrees taken for speed, where memory does not ask for them: a larger cp or a tensor split that
 * makes room for what would be computed twice, another ep, stages or a tensor split where gathers
 * do not hide. */
#include "planner/derive/decide.h"

/* A degree must save this share of the step before it is taken for speed. */
#define WORTH_A_DEGREE 0.02
/* The widest expert group is kept while it takes no more than this over the fastest; across domains
 * more, for there a narrow one's gain rests on whole layers that come over the network unseen. */
#define WORTH_A_GROUP 0.03
#define WORTH_LEAVING_THE_POLICY 0.15
/* The same decision with one other degree, settled anew; false when that is illegal. */
static bool settle_other(struct space *space, const struct decision *from,
                         const struct degrees *degrees, struct decision *ret)
{
    struct settings lean = space_leanest(space);

    *ret = *from;
    ret->degrees = *degrees;
    ret->degrees.fsdp = space->open_fsdp ? 0 : space->fixed.fsdp;
    ret->degrees.e_fsdp = space->open_e_fsdp ? 0 : space->fixed.e_fsdp;
    lean.linear_context =
        (enum linear_context)space_linear_contexts(space, ret->degrees.cp).values[0];
    space_complete(space, &ret->degrees, &lean, &ret->chosen.choices);
    if (!space_legal(space, &ret->chosen.choices))
        return false;
    space_weigh(space, &ret->chosen);
    decide_settings(space, ret);
    return true;
}

static bool faster(const struct decision *other, const struct decision *now)
{
    return other->chosen.verdict == now->chosen.verdict &&
           other->chosen.time.seconds < now->chosen.time.seconds * (1 - WORTH_A_DEGREE);
}

/* Whether anything fits at these degrees that computes nothing twice. */
static bool keeping_fits(struct space *space, struct degrees degrees)
{
    struct settings lean = space_leanest(space);
    struct candidate candidate;

    degrees.fsdp = space->open_fsdp ? 0 : space->fixed.fsdp;
    degrees.e_fsdp = space->open_e_fsdp ? 0 : space->fixed.e_fsdp;
    lean.recompute = (enum recompute)space->recompute.values[0];
    lean.linear_context = (enum linear_context)space_linear_contexts(space, degrees.cp).values[0];
    space_complete(space, &degrees, &lean, &candidate.choices);
    if (!space_legal(space, &candidate.choices))
        return false;
    space_weigh(space, &candidate);
    return candidate.verdict == VERDICT_FITS;
}

/* Inside the window of the small-memory policy only: where memory is large cp is the smallest that
 * fits. */
static void raise_cp(struct space *space, struct decision *decision)
{
    const struct question *q = space->q;
    struct degrees degrees = decision->degrees;
    struct decision other;

    degrees.cp *= 2;
    if (!space->open_cp || q->hardware->memory_bytes >= SMALL_MEMORY_BYTES ||
        q->seq_tokens / (uint64_t)degrees.cp < LEAST_LOCAL_SEQUENCE ||
        decision->chosen.choices.primitives.recompute != RECOMPUTE_FULL)
        return;
    if (!keeping_fits(space, degrees) || !settle_other(space, decision, &degrees, &other) ||
        !faster(&other, decision))
        return;
    *decision = other;
    decision->cp_for_speed = true;
}

static bool saves_recompute(struct space *space, const struct decision *decision,
                            const struct degrees *degrees)
{
    return decision->chosen.choices.primitives.recompute == RECOMPUTE_FULL &&
           keeping_fits(space, *degrees);
}

/* Whether the layers alone, kept and without a collective of state, leave room for a gain. */
static bool can_gain(const struct space *space, const struct decision *decision,
                     const struct degrees *degrees, double gain)
{
    struct settings settings = settings_of(&decision->chosen.choices);
    double most = decision->chosen.time.seconds / (1 + gain);

    for (int i = 0; i < space->chunks.count; i++) {
        struct choices choices;
        settings.chunks = space->chunks.values[i];
        space_complete(space, degrees, &settings, &choices);
        if (space_is_legal(space, &choices) &&
            predictor_least_seconds(space->predictor, &choices) < most)
            return true;
    }
    return false;
}

/* Every ep of the domain, settled. Where the widest takes too much over the fastest, the widest
 * that is within WORTH_A_GROUP of the fastest is taken. */
static void other_ep(struct space *space, struct decision *decision)
{
    const struct decision before = *decision;
    const double gain = gathers_cross_network(space) ? WORTH_LEAVING_THE_POLICY : WORTH_A_GROUP;
    struct decision best = *decision, others[SPACE_MAX_VALUES];
    int values[SPACE_MAX_DIVISORS], kept = 0;
    int count = space_degree_values(space, DEGREE_EP, &decision->degrees, values);

    for (int i = count - 1; i >= 0 && kept < SPACE_MAX_VALUES; i--) {
        struct degrees degrees = decision->degrees;
        degrees.ep = values[i];
        if (values[i] == decision->degrees.ep || values[i] * degrees.etp > link_domain(space) ||
            !can_gain(space, decision, &degrees, gain) ||
            !settle_other(space, decision, &degrees, &others[kept]) ||
            others[kept].chosen.verdict != decision->chosen.verdict)
            continue;
        if (others[kept].chosen.time.seconds < best.chosen.time.seconds)
            best = others[kept];
        kept++;
    }
    double most = best.chosen.time.seconds * (1 + WORTH_A_GROUP);
    if (decision->chosen.time.seconds <= best.chosen.time.seconds * (1 + gain))
        return;
    for (int i = 0; i < kept; i++)
        if (others[i].chosen.time.seconds <= most) {
            *decision = others[i];
            break;
        }
    decision->ep_for_speed = true;
    decision->fastest_ep = best.degrees.ep;
    decision->ep_behind_fastest = 1 - best.chosen.time.seconds / decision->chosen.time.seconds;
    decision->wider_ep = before.degrees.ep;
    decision->wider_ep_behind = before.chosen.time.seconds / decision->chosen.time.seconds - 1;
}

static void raise_pp(struct space *space, struct decision *decision)
{
    struct degrees degrees = decision->degrees;
    struct decision other;

    for (degrees.pp *= 2; space->open_pp && degrees.pp <= 8; degrees.pp *= 2) {
        if (!gathers_matter(&decision->chosen) ||
            !settle_other(space, decision, &degrees, &other) || !faster(&other, decision))
            return;
        *decision = other;
        decision->pp_for_speed = true;
    }
}

int widest_ep(const struct space *space, const struct degrees *degrees)
{
    int values[SPACE_MAX_DIVISORS], widest = degrees->ep;
    int count = space_degree_values(space, DEGREE_EP, degrees, values);

    for (int i = 0; i < count; i++)
        if (values[i] > widest && values[i] * degrees->etp <= link_domain(space))
            widest = values[i];
    return widest;
}

/* False when these degrees are not faster. */
static bool take_tp(struct space *space, struct decision *decision, const struct degrees *degrees)
{
    struct decision other;
    bool saves = saves_recompute(space, decision, degrees);

    if ((!saves && !gathers_matter(&decision->chosen)) ||
        !settle_other(space, decision, degrees, &other) || !faster(&other, decision))
        return false;
    *decision = other;
    decision->tp_for_speed = true;
    decision->tp_saves_recompute |= saves;
    return true;
}

/* Split tensors hold less of everything: gathers shrink, and what is kept may fit; where it does
 * not, it may beside fewer experts a rank. */
static void raise_tp(struct space *space, struct decision *decision)
{
    struct degrees degrees = decision->degrees;

    for (degrees.tp *= 2; space->open_tp && degrees.tp <= link_domain(space); degrees.tp *= 2) {
        struct degrees wide = degrees;
        wide.ep = widest_ep(space, &degrees);
        if (take_tp(space, decision, &degrees) || wide.ep == degrees.ep)
            continue;
        if (take_tp(space, decision, &wide))
            degrees.ep = wide.ep;
    }
}

void decide_speed(struct space *space, struct decision *decision)
{
    if (decision->chosen.verdict != VERDICT_FITS)
        return;
    raise_cp(space, decision);
    raise_pp(space, decision);
    raise_tp(space, decision);
    other_ep(space, decision);
}
