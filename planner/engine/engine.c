#include "planner/engine/engine.h"

#include "base/checked.h"
#include "planner/engine/megatron.h"
#include "planner/engine/torch.h"

#include <string.h>

/* Margin of the upper bound, as a share of the reserved bytes: 11 steps of engine torch lie within
 * 0.4 %; reserved bytes of Megatron have not been compared yet. */
static const double margin = 0.06;

/* Static items stay; all else that the allocator hands out is one item, and the bytes that it
 * reserves beyond that are slack. The device holds the context, its modules and the communicators
 * in addition. */
static void put_peaks(struct rank_budget *rank, uint64_t allocated_bytes, uint64_t reserved_bytes)
{
    uint64_t fixed = 0;
    for (int i = 0; i < ITEM_COUNT; i++) {
        bool outside = i == ITEM_COMMUNICATORS || i == ITEM_CONTEXT || i == ITEM_MODULES;
        if (item_infos[i].category == CATEGORY_STATIC)
            fixed = add_sat(fixed, rank->item_bytes[i]);
        else if (!outside)
            rank->item_bytes[i] = rank->item_max_bytes[i] = 0;
    }
    uint64_t moving = allocated_bytes > fixed ? allocated_bytes - fixed : 0;
    rank->item_bytes[ITEM_LAYER_SAVED] = rank->item_max_bytes[ITEM_LAYER_SAVED] = moving;
    rank->item_bytes[ITEM_SLACK] = rank->item_max_bytes[ITEM_SLACK] =
        reserved_bytes > allocated_bytes ? reserved_bytes - allocated_bytes : 0;
    memset(rank->category_bytes, 0, sizeof rank->category_bytes);
    rank->peak_bytes = 0;
    for (int i = 0; i < ITEM_COUNT; i++) {
        uint64_t *category = &rank->category_bytes[item_infos[i].category];
        *category = add_sat(*category, rank->item_bytes[i]);
        rank->peak_bytes = add_sat(rank->peak_bytes, rank->item_bytes[i]);
    }
    rank->arena_bytes = allocated_bytes;
    rank->host_bytes = 0;
    rank->peak_upper_bytes = add_sat(rank->peak_bytes, (uint64_t)(margin * (double)reserved_bytes));
}

static void no_memory(struct rank_budget *rank)
{
    rank->peak_bytes = rank->peak_upper_bytes = UINT64_MAX;
}

/* The upper bound is at the rows that the profile's quantile allows. */
static void megatron_peaks(const struct budget_input *in, struct rank_budget *rank)
{
    struct megatron_memory point, high = { .peak_layer = -1 };
    struct rank_budget more = *rank;
    struct diag_list ignored = { 0 };
    more.routed_rows =
        rank->routed_rows_upper > rank->routed_rows ? rank->routed_rows_upper : rank->routed_rows;
    if (megatron_memory(in, rank, &point, &ignored) != 0 ||
        (more.routed_rows > rank->routed_rows &&
         megatron_memory(in, &more, &high, &ignored) != 0)) {
        no_memory(rank);
        return;
    }
    put_peaks(rank, point.allocated_bytes, point.reserved_bytes);
    rank->peak_phase = (struct phase){ point.peak_in_backward ? PHASE_BACKWARD : PHASE_FORWARD,
                                       rank->stage, point.peak_micro_batch, point.peak_layer };
    if (point.peak_layer < 0 && rank->stage == in->choices->layout.pp - 1)
        rank->peak_phase.kind = PHASE_LOSS;
    if (more.routed_rows > rank->routed_rows && high.reserved_bytes > point.reserved_bytes)
        rank->peak_upper_bytes =
            add_sat(rank->peak_upper_bytes, high.reserved_bytes - point.reserved_bytes);
}

static const char *replay_formula(enum item item)
{
    if (item == ITEM_LAYER_SAVED)
        return "all that the allocator hands out beyond the state: the engine's operations, played "
               "in order";
    if (item == ITEM_SLACK)
        return "bytes that the caching allocator reserves and does not hand out at the peak";
    return NULL;
}

