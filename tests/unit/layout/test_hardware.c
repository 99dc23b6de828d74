#include "base/file.h"
#include "base/hardware/hardware.h"

#include "tests/support/golden.h"
#include "tests/support/near.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const gpu_text = "name: my-gpu\n"
                                    "gpu: My GPU\n"
                                    "memory_bytes: {value: 80GiB, source: here, confidence: B}\n"
                                    "memory_bytes_per_second: 3.35e12\n"
                                    "bf16_flops_per_second: 989.4e12\n"
                                    "gpus_per_node: 8\n"
                                    "domain_gpus: 8\n"
                                    "link_bytes_per_second: 450e9\n"
                                    "network_bytes_per_second: 50e9\n"
                                    "host_link_bytes_per_second: 55e9\n"
                                    "host_memory_bytes: 2.0e12\n"
                                    "gemm_efficiency: 0.7\n"
                                    "expert_gemm_efficiency: 0.6\n"
                                    "attention_forward_efficiency: 0.6\n"
                                    "attention_backward_efficiency: 0.5\n"
                                    "memory_efficiency: 0.9\n"
                                    "gather_efficiency: 0.75\n"
                                    "exchange_efficiency: 0.7\n"
                                    "network_efficiency: 0.85\n"
                                    "collective_latency_seconds: 1e-5\n"
                                    "launch_seconds: 4e-6\n"
                                    "context_bytes: 500MiB\n"
                                    "communicator_first_bytes: 574MiB\n"
                                    "communicator_next_bytes: 196MiB\n"
                                    "channel_bytes: 12MiB\n"
                                    "ring_channels: 24\n"
                                    "exchange_peer_bytes: 384MiB\n";

static int read_text(const char *text, struct hardware *ret, struct diag_list *errors)
{
    struct tree tree = { 0 };
    int rc = tree_read_text(&tree, "gpu.yaml", text, strlen(text), errors);
    if (rc == 0)
        rc = hardware_from_node(tree.root, ret, errors);
    if (rc == 0)
        rc = hardware_doubts(ret, tree.root, false, errors);
    tree_done(&tree);
    return rc;
}

/* gpu_text with the line of `key` replaced (NULL: dropped). */
static int read_edited(const char *key, const char *line, struct hardware *ret,
                       struct diag_list *errors)
{
    char text[4096], start[64];

    (void)snprintf(start, sizeof start, "\n%s: ", key);
    const char *at = strstr(gpu_text, start);
    assert_non_null(at);
    const char *after = strchr(at + 1, '\n');
    assert_non_null(after);
    assert_true(snprintf(text, sizeof text, "%.*s%s%s%s", (int)(at - gpu_text), gpu_text,
                         line ? "\n" : "", line ? line : "", after) < (int)sizeof text);
    return read_text(text, ret, errors);
}

static void reads_plain_and_sourced_values(void **state)
{
    struct hardware h = { 0 };
    struct diag_list errors = { 0 };
    (void)state;

    assert_int_equal(read_text(gpu_text, &h, &errors), 0);
    assert_int_equal(errors.count, 0);
    assert_string_equal(h.name, "my-gpu");
    assert_false(h.host);
    assert_int_equal(h.memory_bytes, INT64_C(85899345920)); /* 80 x 2^30 */
    assert_int_equal(h.host_memory_bytes, INT64_C(2000000000000));
    assert_near(h.bf16_flops_per_second, 989.4e12, 1e-12, "FLOP/s");
    assert_int_equal(h.ring_channels, 24);
    assert_int_equal(h.exchange_peer_bytes, INT64_C(402653184)); /* 384 x 2^20 */
}

