/* Figures in logs of other engines. The lines have the form of the engines; their numbers
 * are ours, and the expected bytes are worked out next to them. */
#include "planner/compare/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct log_figures figures;

static int read(const char *text)
{
    struct diag_list errors = { 0 };
    return log_read("log", text, strlen(text), &figures, &errors);
}

/* MB of Megatron are 2^20: 20000.5 x 1048576 = 20972044288. */
static void megatron_prints_mebibytes(void **state)
{
    (void)state;
    assert_int_equal(
        read("  num_layers ...................................... 48\n"
             "  world_size ...................................... 16\n"
             "[Rank 0] (after 2 iterations) memory (MB) | allocated: 15000.0 | max allocated: "
             "20000.5 | reserved: 21000.0 | max reserved: 22000.0\n"
             "[Rank 8] (after 2 iterations) memory (MB) | allocated: 15000.0 | max allocated: "
             "19000.0 | reserved: 21000.0 | max reserved: 23000.0\n"
             " iteration 1/ 10 | consumed samples: 8 | elapsed time per iteration (ms): 9000.0 |\n"
             " iteration 2/ 10 | consumed samples: 16 | elapsed time per iteration (ms): 1500.0 |\n"
             " iteration 3/ 10 | consumed samples: 24 | elapsed time per iteration (ms): 1700.0 "
             "|\n"),
        0);
    assert_int_equal(figures.bytes[LOG_ALLOCATED], UINT64_C(20972044288));
    assert_int_equal(figures.lines[LOG_ALLOCATED], 3);
    assert_int_equal(figures.bytes[LOG_RESERVED], UINT64_C(23000) * 1048576);
    assert_int_equal(figures.bytes[LOG_DEVICE], 0);
    assert_int_equal(figures.world, 16);
    assert_int_equal(figures.layers, 48);
    assert_true(log_seconds(&figures) == 1.6); /* the first step is left out */
}

static void torchtitan_prints_reserved_memory(void **state)
{
    (void)state;
    assert_int_equal(
        read("[titan] 2026 - root - INFO - \033[34mModel llama3 8B \033[31msize: 8,030,261,248 "
             "total parameters\033[39m\n"
             "[titan] \033[31mstep:  1  \033[32mloss: 12.2  \033[33mmemory: 40.50GiB(42.1%)  "
             "\033[34mtps: 6,000\033[39m\n"
             "[titan] step: 10  loss: 9.1  memory: 47.25GiB(49.7%)  tps: 7,000  mfu: 40.1%\n"),
        0);
    assert_int_equal(figures.bytes[LOG_RESERVED], UINT64_C(50734301184)); /* 47.25 x 2^30 */
    assert_int_equal(figures.lines[LOG_RESERVED], 3);
    assert_int_equal(figures.params, UINT64_C(8030261248));
}

static void both_messages_of_pytorch_are_read(void **state)
{
    (void)state;
    assert_int_equal(
        read("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a "
             "total capacity of 79.25 GiB of which 1.00 GiB is free. Including non-PyTorch memory, "
             "this process has 78.00 GiB memory in use. Of the allocated memory 70.00 GiB is "
             "allocated by PyTorch, and 5.50 GiB is reserved by PyTorch but unallocated.\n"),
        0);
    assert_true(figures.out_of_memory);
    assert_int_equal(figures.request_bytes, UINT64_C(1610612736));         /* 1.5 x 2^30 */
    assert_int_equal(figures.bytes[LOG_ALLOCATED], UINT64_C(75161927680)); /* 70 x 2^30 */
    assert_int_equal(figures.bytes[LOG_RESERVED], UINT64_C(81067507712));  /* 75.5 x 2^30 */
    assert_int_equal(figures.bytes[LOG_DEVICE], UINT64_C(83751862272));    /* 78 x 2^30 */
    assert_int_equal(read("RuntimeError: CUDA out of memory. Tried to allocate 768.00 MiB (GPU 0; "
                          "31.75 GiB total "
                          "capacity; 28.50 GiB already allocated; 512.00 MiB free; 30.00 GiB "
                          "reserved in total by "
                          "PyTorch)\n"),
                     0);
    assert_int_equal(figures.request_bytes, UINT64_C(805306368));
    assert_int_equal(figures.capacity_bytes, UINT64_C(34091302912));       /* 31.75 x 2^30 */
    assert_int_equal(figures.bytes[LOG_ALLOCATED], UINT64_C(30601641984)); /* 28.5 x 2^30 */
    assert_int_equal(figures.bytes[LOG_RESERVED], UINT64_C(32212254720));  /* 30 x 2^30 */
}

static void summary_and_nvidia_smi_are_read(void **state)
{
    (void)state;
    assert_int_equal(
        read("|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n"
             "| Allocated memory      |   1024 MiB |   3072 MiB |  9 GiB |  8 GiB |\n"
             "| GPU reserved memory   |   2048 MiB |   4096 MiB |  9 GiB |  8 GiB |\n"
             "| N/A   40C    P0   300W / 700W |   5120MiB / 81559MiB |    100%      Default |\n"),
        0);
    assert_int_equal(figures.bytes[LOG_ALLOCATED], UINT64_C(3072) << 20);
    assert_int_equal(figures.bytes[LOG_RESERVED], UINT64_C(4096) << 20);
    assert_int_equal(figures.bytes[LOG_DEVICE], UINT64_C(5120) << 20);
}

static void a_log_without_memory_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(read("step 1 loss 2\nmemory: lots\nTried to allocate\n"), -1);
    assert_int_equal(read(""), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatron_prints_mebibytes),
        cmocka_unit_test(torchtitan_prints_reserved_memory),
        cmocka_unit_test(both_messages_of_pytorch_are_read),
        cmocka_unit_test(summary_and_nvidia_smi_are_read),
        cmocka_unit_test(a_log_without_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
