/* The rehearsal's collectives, clock and communicators by hand; what peers send against every
 * rank's tokens, drawn one by one. */
#include "executor/fabric/rehearsal/fabric_rehearsal.h"
#include "executor/fabric/rehearsal/wire.h"
#include "executor/runtime/peers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* One GB/s inside a domain of four, a tenth of it outside, half of which is reached. */
static const struct hardware machine = {
    .domain_gpus = 4,
    .link_bytes_per_second = 1e9,
    .network_bytes_per_second = 1e8,
    .gather_efficiency = 0.5,
    .scatter_efficiency = 0.25,
    .exchange_efficiency = 0.5,
    .network_efficiency = 0.5,
    .collective_latency_seconds = 1e-4,
    .communicator_first_bytes = 1000,
    .communicator_next_bytes = 100,
    .exchange_first_bytes = 7,
    .channel_bytes = 10,
    .ring_channels = 3,
    .exchange_peer_bytes = 50,
    .copy_exchange_bytes = 5,
};

static void close_nothing(struct fabric *f)
{
    (void)f;
}

static struct fabric *open_fabric(int rank, int world)
{
    static const struct fabric_ops ops = { .name = "started", .close = close_nothing };
    static struct fabric started = { .ops = &ops, .world = 1 };
    const struct rehearsal_world wanted = { .hardware = &machine, .rank = rank, .world = world };
    struct diag_list errors = { 0 };
    struct fabric *f = fabric_rehearsal_open(&started, &wanted, &errors);
    assert_non_null(f);
    return f;
}

static struct group *open_group(struct fabric *f, const int *ranks, int count)
{
    struct diag_list errors = { 0 };
    struct group *g = NULL;
    assert_int_equal(f->ops->group_open(f, ranks, count, &g, &errors), 0);
    assert_int_equal(group_info(g)->count, count);
    return g;
}

static const int three[] = { 1, 2, 3 };

static void gathers_repeat_the_own_share(void **state)
{
    struct fabric *f = open_fabric(2, 8);
    struct group *g = open_group(f, three, 3);
    struct diag_list errors = { 0 };
    struct transfer *t = NULL;
    char recv[13] = "";

    (void)state;
    assert_int_equal(group_info(g)->index, 1);
    assert_int_equal(f->ops->all_gather(g, "abcd", recv, 4, &errors), 0);
    assert_string_equal(recv, "abcdabcdabcd");
    (void)snprintf(recv, sizeof recv, "....xyz.....");
    assert_int_equal(f->ops->all_gather_start(g, recv + 4, recv, 4, &t, &errors), 0);
    assert_int_equal(f->ops->transfer_wait(g, t, &errors), 0);
    assert_string_equal(recv, "xyz.xyz.xyz.");
    f->ops->group_close(f, g);
    f->ops->close(f);
}

static void blocks_have_their_places(void **state)
{
    const int places[] = { 0, 5, 1, 4, 2, 3 };
    struct fabric *f = open_fabric(2, 8);
    struct group *g = open_group(f, three, 3);
    struct diag_list errors = { 0 };
    char recv[7] = "";

    (void)state;
    assert_int_equal(f->ops->gather_blocks(g, "ab", recv, 1, 2, places, &errors), 0);
    assert_int_equal(recv[1], 'a');
    assert_int_equal(recv[4], 'b');
    for (int i = 0; i < 6; i++)
        assert_true(recv[i] == 'a' || recv[i] == 'b');
    f->ops->group_close(f, g);
    f->ops->close(f);
}

