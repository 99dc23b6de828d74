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

/* Where a loss is summed on the device: a double a row in scratch, then the ledger. */
struct sums {
    double *losses, *sum;
    int64_t *bad;
};

static int sums_open(struct cuda *c, enum stream s, int64_t rows, double *loss_sum,
                     const void *logits, struct sums *ret, struct diag_list *reterr)
{
    if ((uintptr_t)logits % 16 != 0)
        return cuda_refuse(reterr, "cross-entropy: logits are not at multiples of 16 bytes");
    int place = loss_place(c, s, loss_sum, reterr);
    struct cuda_ledger *ledger = place < 0 ? NULL : cuda_ledger(c, s, "cross-entropy", reterr);
    ret->losses =
        ledger ? cuda_scratch(c, s, (uint64_t)rows * sizeof *ret->losses, "cross-entropy", reterr)
               : NULL;
    if (!ret->losses)
        return -1;
    ret->sum = &ledger->losses[place];
    ret->bad = &ledger->bad_target;
    return 0;
}

int cuda_cross_entropy(struct backend *b, enum stream s, int64_t rows, int64_t vocab,
                       const float *logits, const int32_t *targets, float scale, bf16 *d_logits,
                       double *loss_sum, struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    struct sums sums = { NULL, NULL, NULL };
    if (sums_open(c, s, rows, loss_sum, logits, &sums, reterr) != 0)
        return -1;
    if ((uintptr_t)d_logits % 16 != 0)
        return cuda_refuse(reterr, "cross-entropy: gradient is not at a multiple of 16 bytes");
    return cuda_check(kernel_cross_entropy(c->streams[s], rows, vocab, logits, targets, scale,
                                           d_logits, sums.losses, sums.sum, sums.bad),
                      "cross-entropy", reterr);
}

int cuda_cross_entropy_in_place(struct backend *b, enum stream s, int64_t rows, int64_t vocab,
                                void *logits, enum dtype type, const int32_t *targets, float scale,
                                double *loss_sum, struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    struct sums sums = { NULL, NULL, NULL };
    if (sums_open(c, s, rows, loss_sum, logits, &sums, reterr) != 0)
        return -1;
    return cuda_check(kernel_cross_entropy_in_place(c->streams[s], rows, vocab, logits,
                                                    type == DTYPE_FP32, targets, scale, sums.losses,
                                                    sums.sum, sums.bad),
                      "cross-entropy in place", reterr);
}

int cuda_strip_loss(struct backend *b, enum stream s, const struct vocabulary_strip *v,
                    double *loss_sum, struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    struct sums sums = { NULL, NULL, NULL };
    if (sums_open(c, s, v->rows, loss_sum, v->logits, &sums, reterr) != 0)
        return -1;
    return cuda_check(kernel_strip_loss(c->streams[s], v->rows, v->vocab, v->first, v->width,
                                        v->logits, v->targets, v->lse, sums.losses, sums.sum,
                                        sums.bad),
                      "strip of the loss", reterr);
}

int cuda_strip_gradient(struct backend *b, enum stream s, const struct vocabulary_strip *v,
                        float scale, bf16 *d_logits, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    if ((uintptr_t)v->logits % 16 != 0 || (uintptr_t)d_logits % 16 != 0)
        return cuda_refuse(reterr, "strip gradient: logits are not at multiples of 16 bytes");
    return cuda_check(kernel_strip_gradient(c->streams[s], v->rows, v->first, v->width, v->logits,
                                            v->targets, v->lse, scale, d_logits),
                      "strip gradient", reterr);
}
