/* formula.c - each time item in words with its numbers, and how it is known. */
#include "planner/predict/parts.h"
#include "planner/predict/step_time.h"

#include "base/text.h"
#include "base/units.h"

#include <stdio.h>

enum { TEXT = 32, WORDS = 400 };

static const char *const how[TIME_ITEM_COUNT] = {
    [TIME_MATMUL] = "each product: cube root of the cubes of gemm_call_seconds, 2 m n k / (peak x "
                    "gemm_efficiency), gemm_traffic_share x operands / memory rate",
    [TIME_EXPERTS] = "2 products an expert in forward, 1 in a replay, 4 in backward: each the "
                     "cube root of the cubes of calls, FLOPs / (peak x expert_gemm_efficiency), "
                     "operands",
    [TIME_ATTENTION] = "causal 2 x tokens x heads x head_dim x seq, backward 2.5 x, / peak reached",
    [TIME_LINEAR_ATTENTION] = "delta_rule_seconds_per_token x tokens x (chain + rest x state), "
                              "backward delta_backward_factor (2.7) x",
    [TIME_ELEMENTWISE] = "bytes that each kernel reads and writes / memory rate reached, + "
                         "elementwise_call_seconds a kernel",
    [TIME_LOSS] = "3 products (in strips 4) of tokens x hidden x vocabulary / tp, with the head's "
                  "weight and gradient moved once a tile, and bytes of logits",
    [TIME_EXPOSED_GATHER] = "unit gathers beyond the compute that hides them, those that a pass "
                            "begins with, and reduce-scatters",
    [TIME_EXPOSED_EXCHANGE] = "2 exchanges a pass (a replay 1) of rows x hidden x 2 B, less what "
                              "chunks hide",
    [TIME_EXPOSED_CONTEXT] = "keys and values gathered or heads exchanged in every pass",
    [TIME_EXPOSED_TENSOR] = "around a mixer, an MLP and a shared expert 2 collectives forward, 3 "
                            "backward, 2 around embedding and loss, of tokens x hidden x 2 B",
    [TIME_EXPOSED_OFFLOAD] =
        "checkpoints to the host and back / its link, beyond a layer's compute",
    [TIME_PIPELINE] = "one activation and one gradient a micro-batch to the neighbour",
    [TIME_BUBBLE] = "(pp - 1) / (vpp) micro-batches of the slowest stage",
    [TIME_REDUCE] = "gradients of replicas and shards reduced once a step",
    [TIME_OPTIMIZER] = "master, moments, gradient and weight read and written / memory rate, + "
                       "elementwise_call_seconds a call",
    [TIME_LOGPROBS] =
        "a forward and the head without gradients for each of rl's old and reference, "
        "bubble included",
    [TIME_HOST] = "what launches (launch_seconds, gemm_launch_seconds) and reads of routed counts "
                  "leave the device without work",
};

/* What a choice adds to an item. */
struct addition {
    enum time_item item;
    bool (*applies)(const struct budget_input *in);
    const char *text;
};

static bool has_muon(const struct budget_input *in)
{
    return in->choices->primitives.optimizer == OPTIMIZER_MUON;
}

static bool has_two_embeddings(const struct budget_input *in)
{
    return in->choices->layout.pp > 1 && (in->model->tied || model_predicts(in->model));
}

static bool splits_products(const struct budget_input *in)
{
    return in->choices->layout.tp > 1 || in->choices->layout.etp > 1;
}

static bool gathers_predictions(const struct budget_input *in)
{
    return model_predicts(in->model);
}

static const struct addition additions[] = {
    { TIME_EXPOSED_GATHER, gathers_predictions,
      ", and so the prediction layers and the embedding, once" },
    { TIME_REDUCE, has_two_embeddings, ", the embedding's between the stages that hold it" },
    { TIME_REDUCE, splits_products, ", those of weights that ranks of tp or etp hold whole" },
    { TIME_REDUCE, has_muon, ", momenta gathered and updates returned in bf16" },
    { TIME_OPTIMIZER, has_muon,
      ", and 5 x (4 n m^2 + 2 m^3) FLOPs a matrix m x n, m <= n, dealt among its ranks" },
};

/* The item with what is added to it; returns ret. */
static const char *words_of(const struct budget_input *in, enum time_item item, char *ret,
                            size_t size)
{
    size_t used = 0;
    text_append(ret, size, &used, "%s", how[item]);
    for (size_t i = 0; i < sizeof additions / sizeof *additions; i++)
        if (additions[i].item == item && additions[i].applies(in))
            text_append(ret, size, &used, "%s", additions[i].text);
    return ret;
}

