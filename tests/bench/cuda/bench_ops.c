/* Speed of the CUDA backend's operations at the shapes of Qwen3-30B-A3B (hidden 2048, 32/4 heads x
 * 128, 128 experts top-8 of width 768, vocabulary 151,936) with 32,768 tokens: GB/s of the bytes
 * that must move, against a device-to-device copy of the same run, or TFLOP/s. Median of the runs
 * after warm-up, by events; random data. Prints; judges nothing. With arguments, only the groups
 * that they name: rows, products, attention. Exits 77 without a GPU. */
#include "tests/bench/cuda/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc < 2;
}

static void run(struct bench *b, int32_t *choices, int32_t *slots, int argc, char **argv)
{
    bench_routes(b, choices, slots);
    if (wanted("rows", argc, argv))
        bench_rows(b, choices, slots);
    if (wanted("products", argc, argv))
        bench_products(b);
    if (wanted("attention", argc, argv))
        bench_attention(b);
    printf("device memory in use %.0f MiB\n", (double)b->ops->device_bytes(b->backend) / 1048576);
}

int main(int argc, char **argv)
{
    static struct bench b;
    int status = bench_open(&b);
    int32_t *choices = malloc(ROUTED * sizeof *choices), *slots = malloc(ROUTED * sizeof *slots);
    if (status == 0 && choices && slots)
        run(&b, choices, slots, argc, argv);
    free(choices);
    free(slots);
    bench_close(&b);
    return status;
}