static void sums_add_the_own_slices(void **state)
{
    const float values[] = { 1, 2, 10, 20, 100, 200 };
    const uint16_t halves[] = { 0x3f80, 0x4000, 0x4040 }; /* bf16: 1, 2, 3 */
    struct fabric *f = open_fabric(2, 8);
    struct group *g = open_group(f, three, 3);
    struct diag_list errors = { 0 };
    float sum[2] = { 0 }, whole[2] = { 1.5f, -2 };
    double doubles[] = { 0.5 };
    uint16_t half = 0;

    (void)state;
    assert_int_equal(f->ops->reduce_scatter(g, values, sum, 2, DTYPE_FP32, &errors), 0);
    assert_true(sum[0] == 111 && sum[1] == 222);
    assert_int_equal(f->ops->reduce_scatter(g, halves, &half, 1, DTYPE_BF16, &errors), 0);
    assert_int_equal(half, 0x40c0); /* 6 */
    assert_int_equal(f->ops->all_reduce(g, whole, 2, DTYPE_FP32, &errors), 0);
    assert_true(whole[0] == 4.5f && whole[1] == -6);
    assert_int_equal(f->ops->sum_doubles(g, doubles, 1, &errors), 0);
    assert_true(doubles[0] == 1.5);
    f->ops->group_close(f, g);
    f->ops->close(f);
}

/* Rows of two bytes: one to member 0, two to itself; two come from member 0, one from member 2. */
static void own_rows_arrive_as_they_were_sent(void **state)
{
    const int64_t sent[] = { 1, 2, 0 }, received[] = { 2, 2, 1 };
    struct fabric *f = open_fabric(2, 8);
    struct group *g = open_group(f, three, 3);
    struct diag_list errors = { 0 };
    char recv[11] = "";

    (void)state;
    assert_int_equal(f->ops->all_to_all_rows(g, "AABBCC", sent, recv, received, 2, &errors), 0);
    assert_memory_equal(recv + 4, "BBCC", 4);
    for (int i = 0; i < 10; i++)
        assert_non_null(strchr("ABC", recv[i]));
    f->ops->group_close(f, g);
    f->ops->close(f);
}

static void one_alone_only_copies(void **state)
{
    const int self[] = { 2 };
    const int64_t rows[] = { 4 };
    struct fabric *f = open_fabric(2, 8);
    struct group *g = open_group(f, self, 1);
    struct diag_list errors = { 0 };
    struct transfer *t = NULL;
    char recv[5] = "";

    (void)state;
    assert_int_equal(f->ops->all_to_all_rows_start(g, "wxyz", rows, recv, rows, 1, &t, &errors), 0);
    assert_null(t);
    assert_string_equal(recv, "wxyz");
    assert_true(f->ops->busy_seconds(f) == 0);
    assert_int_equal(fabric_rehearsal_communicator_bytes(f), 0);
    f->ops->group_close(f, g);
    f->ops->close(f);
}

static void near_to(double value, double wanted)
{
    if (fabs(value - wanted) > 1e-12)
        fail_msg("%.9g, not %.9g", value, wanted);
}

/* 2 x 1e6 bytes pass each of three members: inside a domain at 0.5 GB/s (sums at 0.25), across two
 * of them at 0.05 GB/s for each near member. */
static void rings_take_their_time(void **state)
{
    const int apart[] = { 2, 3, 5 };
    const struct wire inside = wire_of(&machine, three, 3, 2),
                      across = wire_of(&machine, apart, 3, 2);

    (void)state;
    assert_int_equal(inside.near, 3);
    assert_int_equal(across.near, 2);
    near_to(wire_ring_seconds(&inside, 1000000, false), 1e-4 + 4e-3);
    near_to(wire_ring_seconds(&inside, 1000000, true), 1e-4 + 8e-3);
    near_to(wire_ring_seconds(&across, 1000000, false), 1e-4 + 20e-3);
    near_to(wire_ring_seconds(&inside, 0, false), 0);
}