static void torch_peaks(const struct budget_input *in, struct rank_budget *rank)
{
    const struct primitives *p = &in->choices->primitives;
    const struct torch_run run = { .model = in->model,
                                   .sequences = in->choices->layout.micro_batch,
                                   .seq_tokens = (int64_t)in->seq_tokens,
                                   .fp32 = p->master == MASTER_FP32,
                                   .autocast = p->master == MASTER_FP32,
                                   .checkpoint = p->recompute == RECOMPUTE_FULL };
    struct torch_memory memory;
    struct diag_list ignored = { 0 };
    if (torch_memory(&run, in->choices->layout.micro_batches, &memory, &ignored) != 0) {
        no_memory(rank);
        return;
    }
    uint64_t *items = rank->item_bytes;
    items[ITEM_MASTER] = items[ITEM_GRADIENTS] = 0;
    items[ITEM_WEIGHTS] = memory.weight_bytes;
    items[ITEM_MOMENTS] = mul_sat(2, memory.weight_bytes);
    for (int i = ITEM_WEIGHTS; i <= ITEM_GRADIENTS; i++)
        rank->item_max_bytes[i] = items[i];
    enum phase_kind half = memory.peak_in_backward ? PHASE_BACKWARD : PHASE_FORWARD;
    rank->peak_phase =
        (struct phase){ memory.peak_layer < 0 ? PHASE_LOSS : half, 0, 0, memory.peak_layer };
    put_peaks(rank, memory.allocated_bytes, memory.reserved_bytes);
}

static int torch_job(const struct model *model, int gpus, struct pos at, struct diag_list *reterr)
{
    int before = reterr->errors;
    if (gpus > 1) {
        diag_error(reterr, at, "engine torch is described on one GPU, not on %d", gpus);
        diag_hint(reterr, "--gpus 1");
    }
    (void)torch_describes(model, at, reterr);
    return reterr->errors > before ? -1 : 0;
}

static int megatron_job(const struct model *model, int gpus, struct pos at,
                        struct diag_list *reterr)
{
    (void)gpus;
    return megatron_describes(model, at, reterr);
}

/* State that an engine's tapes do not have: adapters, frozen parts, another optimizer. */
static int check_trained(const char *engine, const struct primitives *p, struct pos at,
                         struct diag_list *reterr)
{
    int before = reterr->errors;
    if (p->lora_rank > 0)
        diag_error(reterr, at, "engine %s is not described with adapters: lora_rank is %d", engine,
                   p->lora_rank);
    if (p->frozen != 0)
        diag_error(reterr, at, "engine %s is not described with frozen parts", engine);
    if (p->optimizer != OPTIMIZER_ADAMW)
        diag_error(reterr, at, "engine %s is described with optimizer=adamw alone", engine);
    return reterr->errors > before ? -1 : 0;
}

static int megatron_layout(const struct choices *choices, struct pos at, struct diag_list *reterr)
{
    int status = check_trained("megatron", &choices->primitives, at, reterr);
    return megatron_check(choices, at, reterr) != 0 ? -1 : status;
}

/* Moments are stored in the dtype of the weights. */
static int torch_layout(const struct choices *choices, struct pos at, struct diag_list *reterr)
{
    const struct primitives *p = &choices->primitives;
    int status = check_trained("torch", p, at, reterr);
    bool wide = p->master == MASTER_FP32;
    if (wide == (p->moments_dtype == DTYPE_FP32))
        return status;
    diag_error(reterr, at, "engine torch stores moments in the dtype of the weights, %s with %s",
               wide ? "fp32" : "bf16", wide ? "master=fp32" : "master=none");
    return diag_hint(reterr, "moments_dtype=%s", wide ? "fp32" : "bf16");
}

static const struct engine_methods megatron_methods = { megatron_peaks, replay_formula };
static const struct engine_methods torch_methods = { torch_peaks, replay_formula };

