#include "planner/search/space.h"

static bool power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* Divisors of `rest` up to `most`, ascending. */
static int divisors(int rest, int most, bool powers_only, int *ret)
{
    int count = 0;
    for (int i = 1; i <= rest && i <= most && count < SPACE_MAX_DIVISORS; i++)
        if (rest % i == 0 && (!powers_only || power_of_two(i)))
            ret[count++] = i;
    return count;
}

static int only(int value, int *ret)
{
    ret[0] = value;
    return 1;
}

/* The GPUs left when `used` ranks are spoken for; 1 when they do not divide (illegal anyway). */
static int left_of_world(const struct space *space, int used)
{
    int gpus = space->q->gpus;
    return used > 0 && gpus % used == 0 ? gpus / used : 1;
}

static int expert_divisors(const struct space *space, const struct degrees *outer, int *ret)
{
    int count = divisors(left_of_world(space, outer->pp), space->q->model->moe.experts, false, ret);
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (space->q->model->moe.experts % ret[i] == 0)
            ret[kept++] = ret[i];
    return kept > 0 ? kept : only(1, ret);
}

int space_degree_values(const struct space *space, enum degree degree, const struct degrees *o,
                        int *ret)
{
    int gpus = space->q->gpus;

    switch (degree) {
    case DEGREE_TP:
        if (!space->open_tp)
            return only(space->fixed.tp, ret);
        return divisors(gpus, gpus, !space->every_divisor, ret);
    case DEGREE_PP:
        if (!space->open_pp)
            return only(space->fixed.pp, ret);
        return divisors(left_of_world(space, o->tp), space->q->model->layers, false, ret);
    case DEGREE_CP:
        if (!space->open_cp)
            return only(space->fixed.cp, ret);
        return divisors(left_of_world(space, o->tp * o->pp), gpus, false, ret);
    case DEGREE_EP:
        if (!space->open_ep || !space->has_moe)
            return only(space->open_ep ? 1 : space->fixed.ep, ret);
        return expert_divisors(space, o, ret);
    case DEGREE_ETP:
        if (!space->open_etp || !space->has_moe)
            return only(space->open_etp ? 1 : space->fixed.etp, ret);
        return divisors(left_of_world(space, o->pp * o->ep), gpus, !space->every_divisor, ret);
    case DEGREE_FSDP:
        if (!space->open_fsdp)
            return only(space->fixed.fsdp, ret);
        return divisors(left_of_world(space, o->tp * o->pp * o->cp), gpus, false, ret);
    case DEGREE_E_FSDP:
        if (!space->open_e_fsdp)
            return only(space->fixed.e_fsdp, ret);
        return divisors(left_of_world(space, o->pp * o->ep * o->etp), gpus, false, ret);
    }
    return 0;
}

/* Divisors of the layers of a stage; legality judges those of the others. */
int space_vpp_values(const struct space *space, const struct degrees *o, int *ret)
{
    int layers = space->q->model->layers / (o->pp > 0 ? o->pp : 1);

    if (!space->open_vpp)
        return only(space->fixed.vpp, ret);
    if (o->pp == 1 || layers < 1)
        return only(1, ret);
    return divisors(layers, layers, false, ret);
}

/* Divisors of the sequences that one data-parallel rank has. */
int space_micro_batch_values(const struct space *space, const struct degrees *o, int *ret)
{
    int64_t dp = left_of_world(space, o->tp * o->pp * o->cp), rest = space->global_batch / dp;
    int count = 0;

    if (!space->open_micro_batch)
        return only(space->micro_batch, ret);
    for (int size = 1; size <= 65536 && size <= rest && count < SPACE_MAX_DIVISORS; size++)
        if (rest % size == 0)
            ret[count++] = size;
    return count > 0 ? count : only(1, ret);
}
