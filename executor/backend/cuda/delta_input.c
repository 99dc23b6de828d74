#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

_Static_assert((int)KERNEL_DELTA_WIDE == (int)DELTA_HEAD_MAX &&
                   (int)KERNEL_CONV_MAX == (int)DELTA_CONV_MAX,
               "the kernels' bounds are the contract's");

static struct kernel_delta_columns columns_of(const struct delta_columns *c)
{
    return (struct kernel_delta_columns){ .q = c->q,
                                          .k = c->k,
                                          .v = c->v,
                                          .z = c->z,
                                          .b = c->b,
                                          .a = c->a,
                                          .key_step = c->key_step,
                                          .value_step = c->value_step,
                                          .gate_step = c->gate_step };
}

static struct kernel_delta_input_args args_of(const struct delta_input *d)
{
    return (struct kernel_delta_input_args){ .columns = columns_of(&d->columns),
                                             .tokens = d->tokens,
                                             .p_stride = d->p_stride,
                                             .runs = d->runs,
                                             .width = d->width,
                                             .key_heads = d->heads.key_heads,
                                             .value_heads = d->heads.value_heads,
                                             .key_dim = d->heads.key_dim,
                                             .value_dim = d->heads.value_dim,
                                             .p = d->p,
                                             .halo = d->halo,
                                             .conv = { d->conv[0], d->conv[1], d->conv[2] },
                                             .log_rate = d->log_rate,
                                             .step = d->step,
                                             .qkv = d->qkv,
                                             .decay = d->decay,
                                             .beta = d->beta };
}

static int check(const struct delta_heads *h, int width, struct diag_list *reterr)
{
    if (h->key_dim <= DELTA_HEAD_MAX && h->value_dim <= DELTA_HEAD_MAX && width <= DELTA_CONV_MAX)
        return 0;
    return cuda_refuse(reterr,
                       "delta net: heads of %d and %d, a convolution of %d (at most %d and %d)",
                       h->key_dim, h->value_dim, width, DELTA_HEAD_MAX, DELTA_CONV_MAX);
}

static bool lanes_share(int width)
{
    return width == 32 || width == 64 || width == 128;
}

/* Whether four elements at a time are where they may be read at once. */
static bool packed(const struct delta_input *d)
{
    const struct delta_columns *c = &d->columns;
    int64_t places = c->q | c->k | c->v | c->key_step | c->value_step | d->p_stride;
    return d->width == KERNEL_CONV && lanes_share(d->heads.key_dim) &&
           lanes_share(d->heads.value_dim) && places % 4 == 0 && (uintptr_t)d->p % 8 == 0;
}

int cuda_delta_input(struct backend *b, enum stream s, const struct delta_input *d,
                     struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const struct kernel_delta_input_args args = args_of(d);
    if (check(&d->heads, d->width, reterr) != 0 || d->runs * d->tokens == 0)
        return d->runs * d->tokens == 0 ? 0 : -1;
    cudaError_t status = packed(d) ? kernel_delta_input_packed(c->streams[s], &args)
                                   : kernel_delta_input(c->streams[s], &args);
    if (cuda_check(status, "delta net's convolution", reterr) != 0)
        return -1;
    return cuda_check(kernel_delta_gates(c->streams[s], &args), "delta net's gates", reterr);
}

/* Sums of blocks, and the place that they belong to. */
struct column_sums {
    const float *partial;
    int blocks;
    int64_t stride;
    bool is_float;
};

static int add_columns(const struct cuda *c, enum stream s, const struct column_sums *sums,
                       int64_t first, int64_t width, void *to, struct diag_list *reterr)
{
    return cuda_check(kernel_add_columns(c->streams[s], sums->blocks, width, sums->stride,
                                         sums->partial + first, to, sums->is_float),
                      "delta net's sums", reterr);
}

static int open_sums(struct cuda *c, enum stream s, int64_t width, enum dtype type,
                     struct kernel_delta_input_args *args, struct column_sums *ret,
                     struct diag_list *reterr)
{
    args->blocks = cuda_sum_blocks(c, width);
    args->partial = cuda_scratch(c, s, 4 * (uint64_t)width * (uint64_t)args->blocks,
                                 "delta net backward", reterr);
    *ret = (struct column_sums){ .partial = args->partial,
                                 .blocks = args->blocks,
                                 .stride = width,
                                 .is_float = type == DTYPE_FP32 };
    return args->partial ? 0 : -1;
}

static int conv_backward(struct cuda *c, enum stream s, const struct delta_input_gradient *d,
                         struct kernel_delta_input_args *args, struct diag_list *reterr)
{
    const struct delta_input *f = &d->forward;
    const struct delta_heads *h = &f->heads;
    int64_t keys = (int64_t)h->key_heads * h->key_dim * f->width, first = 0;
    int64_t widths[3] = { keys, keys, (int64_t)h->value_heads * h->value_dim * f->width };
    struct column_sums sums;

