#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

static struct kernel_attention_args args_of(const struct attention *a)
{
    return (struct kernel_attention_args){ .sequences = a->sequences,
                                           .heads = a->heads,
                                           .kv_heads = a->kv_heads,
                                           .head_dim = a->head_dim,
                                           .queries = a->tokens,
                                           .keys = a->key_tokens ? a->key_tokens : a->tokens,
                                           .window = a->window,
                                           .first_query = a->first_query,
                                           .run_stride = a->run_stride ? a->run_stride : a->tokens,
                                           .q_stride = a->q_stride,
                                           .k_stride = a->k_stride,
                                           .v_stride = a->v_stride,
                                           .o_stride = (int64_t)a->heads * a->head_dim,
                                           .q = a->q,
                                           .k = a->k,
                                           .v = a->v,
                                           .o = a->o,
                                           .lse = a->lse };
}

int cuda_attention_plain(struct cuda *c, enum stream s, const struct attention *a,
                         struct diag_list *reterr)
{
    const struct kernel_attention_args args = args_of(a);
    return cuda_check(kernel_attention(c->streams[s], &args), "attention", reterr);
}

int cuda_attention_backward_plain(struct cuda *c, enum stream s, const struct attention_gradient *g,
                                  struct diag_list *reterr)
{
    struct kernel_attention_args args = args_of(&g->forward);
    args.d_o = g->d_o;
    args.dq = g->dq;
    args.dk = g->dk;
    args.dv = g->dv;
    args.dq_stride = g->dq_stride;
    args.dk_stride = g->dk_stride;
    args.dv_stride = g->dv_stride;
    args.dq_head_stride = g->dq_head_stride ? g->dq_head_stride : args.head_dim;
    args.dk_sum = g->dk_sum;
    args.dv_sum = g->dv_sum;
    args.sum_stride = g->sum_stride;
    args.delta = g->delta;
    return cuda_check(kernel_attention_backward(c->streams[s], &args), "attention backward",
                      reterr);
}
