#include "tests/unit/cuda/cases.h"

/* A permutation of the routed rows, as sort_choices makes one. */
static struct array slots_of(struct pair *p, int64_t rows, int top_k)
{
    int64_t counts[16];
    struct backend *host = p->backends[HOST];
    struct array choices = pair_indices(p, rows * top_k, 16);
    struct array slots = pair_poison(p, KIND_INT32, rows * top_k);
    (void)pair_ran(p, "slots",
                   host->ops->sort_choices(host, STREAM_COMPUTE, rows, top_k, 16, choices.at[HOST],
                                           slots.at[HOST], counts, &p->diags));
    pair_upload(p, &slots);
    return slots;
}

static void scatter(struct pair *p, int64_t rows, int top_k, int64_t width)
{
    int64_t routed = rows * top_k;
    pair_case(p, "scatter_rows", "%lld x %d x %lld", (long long)rows, top_k, (long long)width);
    struct array slots = slots_of(p, rows, top_k);
    struct array from = pair_random(p, KIND_BF16, rows * width, 1);
    struct array values = pair_random(p, KIND_FP32, routed, 1);
    struct array to = pair_poison(p, KIND_BF16, routed * width);
    struct array to_values = pair_poison(p, KIND_FP32, routed);
    PAIR_RUN(p, scatter_rows, rows, top_k, width, from.at[side], slots.at[side], to.at[side],
             values.at[side], to_values.at[side]);
    pair_compare(p, "rows", &to, 0);
    pair_compare(p, "values", &to_values, 0);
}

static void combine(struct pair *p, int64_t rows, int top_k, int64_t width, bool based)
{
    int64_t routed = rows * top_k;
    pair_case(p, "combine_rows", "%lld x %d x %lld%s", (long long)rows, top_k, (long long)width,
              based ? ", in place" : "");
    struct array slots = slots_of(p, rows, top_k);
    struct array from = pair_random(p, KIND_BF16, routed * width, 1);
    struct array values = pair_random(p, KIND_FP32, routed, 1);
    struct array to = based ? pair_random(p, KIND_BF16, rows * width, 1)
                            : pair_poison(p, KIND_BF16, rows * width);
    struct array to_values = pair_poison(p, KIND_FP32, routed);
    PAIR_RUN(p, combine_rows, rows, top_k, width, from.at[side], slots.at[side],
             based ? to.at[side] : NULL, to.at[side], values.at[side], to_values.at[side]);
    pair_compare(p, "rows", &to, ROUNDED);
    pair_compare(p, "values", &to_values, 0);
}

static void gather(struct pair *p, int64_t rows, int64_t width)
{
    pair_case(p, "gather_rows, spread_rows", "%lld x %lld", (long long)rows, (long long)width);
    struct array map = slots_of(p, rows, 1);
    struct array from = pair_random(p, KIND_BF16, rows * width, 1);
    struct array values = pair_random(p, KIND_FP32, rows, 1);
    struct array to = pair_poison(p, KIND_BF16, rows * width);
    struct array to_values = pair_poison(p, KIND_FP32, rows);
    struct array back = pair_poison(p, KIND_BF16, rows * width);
    PAIR_RUN(p, gather_rows, rows, width, from.at[side], map.at[side], to.at[side], values.at[side],
             to_values.at[side]);
    pair_compare(p, "gathered", &to, 0);
    pair_compare(p, "values", &to_values, 0);
    PAIR_RUN(p, spread_rows, rows, width, to.at[side], map.at[side], back.at[side],
             (const float *)NULL, (float *)NULL);
    pair_compare(p, "spread", &back, 0);
}

static void embed(struct pair *p, int64_t rows, int64_t width, int64_t vocab, enum dtype type)
{
    pair_case(p, "embed", "%lld x %lld of %lld, %s", (long long)rows, (long long)width,
              (long long)vocab, dtype_names[type]);
    enum kind kind = type == DTYPE_FP32 ? KIND_FP32 : KIND_BF16;
    struct array ids = pair_indices(p, rows, (uint64_t)vocab);
    struct array table = pair_random(p, KIND_BF16, vocab * width, 1);
    struct array out = pair_poison(p, KIND_BF16, rows * width);
    struct array d_table = pair_random(p, kind, vocab * width, 1);
    PAIR_RUN(p, embed, rows, width, ids.at[side], table.at[side], out.at[side]);
    pair_compare(p, "rows", &out, 0);
    PAIR_RUN(p, embed_backward, rows, width, ids.at[side], out.at[side], d_table.at[side], type);
    pair_compare(p, "d_table", &d_table, type == DTYPE_FP32 ? 1e-6 : ROUNDED);
}

void cases_rows(struct pair *p)
{
    scatter(p, 100, 8, 2048);
    scatter(p, 37, 3, 4104);
    combine(p, 100, 8, 2048, true);
    combine(p, 37, 3, 1032, false);
    gather(p, 500, 2048);
    gather(p, 33, 2568);
    embed(p, 300, 2048, 50, DTYPE_FP32);
    embed(p, 5000, 64, 7, DTYPE_FP32);
    embed(p, 300, 4096, 1000, DTYPE_BF16);
}
