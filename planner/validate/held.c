#include "planner/validate/held.h"

#include "base/text.h"
#include "planner/engine/megatron.h"
#include "planner/validate/modules.h"

#include <string.h>

/* torchtitan at 83c879f18. The logits stay named in fp32 through the backward: 4 B and the loss's
 * 12, its logarithms with two gradients; split by tp its 16, an exponential and a sum beside. */
static int hold_2024_03(const struct prediction *prediction, const struct rank_budget *rank,
                        struct pos at, struct saved *ret, struct diag_list *reterr)
{
    static const struct module_facts facts = {
        .one_root = true, .foreach = true, .logit_bytes = 16, .logit_bytes_tp = 20
    };
    return modules_held(prediction, rank, &facts, at, ret, reterr);
}

/* 9dec370ad: the logits are let go before the backward. */
static int hold_2024_12(const struct prediction *prediction, const struct rank_budget *rank,
                        struct pos at, struct saved *ret, struct diag_list *reterr)
{
    static const struct module_facts facts = {
        .one_root = true, .foreach = true, .logit_bytes = 12, .logit_bytes_tp = 16
    };
    return modules_held(prediction, rank, &facts, at, ret, reterr);
}

/* d66b72a6a: embedding and head are units, norms one operation, AdamW one kernel. */
static int hold_2025_09(const struct prediction *prediction, const struct rank_budget *rank,
                        struct pos at, struct saved *ret, struct diag_list *reterr)
{
    static const struct module_facts facts = { .fused_norms = true,
                                               .logit_bytes = 12,
                                               .logit_bytes_tp = 16 };
    return modules_held(prediction, rank, &facts, at, ret, reterr);
}

/* Megatron-Core with Transformer Engine, played operation by operation. */
static int hold_megatron(const struct prediction *prediction, const struct rank_budget *rank,
                         struct pos at, struct saved *ret, struct diag_list *reterr)
{
    struct megatron_memory memory;
    *ret = (struct saved){ .count = 0 };
    if (megatron_describes(&prediction->plan.model, at, reterr) != 0 ||
        megatron_check(&prediction->plan.choices, at, reterr) != 0)
        return -1;
    if (megatron_memory(&prediction->input, rank, &memory, reterr) != 0)
        return -1;
    ret->bytes = memory.allocated_bytes;
    return 0;
}

/* Adding an engine is adding a row. */
static const struct held_engine engines[] = {
    { "megatron", "megatron", true, hold_megatron },
    { "torchtitan-2024-03", "torchtitan", true, hold_2024_03 },
    { "torchtitan-2024-12", "torchtitan", true, hold_2024_12 },
    { "torchtitan-2025-09", "torchtitan", true, hold_2025_09 },
};
enum { ENGINES = sizeof engines / sizeof *engines };

const struct held_engine *held_engine_find(const char *name, struct pos at,
                                           struct diag_list *reterr)
{
    const char *names[ENGINES];
    for (size_t i = 0; i < ENGINES; i++) {
        if (strcmp(engines[i].name, name) == 0)
            return &engines[i];
        names[i] = engines[i].name;
    }
    const char *nearest = text_nearest(name, names, ENGINES);
    diag_error(reterr, at, "engine is '%s', whose rules are not known", name);
    diag_hint(reterr, "such as engine: %s", nearest ? nearest : engines[0].name);
    return NULL;
}