/* The likely slip is named. */
static void slips_of_units_are_named(void **state)
{
    static const struct {
        const char *key, *line;
    } slips[] = {
        { "link_bytes_per_second", "link_bytes_per_second: 450" },
        { "memory_bytes_per_second", "memory_bytes_per_second: 3.35" },
        { "bf16_flops_per_second", "bf16_flops_per_second: 989" },
        { "gemm_efficiency", "gemm_efficiency: 72" },
        { "launch_seconds", "launch_seconds: 4" },
        { "memory_bytes", "memory_bytes: 80" },
        { "memory_bytes", "memory_bytes: 81559" },
        { "domain_gpus", "domain_gpus: 0" },
        { "ring_channels", "ring_channels: many" },
        { "gpu", "gpu: \"\"" },
        { "memory_bytes", "memory_bytes: detect" },
        { "gemm_efficiency", "gemm_efficiency: -0.5" },
    };
    FILE *out = golden_begin();
    (void)state;

    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
        struct hardware h = { 0 };
        struct diag_list errors = { 0 };
        assert_int_equal(read_edited(slips[i].key, slips[i].line, &h, &errors), -1);
        assert_int_equal(errors.errors, 1);
        assert_string_equal(errors.items[0].file, "gpu.yaml");
        assert_true(errors.items[0].line > 0);
        diag_list_print(out, &errors);
    }
    assert_golden_end("slips of units");
}

/* 1979e12 / 3.35e12 = 591 FLOPs a byte; the dense peak has 295. */
static void sparse_peaks_are_refused(void **state)
{
    struct hardware h = { 0 };
    struct diag_list errors = { 0 };
    (void)state;

    assert_int_equal(
        read_edited("bf16_flops_per_second", "bf16_flops_per_second: 1979e12", &h, &errors), -1);
    assert_int_equal(errors.errors, 1);
    assert_int_equal(errors.items[0].line, 5);
    assert_golden_diags("a sparse peak", &errors);
}

static void malformed_files_are_refused(void **state)
{
    struct hardware h = { 0 };
    struct diag_list errors = { 0 };
    (void)state;

    static const char *const lines[] = {
        NULL,
        "domain_gpu: 8",
        "domain_gpus: [8]",
        "domain_gpus: {value: 8, confidence: E}",
        "domain_gpus: {source: x}",
        "domain_gpus: {value: 8, sauce: x}",
    };
    FILE *out = golden_begin();
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        memset(&errors, 0, sizeof errors);
        assert_int_equal(read_edited("domain_gpus", lines[i], &h, &errors), -1);
        (void)fprintf(out, "# %s\n", lines[i] ? lines[i] : "no line");
        diag_list_print(out, &errors);
    }
    memset(&errors, 0, sizeof errors);
    assert_int_equal(read_text("[1, 2]", &h, &errors), -1);
    diag_list_print(out, &errors);
    assert_golden_end("malformed files");
}

static void json_round_trip(const struct hardware *h)
{
    struct hardware again;
    struct diag_list errors = { 0 };
    struct json *json = hardware_to_json(h);
    char *text = json_dumps(json_view(json), 0);

    assert_int_equal(read_text(text, &again, &errors), 0);
    assert_memory_equal(&again, h, sizeof again);
    free(text);
    json_free(json);
}

static void set_by_key(void **state)
{
    struct hardware h = { 0 };
    struct diag_list errors = { 0 };
    const struct pos none = { 0 };
    (void)state;

    assert_int_equal(read_text(gpu_text, &h, &errors), 0);
    assert_int_equal(hardware_set(&h, "memory_bytes", "180GB", none, &errors), 0);
    assert_int_equal(h.memory_bytes, INT64_C(180000000000));
    assert_int_equal(hardware_set(&h, "link_bytes_per_second", "9e11", none, &errors), 0);
    assert_int_equal(hardware_set(&h, "link_bytes_per_second", "900", none, &errors), -1);
    assert_near(h.link_bytes_per_second, 9e11, 1e-12, "bytes/s");
    assert_int_equal(hardware_set(&h, "memory_byte", "1GiB", none, &errors), -1);
    assert_golden_diags("refused settings", &errors);
    json_round_trip(&h);
}

/* A file that says no fine key is written as it was before there were any; what is said comes back,
 * and what is not said stays out. */
static void fine_keys_are_written_where_said(void **state)
{
    struct hardware h = { 0 };
    struct diag_list errors = { 0 };
    const struct pos none = { 0 };
    (void)state;

    assert_int_equal(read_text(gpu_text, &h, &errors), 0);
    struct json *before = hardware_to_json(&h);
    for (size_t i = 0; i < hardware_key_count; i++)
        if (hardware_keys[i].fine)
            assert_null(json_object_get(json_view(before), hardware_keys[i].key));
    assert_int_equal(hardware_set(&h, "gemm_call_seconds", "3e-6", none, &errors), 0);
    assert_int_equal(hardware_set(&h, "attention_head64_factor", "0.8", none, &errors), 0);
    assert_int_equal(hardware_set(&h, "host_link_both_bytes_per_second", "35", none, &errors), -1);
    struct json *after = hardware_to_json(&h);
    assert_int_equal(json_object_size(json_view(after)), json_object_size(json_view(before)) + 2);
    json_round_trip(&h);
    json_free(before);
    json_free(after);
}

