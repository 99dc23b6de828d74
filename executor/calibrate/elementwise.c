/* elementwise.c - what reads and writes each tensor once: norms, rotary embedding, activations,
 * rows on their way to experts and back, sums. */
#include "executor/calibrate/bench.h"

#include "base/text.h"

#include <stdlib.h>

/* Of a layer with `rows` tokens. */
struct shape {
    int64_t rows, hidden, width;
    int heads, kv_heads, head_dim, experts, top_k;
};

static const struct shape device_shapes[] = {
    { 1024, 2048, 768, 32, 4, 128, 128, 8 },
    { 8192, 2048, 768, 32, 4, 128, 128, 8 },
    { 32768, 2048, 768, 32, 4, 128, 128, 8 },
};
static const struct shape host_shapes[] = {
    { 128, 64, 64, 4, 2, 16, 8, 2 },
    { 512, 256, 256, 8, 2, 32, 16, 4 },
    { 2048, 256, 256, 8, 2, 32, 16, 4 },
};

struct pass {
    struct shape shape;
    void *a, *b, *c, *d, *e;
    int32_t *slots; /* [rows, top_k] on the device */
};

static int64_t routed(const struct pass *p)
{
    return p->shape.rows * p->shape.top_k;
}

static double hidden_bytes(const struct pass *p, int64_t rows)
{
    return 2.0 * (double)rows * (double)p->shape.hidden;
}

/* Bytes that each case takes of a .. e, and moves in all. */
struct pass_case {
    const char *name;
    bench_run *run;
    double (*bytes)(const struct pass *p);
};

#define ON b->backend, STREAM_COMPUTE

static int run_norm(struct bench *b, void *operation)
{
    const struct pass *p = operation;
    return b->ops->rmsnorm(ON, p->shape.rows, p->shape.hidden, 1e-6, p->a, p->e, p->b, b->errors);
}

static double norm_bytes(const struct pass *p)
{
    return 2 * hidden_bytes(p, p->shape.rows);
}

static int run_norm_backward(struct bench *b, void *operation)
{
    const struct pass *p = operation;
    return b->ops->rmsnorm_backward(ON, p->shape.rows, p->shape.hidden, 1e-6, p->a, p->b, p->e,
                                    p->c, true, p->d, DTYPE_FP32, b->errors);
}

static double norm_backward_bytes(const struct pass *p)
{
    return 4 * hidden_bytes(p, p->shape.rows);
}

static struct rope rope_of(const struct pass *p)
{
    const struct shape *s = &p->shape;
    int64_t q = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    return (struct rope){ .rows = s->rows,
                          .tokens = s->rows,
                          .heads = s->heads,
                          .kv_heads = s->kv_heads,
                          .head_dim = s->head_dim,
                          .rotary_dim = s->head_dim,
                          .theta = 1e6,
                          .norm_eps = 1e-6,
                          .q_norm = p->e,
                          .k_norm = p->e,
                          .qkv = p->a,
                          .qkv_stride = q + 2 * kv,
                          .k_offset = q,
                          .q = p->b,
                          .k = p->c };
}

static int run_rope(struct bench *b, void *operation)
{
    const struct rope r = rope_of(operation);
    return b->ops->rope(ON, &r, b->errors);
}

static double rope_bytes(const struct pass *p)
{
    const struct shape *s = &p->shape;
    return 4.0 * (double)s->rows * (s->heads + s->kv_heads) * s->head_dim;
}

static int run_rope_backward(struct bench *b, void *operation)
{
    const struct pass *p = operation;
    const struct rope_gradient r = { .forward = rope_of(p),
                                     .dqkv = p->b,
                                     .dq_norm = p->d,
                                     .dk_norm = (float *)p->d + p->shape.head_dim,
                                     .grad_type = DTYPE_FP32 };
    return b->ops->rope_backward(ON, &r, b->errors);
}

static double rope_backward_bytes(const struct pass *p)
{
    return 1.5 * rope_bytes(p);
}

static int run_swiglu(struct bench *b, void *operation)
{
    const struct pass *p = operation;
    return b->ops->swiglu(ON, routed(p), p->shape.width, p->a, NULL, p->b, b->errors);
}

static double swiglu_bytes(const struct pass *p)
{
    return 6.0 * (double)routed(p) * (double)p->shape.width;
}

static int run_swiglu_backward(struct bench *b, void *operation)
{
    const struct pass *p = operation;
    return b->ops->swiglu_backward(ON, routed(p), p->shape.width, p->b, NULL, p->a, NULL,
                                   b->errors);
}

static double swiglu_backward_bytes(const struct pass *p)
{
    return 10.0 * (double)routed(p) * (double)p->shape.width;
}

static int run_scatter(struct bench *b, void *operation)
{
    const struct pass *p = operation;
    return b->ops->scatter_rows(ON, p->shape.rows, p->shape.top_k, p->shape.hidden, p->a, p->slots,
                                p->b, NULL, NULL, b->errors);
}

static double scatter_bytes(const struct pass *p)
{
    return hidden_bytes(p, p->shape.rows) + hidden_bytes(p, routed(p));
}

static int run_gather(struct bench *b, void *operation)
{
    const struct pass *p = operation;
    return b->ops->gather_rows(ON, routed(p), p->shape.hidden, p->a, p->slots, p->b, NULL, NULL,
                               b->errors);
}

