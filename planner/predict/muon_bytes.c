/* muon.c - Muon's matrices (K. Jordan, 2024) and what its Newton-Schulz iteration needs at the end
 * of the step. The iteration needs a whole matrix, where momentum is held in slices: it is gathered
 * in bf16, one matrix at a time, by all ranks that hold one copy of it, as in the distributed Muon
 * of Liu et al. 2025 (arXiv 2502.16982). The matrices are dealt among these ranks, so that each is
 * orthogonalized once; what comes out goes back to all, and each takes its slice. */
#include "planner/predict/parts.h"

#include "base/checked.h"
#include "base/layout/trained.h"

bool muon_updates(const struct primitives *p, const struct layer_tensor *tensor)
{
    enum component component = (enum component)tensor->component;
    return p->optimizer == OPTIMIZER_MUON && tensor->matrix && component_has_matrices(component) &&
           has_component(trained_components(p), component);
}

static int shared(const struct budget_input *in, int shards)
{
    return in->choices->primitives.sharding == SHARDING_REPLICATED ? 1 : shards;
}

int muon_dense_ranks(const struct budget_input *in)
{
    const struct layout *l = &in->choices->layout;
    return l->tp * shared(in, layout_dense_shards(l));
}

int muon_expert_ranks(const struct budget_input *in)
{
    const struct layout *l = &in->choices->layout;
    return l->etp * shared(in, layout_expert_shards(l));
}

static void raise_to(uint64_t *most, uint64_t bytes)
{
    *most = bytes > *most ? bytes : *most;
}

/* An iteration on X (m x n, m <= n) holds X, A = X X' and B = b A + c A A (m x m), and the next X,
 * all bf16. X is what was gathered, beside the matrix that is gathered for the next owner; a rank
 * that has the whole momentum rounds it into its workspace. */
static void raise_matrix(uint64_t rows, uint64_t cols, int ranks, struct muon_bytes *ret)
{
    uint64_t m = rows < cols ? rows : cols, n = rows < cols ? cols : rows;
    uint64_t x = arena_bytes(mul_sat(m, n), 2), square = arena_bytes(mul_sat(m, m), 2);
    raise_to(&ret->gathered, ranks > 1 ? mul_sat(2, x) : 0);
    raise_to(&ret->workspace, add_sat(mul_sat(ranks > 1 ? 1 : 2, x), mul_sat(2, square)));
}

void muon_bytes_raise(const struct budget_input *in, enum mixer mixer, enum ffn ffn,
                      struct muon_bytes *ret)
{
    const struct primitives *p = &in->choices->primitives;
    const struct layer_tensors *tensors = &in->sizes->tensors[mixer][ffn];
    if (p->optimizer != OPTIMIZER_MUON)
        return;
    for (int i = 0; i < tensors->count; i++) {
        const struct layer_tensor *t = &tensors->items[i];
        if (muon_updates(p, t))
            raise_matrix(t->rows, t->cols, t->expert ? muon_expert_ranks(in) : muon_dense_ranks(in),
                         ret);
    }
}
