#include "executor/backend/cuda/cuda.h"
#include "executor/backend/cuda/kernels.h"

#include <stdlib.h>
#include <string.h>

/* Rows that a plan is chosen for, whatever the rows it then serves: a row's result must not depend
 * on how many others there are. Dense layers and experts see different numbers; a head, which is
 * WIDE, is visited by tiles whose rows the caller tells. */
enum {
    DENSE_ROWS = 8192,
    EXPERT_ROWS = 16384,
    EXPERT_WEIGHTS = 8,
    TILE_ROWS = 512,
    WIDE = 32768,
    CANDIDATES = 8
};

/* Blocks that share a sum over rows must each have some: the library counts rows again where there
 * are fewer than blocks. Sums of fewer than SPLIT_ROWS are not shared, others by at most
 * SPLITS_MAX. */
enum { SPLIT_ROWS = 1024, SPLITS_MAX = 32 };

/* Everything that a plan depends on; compared as bytes, so set whole. */
struct plan_key {
    int64_t n, k, a_stride, b_stride, c_stride, tile; /* tile: rows of a WIDE product */
    int32_t form, a_type, b_type, c_type, accumulate, experts, splits;
    uint32_t a_alignment, b_alignment, c_alignment;
};

struct plan {
    struct plan_key key;
    cublasLtMatmulAlgo_t candidates[CANDIDATES]; /* the first that takes the rows is used */
    int count;
};

struct gemm_plans {
    struct plan *plans;
    int count, room;
};

/* The three layouts of a call. Row-major matrices are column-major ones transposed, so that the
 * product is c^T = b^T a^T: the library's first operand is our b. */
struct call {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t b, a, c;
};

struct gemm_plans *gemm_plans_open(void)
{
    return calloc(1, sizeof(struct gemm_plans));
}

void gemm_plans_close(struct gemm_plans *plans)
{
    if (plans)
        free(plans->plans);
    free(plans);
}

