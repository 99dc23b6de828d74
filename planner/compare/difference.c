#include "planner/compare/difference.h"

#include "base/safetensors/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An fp32 sum of n numbers in another order differs by about sqrt(n) 2^-24: under 1e-5 up to 2^14.
 * 1/64 is the least that 4 bf16 ulp (2^-7 each) of a number are of it. */
const struct agreement_info agreement_infos[AGREE_COUNT] = {
    [AGREE_EXACT] = { "exact", "the same arithmetic: equal to the bit", 0, 0, 0 },
    [AGREE_ORDERED] = { "ordered", "gradients are summed in another order, in fp32", 1e-6, 0,
                        1e-5 },
    [AGREE_ROUNDED] = { "rounded", "bf16 is rounded at other places: 4 ulp of a tensor's RMS", 1e-3,
                        1.0 / 64, 1.0 / 64 },
};

static const char hidden_name[] = "final_hidden";

static struct difference_side side_of(const struct measurement *measurement)
{
    struct difference_side ret = { 0 };

    for (size_t i = 0; i < measurement->rank_count; i++) {
        const struct measured_rank *rank = &measurement->ranks[i];
        double fastest = INFINITY;
        for (size_t step = 0; step < rank->steps; step++)
            fastest = fmin(fastest, rank->step_seconds[step]);
        if (rank->steps > 0)
            ret.seconds = fmax(ret.seconds, fastest);
        if (rank->arena_live_bytes > ret.peak_bytes)
            ret.peak_bytes = rank->arena_live_bytes;
    }
    if (measurement->rank_count > 0 && measurement->ranks[0].steps > 0)
        ret.loss = measurement->ranks[0].loss[0];
    return ret;
}

/* Both files, and where their tensors are read into. */
struct reading {
    struct safetensors *primitive, *reference;
    float *got, *want;
    double primitive_squares, reference_squares; /* of all gradients */
    struct diag_list *reterr;
};

static double squares_of(const float *values, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

static int read_pair(struct reading *r, const struct stored_tensor *stored)
{
    const struct tensor_expectation same = { stored->name, TENSOR_TYPE_F32, stored->axes,
                                             stored->shape };
    const struct stored_tensor *found;

    if (safetensors_expect(r->primitive, &same, &found, r->reterr) != 0 ||
        safetensors_read_all(r->primitive, found, TENSOR_TYPE_F32, r->got, r->reterr) != 0)
        return -1;
    return safetensors_read_all(r->reference, stored, TENSOR_TYPE_F32, r->want, r->reterr);
}

/* RMS of the difference over the RMS of the reference; the difference itself where that is zero. */
static double error_of(const struct reading *r, uint64_t count)
{
    double size = squares_of(r->want, count), sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        double d = (double)r->got[i] - (double)r->want[i];
        sum += d * d;
    }
    return size > 0 ? sqrt(sum / size) : sqrt(sum);
}

static int compare_tensor(struct reading *r, const struct stored_tensor *stored,
                          struct difference *ret)
{
    if (read_pair(r, stored) != 0)
        return -1;
    double error = error_of(r, stored->elements), squares = squares_of(r->want, stored->elements);
    if (strcmp(stored->name, hidden_name) == 0) {
        ret->hidden_error = error;
        return 0;
    }
    struct tensor_difference *tensor = &ret->tensors[ret->count++];
    tensor->name = pool_copy_text(&ret->pool, stored->name, strlen(stored->name));
    tensor->rms = sqrt(squares / (double)(stored->elements ? stored->elements : 1));
    tensor->error = error;
    r->reference_squares += squares;
    r->primitive_squares += squares_of(r->got, stored->elements);
    if (!ret->worst || !(error <= ret->worst->error))
        ret->worst = tensor;
    return tensor->name ? 0 : diag_no_memory(r->reterr);
}

static int compare_tensors(struct reading *r, struct difference *ret)
{
    size_t count = safetensors_count(r->reference);
    uint64_t largest = 0;

    if (safetensors_count(r->primitive) != count)
        return diag_error(r->reterr, (struct pos){ 0 }, "the runs have %zu and %zu tensors",
                          safetensors_count(r->primitive), count);
    for (size_t i = 0; i < count; i++) {
        uint64_t elements = safetensors_at(r->reference, i)->elements;
        largest = elements > largest ? elements : largest;
    }
    r->got = calloc(largest + 1, sizeof *r->got);
    r->want = calloc(largest + 1, sizeof *r->want);
    ret->tensors = pool_alloc(&ret->pool, (count + 1) * sizeof *ret->tensors);
    if (!r->got || !r->want || !ret->tensors)
        return diag_no_memory(r->reterr);
    for (size_t i = 0; i < count; i++)
        if (compare_tensor(r, safetensors_at(r->reference, i), ret) != 0)
            return -1;
    return 0;
}

static double relative(double got, double want)
{
    return want != 0 ? fabs(got - want) / fabs(want) : fabs(got);
}

static void judge(struct difference *ret)
{
    const struct agreement_info *allowed = &agreement_infos[ret->agreement];

    ret->loss_error = relative(ret->primitive.loss, ret->reference.loss);
    ret->norm_error = relative(ret->primitive.gradient_norm, ret->reference.gradient_norm);
    ret->within = ret->loss_error <= allowed->loss && ret->norm_error <= allowed->gradient &&
                  ret->hidden_error <= allowed->hidden &&
                  (!ret->worst || ret->worst->error <= allowed->gradient);
}

int difference_compute(const struct difference_input *primitive,
                       const struct difference_input *reference, enum agreement agreement,
                       struct difference *ret, struct diag_list *reterr)
{
    struct reading r = { .reterr = reterr };
    int status = -1;

    *ret = (struct difference){ .agreement = agreement,
                                .primitive = side_of(primitive->measurement),
                                .reference = side_of(reference->measurement) };
    if (safetensors_open(primitive->dump, &r.primitive, reterr) == 0 &&
        safetensors_open(reference->dump, &r.reference, reterr) == 0)
        status = compare_tensors(&r, ret);
    ret->primitive.gradient_norm = sqrt(r.primitive_squares);
    ret->reference.gradient_norm = sqrt(r.reference_squares);
    judge(ret);
    safetensors_close(r.primitive);
    safetensors_close(r.reference);
    free(r.got);
    free(r.want);
    return status;
}

void difference_done(struct difference *difference)
{
    pool_done(&difference->pool);
    memset(difference, 0, sizeof *difference);
}
