#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

/* The ledger's place for what `to` points to: the one it has, or a fresh one set to 0. */
static int loss_place(struct cuda *c, enum stream s, double *to, struct diag_list *reterr)
{
    struct cuda_losses *losses = &c->losses[s];
    struct cuda_ledger *ledger = cuda_ledger(c, s, "cross-entropy", reterr);
    if (!ledger)
        return -1;
    for (int i = 0; i < losses->count; i++)
        if (losses->to[i] == to)
            return i;
    if (losses->count == CUDA_LOSSES && cuda_settle(c, s, reterr) != 0)
        return -1;
    if (losses->count == 0 && cuda_check(cudaMemsetAsync(ledger, 0, sizeof *ledger, c->streams[s]),
                                         "cudaMemsetAsync", reterr) != 0)
        return -1;
    losses->to[losses->count] = to;
    return losses->count++;
}

int cuda_cross_entropy(struct backend *b, enum stream s, int64_t rows, int64_t vocab,
                       const float *logits, const int32_t *targets, float scale, bf16 *d_logits,
                       double *loss_sum, struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    if ((uintptr_t)logits % 16 != 0 || (uintptr_t)d_logits % 16 != 0)
        return cuda_refuse(reterr, "cross-entropy: logits are not at multiples of 16 bytes");
    int place = loss_place(c, s, loss_sum, reterr);
    struct cuda_ledger *ledger = cuda_ledger(c, s, "cross-entropy", reterr);
    double *losses = cuda_scratch(c, s, (uint64_t)rows * sizeof *losses, "cross-entropy", reterr);
    if (place < 0 || !ledger || !losses)
        return -1;
    return cuda_check(kernel_cross_entropy(c->streams[s], rows, vocab, logits, targets, scale,
                                           d_logits, losses, &ledger->losses[place],
                                           &ledger->bad_target),
                      "cross-entropy", reterr);
}