static cudaDataType_t library_type(enum dtype type)
{
    return type == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* The largest power of two, at most 16, that an address and the bytes of a row are multiples of. */
static uint32_t alignment_of(const void *pointer, int64_t stride, enum dtype type)
{
    uint64_t bits = (uint64_t)(uintptr_t)pointer | ((uint64_t)stride * dtype_bytes(type)) | 16U;
    return (uint32_t)(bits & -bits);
}

/* Whether blocks may share a sum. Over rows: dense ones that are many. Over the entries of a head:
 * always, tile after tile. Other sums are whole, so that the workspace does for any rows. */
static bool may_split(const struct gemm *g, bool experts)
{
    if (g->form == GEMM_INPUT)
        return g->n >= WIDE;
    return g->form == GEMM_WEIGHT && !experts && g->n < WIDE && g->m >= SPLIT_ROWS;
}

static int64_t tile_rows(const struct gemm *g)
{
    return g->plan_rows > 0 ? g->plan_rows : TILE_ROWS;
}

static int64_t reference_rows(const struct plan_key *key)
{
    if (key->tile > 0)
        return key->tile;
    if (key->form == GEMM_WEIGHT && !key->splits && !key->experts)
        return SPLIT_ROWS / 2;
    return key->experts ? EXPERT_ROWS : DENSE_ROWS;
}

static struct plan_key key_of(const struct gemm *g, bool experts)
{
    struct plan_key key;
    memset(&key, 0, sizeof key);
    key.n = g->n;
    key.k = g->k;
    key.a_stride = g->a_stride;
    key.b_stride = g->b_stride;
    key.c_stride = g->c_stride;
    key.tile = g->n >= WIDE ? tile_rows(g) : 0;
    key.form = (int32_t)g->form;
    key.a_type = (int32_t)g->a_type;
    key.b_type = (int32_t)g->b_type;
    key.c_type = (int32_t)g->c_type;
    key.accumulate = g->accumulate;
    key.experts = experts;
    key.splits = may_split(g, experts);
    key.a_alignment = alignment_of(g->a, g->a_stride, g->a_type);
    key.b_alignment = alignment_of(g->b, g->b_stride, g->b_type);
    key.c_alignment = alignment_of(g->c, g->c_stride, g->c_type);
    return key;
}

static int set_operations(struct call *call, cublasOperation_t first, cublasOperation_t second,
                          struct diag_list *reterr)
{
    if (cuda_check_lt(cublasLtMatmulDescInit(&call->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                      "cublasLtMatmulDescInit", reterr) != 0 ||
        cuda_check_lt(cublasLtMatmulDescSetAttribute(&call->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                     &first, sizeof first),
                      "cublasLtMatmulDescSetAttribute", reterr) != 0)
        return -1;
    return cuda_check_lt(cublasLtMatmulDescSetAttribute(
                             &call->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
                         "cublasLtMatmulDescSetAttribute", reterr);
}

static int set_layout(cublasLtMatrixLayoutOpaque_t *layout, enum dtype type, int64_t rows,
                      int64_t columns, int64_t stride, struct diag_list *reterr)
{
    return cuda_check_lt(cublasLtMatrixLayoutInit(layout, library_type(type), (uint64_t)columns,
                                                  (uint64_t)rows, stride),
                         "cublasLtMatrixLayoutInit", reterr);
}

/* Describes the product of `rows` rows. */
static int call_open(struct call *call, const struct gemm *g, int64_t rows,
                     struct diag_list *reterr)
{
    bool forward = g->form == GEMM_FORWARD, weight = g->form == GEMM_WEIGHT;
    if (set_operations(call, forward ? CUBLAS_OP_T : CUBLAS_OP_N,
                       weight ? CUBLAS_OP_T : CUBLAS_OP_N, reterr) != 0)
        return -1;
    if (set_layout(&call->a, g->a_type, rows, forward ? g->k : g->n, g->a_stride, reterr) != 0 ||
        set_layout(&call->b, g->b_type, weight ? rows : g->n, g->k, g->b_stride, reterr) != 0)
        return -1;
    return set_layout(&call->c, g->c_type, weight ? g->n : rows, forward ? g->n : g->k, g->c_stride,
                      reterr);
}

static int set_preference(cublasLtMatmulPreferenceOpaque_t *preference,
                          cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                          size_t bytes, struct diag_list *reterr)
{
    return cuda_check_lt(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, bytes),
                         "cublasLtMatmulPreferenceSetAttribute", reterr);
}

static int preference_open(cublasLtMatmulPreferenceOpaque_t *ret, const struct plan_key *key,
                           struct diag_list *reterr)
{
    uint64_t workspace = CUDA_PANEL_BYTES;
    uint32_t whole = CUBLASLT_REDUCTION_SCHEME_NONE;
    if (cuda_check_lt(cublasLtMatmulPreferenceInit(ret), "cublasLtMatmulPreferenceInit", reterr) !=
            0 ||
        set_preference(ret, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace,
                       reterr) != 0)
        return -1;
    if (!key->splits && set_preference(ret, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &whole,
                                       sizeof whole, reterr) != 0)
        return -1;
    if (set_preference(ret, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->b_alignment,
                       sizeof key->b_alignment, reterr) != 0 ||
        set_preference(ret, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->a_alignment,
                       sizeof key->a_alignment, reterr) != 0 ||
        set_preference(ret, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->c_alignment,
                       sizeof key->c_alignment, reterr) != 0)
        return -1;
    return set_preference(ret, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->c_alignment,
                          sizeof key->c_alignment, reterr);
}

/* Algorithms that do not tell how many blocks share a sum decide by the rows they get. */
static bool splits_few(const cublasLtMatmulAlgo_t *algorithm)
{
    int32_t splits = 0;
    size_t got = 0;
    return cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                                sizeof splits, &got) != CUBLAS_STATUS_SUCCESS ||
           splits <= SPLITS_MAX;
}

/* The product that a plan is chosen for. Weight gradients of experts are small and run side by
 * side, so that they are planned as if they were EXPERT_WEIGHTS times as wide: tiles as large as
 * pay where the device is full. */
static struct gemm planned(const struct plan_key *key, const struct gemm *g)
{
    struct gemm ret = *g;
    if (key->experts && g->form == GEMM_WEIGHT) {
        ret.n *= EXPERT_WEIGHTS;
        ret.a_stride *= EXPERT_WEIGHTS; /* a row of gradients holds n */
    }
    return ret;
}

static int choose(struct cuda *c, struct plan *plan, const struct gemm *g, struct diag_list *reterr)
{
    const struct gemm wide = planned(&plan->key, g);
    struct call call;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    if (call_open(&call, &wide, reference_rows(&plan->key), reterr) != 0 ||
        preference_open(&preference, &plan->key, reterr) != 0)
        return -1;
    if (cuda_check_lt(cublasLtMatmulAlgoGetHeuristic(c->lt, &call.operation, &call.b, &call.a,
                                                     &call.c, &call.c, &preference, CANDIDATES,
                                                     found, &count),
                      "cublasLtMatmulAlgoGetHeuristic", reterr) != 0)
        return -1;
    for (int i = 0; i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && splits_few(&found[i].algo))
            plan->candidates[plan->count++] = found[i].algo;
    if (plan->count == 0)
        return cuda_refuse(reterr, "cuBLASLt has no product of form %d with n %lld, k %lld",
                           (int)g->form, (long long)g->n, (long long)g->k);
    return 0;
}

static struct plan *find_plan(struct cuda *c, const struct gemm *g, bool experts,
                              struct diag_list *reterr)
{
    struct gemm_plans *plans = c->gemm_plans;
    struct plan_key key = key_of(g, experts);
    for (int i = 0; i < plans->count; i++)
        if (memcmp(&plans->plans[i].key, &key, sizeof key) == 0)
            return &plans->plans[i];
    if (plans->count == plans->room) {
        int room = plans->room ? 2 * plans->room : 32;
        struct plan *more = realloc(plans->plans, (size_t)room * sizeof *more);
        if (!more) {
            (void)cuda_refuse(reterr, "no memory for a GEMM plan");
            return NULL;
        }
        plans->plans = more;
        plans->room = room;
    }
    struct plan *plan = &plans->plans[plans->count];
    memset(plan, 0, sizeof *plan);
    plan->key = key;
    if (choose(c, plan, g, reterr) != 0)
        return NULL;
    plans->count++;
    return plan;
}

/* An empty sum: what is not accumulated becomes 0. */
static int clear(cudaStream_t stream, const struct gemm *g, struct diag_list *reterr)
{
    uint64_t bytes = dtype_bytes(g->c_type);
    int64_t rows = g->form == GEMM_WEIGHT ? g->n : g->m;
    int64_t columns = g->form == GEMM_FORWARD ? g->n : g->k;
    if (g->accumulate || rows == 0 || columns == 0)
        return 0;
    return cuda_check(cudaMemset2DAsync(g->c, (size_t)g->c_stride * bytes, 0,
                                        (size_t)columns * bytes, (size_t)rows, stream),
                      "cudaMemset2DAsync", reterr);
}

static int multiply_once(struct cuda *c, cudaStream_t stream, int panel, const struct gemm *g,
                         bool experts, struct diag_list *reterr)
{
    const float one = 1, kept = g->accumulate ? 1 : 0;
    struct call call;
    void *workspace = cuda_panel(c, panel, reterr);
    const struct plan *plan = workspace ? find_plan(c, g, experts, reterr) : NULL;
    if (!plan || call_open(&call, g, g->m, reterr) != 0)
        return -1;
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < plan->count && (status == CUBLAS_STATUS_NOT_SUPPORTED ||
                                        status == CUBLAS_STATUS_INVALID_VALUE);
         i++)
        status = cublasLtMatmul(c->lt, &call.operation, &one, g->b, &call.b, g->a, &call.a, &kept,
                                g->c, &call.c, g->c, &call.c, &plan->candidates[i], workspace,
                                CUDA_PANEL_BYTES, stream);
    return cuda_check_lt(status, "cublasLtMatmul", reterr);
}