static double gather_bytes(const struct pass *p)
{
    return 2 * hidden_bytes(p, routed(p));
}

static int run_combine(struct bench *b, void *operation)
{
    const struct pass *p = operation;
    return b->ops->combine_rows(ON, p->shape.rows, p->shape.top_k, p->shape.hidden, p->a, p->slots,
                                p->b, p->b, NULL, NULL, b->errors);
}

static double combine_bytes(const struct pass *p)
{
    return 2 * hidden_bytes(p, p->shape.rows) + hidden_bytes(p, routed(p));
}

static int run_add(struct bench *b, void *operation)
{
    const struct pass *p = operation;
    return b->ops->add(ON, routed(p) * p->shape.hidden / 2, p->a, p->b, DTYPE_FP32, b->errors);
}

static double add_bytes(const struct pass *p)
{
    return 3 * hidden_bytes(p, routed(p));
}

static const struct pass_case cases[] = {
    { "rmsnorm", run_norm, norm_bytes },
    { "rmsnorm_backward", run_norm_backward, norm_backward_bytes },
    { "rope", run_rope, rope_bytes },
    { "rope_backward", run_rope_backward, rope_backward_bytes },
    { "swiglu", run_swiglu, swiglu_bytes },
    { "swiglu_backward", run_swiglu_backward, swiglu_backward_bytes },
    { "scatter_rows", run_scatter, scatter_bytes },
    { "gather_rows", run_gather, gather_bytes },
    { "combine_rows", run_combine, combine_bytes },
    { "add", run_add, add_bytes },
};

/* Slots in expert order where each token's choices are top_k neighbours from a random first. */
static int32_t *draw_slots(const struct shape *s)
{
    size_t count = (size_t)(s->rows * s->top_k);
    int32_t *slots = malloc(count * sizeof *slots), place[128] = { 0 };
    uint64_t state = 7;
    for (int pass = 0; slots && pass < 2; pass++) {
        for (size_t i = 0; i < count; i++) {
            if (i % (size_t)s->top_k == 0)
                state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            uint64_t choice = (state >> 33) + i % (size_t)s->top_k;
            int32_t *at = &place[choice % (uint64_t)s->experts];
            slots[i] = *at;
            *at += 1;
        }
        state = 7;
        int32_t first = 0;
        for (int e = 0; pass == 0 && e < s->experts; e++) {
            int32_t load = place[e];
            place[e] = first;
            first += load;
        }
    }
    return slots;
}

/* Operands large enough for every case. */
static int prepare(struct bench *b, struct pass *p)
{
    const struct shape *s = &p->shape;
    int64_t most = routed(p) * (s->hidden > 2 * s->width ? s->hidden : 2 * s->width);
    int32_t *slots = draw_slots(s);
    if (!slots)
        return diag_error(b->errors, (struct pos){ 0 }, "no memory left");
    p->a = bench_take_bf16(b, most);
    p->b = bench_take_bf16(b, most);
    p->c = bench_take_bf16(b, most);
    p->d = bench_take_float(b, s->hidden);
    p->e = bench_take_bf16(b, s->hidden);
    p->slots = bench_upload(b, slots, (uint64_t)routed(p) * sizeof *slots);
    int ret = b->ops->sync(b->backend, STREAM_COMPUTE, b->errors);
    free(slots);
    return ret;
}

static int measure(struct bench *b, struct pass *p)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct point point = { .kind = POINT_ELEMENTWISE,
                               .m = p->shape.rows,
                               .n = p->shape.hidden,
                               .bytes = cases[i].bytes(p) };
        (void)text_copy(point.name, sizeof point.name, cases[i].name);
        if (bench_wants(b, 0, point.bytes) && bench_time(b, cases[i].run, p, false, &point) != 0)
            return -1;
    }
    return 0;
}

static int run_copy(struct bench *b, void *operation)
{
    const struct point *p = operation;
    return b->ops->copy(ON, b->block + b->block_bytes / 2, b->block, (uint64_t)(p->bytes / 2),
                        b->errors);
}

/* A quarter of the block onto another, and less of it. */
static int measure_copies(struct bench *b)
{
    for (uint64_t bytes = b->block_bytes / 4; bytes >= b->block_bytes / 64; bytes /= 4) {
        struct point point = { .kind = POINT_COPY, .name = "copy", .bytes = 2 * (double)bytes };
        double asked = b->calibration->quick ? 0 : point.bytes;
        if (bench_wants(b, 0, asked) && bench_time(b, run_copy, &point, false, &point) != 0)
            return -1;
        if (b->calibration->quick)
            break;
    }
    return 0;
}

int bench_elementwise(struct bench *b)
{
    bool host = b->calibration->host;
    const struct shape *shapes = host ? host_shapes : device_shapes;
    size_t count = host ? sizeof host_shapes / sizeof *host_shapes
                        : sizeof device_shapes / sizeof *device_shapes;
    int ret = measure_copies(b);
    for (size_t i = 0; i < count && ret == 0; i++) {
        struct pass p = { .shape = shapes[i] };
        ret = prepare(b, &p);
        if (ret == 0 && p.a && p.b && p.c && p.d && p.e && p.slots)
            ret = measure(b, &p);
        bench_clear(b);
    }
    return ret;
}
