/* The hardware files that ship against published figures of the parts, written out here apart from
 * them, and slips in such figures. */
#include "base/hardware/hardware.h"

#include "tests/support/golden.h"
#include "tests/support/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Memory as drivers and frameworks print it, GiB, from the lowest total seen to the highest; dense
 * bf16 TFLOP/s; TB/s; GB/s of a link one direction, of the adapter (Gb/s); GPUs of a domain, of a
 * node; least host memory of a node, GB. */
static const struct {
    const char *name;
    double least_gib, most_gib, tflops, memory_tb, link_gb, network_gbit;
    int domain, node;
    double host_gb;
} parts[] = {
    { "a100-80gb", 79.1, 79.4, 312, 2.04, 300, 200, 8, 8, 1000 },
    { "a800", 79.1, 79.4, 312, 2.04, 200, 200, 8, 8, 1000 },
    { "h100-sxm", 79.0, 79.3, 989, 3.35, 450, 400, 8, 8, 2000 },
    { "h800", 79.0, 79.3, 989, 3.35, 200, 400, 8, 8, 2000 },
    { "h20", 94.5, 95.6, 148, 4.0, 450, 400, 8, 8, 2000 },
    { "h200", 139.7, 139.9, 989, 4.8, 450, 400, 8, 8, 2000 },
    { "b200", 178.3, 178.4, 2250, 7.7, 900, 400, 8, 8, 2000 },
    { "b300-nvl8", 267.6, 267.7, 2250, 7.75, 900, 800, 8, 8, 2000 },
    { "gb200-nvl72", 184.2, 184.4, 2500, 8.0, 900, 400, 72, 4, 960 },
    { "gb300-nvl72", 276.4, 276.6, 2500, 8.0, 900, 800, 72, 4, 960 },
    { "mi300x", 191.6, 192.0, 1307, 5.3, 448, 400, 8, 8, 1500 },
    { "mi325x", 255.6, 256.0, 1307, 6.0, 448, 400, 8, 8, 1500 },
    { "mi355x", 287.9, 288.0, 2500, 8.0, 535.5, 400, 8, 8, 1500 },
    { "l40s", 44.4, 44.6, 362, 0.864, 31.5, 200, 8, 8, 1000 },
    { "rtx4090", 23.5, 23.7, 165, 1.008, 31.5, 100, 8, 8, 500 },
};

static void load(const char *name, struct hardware *ret)
{
    struct diag_list errors = { 0 };
    if (hardware_load(name, ret, &errors) != 0)
        fail_msg("%s: %s", name, errors.items[0].what);
}

static void figures_are_the_published_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct hardware h = { 0 };
        load(parts[i].name, &h);
        double gib = (double)h.memory_bytes / 1073741824.0;
        if (gib < parts[i].least_gib || gib > parts[i].most_gib)
            fail_msg("%s: %g GiB", parts[i].name, gib);
        assert_near(h.bf16_flops_per_second / 1e12, parts[i].tflops, 0.002, "TFLOP/s");
        assert_near(h.memory_bytes_per_second / 1e12, parts[i].memory_tb, 0.005, "TB/s");
        assert_near(h.link_bytes_per_second / 1e9, parts[i].link_gb, 0.001, "GB/s");
        assert_near(h.network_bytes_per_second * 8 / 1e9, parts[i].network_gbit, 0.001, "Gb/s");
        assert_int_equal(h.domain_gpus, parts[i].domain);
        assert_int_equal(h.gpus_per_node, parts[i].node);
        assert_true((double)h.host_memory_bytes >= parts[i].host_gb * 1e9);
    }
}

/* Communicators were measured on H200s alone; what a file says itself wins over its confidences. */
static void held_bytes_are_known_of_one_part(void **state)
{
    (void)state;
    struct hardware h = { 0 };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        load(parts[i].name, &h);
        assert_int_equal(h.held_assumed, strcmp(parts[i].name, "h200") != 0);
    }
    load("host", &h);
    assert_false(h.held_assumed);
}