    if (open_sums(c, s, delta_channels(h) * f->width, d->grad_type, args, &sums, reterr) != 0)
        return -1;
    cudaError_t status = packed(f) ? kernel_delta_input_backward_packed(c->streams[s], args)
                                   : kernel_delta_input_backward(c->streams[s], args);
    if (cuda_check(status, "delta net's convolution backward", reterr) != 0)
        return -1;
    for (int kind = 0; kind < 3; first += widths[kind], kind++)
        if (add_columns(c, s, &sums, first, widths[kind], d->d_conv[kind], reterr) != 0)
            return -1;
    return 0;
}

int cuda_delta_input_backward(struct backend *b, enum stream s,
                              const struct delta_input_gradient *d, struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    const struct delta_input *f = &d->forward;
    struct kernel_delta_input_args args = args_of(f);
    int64_t heads = f->heads.value_heads;
    struct column_sums sums;

    args.d_qkv = d->d_qkv;
    args.d_decay = d->d_decay;
    args.d_beta = d->d_beta;
    args.d_p = d->d_p;
    args.d_halo = d->d_halo;
    if (check(&f->heads, f->width, reterr) != 0)
        return -1;
    if (f->runs * f->tokens == 0)
        return 0;
    if (conv_backward(c, s, d, &args, reterr) != 0 ||
        open_sums(c, s, 2 * heads, d->grad_type, &args, &sums, reterr) != 0 ||
        cuda_check(kernel_delta_gates_backward(c->streams[s], &args), "delta net's gates backward",
                   reterr) != 0)
        return -1;
    if (add_columns(c, s, &sums, 0, heads, d->d_log_rate, reterr) != 0)
        return -1;
    return add_columns(c, s, &sums, heads, heads, d->d_step, reterr);
}

static struct kernel_delta_input_args tails_of(const struct delta_tails *d)
{
    return (struct kernel_delta_input_args){ .columns = columns_of(&d->columns),
                                             .tokens = d->tokens,
                                             .p_stride = d->p_stride,
                                             .runs = d->runs,
                                             .width = d->width,
                                             .key_heads = d->heads.key_heads,
                                             .value_heads = d->heads.value_heads,
                                             .key_dim = d->heads.key_dim,
                                             .value_dim = d->heads.value_dim,
                                             .p = d->p,
                                             .d_p = d->d_p };
}

int cuda_delta_tails(struct backend *b, enum stream s, const struct delta_tails *d,
                     struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const struct kernel_delta_input_args args = tails_of(d);
    return cuda_check(kernel_delta_tails(c->streams[s], &args, d->tails), "delta net's tails",
                      reterr);
}

int cuda_delta_tails_backward(struct backend *b, enum stream s, const struct delta_tails *d,
                              struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const struct kernel_delta_input_args args = tails_of(d);
    return cuda_check(kernel_delta_tails_backward(c->streams[s], &args, d->d_tails),
                      "delta net's tails backward", reterr);
}

static struct kernel_gated_norm_args norm_of(const struct gated_norm *g)
{
    return (struct kernel_gated_norm_args){ .rows = g->rows,
                                            .p_stride = g->p_stride,
                                            .z = g->columns.z,
                                            .value_step = g->columns.value_step,
                                            .key_heads = g->heads.key_heads,
                                            .value_heads = g->heads.value_heads,
                                            .value_dim = g->heads.value_dim,
                                            .eps = (float)g->eps,
                                            .o = g->o,
                                            .p = g->p,
                                            .weight = g->weight,
                                            .on = g->on };
}

int cuda_gated_norm(struct backend *b, enum stream s, const struct gated_norm *g,
                    struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const struct kernel_gated_norm_args args = norm_of(g);
    if (check(&g->heads, 0, reterr) != 0)
        return -1;
    return g->rows == 0 ? 0
                        : cuda_check(kernel_gated_norm(c->streams[s], &args), "gated norm", reterr);
}

int cuda_gated_norm_backward(struct backend *b, enum stream s, const struct gated_norm_gradient *d,
                             struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    struct kernel_gated_norm_args args = norm_of(&d->forward);
    int64_t width = args.value_dim;

    args.d_o = d->d_o;
    args.d_p = d->d_p;
    if (check(&d->forward.heads, 0, reterr) != 0)
        return -1;
    if (args.rows == 0)
        return 0;
    args.blocks = cuda_sum_blocks(c, width);
    args.partial = cuda_scratch(c, s, 4 * (uint64_t)width * (uint64_t)args.blocks,
                                "gated norm backward", reterr);
    if (!args.partial || cuda_check(kernel_gated_norm_backward(c->streams[s], &args),
                                    "gated norm backward", reterr) != 0)
        return -1;
    return cuda_check(kernel_add_columns(c->streams[s], args.blocks, width, width, args.partial,
                                         d->d_weight, d->grad_type == DTYPE_FP32),
                      "gated norm backward, weight", reterr);
}