/* Where the sum over a head's entries is shared, rows go tile by tile: partial sums of any number
 * of rows would not fit into the workspace. */
int cuda_multiply(struct cuda *c, cudaStream_t stream, int panel, const struct gemm *g,
                  bool experts, struct diag_list *reterr)
{
    if (g->m == 0 || g->n == 0 || g->k == 0)
        return clear(stream, g, reterr);
    if (g->form != GEMM_INPUT || g->n < WIDE)
        return multiply_once(c, stream, panel, g, experts, reterr);
    int64_t rows = tile_rows(g);
    for (int64_t row = 0; row < g->m; row += rows) {
        struct gemm tile = *g;
        tile.m = g->m - row < rows ? g->m - row : rows;
        tile.a = (const char *)g->a + row * g->a_stride * (int64_t)dtype_bytes(g->a_type);
        tile.c = (char *)g->c + row * g->c_stride * (int64_t)dtype_bytes(g->c_type);
        if (multiply_once(c, stream, panel, &tile, experts, reterr) != 0)
            return -1;
    }
    return 0;
}

/* fp32 rows against bf16 weights: the library does not mix them, so rows are rounded to bf16, as
 * many at a time as the scratch holds. */
static int multiply_rounded(struct cuda *c, enum stream s, int panel, const struct gemm *g,
                            struct diag_list *reterr)
{
    int64_t columns = g->form == GEMM_FORWARD ? g->k : g->n;
    int64_t most = (int64_t)CUDA_SCRATCH_BYTES / 2 / (columns > 0 ? columns : 1);
    if (g->a_stride != columns || most == 0)
        return cuda_refuse(reterr, "GEMM: fp32 rows of %lld against bf16, %lld apart",
                           (long long)columns, (long long)g->a_stride);
    void *rounded = cuda_scratch(c, s, CUDA_SCRATCH_BYTES, "GEMM", reterr);
    if (!rounded)
        return -1;
    for (int64_t row = 0; row < g->m || row == 0; row += most) {
        struct gemm part = *g;
        const float *from = (const float *)g->a + row * columns;
        part.m = g->m - row < most ? g->m - row : most;
        part.a = rounded;
        part.a_type = DTYPE_BF16;
        if (g->form == GEMM_WEIGHT) {
            part.b = (const char *)g->b + row * g->b_stride * (int64_t)dtype_bytes(g->b_type);
            part.accumulate = g->accumulate || row > 0;
        } else {
            part.c = (char *)g->c + row * g->c_stride * (int64_t)dtype_bytes(g->c_type);
        }
        if (cuda_check(kernel_to_bf16(c->streams[s], part.m * columns, from, rounded), "to_bf16",
                       reterr) != 0 ||
            cuda_multiply(c, c->streams[s], panel, &part, false, reterr) != 0)
            return -1;
    }
    return 0;
}

int cuda_gemm(struct backend *b, enum stream s, const struct gemm *g, struct diag_list *reterr)
{
    struct cuda *c = (struct cuda *)b;
    int panel = s == STREAM_COMPUTE ? 0 : CUDA_LANES;
    if (g->a_type == DTYPE_FP32 && g->b_type == DTYPE_BF16)
        return multiply_rounded(c, s, panel, g, reterr);
    if (g->a_type != g->b_type)
        return cuda_refuse(reterr, "GEMM: bf16 rows against fp32 weights");
    return cuda_multiply(c, c->streams[s], panel, g, false, reterr);
}
