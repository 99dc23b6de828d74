/* muon.c - the seconds of Muon's matrices: five Newton-Schulz iterations each, dealt among the
 * ranks that hold one copy, and the gathers that bring momenta and return updates. Nothing hides
 * them. */
#include "planner/predict/stage_time.h"

#include "planner/predict/shared.h"

#include <string.h>

enum { ITERATIONS = 5 };

/* One matrix m x n, m <= n. An iteration is X X' (2 m m n), A A (2 m m m) and B X (2 m m n FLOPs),
 * of which the last two add to what is there: K. Jordan (2024), 2 (2 n m^2 + m^3). */
static double orthogonal_seconds(const struct machine *machine, uint64_t rows, uint64_t cols)
{
    double m = (double)(rows < cols ? rows : cols), n = (double)(rows < cols ? cols : rows);
    struct pass pass = { { 0 } };
    struct clock c;
    clock_begin(&c, machine, &pass);
    for (int i = 0; i < ITERATIONS; i++) {
        clock_product(&c, TIME_OPTIMIZER, m, m, n, 2);
        clock_product(&c, TIME_OPTIMIZER, m, m, m, 4);
        clock_product(&c, TIME_OPTIMIZER, m, n, m, 4);
    }
    return c.device;
}

/* The ranks that hold one copy of a matrix: etp ranks side by side of each of e_fsdp that lie
 * further apart count as evenly spread. */
static struct ranks ranks_of(const struct budget_input *in, bool expert)
{
    const struct layout *l = &in->choices->layout;
    if (expert)
        return (struct ranks){ muon_expert_ranks(in), l->ep };
    return (struct ranks){ muon_dense_ranks(in), 1 };
}

/* A matrix goes to its owner and its update back, in bf16, by rings over all these ranks. */
static double exchange_of(const struct budget_input *in, const struct layer_tensor *t)
{
    double bytes = 2 * (double)t->rows * (double)t->cols;
    return 2 * gather_seconds(in->hardware, ranks_of(in, t->expert), bytes);
}

void muon_unit_init(const struct budget_input *in, const struct machine *machine, enum mixer mixer,
                    enum ffn ffn, struct muon_unit *ret)
{
    const struct layer_tensors *tensors = &in->sizes->tensors[mixer][ffn];
    const struct primitives *p = &in->choices->primitives;
    memset(ret, 0, sizeof *ret);
    for (int i = 0; i < tensors->count; i++) {
        const struct layer_tensor *t = &tensors->items[i];
        struct muon_seconds *part = t->expert ? &ret->expert : &ret->dense;
        if (!muon_updates(p, t))
            continue;
        double count = (double)t->copies / (t->expert ? in->choices->layout.ep : 1);
        double one = orthogonal_seconds(machine, t->rows, t->cols);
        part->products += count * one;
        part->exchange += count * exchange_of(in, t);
        part->longest = one > part->longest ? one : part->longest;
    }
}

static void add_muon(const struct muon_seconds *one, double layers, struct muon_seconds *ret)
{
    ret->products += layers * one->products;
    ret->exchange += layers * one->exchange;
    ret->longest = layers > 0 && one->longest > ret->longest ? one->longest : ret->longest;
}

static struct muon_unit stage_sum(const struct step_terms *t, const struct stage *stage)
{
    struct muon_unit ret;
    memset(&ret, 0, sizeof ret);
    for (int c = 0; c < t->classes->count; c++) {
        add_muon(&t->units->muon_seconds[c].dense, stage->classes[c], &ret.dense);
        add_muon(&t->units->muon_seconds[c].expert, stage->classes[c], &ret.expert);
    }
    return ret;
}

/* Matrices dealt among n ranks, the longest first: the fullest rank has an equal share, or one
 * matrix; no dealing takes less, and this one at most a third more (Graham 1969). */
static double dealt(const struct muon_seconds *sum, int n)
{
    double share = sum->products / n;
    return share > sum->longest ? share : sum->longest;
}

void muon_end(const struct step_terms *t, const struct stage *stage, double *item)
{
    struct muon_unit sum = stage_sum(t, stage);
    item[TIME_REDUCE] += sum.dense.exchange + sum.expert.exchange;
    item[TIME_OPTIMIZER] += dealt(&sum.dense, muon_dense_ranks(t->in));
    item[TIME_OPTIMIZER] += dealt(&sum.expert, muon_expert_ranks(t->in));
}
