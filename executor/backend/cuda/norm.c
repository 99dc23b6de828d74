#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

static int check_width(const char *operation, int64_t width, struct diag_list *reterr)
{
    if (width <= KERNEL_NORM_WIDTH_MAX)
        return 0;
    return cuda_refuse(reterr, "%s: width %lld, at most %d on this backend", operation,
                       (long long)width, KERNEL_NORM_WIDTH_MAX);
}

/* What a norm runs on; the weights apply as centre + w. dy, dx and dw in the backward only. */
struct norm {
    int64_t rows, width;
    float eps, centre;
    const bf16 *x, *w;
    bf16 *y;
    const bf16 *dy;
    bf16 *dx;
    bool accumulate_dx;
    void *dw;
    enum dtype grad_type;
};

static int forward(struct backend *b, enum stream s, const struct norm *n, struct diag_list *reterr)
{
    const struct cuda *c = (const struct cuda *)b;
    const void *const pointers[] = { n->x, n->w, n->y };
    if (cuda_check_rows("norm", n->width, pointers, 3, reterr) != 0 ||
        check_width("norm", n->width, reterr) != 0)
        return -1;
    return cuda_check(
        kernel_rmsnorm(c->streams[s], n->rows, n->width, n->eps, n->centre, n->x, n->w, n->y),
        "norm", reterr);
}

static int backward(struct backend *b, enum stream s, const struct norm *n,
                    struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    const void *const pointers[] = { n->dy, n->x, n->w, n->dx };
    if (cuda_check_rows("norm backward", n->width, pointers, 4, reterr) != 0 ||
        check_width("norm backward", n->width, reterr) != 0)
        return -1;
    int blocks = cuda_sum_blocks(c, n->width);
    float *partial =
        cuda_scratch(c, s, 4 * (uint64_t)n->width * (uint64_t)blocks, "norm backward", reterr);
    if (!partial)
        return -1;
    return cuda_check(kernel_rmsnorm_backward(c->streams[s], n->rows, n->width, n->eps, n->centre,
                                              n->dy, n->x, n->w, n->dx, n->accumulate_dx, n->dw,
                                              n->grad_type == DTYPE_FP32, partial, blocks),
                      "norm backward", reterr);
}

int cuda_rmsnorm(struct backend *b, enum stream s, int64_t rows, int64_t width, double eps,
                 const bf16 *x, const bf16 *w, bf16 *y, struct diag_list *reterr)
{
    const struct norm n = {
        .rows = rows, .width = width, .eps = (float)eps, .x = x, .w = w, .y = y
    };
    return forward(b, s, &n, reterr);
}

int cuda_rmsnorm_centred(struct backend *b, enum stream s, int64_t rows, int64_t width, double eps,
                         const bf16 *x, const bf16 *w, bf16 *y, struct diag_list *reterr)
{
    const struct norm n = {
        .rows = rows, .width = width, .eps = (float)eps, .centre = 1.0F, .x = x, .w = w, .y = y
    };
    return forward(b, s, &n, reterr);
}

int cuda_rmsnorm_backward(struct backend *b, enum stream s, int64_t rows, int64_t width, double eps,
                          const bf16 *dy, const bf16 *x, const bf16 *w, bf16 *dx,
                          bool accumulate_dx, void *dw, enum dtype grad_type,
                          struct diag_list *reterr)
{
    const struct norm n = { .rows = rows,
                            .width = width,
                            .eps = (float)eps,
                            .x = x,
                            .w = w,
                            .dy = dy,
                            .dx = dx,
                            .accumulate_dx = accumulate_dx,
                            .dw = dw,
                            .grad_type = grad_type };
    return backward(b, s, &n, reterr);
}

int cuda_rmsnorm_centred_backward(struct backend *b, enum stream s, int64_t rows, int64_t width,
                                  double eps, const bf16 *dy, const bf16 *x, const bf16 *w,
                                  bf16 *dx, bool accumulate_dx, void *dw, enum dtype grad_type,
                                  struct diag_list *reterr)
{
    const struct norm n = { .rows = rows,
                            .width = width,
                            .eps = (float)eps,
                            .centre = 1.0F,
                            .x = x,
                            .w = w,
                            .dy = dy,
                            .dx = dx,
                            .accumulate_dx = accumulate_dx,
                            .dw = dw,
                            .grad_type = grad_type };
    return backward(b, s, &n, reterr);
}