void step_time_formula(const struct budget_input *in, const struct step_time *time,
                       enum time_item item, char *ret, size_t size)
{
    const struct layout *l = &in->choices->layout;
    char tokens[TEXT], rows[TEXT], seconds[TEXT], words[WORDS];
    if (size == 0 || item >= TIME_ITEM_COUNT)
        return;
    (void)words_of(in, item, words, sizeof words);
    units_format_count(tokens, sizeof tokens, local_tokens(in));
    units_format_count(rows, sizeof rows, dispatch_rows(in, -1).point);
    units_format_seconds(seconds, sizeof seconds, time->gather_seconds_per_unit);
    if (item == TIME_EXPERTS || item == TIME_EXPOSED_EXCHANGE)
        (void)snprintf(ret, size, "%s; %s rows, %d micro-batches", words, rows,
                       micro_batches_of(in));
    else if (item == TIME_EXPOSED_GATHER)
        (void)snprintf(ret, size, "%s; %s a unit, hides from %llu tokens", words, seconds,
                       (unsigned long long)time->min_tokens_to_hide_gather);
    else if (item == TIME_BUBBLE)
        (void)snprintf(ret, size, "%s; pp %d, %d micro-batches", words, l->pp,
                       micro_batches_of(in));
    else
        (void)snprintf(ret, size, "%s; %s tokens, %d micro-batches", words, tokens,
                       micro_batches_of(in));
}

static bool runs_context(const struct primitives *p)
{
    return (p->context == CONTEXT_NONE || p->context == CONTEXT_ALLGATHER_KV) &&
           p->linear_context == LINEAR_CONTEXT_NONE;
}

static bool trains_partly(const struct primitives *p)
{
    return p->lora_rank > 0 || p->frozen != 0;
}

static bool updates_otherwise(const struct primitives *p)
{
    return p->optimizer != OPTIMIZER_ADAMW || p->moments_dtype != DTYPE_FP32 ||
           p->master != MASTER_FP32;
}

/* Efficiencies come measured with the hardware file; what rests on a schedule that no executor runs
 * is assumed. */
enum basis step_time_basis(const struct budget_input *in, enum time_item item)
{
    const struct layout *l = &in->choices->layout;
    const struct primitives *p = &in->choices->primitives;
    bool packed = p->tokens_per_gpu > 0 || p->packing != PACKING_NONE;
    if (packed && item != TIME_BUBBLE && item != TIME_OPTIMIZER && item != TIME_REDUCE)
        return BASIS_ASSUMED;
    switch (item) {
    case TIME_ATTENTION:
        if (in->choices->primitives.attention_deterministic && !in->hardware->host)
            return BASIS_ASSUMED; /* its products are measured, not their succession */
        return l->tp > 1 || l->etp > 1 ? BASIS_ASSUMED : BASIS_MEASURED;
    case TIME_MATMUL:
    case TIME_EXPERTS:
    case TIME_LOSS:
    case TIME_ELEMENTWISE:
        return l->tp > 1 || l->etp > 1 || trains_partly(p) ? BASIS_ASSUMED : BASIS_MEASURED;
    case TIME_OPTIMIZER:
        return l->tp > 1 || l->etp > 1 || trains_partly(p) || updates_otherwise(p) ? BASIS_ASSUMED
                                                                                   : BASIS_MEASURED;
    case TIME_EXPOSED_EXCHANGE:
        return in->choices->primitives.moe != MOE_CAPPED ? BASIS_MEASURED : BASIS_ASSUMED;
    case TIME_EXPOSED_GATHER:
        return l->pp > 1 ? BASIS_ASSUMED : BASIS_MEASURED;
    case TIME_REDUCE:
        return l->pp > 1 || p->optimizer == OPTIMIZER_MUON ? BASIS_ASSUMED : BASIS_MEASURED;
    case TIME_EXPOSED_CONTEXT:
        return runs_context(&in->choices->primitives) ? BASIS_MEASURED : BASIS_ASSUMED;
    case TIME_HOST:
        return BASIS_MEASURED;
    case TIME_BUBBLE:
        return BASIS_ARITHMETIC;
    case TIME_LINEAR_ATTENTION:
    case TIME_EXPOSED_OFFLOAD:
    case TIME_EXPOSED_TENSOR:
    case TIME_PIPELINE:
    case TIME_LOGPROBS:
    case TIME_ITEM_COUNT:
        break;
    }
    return BASIS_ASSUMED;
}