/* {value, source, confidence} for each key of a shipped file. */
static void check_sources(const char *path)
{
    struct tree tree = { 0 };
    struct diag_list errors = { 0 };

    assert_int_equal(tree_read_file(&tree, path, &errors), 0);
    for (const struct node *n = tree.root->child; n; n = n->next) {
        const char *source = "", *confidence = "";
        if (n->kind != NODE_MAP || node_text(n, "source", &source, &errors) != 1 ||
            node_text(n, "confidence", &confidence, &errors) != 1)
            fail_msg("%s: %s lacks source or confidence", path, n->key);
        assert_true(strlen(source) > 3);
        assert_int_equal(strlen(confidence), 1);
    }
    tree_done(&tree);
}

static void check_shipped(const char *name, const char *path, void *context)
{
    struct hardware h = { 0 };
    struct diag_list errors = { 0 };
    int *count = context;

    check_sources(path);
    if (hardware_load(name, &h, &errors))
        fail_msg("%s: %s / %s", name, errors.items[0].what, errors.items[0].hint);
    assert_int_equal(errors.count, 0);
    assert_string_equal(h.name, name);
    assert_true(h.memory_bytes > 0);
    json_round_trip(&h);
    (*count)++;
}

static void shipped_files_are_complete(void **state)
{
    int count = 0;
    struct diag_list errors = { 0 };
    (void)state;

    assert_int_equal(file_list_data("hardware", check_shipped, &count, &errors), 0);
    assert_true(count >= 3);
}

/* Communicators of the shipped H200 file against the totals measured on two and four GPUs, MiB. */
static void communicators_add_up_to_the_measured(void **state)
{
    struct hardware h = { 0 };
    struct diag_list errors = { 0 };
    const uint64_t mib = 1 << 20;
    (void)state;

    assert_int_equal(hardware_load("h200", &h, &errors), 0);
    uint64_t ring = (uint64_t)h.ring_channels * h.channel_bytes;
    /* first: 388 at init + 474 at the first ring; + 446 (two) or 1,214 (four) at the exchange */
    assert_int_equal(h.communicator_first_bytes + ring, (388 + 474) * mib);
    assert_int_equal(h.exchange_first_bytes + h.exchange_peer_bytes, 446 * mib);
    assert_int_equal(h.exchange_first_bytes + 3 * h.exchange_peer_bytes, 1214 * mib);
    /* each further one: 196 + 288 + 384 */
    assert_int_equal(h.communicator_next_bytes + ring + h.exchange_peer_bytes,
                     (196 + 288 + 384) * mib);
    assert_int_equal(h.memory_bytes, INT64_C(150109880320));
}

static void host_detects_its_memory(void **state)
{
    struct hardware h = { 0 };
    struct diag_list errors = { 0 };
    char want[64];
    (void)state;

    assert_int_equal(hardware_load("host", &h, &errors), 0);
    assert_true(h.host);
    assert_int_equal(h.memory_bytes, hardware_host_memory());
    /* the kernel's own figure is the most it can be */
    FILE *info = popen("awk '/^MemTotal/ { print $2 }' /proc/meminfo", "r");
    assert_non_null(info);
    assert_non_null(fgets(want, sizeof want, info));
    assert_int_equal(pclose(info), 0);
    assert_true(h.memory_bytes <= strtoull(want, NULL, 10) * 1024);
    assert_true(h.memory_bytes > (uint64_t)256 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain_and_sourced_values),
        cmocka_unit_test(slips_of_units_are_named),
        cmocka_unit_test(sparse_peaks_are_refused),
        cmocka_unit_test(malformed_files_are_refused),
        cmocka_unit_test(set_by_key),
        cmocka_unit_test(fine_keys_are_written_where_said),
        cmocka_unit_test(shipped_files_are_complete),
        cmocka_unit_test(communicators_add_up_to_the_measured),
        cmocka_unit_test(host_detects_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