/* The longer direction of each way, both ways at once: 2e6 at 0.5 GB/s, then 3e5 at 0.05 GB/s. */
static void exchanges_take_their_time(void **state)
{
    const struct wire wire = wire_of(&machine, three, 3, 2);
    const struct wire_rows inside = { .near_sent = 2000000, .near_received = 500000 };
    const struct wire_rows across = { .near_sent = 2000000, .far_received = 300000 };
    struct hardware engines = machine;
    const struct wire copies = { .hardware = &engines, .members = 3, .near = 3 };

    (void)state;
    near_to(wire_exchange_seconds(&wire, &inside, false), 1e-4 + 4e-3);
    near_to(wire_exchange_seconds(&wire, &across, false), 1e-4 + 6e-3);
    engines.copy_exchange_efficiency = 0.8;
    engines.exchange_latency_seconds = 3e-4;
    near_to(wire_exchange_seconds(&copies, &inside, true), 3e-4 + 2.5e-3);
}

static double now(void)
{
    struct timespec time = { 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Two gathers of 8.1 ms follow each other, whatever is done between start and wait. */
static void started_calls_queue_behind_each_other(void **state)
{
    enum { BYTES = 2000000 };
    struct fabric *f = open_fabric(2, 8);
    struct group *g = open_group(f, three, 3);
    struct diag_list errors = { 0 };
    struct transfer *first = NULL, *second = NULL;
    char *send = calloc(4, BYTES);
    double begun = now();

    (void)state;
    assert_non_null(send);
    assert_int_equal(f->ops->all_gather_start(g, send, send + BYTES, BYTES, &first, &errors), 0);
    assert_int_equal(f->ops->all_gather_start(g, send, send + BYTES, BYTES, &second, &errors), 0);
    assert_int_equal(f->ops->transfer_wait(g, second, &errors), 0);
    assert_true(now() - begun >= 16.2e-3);
    assert_int_equal(f->ops->transfer_wait(g, first, &errors), 0);
    near_to(f->ops->busy_seconds(f), 16.2e-3);
    near_to(f->ops->busy_seconds(f), 0);
    free(send);
    f->ops->group_close(f, g);
    f->ops->close(f);
}

/* First 1000, a ring 3 x 10; the same ranks again nothing; another 100, its exchange 7 + 50 for the
 * near peer + 2 x 10 for each far one; one of copies 100 + 5. */
static void communicators_are_counted(void **state)
{
    const int apart[] = { 2, 3, 5, 6 };
    const int64_t rows[] = { 1, 1, 1, 1 };
    struct fabric *f = open_fabric(2, 8);
    struct group *a = open_group(f, three, 3), *b = open_group(f, three, 3);
    struct group *c = open_group(f, apart, 4), *d = NULL;
    struct diag_list errors = { 0 };
    char send[4] = "", recv[4] = "";

    (void)state;
    assert_int_equal(fabric_rehearsal_communicator_bytes(f), 1100);
    assert_int_equal(f->ops->all_gather(a, send, recv, 1, &errors), 0);
    assert_int_equal(f->ops->all_gather(b, send, recv, 1, &errors), 0);
    assert_int_equal(fabric_rehearsal_communicator_bytes(f), 1130);
    assert_int_equal(f->ops->all_to_all_rows(c, send, rows, recv, rows, 1, &errors), 0);
    assert_int_equal(f->ops->all_to_all_rows(c, send, rows, recv, rows, 1, &errors), 0);
    assert_int_equal(fabric_rehearsal_communicator_bytes(f), 1130 + 7 + 50 + 2 * 20);
    assert_int_equal(f->ops->group_open_copies(f, three, 3, &d, &errors), 0);
    assert_int_equal(f->ops->all_to_all_rows(d, send, rows, recv, rows, 1, &errors), 0);
    assert_int_equal(fabric_rehearsal_communicator_bytes(f), 1227 + 105);
    f->ops->group_close(f, a);
    f->ops->group_close(f, b);
    f->ops->group_close(f, c);
    f->ops->group_close(f, d);
    f->ops->close(f);
}

enum { EXPERTS = 12, TOP_K = 3, EP = 4, LOCAL = EXPERTS / EP, CP = 2, DP = 2, SEQ = 40, WORLD = 4 };
enum { MICRO_BATCH = 2, BATCHES = 3, CHUNKS = 3, LAYERS = 2 };

static void make_plan(struct plan *plan, const char *routing)
{
    struct diag_list errors = { 0 };

    memset(plan, 0, sizeof *plan);
    plan->model.layers = LAYERS;
    for (int i = 0; i < LAYERS; i++)
        plan->model.layer_ffn[i] = FFN_MOE;
    plan->model.moe.experts = EXPERTS;
    plan->model.moe.top_k = TOP_K;
    plan->seq_tokens = SEQ;
    plan->gpus = WORLD;
    plan->global_batch = (int64_t)DP * MICRO_BATCH * BATCHES;
    plan->choices.layout = (struct layout){ .tp = 1,
                                            .pp = 1,
                                            .vpp = 1,
                                            .cp = CP,
                                            .ep = EP,
                                            .etp = 1,
                                            .fsdp = DP,
                                            .d_rep = 1,
                                            .e_fsdp = 1,
                                            .e_rep = 1,
                                            .micro_batch = MICRO_BATCH,
                                            .micro_batches = BATCHES };
    plan->choices.primitives.moe = MOE_CHUNKED;
    plan->choices.primitives.moe_chunks = CHUNKS;
    assert_int_equal(routing_parse(routing, (struct pos){ 0 }, &plan->routing, &errors), 0);
}

/* rows[from][to][chunk][expert of to]: every token of the step goes to its holder in order. */
struct rows {
    int64_t of[WORLD][WORLD][CHUNKS][LOCAL];
};

/* A sequence is 2 x CP pieces; rank c of the context group has piece c, then its mirror image. */
static void send_piece(const struct plan *plan, int layer, int rank, uint64_t first, int piece,
                       int *row, struct rows *ret)
{
    enum { PIECE = SEQ / (2 * CP), TOKENS = MICRO_BATCH * SEQ / CP };
    int run = (TOKENS + CHUNKS - 1) / CHUNKS, choices[TOP_K];

    for (int i = 0; i < PIECE; i++, ++*row) {
        routing_draw(&plan->routing, 5, layer, first + (uint64_t)piece * PIECE + (uint64_t)i, TOP_K,
                     EXPERTS, choices);
        for (int k = 0; k < TOP_K; k++)
            ret->of[rank][choices[k] / LOCAL][*row / run][choices[k] % LOCAL]++;
    }
}

static void send_all(const struct plan *plan, int layer, int batch, struct rows *ret)
{
    memset(ret, 0, sizeof *ret);
    for (int rank = 0; rank < WORLD; rank++) {
        int c = rank % CP, data = rank / CP, row = 0;
        for (int s = 0; s < MICRO_BATCH; s++) {
            uint64_t first = ((uint64_t)batch * DP + (uint64_t)data) * MICRO_BATCH;
            uint64_t sequence = first + (uint64_t)s;
            send_piece(plan, layer, rank, sequence * SEQ, c, &row, ret);
            send_piece(plan, layer, rank, sequence * SEQ, 2 * CP - 1 - c, &row, ret);
        }
    }
}

/* What one rank is told arrives is what all ranks send it. */
static void check_rank(const struct plan *plan, int rank, int layer, int batch)
{
    const struct peers_question question = { .plan = plan, .rank = rank, .seed = 5 };
    int64_t outgoing[EP][CHUNKS][LOCAL], incoming[EP][CHUNKS][LOCAL];
    struct diag_list errors = { 0 };
    struct peers *peers = NULL;
    struct rows rows;

    send_all(plan, layer, batch, &rows);
    assert_int_equal(peers_open(&question, &peers, &errors), 0);
    memcpy(outgoing, rows.of[rank], sizeof outgoing);
    for (int time = 0; time < 2; time++) {
        memset(incoming, 0xff, sizeof incoming);
        assert_int_equal(
            peers->arrivals(peers, layer, batch, &outgoing[0][0][0], &incoming[0][0][0], &errors),
            0);
        for (int from = 0; from < WORLD; from++)
            assert_memory_equal(incoming[from], rows.of[from][rank], sizeof incoming[from]);
    }
    assert_null(peers->choices);
    peers_close(peers);
}

static void peers_send_what_ranks_would(void **state)
{
    static const char *const profiles[] = { "balanced", "natural", "80:4", "zipf:0.7" };
    static struct plan plan;

    (void)state;
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        make_plan(&plan, profiles[i]);
        for (int rank = 0; rank < WORLD; rank++)
            for (int batch = 0; batch < BATCHES; batch++)
                check_rank(&plan, rank, batch % LAYERS, batch);
    }
}

static int64_t rows_to(const int32_t *choices, int tokens, int rank)
{
    int64_t ret = 0;
    for (int i = 0; i < tokens * TOP_K; i++)
        ret += choices[i] / LOCAL == rank;
    return ret;
}

/* Own tokens are directed so that what they send fits into what arrives, chunk by chunk. */
static void replayed_rows_arrive(void **state)
{
    enum { TOKENS = MICRO_BATCH * SEQ / CP, RUN = (TOKENS + CHUNKS - 1) / CHUNKS };
    static struct plan plan;
    uint64_t chunks[CHUNKS] = { 90, 3, 41 };
    struct routed_rows routed = { .layer = 1,
                                  .micro_batch = 2,
                                  .rows_sent = 1,
                                  .rows_received = 134,
                                  .chunk_count = CHUNKS,
                                  .chunk_rows_received = chunks };
    const struct measured_rank measured = { .rank = 1, .routed_count = 1, .routed = &routed };
    const struct peers_question question = { .plan = &plan, .rank = 1, .replay = &measured };
    int64_t outgoing[EP][CHUNKS][LOCAL] = { 0 }, incoming[EP][CHUNKS][LOCAL];
    int32_t choices[TOKENS * TOP_K];
    struct diag_list errors = { 0 };
    struct peers *peers = NULL;

    (void)state;
    make_plan(&plan, "natural");
    assert_int_equal(peers_open(&question, &peers, &errors), 0);
    peers->choices(peers, 1, 2, choices);
    for (int i = 0; i < TOKENS; i++)
        for (int j = 0; j < TOP_K; j++) {
            int32_t expert = choices[i * TOP_K + j];
            assert_in_range(expert, 0, EXPERTS - 1);
            for (int k = 0; k < j; k++)
                assert_int_not_equal(expert, choices[i * TOP_K + k]);
            outgoing[expert / LOCAL][i / RUN][expert % LOCAL]++;
        }
    assert_int_equal(peers->arrivals(peers, 1, 2, &outgoing[0][0][0], &incoming[0][0][0], &errors),
                     0);
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        int tokens = TOKENS - chunk * RUN < RUN ? TOKENS - chunk * RUN : RUN;
        uint64_t rows = 0;
        for (int from = 0; from < EP; from++)
            for (int e = 0; e < LOCAL; e++)
                rows += (uint64_t)incoming[from][chunk][e];
        assert_int_equal(rows, chunks[chunk]);
        assert_int_equal(rows_to(choices + (ptrdiff_t)chunk * RUN * TOP_K, tokens, 1),
                         (int64_t)chunks[chunk] / EP);
    }
    peers_close(peers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_repeat_the_own_share),
        cmocka_unit_test(blocks_have_their_places),
        cmocka_unit_test(sums_add_the_own_slices),
        cmocka_unit_test(own_rows_arrive_as_they_were_sent),
        cmocka_unit_test(one_alone_only_copies),
        cmocka_unit_test(rings_take_their_time),
        cmocka_unit_test(exchanges_take_their_time),
        cmocka_unit_test(started_calls_queue_behind_each_other),
        cmocka_unit_test(communicators_are_counted),
        cmocka_unit_test(peers_send_what_ranks_would),
        cmocka_unit_test(replayed_rows_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
