#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")

#include "executor/backend/host/bf16.h"
#include "executor/backend/host/exponential.h"
#include "executor/backend/host/host.h"

HOST_HOT
static void gate_head(int width, const bf16 *o, const bf16 *gate, bf16 *og)
{
    for (int i = 0; i < width; i++)
        og[i] = bf16_from_float(bf16_to_float(o[i]) * fast_sigmoid(bf16_to_float(gate[i])));
}

int host_output_gate(struct backend *b, enum stream s, const struct output_gate *g,
                     struct diag_list *reterr)
{
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t h = 0; h < g->heads; h++) {
            int64_t at = (r * g->heads + h) * g->head_dim;
            gate_head(g->head_dim, g->o + at, g->gate + r * g->row_stride + h * g->head_stride,
                      g->og + at);
        }
    return 0;
}

/* With sigma = sigmoid(gate): do = dog sigma, dgate = dog o sigma (1 - sigma). */
HOST_HOT
static void gate_head_backward(int width, const bf16 *o, const bf16 *gate, bf16 *d_o, bf16 *d_gate)
{
    for (int i = 0; i < width; i++) {
        float sigma = fast_sigmoid(bf16_to_float(gate[i])), d = bf16_to_float(d_o[i]) * sigma;
        d_gate[i] = bf16_from_float(d * bf16_to_float(o[i]) * (1.0F - sigma));
        d_o[i] = bf16_from_float(d);
    }
}

int host_output_gate_backward(struct backend *b, enum stream s,
                              const struct output_gate_gradient *g, struct diag_list *reterr)
{
    const struct output_gate *f = &g->forward;
    (void)b, (void)s, (void)reterr;
    for (int64_t r = 0; r < f->rows; r++)
        for (int64_t h = 0; h < f->heads; h++) {
            int64_t at = (r * f->heads + h) * f->head_dim;
            int64_t column = r * f->row_stride + h * f->head_stride;
            gate_head_backward(f->head_dim, f->o + at, f->gate + column, g->d_o + at,
                               g->d_gate + column);
        }
    return 0;
}
