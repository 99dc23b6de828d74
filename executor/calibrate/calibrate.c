#include "executor/calibrate/bench.h"

static int attention_usual(struct bench *b)
{
    return bench_attention(b, true);
}

static int attention_others(struct bench *b)
{
    return bench_attention(b, false);
}

/* In this order: what libraries hold is asked once a usual step's kernels have run, and before any
 * communicator is made. */
static const struct {
    const char *what;
    int (*measure)(struct bench *b);
} phases[] = {
    { "products", bench_products },
    { "expert products", bench_experts },
    { "attention", attention_usual },
    { "elementwise passes", bench_elementwise },
    { "optimizer", bench_optimizer },
    { "what libraries hold", bench_libraries },
    { "attention of other head dims", attention_others },
    { "delta rule", bench_delta },
    { "attention at length", bench_sustained },
    { "launches", bench_launch },
    { "host link", bench_host_link },
    { "communicators", bench_communicators },
    { "collectives", bench_collectives },
    { "exchanges by copies", bench_copies },
};

int calibrate(const struct calibration *calibration, struct points *ret, struct diag_list *reterr)
{
    struct bench b;
    int status = bench_open(&b, calibration, ret, reterr);
    ret->ranks = calibration->fabric->world;
    ret->quick = calibration->quick;
    ret->memory_bytes = calibration->device.memory_bytes;
    for (size_t i = 0; i < sizeof phases / sizeof *phases && status == 0; i++) {
        if (calibration->tell && calibration->fabric->rank == 0)
            calibration->tell(phases[i].what);
        status = phases[i].measure(&b);
    }
    bench_close(&b);
    return status;
}