/* Seven links of a mesh are the whole rate of a GPU. */
static void meshes_add_up(void **state)
{
    static const char *const meshes[] = { "mi300x", "mi325x", "mi355x" };
    struct hardware h = { 0 };
    (void)state;

    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        load(meshes[i], &h);
        assert_near(7 * h.peer_link_bytes_per_second, h.link_bytes_per_second, 1e-9, "bytes/s");
    }
    load("h200", &h);
    assert_true(h.peer_link_bytes_per_second <= 0);
}

/* No file that ships has a doubtful value. */
static void shipped_files_pass_their_own_check(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct hardware h = { 0 };
        struct diag_list errors = { 0 };
        (void)hardware_check(parts[i].name, &h, &errors);
        if (errors.count > 0)
            fail_msg("%s: %s", parts[i].name, errors.items[0].what);
    }
}

/* No part's small matmuls and short sequences are taken for large and long ones. */
static void small_work_costs_more_on_every_part(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct hardware h = { 0 };
        load(parts[i].name, &h);
        const double said[] = { h.gemm_call_seconds,        h.gemm_traffic_share,
                                h.expert_gemm_call_seconds, h.expert_gemm_traffic_share,
                                h.elementwise_call_seconds, h.attention_half_tokens,
                                h.sustained_share };
        for (size_t j = 0; j < sizeof said / sizeof *said; j++)
            if (!(said[j] > 0))
                fail_msg("%s: fine key %zu is not said", parts[i].name, j);
    }
}

/* One slip each in the H100's figures: its cause, and whether the value is possible at all. */
static void slips_have_a_cause(void **state)
{
    static const struct {
        const char *key, *value;
        bool impossible;
    } slips[] = {
        { "bf16_flops_per_second", "1979e12", true },
        { "bf16_flops_per_second", "34e12", false },
        { "link_bytes_per_second", "3.6e12", true },
        { "link_bytes_per_second", "1.8e12", false },
        { "network_bytes_per_second", "400e9", true },
        { "host_link_bytes_per_second", "900e9", false },
        { "memory_bytes_per_second", "26.8e12", true },
        { "link_bytes_per_second", "900e9", false },
        { "domain_gpus", "12", true },
        { "domain_gpus", "3", true },
        { "gpus_per_node", "3", true },
        { "memory_bytes", "80GiB", false },
        { "memory_bytes", "80GB", false },
        { "gemm_efficiency", "0.99", false },
        { "expert_gemm_efficiency", "0.9", false },
        { "gather_efficiency", "1", false },
        { "context_bytes", "5GiB", false },
        { "launch_seconds", "5e-4", false },
        { "host_memory_bytes", "200GB", false },
    };
    FILE *out = golden_begin();
    (void)state;

    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
        struct hardware h = { 0 };
        struct diag_list errors = { 0 };
        const struct node root = { .kind = NODE_MAP };
        load("h100-sxm", &h);
        assert_int_equal(hardware_set(&h, slips[i].key, slips[i].value, (struct pos){ 0 }, &errors),
                         0);
        int rc = hardware_doubts(&h, &root, true, &errors);
        assert_int_equal(rc, slips[i].impossible ? -1 : 0);
        assert_int_equal(errors.count, 1);
        (void)fprintf(out, "# %s=%s\n", slips[i].key, slips[i].value);
        diag_list_print(out, &errors);
        memset(&errors, 0, sizeof errors);
        assert_int_equal(hardware_doubts(&h, &root, false, &errors), rc);
        assert_int_equal(errors.count, slips[i].impossible);
    }
    assert_golden_end("slips in the figures of an H100");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_the_published_ones),
        cmocka_unit_test(held_bytes_are_known_of_one_part),
        cmocka_unit_test(meshes_add_up),
        cmocka_unit_test(shipped_files_pass_their_own_check),
        cmocka_unit_test(small_work_costs_more_on_every_part),
        cmocka_unit_test(slips_have_a_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