const struct engine engines[] = {
    { .name = "rankfit", .about = "this project's own executor", .described = "all of it" },
    { .name = "megatron",
      .about = "Megatron-Core with Transformer Engine",
      .described = "distributed optimizer, tp with sequence parallelism, pp under 1F1B, cp by "
                   "exchanged heads, ep by all-to-all, grouped-query and latent attention, full "
                   "recompute of the first N layers of a stage, fused and native cross-entropy",
      .not_described = "interleaved stages, recompute of modules, MTP layers, other dispatchers, "
                       "fp8; step times are those of engine rankfit",
      .methods = &megatron_methods,
      .describes = megatron_job,
      .check = megatron_layout,
      .choices = { { "sharding", "zero1", true },
                   { "loss", "full", true },
                   { "logits_dtype", "bf16", false },
                   { "moe", "plain", true },
                   { "moe_chunks", "1", true },
                   { "context", "ulysses", true },
                   { "vpp", "1", true },
                   { "keep_attention", "0", true },
                   { "offload", "none", true },
                   { "exchange", "sm", true } } },
    { .name = "torch",
      .about = "eager PyTorch with a model of Hugging Face's transformers",
      .described =
          "dense Llama and Qwen3 models on one GPU, state in bf16 (master=none) or in fp32 "
          "under autocast (master=fp32), gradient checkpointing of every layer, AdamW",
      .not_described = "experts, adapters, compiled models, several GPUs; step times are those of "
                       "engine rankfit",
      .methods = &torch_methods,
      .describes = torch_job,
      .check = torch_layout,
      .ignored = { "grad_dtype", "logits_dtype", "loss_tile_tokens", "packing", "rl" },
      .choices = { { "sharding", "replicated", true },
                   { "loss", "full", true },
                   { "recompute_layers", "all", true },
                   { "keep_attention", "0", true },
                   { "offload", "none", true } } },
};
const size_t engine_count = sizeof engines / sizeof *engines;

const struct engine *engine_find(const char *name)
{
    for (size_t i = 0; i < engine_count; i++)
        if (strcmp(engines[i].name, name) == 0)
            return &engines[i];
    return NULL;
}

const struct engine_methods *engine_methods_of(const char *name)
{
    const struct engine *engine = engine_find(name);
    return engine ? engine->methods : NULL;
}

/* Whether the user's value of a row is the one that `value` means. */
static bool says(const struct fixed_choices *fixed, int row, const char *value)
{
    char text[64], wanted[64];
    struct choices choices = fixed->values;
    struct diag_list ignored = { 0 };
    choice_format(&fixed->values, row, text, sizeof text);
    if (choice_parse(&choices, row, value, (struct pos){ 0 }, &ignored) != 0)
        return false;
    choice_format(&choices, row, wanted, sizeof wanted);
    return strcmp(text, wanted) == 0;
}

int engine_fix(const struct engine *engine, struct fixed_choices *fixed, struct pos at,
               struct diag_list *reterr)
{
    int before = reterr->errors;
    for (int i = 0; i < ENGINE_CHOICES_MAX && engine->choices[i].key; i++) {
        const struct engine_choice *c = &engine->choices[i];
        if (strcmp(c->key, "context") == 0 && choice_is_fixed(fixed, "cp") &&
            fixed->values.layout.cp == 1)
            continue; /* no sequence is shared */
        int row = choice_key_find(c->key);
        if (!choice_is_fixed(fixed, c->key)) {
            (void)choice_set(fixed, c->key, c->value, at, reterr);
        } else if (c->only && !says(fixed, row, c->value)) {
            char text[64];
            choice_format(&fixed->values, row, text, sizeof text);
            diag_error(reterr, fixed->at[row], "engine %s is not described with %s=%s",
                       engine->name, c->key, text);
            diag_hint(reterr, "%s=%s, or leave it out", c->key, c->value);
        }
    }
    for (int i = 0; i < ENGINE_IGNORED_MAX && engine->ignored[i]; i++)
        if (choice_is_fixed(fixed, engine->ignored[i])) {
            diag_error(reterr, fixed->at[choice_key_find(engine->ignored[i])],
                       "engine %s has no choice of %s", engine->name, engine->ignored[i]);
            diag_hint(reterr, "leave it out");
        }
    return reterr->errors > before ? -1 : 0;
}
