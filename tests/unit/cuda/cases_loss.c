#include "tests/unit/cuda/cases.h"

static void cross_entropy(struct pair *p, int64_t rows, int64_t vocab)
{
    double losses[SIDES] = { 0, 0 };
    struct backend *device = p->backends[DEVICE];
    pair_case(p, "cross_entropy", "%lld x %lld, two tiles", (long long)rows, (long long)vocab);
    struct array logits = pair_random(p, KIND_FP32, rows * vocab, 3);
    struct array targets = pair_indices(p, rows, (uint64_t)vocab);
    struct array d_logits = pair_poison(p, KIND_BF16, rows * vocab);
    ((int32_t *)targets.at[HOST])[rows / 2] = -1;
    pair_upload(p, &targets);
    for (int tile = 0; tile < 2; tile++)
        PAIR_RUN(p, cross_entropy, rows, vocab, logits.at[side], targets.at[side], 0.25F,
                 d_logits.at[side], &losses[side]);
    (void)pair_ran(p, "sync", device->ops->sync(device, STREAM_COMPUTE, &p->diags));
    pair_compare(p, "d_logits", &d_logits, ROUNDED);
    pair_figure(p, "loss", losses[DEVICE], losses[HOST], 1e-6);
}

void cases_loss(struct pair *p)
{
    cross_entropy(p, 5, 17);
    cross_entropy(p, 64, 1000);
    cross_entropy(p, 20, 151936);
    cross_entropy(p, 7, 50257);
}
