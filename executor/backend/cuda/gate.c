#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

static int check_gate(const struct output_gate *g, struct diag_list *reterr)
{
    const void *const pointers[] = { g->o, g->gate, g->og };
    if (g->row_stride % 8 != 0 || g->head_stride % 8 != 0)
        return cuda_refuse(reterr, "output gate: rows %lld, heads %lld apart: not multiples of 8",
                           (long long)g->row_stride, (long long)g->head_stride);
    return cuda_check_rows("output gate", g->head_dim, pointers, 3, reterr);
}

static struct kernel_gate_args args_of(const struct output_gate *g)
{
    return (struct kernel_gate_args){ .rows = g->rows,
                                      .heads = g->heads,
                                      .head_dim = g->head_dim,
                                      .row_stride = g->row_stride,
                                      .head_stride = g->head_stride,
                                      .o = g->o,
                                      .gate = g->gate,
                                      .og = g->og };
}

int cuda_output_gate(struct backend *b, enum stream s, const struct output_gate *g,
                     struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const struct kernel_gate_args args = args_of(g);
    if (check_gate(g, reterr) != 0)
        return -1;
    return cuda_check(kernel_output_gate(c->streams[s], &args), "output gate", reterr);
}

int cuda_output_gate_backward(struct backend *b, enum stream s,
                              const struct output_gate_gradient *g, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { g->d_o, g->d_gate };
    struct kernel_gate_args args = args_of(&g->forward);
    args.d_o = g->d_o;
    args.d_gate = g->d_gate;
    if (check_gate(&g->forward, reterr) != 0 ||
        cuda_check_rows("output gate backward", args.head_dim, pointers, 2, reterr) != 0)
        return -1;
    return cuda_check(kernel_output_gate_backward(c->streams[s], &args), "output gate backward",
                      reterr);
}
