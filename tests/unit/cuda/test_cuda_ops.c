/* Every operation of the CUDA backend against the host backend, and against sums in double where
 * they are cheap: random data, results poisoned first. Prints a table; exits 77 without a GPU. */
#include "tests/unit/cuda/cases.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct pair *p);
} groups[] = {
    { "norm", cases_norm },
    { "rope", cases_rope },
    { "activation", cases_activation },
    { "gate", cases_gate },
    { "route", cases_route },
    { "rows", cases_rows },
    { "loss", cases_loss },
    { "optimizer", cases_optimizer },
    { "gemm", cases_gemm },
    { "expert_gemm", cases_expert_gemm },
    { "attention", cases_attention },
    { "attention_sums", cases_attention_sums },
    { "attention_run", cases_attention_run },
    { "delta_input", cases_delta_input },
    { "delta_rule", cases_delta_rule },
    { "delta_long", cases_delta_long },
    { "delta_lengths", cases_delta_lengths },
    { "refusal", cases_refusal },
};

/* With arguments, only the groups that they name. */
static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    static struct pair p;
    int status = pair_open(&p);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0] && status == 0; i++)
        if (wanted(groups[i].name, argc, argv))
            groups[i].run(&p);
    if (status == 0)
        printf("%d results, %d failed\n", p.rows, p.failures);
    pair_close(&p);
    return status ? status : p.failures > 0;
}
