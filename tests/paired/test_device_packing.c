/* What packing leaves between tensors on a device, for every stored run (tests/data/measured): the
 * dry pass needs no GPU, only to be told what cuDNN would ask for (ARCHITECTURE.md, attention
 * workspaces). Each rank's extent may exceed what may be live at once by a thousandth of it; and
 * where a run told both, that run's did. */
#include "base/plan/measurement.h"
#include "executor/fabric/group.h"
#include "executor/runtime/trainer.h"
#include "tests/paired/stored.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* Addresses without memory behind them. */
static void *reserve(void *context, uint64_t bytes)
{
    (void)context;
    void *block = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

static void release(void *context, void *block, uint64_t bytes)
{
    (void)context;
    (void)munmap(block, bytes);
}

static struct arena_source arena_source(struct backend *b)
{
    return (struct arena_source){ .reserve = reserve, .release = release, .context = b };
}

/* As hardware/h200.yaml has it. */
static uint64_t workspace_bytes(const struct backend *b)
{
    (void)b;
    return 201327616;
}

static void set_workspace(struct backend *b, void *workspace)
{
    (void)b, (void)workspace;
}

/* Of all KV heads at once, cut into the fewest equal groups that leave at most 512 MiB each. */
static uint64_t attention_workspace_bytes(const struct backend *b, const struct attention *a)
{
    (void)b;
    uint64_t sequences = (uint64_t)a->sequences, heads = (uint64_t)a->kv_heads;
    uint64_t width = (uint64_t)a->heads * (uint64_t)a->head_dim, groups = 1;
    uint64_t queries = sequences * (uint64_t)a->tokens;
    uint64_t keys = a->key_tokens ? sequences * (uint64_t)a->key_tokens : queries;
    uint64_t whole = 4 * width * queries;
    if (a->kv_heads < a->heads)
        whole += 4 * width * keys;
    if (keys > queries)
        whole += 4 * keys * heads * (uint64_t)a->head_dim;
    while (groups < heads && (heads % groups != 0 || whole > groups * (UINT64_C(512) << 20)))
        groups++;
    return whole / groups + 256;
}

/* Squares, keys and gates of a run's chunks; large enough to lie where the backend's own lies. */
static uint64_t delta_workspace_bytes(const struct backend *b, const struct delta_rule *d,
                                      bool backward)
{
    (void)b, (void)backward;
    return (uint64_t)d->heads.value_heads << 22;
}

static int zero(struct backend *b, enum stream s, void *to, uint64_t bytes,
                struct diag_list *reterr)
{
    (void)b, (void)s, (void)to, (void)bytes, (void)reterr;
    return 0;
}

static int upload(struct backend *b, enum stream s, void *to, const void *from, uint64_t bytes,
                  struct diag_list *reterr)
{
    (void)b, (void)s, (void)to, (void)from, (void)bytes, (void)reterr;
    return 0;
}

static int draw_normal(struct backend *b, enum stream s, int64_t count, float *values, uint64_t key,
                       uint64_t first, double deviation, struct diag_list *reterr)
{
    (void)b, (void)s, (void)count, (void)values, (void)key, (void)first, (void)deviation;
    (void)reterr;
    return 0;
}

static int to_bf16(struct backend *b, enum stream s, int64_t count, const float *from, bf16 *to,
                   struct diag_list *reterr)
{
    (void)b, (void)s, (void)count, (void)from, (void)to, (void)reterr;
    return 0;
}

static int group_open(struct fabric *f, const int *ranks, int count, struct group **ret,
                      struct diag_list *reterr)
{
    (void)reterr;
    *ret = calloc(1, sizeof **ret);
    assert_non_null(*ret);
    (*ret)->info.count = count;
    while (ranks[(*ret)->info.index] != f->rank)
        (*ret)->info.index++;
    return 0;
}

static void group_close(struct fabric *f, struct group *g)
{
    (void)f;
    free(g);
}

static int all_gather(struct group *g, const void *send, void *recv, uint64_t bytes_per_rank,
                      struct diag_list *reterr)
{
    (void)g, (void)send, (void)recv, (void)bytes_per_rank, (void)reterr;
    return 0;
}

/* The arena as the dry pass of one rank leaves it. */
static void pack(const struct plan *plan, int rank, struct arena_record *ret)
{
    static const struct backend_ops operations = {
        .arena_source = arena_source,
        .workspace_bytes = workspace_bytes,
        .set_workspace = set_workspace,
        .attention_workspace_bytes = attention_workspace_bytes,
        .delta_workspace_bytes = delta_workspace_bytes,
        .zero = zero,
        .upload = upload,
        .draw_normal = draw_normal,
        .to_bf16 = to_bf16,
    };
    static const struct fabric_ops collectives = { .group_open = group_open,
                                                   .group_close = group_close,
                                                   .all_gather = all_gather };
    struct backend backend = { .ops = &operations };
    struct fabric fabric = { .ops = &collectives, .rank = rank, .world = plan->gpus };
    const struct data data = { .vocab = plan->model.vocab };
    struct diag_list errors = { 0 };
    struct trainer trainer;
    int status = trainer_open(&trainer, plan, &fabric, &backend, &data, 0, &errors);
    diag_list_print(stderr, &errors);
    assert_int_equal(status, 0);
    arena_record(trainer.work.arena, ret);
    trainer_close(&trainer);
}

static void check_slack(const char *name, int rank, uint64_t extent, uint64_t room)
{
    assert_true(extent >= room);
    if (extent - room > room / 1000)
        fail_msg("%s: rank %d: %llu bytes between tensors, of %llu", name, rank,
                 (unsigned long long)(extent - room), (unsigned long long)extent);
}

static void check_row(const char *name, const json_t *row, void *context)
{
    static struct plan plan;
    struct measurement measurement = { .rank_count = 0 };
    (void)context;
    stored_plan(json_object_get(row, "plan"), &plan);
    stored_measurement(json_object_get(row, "measurement"), &measurement);
    for (size_t i = 0; i < measurement.rank_count; i++) {
        const struct measured_rank *rank = &measurement.ranks[i];
        struct arena_record record;
        pack(&plan, rank->rank, &record);
        check_slack(name, rank->rank, record.extent_bytes, record.room_bytes);
        if (rank->arena_room_bytes > 0)
            check_slack(name, rank->rank, rank->arena_extent_bytes, rank->arena_room_bytes);
    }
    measurement_done(&measurement);
}

static void test_rows(void **state)
{
    (void)state;
    assert_true(stored_each("", check_row, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
