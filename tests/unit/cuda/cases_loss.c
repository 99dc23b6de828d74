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

static void in_place(struct pair *p, int64_t rows, int64_t vocab, enum dtype type)
{
    double losses[SIDES] = { 0, 0 };
    struct backend *device = p->backends[DEVICE];
    pair_case(p, "cross_entropy_in_place", "%lld x %lld, %s", (long long)rows, (long long)vocab,
              dtype_names[type]);
    struct array logits =
        pair_random(p, type == DTYPE_FP32 ? KIND_FP32 : KIND_BF16, rows * vocab, 3);
    struct array targets = pair_indices(p, rows, (uint64_t)vocab);
    ((int32_t *)targets.at[HOST])[0] = -1;
    pair_upload(p, &targets);
    PAIR_RUN(p, cross_entropy_in_place, rows, vocab, logits.at[side], type, targets.at[side], 0.25F,
             &losses[side]);
    (void)pair_ran(p, "sync", device->ops->sync(device, STREAM_COMPUTE, &p->diags));
    pair_compare(p, "d_logits", &logits, type == DTYPE_FP32 ? SUMMED : ROUNDED);
    pair_figure(p, "loss", losses[DEVICE], losses[HOST], 1e-6);
}

/* Three strips, the last narrower. */
static void strips(struct pair *p, int64_t rows, int64_t width, int64_t last)
{
    double losses[SIDES] = { 0, 0 };
    struct backend *device = p->backends[DEVICE];
    int64_t vocab = 2 * width + last;
    pair_case(p, "strip_loss", "%lld x %lld", (long long)rows, (long long)vocab);
    struct array targets = pair_indices(p, rows, (uint64_t)vocab);
    struct array lse = pair_poison(p, KIND_FP32, rows);
    struct array logits[3], d_logits[3];
    ((int32_t *)targets.at[HOST])[0] = -1;
    pair_upload(p, &targets);
    struct vocabulary_strip strip[3][SIDES];
    for (int i = 0; i < 3; i++) {
        int64_t here = i < 2 ? width : last;
        logits[i] = pair_random(p, KIND_FP32, rows * here, 3);
        d_logits[i] = pair_poison(p, KIND_BF16, rows * here);
        for (int j = 0; j < SIDES; j++)
            strip[i][j] = (struct vocabulary_strip){ rows,     vocab,           i * width,
                                                     here,     logits[i].at[j], targets.at[j],
                                                     lse.at[j] };
        PAIR_RUN(p, strip_loss, &strip[i][side], &losses[side]);
    }
    (void)pair_ran(p, "sync", device->ops->sync(device, STREAM_COMPUTE, &p->diags));
    pair_compare(p, "lse", &lse, 1e-6);
    pair_figure(p, "loss", losses[DEVICE], losses[HOST], 1e-6);
    for (int i = 0; i < 3; i++) {
        PAIR_RUN(p, strip_gradient, &strip[i][side], 0.5F, d_logits[i].at[side]);
        pair_compare(p, "d_logits", &d_logits[i], ROUNDED);
    }
}

void cases_loss(struct pair *p)
{
    in_place(p, 9, 1000, DTYPE_FP32);
    in_place(p, 9, 50257, DTYPE_BF16);
    in_place(p, 9, 8192, DTYPE_BF16);
    strips(p, 33, 4096, 1000);
    strips(p, 5, 37, 11);
    cross_entropy(p, 5, 17);
    cross_entropy(p, 64, 1000);
    cross_entropy(p, 20, 151936);
    cross_entropy(p, 3, 248320);
    cross_entropy(p, 2, 300000);
    in_place(p, 3, 151936, DTYPE_BF16);
    cross_entropy(p, 7, 50257);
}
