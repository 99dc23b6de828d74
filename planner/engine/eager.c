#include "planner/engine/eager.h"

#include "base/checked.h"

uint64_t eager_bytes(const struct eager *e, int tensor)
{
    return tensor < 0 || e->tape->failed ? 0 : e->tape->tensors[tensor].bytes;
}

uint64_t eager_width(const struct eager *e)
{
    return e->fp32 ? FP32_BYTES : BF16_BYTES;
}

struct weight eager_weight(struct eager *e, uint64_t elements, bool trained)
{
    return (struct weight){ .parameter =
                                tape_resident(e->tape, mul_sat(elements, eager_width(e)), trained),
                            .cast = -1,
                            .elements = elements };
}

int eager_cast(struct eager *e, int x, uint64_t elements, uint64_t to)
{
    uint64_t bytes = mul_sat(elements, to);
    if (eager_bytes(e, x) == bytes)
        return x;
    struct tape_step *step = tape_run(e->tape, "cast", bytes, x, -1);
    if (step)
        step->gradient[0] = GRADIENT_MADE;
    return tape_last(e->tape);
}

/* Autocast casts a leaf once in a region and keeps the copy until the region ends. */
static int compute_weight(struct eager *e, struct weight *weight)
{
    if (!e->autocast || !e->fp32)
        return weight->parameter;
    if (weight->cast >= 0)
        return weight->cast;
    weight->cast = eager_cast(e, weight->parameter, weight->elements, BF16_BYTES);
    if (e->cast_count < (int)(sizeof e->casts / sizeof e->casts[0]))
        e->casts[e->cast_count++] = weight->cast;
    return weight->cast;
}

void eager_end_autocast(struct eager *e)
{
    for (int i = 0; i < e->cast_count; i++)
        tape_release(e->tape, e->casts[i]);
    e->cast_count = 0;
}

int eager_linear(struct eager *e, int x, uint64_t rows, uint64_t in, uint64_t out,
                 struct weight *weight)
{
    uint64_t element = e->autocast || !e->fp32 ? BF16_BYTES : FP32_BYTES;
    int w = compute_weight(e, weight);
    int operand = eager_cast(e, x, mul_sat(rows, in), element);
    struct tape_step *step = tape_run(e->tape, "matmul", mul3_sat(rows, out, element), operand, w);
    if (!step)
        return -1;
    double flops = 2.0 * (double)rows * (double)in * (double)out;
    step->gradient[0] = step->gradient[1] = GRADIENT_MADE;
    step->work = (struct tape_work){ .flops = flops, .backward_flops = 2 * flops };
    int ret = tape_last(e->tape);
    if (e->tape->tensors[w].differs)
        tape_save(e->tape, operand);
    tape_save(e->tape, w);
    if (operand != x)
        tape_release(e->tape, operand);
    return ret;
}

int eager_unary(struct eager *e, const char *name, int x, uint64_t bytes)
{
    struct tape_step *step = tape_run(e->tape, name, bytes, x, -1);
    if (step)
        step->gradient[0] = GRADIENT_MADE;
    return tape_last(e->tape);
}

int eager_multiply(struct eager *e, int a, int b, uint64_t bytes)
{
    struct tape_step *step = tape_run(e->tape, "multiply", bytes, a, b);
    if (!step)
        return -1;
    step->gradient[0] = eager_bytes(e, a) < bytes ? GRADIENT_REDUCED : GRADIENT_MADE;
    step->gradient[1] = eager_bytes(e, b) < bytes ? GRADIENT_REDUCED : GRADIENT_MADE;
    int ret = tape_last(e->tape);
    if (e->tape->tensors[b].differs)
        tape_save(e->tape, a);
    if (e->tape->tensors[a].differs)
        tape_save(e->tape, b);
    return ret;
}

int eager_add(struct eager *e, int a, int b, uint64_t bytes)
{
    struct tape_step *step = tape_run(e->tape, "add", bytes, a, b);
    if (step)
        step->gradient[0] = step->gradient[1] = GRADIENT_PASSED;
    return tape_last(e->tape);
}

/* x squared: its backward makes the power, the power times two, and the gradient. */
static int square(struct eager *e, int x, uint64_t bytes)
{
    struct tape_step *step = tape_run(e->tape, "square", bytes, x, -1);
    if (!step)
        return -1;
    step->gradient[0] = GRADIENT_MADE;
    step->backward_scratch[0] = step->backward_scratch[1] = bytes;
    tape_save(e->tape, x);
    return tape_last(e->tape);
}

static int rsqrt(struct eager *e, int x, uint64_t bytes)
{
    int ret = eager_unary(e, "rsqrt", x, bytes);
    tape_save(e->tape, ret);
    return ret;
}

int eager_norm(struct eager *e, int x, uint64_t rows, uint64_t width, struct weight *weight,
               uint64_t *element)
{
    uint64_t elements = mul_sat(rows, width), wide = mul_sat(elements, FP32_BYTES);
    uint64_t narrow = mul_sat(elements, *element), each = mul_sat(rows, FP32_BYTES);
    int x32 = eager_cast(e, x, elements, FP32_BYTES);
    int squares = square(e, x32, wide);
    int mean = eager_unary(e, "mean", squares, each);
    tape_release(e->tape, squares);
    int sum = eager_add(e, mean, -1, each);
    int inverse = rsqrt(e, sum, each);
    int scaled = eager_multiply(e, x32, inverse, wide);
    if (x32 != x)
        tape_release(e->tape, x32);
    tape_release(e->tape, inverse);
    int y = eager_cast(e, scaled, elements, *element);
    uint64_t weight_element = eager_width(e);
    *element = *element > weight_element ? *element : weight_element;
    int ret = eager_multiply(e, weight->parameter, y, *element == FP32_BYTES ? wide : narrow);
    if (y != scaled)
        tape_release(e->tape, y);
    tape_release(e->tape, scaled);
    tape_release(e->tape, mean);
    tape_release(e->tape, sum);
    return ret;
}

int eager_rope(struct eager *e, int x, uint64_t elements, uint64_t element, int cosine, int sine)
{
    uint64_t bytes = mul_sat(elements, element);
    struct tape_step *step = tape_run(e->tape, "x cos", bytes, x, cosine);
    if (!step)
        return -1;
    step->gradient[0] = GRADIENT_MADE;
    tape_save(e->tape, cosine);
    int straight = tape_last(e->tape);
    /* the backward of a slice is a tensor of zeros of the full size with the gradient in its place
     */
    step = tape_run(e->tape, "negate half", bytes / 2, x, -1);
    if (!step)
        return -1;
    step->gradient[0] = GRADIENT_MADE;
    step->backward_scratch[0] = bytes / 2;
    int negative = tape_last(e->tape);
    step = tape_run(e->tape, "join halves", bytes, negative, x);
    if (!step)
        return -1;
    step->gradient[0] = GRADIENT_PASSED;
    step->gradient[1] = GRADIENT_MADE;
    int turned = tape_last(e->tape);
    tape_release(e->tape, negative);
    step = tape_run(e->tape, "turned sin", bytes, turned, sine);
    if (!step)
        return -1;
    step->gradient[0] = GRADIENT_MADE;
    tape_save(e->tape, sine);
    int across = tape_last(e->tape);
    tape_release(e->tape, turned);
    int ret = eager_add(e, straight, across, bytes);
    tape_release(e->tape, straight);
    tape_release(e->tape, across);
    return ret;
}
