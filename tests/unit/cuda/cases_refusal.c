#include "tests/unit/cuda/cases.h"

#include <string.h>

/* The operation must refuse, in words that hold `word`. */
static void refused(struct pair *p, const char *what, int status, const char *word)
{
    bool told = p->diags.count > 0 && strstr(p->diags.items[0].what, word);
    memset(&p->diags, 0, sizeof p->diags);
    pair_figure(p, what, status == -1 && told, 1, 0);
}

void cases_refusal(struct pair *p)
{
    int64_t counts[4];
    struct backend *b = p->backends[DEVICE];
    const struct backend_ops *ops = b->ops;
    struct diag_list *errors = &p->diags;
    pair_case(p, "refusal", "-");
    struct array x = pair_random(p, KIND_BF16, 64, 1);
    struct array choices = pair_indices(p, 8, 9);
    struct array slots = pair_poison(p, KIND_INT32, 8);
    bf16 *at = x.at[DEVICE];
    ((int32_t *)choices.at[HOST])[3] = 7;
    pair_upload(p, &choices);
    refused(p, "odd width", ops->rmsnorm(b, STREAM_COMPUTE, 1, 12, 1e-6, at, at, at, errors),
            "multiple of 8");
    refused(p, "odd address", ops->rmsnorm(b, STREAM_COMPUTE, 1, 8, 1e-6, at + 1, at, at, errors),
            "16 bytes");
    refused(p, "lost choice",
            ops->sort_choices(b, STREAM_COMPUTE, 8, 1, 4, choices.at[DEVICE], slots.at[DEVICE],
                              counts, errors),
            "outside");
    struct gemm g = { .form = GEMM_FORWARD, .m = 8, .n = 8, .k = 8, .b_type = DTYPE_FP32 };
    refused(p, "mixed types", ops->gemm(b, STREAM_COMPUTE, &g, errors), "fp32 weights");
    struct rope r = { .rows = 1, .tokens = 1, .head_dim = 512, .heads = 1, .kv_heads = 1 };
    refused(p, "wide head", ops->rope(b, STREAM_COMPUTE, &r, errors), "head_dim 512");
    ops->set_workspace(b, NULL);
    g.b_type = DTYPE_BF16;
    refused(p, "no workspace", ops->gemm(b, STREAM_COMPUTE, &g, errors), "workspace");
    ops->set_workspace(b, p->workspaces[DEVICE]);
}
