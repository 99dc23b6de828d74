/* topics.c - what people look for under names that no key, item or rule has here: what other
 * engines call it, and what answers it in this one. A row a topic; explain finds it by any name. */
#include "planner/cli/topics.h"

#include "planner/report/json.h"

#include <stdio.h>
#include <string.h>

enum { TOPIC_NAMES = 5 };

struct topic {
    const char *names[TOPIC_NAMES];
    const char *meaning, *here, *see;
    struct json *(*in_plan)(
        const struct prediction *prediction); /* NULL: nothing of a plan's own */
};

/* Probability that a token chooses the one hot expert of a rank of E / ep, so that the rank
 * receives b times the mean of k / ep rows a token: with q = (E / ep - 1) / (E - 1) it receives P +
 * (k - P) q. */
static double hot_probability(const struct prediction *prediction, double balance)
{
    const struct moe *moe = &prediction->plan.model.moe;
    double ep = prediction->plan.choices.layout.ep, k = moe->top_k;
    double q = (moe->experts / ep - 1) / (moe->experts - 1.0);
    return (balance * k / ep - k * q) / (1 - q);
}

/* Peak and step at three balances, of those that one hot expert can bring about. */
static struct json *balances_of(const struct prediction *prediction)
{
    static const double balances[] = { 1.0, 1.5, 2.0 };
    const struct plan *plan = &prediction->plan;
    struct json *ret = json_list();
    if (plan->model.moe.experts < 2 || plan->choices.layout.ep < 2)
        return ret;
    for (size_t i = 0; i < sizeof balances / sizeof *balances; i++) {
        double hot = hot_probability(prediction, balances[i]);
        struct budget_input input = prediction->input;
        struct rank_budget worst;
        struct step_time time;
        char routing[32];
        if (hot < 0 || hot > 1)
            continue;
        input.routing =
            (struct routing){ .kind = ROUTING_HOT, .hot_fraction = hot, .hot_experts = 1 };
        if (predict_once(&input, &worst, &time) != 0)
            continue;
        (void)snprintf(routing, sizeof routing, "%.4f:1", 100 * hot);
        struct json *line = json_map();
        json_put_number(line, "balance", balances[i]);
        json_put_text(line, "routing", routing);
        json_put_u64(line, "peak_bytes", worst.peak_bytes);
        json_put_u64(line, "peak_upper_bytes", worst.peak_upper_bytes);
        json_put_number(line, "seconds", time.seconds);
        json_append(ret, line);
    }
    return ret;
}

static const struct topic topics[] = {
    { { "zero3", "fsdp2", "fully_shard", "full_shard", "hsdp" },
      "weights, gradients and optimizer state all sharded",
      "sharding=fsdp. Key fsdp is the number of ranks that share one copy; with fewer than dp the "
      "copies are replicated (HSDP)",
      "sharding, fsdp, e_fsdp, prefetch_units, gathered_weights",
      NULL },
    { { "distributed_optimizer", "optimizer_sharding" },
      "master weights and moments sharded; weights and gradients whole",
      "sharding=zero1",
      "sharding, master, moments",
      NULL },
    { { "sequence_parallel", "enable_sequence_parallel" },
      "activations outside of the matmuls of tensor parallelism split by tokens over its ranks",
      "always on where tp is more than 1: a rank has sequence / (cp x tp) tokens between the "
      "matmuls. Sharding of attention over the sequence is cp",
      "tp, cp, context",
      NULL },
    { { "ulysses_sequence_parallel_size", "ulysses_degree", "ring_attention", "ring_degree" },
      "sequence sharding of attention, by exchange of heads or by passing keys and values on",
      "cp is the degree, context=ulysses or context=ring the way; allgather_kv gathers keys and "
      "values instead",
      "cp, context, kv_gather",
      NULL },
    { { "flash_attention", "flash_attn", "use_flash_attn", "sdpa" },
      "attention that never stores the matrix of scores",
      "always: the forward saves its output and one fp32 number per row and head, and the backward "
      "computes the scores again, 2.5 times the forward's FLOPs",
      "keep_attention, layer_saved",
      NULL },
    { { "mtp", "mtp_num_layers", "num_nextn_predict_layers", "multi_token_prediction" },
      "MTP layers behind the trunk that predict further tokens",
      "counted with the parameters; trained, and part of the step, with --set model.mtp=1",
      "model.FIELD",
      NULL },
    { { "fp8", "fp8_recipe", "mxfp8", "float8", "fp4" },
      "matmuls with operands of 8 bits or fewer",
      "not planned: matmuls read bf16. grad_dtype, logits_dtype and moments_dtype are the dtypes "
      "that a plan chooses",
      "grad_dtype, logits_dtype, moments_dtype",
      NULL },
    { { "deepep", "moe_token_dispatcher_type", "all_to_all", "alltoall" },
      "how rows travel to the ranks of their experts",
      "a token is sent once to each rank that has one of its experts. Key exchange chooses kernels "
      "or copy engines, moe=chunked hides the exchange behind expert matmuls",
      "exchange, moe, dispatch_send, dispatch_recv",
      NULL },
    { { "1f1b", "interleaved", "virtual_pipeline", "num_virtual_stages" },
      "the order of forwards and backwards in a pipeline",
      "1F1B with vpp=1, interleaved with more: each stage has vpp chunks of layers",
      "pp, vpp, stage_layers, checkpoints",
      NULL },
    { { "zig-zag", "zigzag", "load_balanced_cp", "striped" },
      "order of a causal sequence over the ranks of cp that gives them equal work",
      "softmax attention under cp: rank r has pieces r and 2 cp - 1 - r of 2 cp",
      "cp, context",
      NULL },
    { { "aux_loss", "router_aux_loss", "load_balancing_loss", "router_logits" },
      "a loss that is least where a router loads its experts evenly, made from its probabilities",
      "this engine has no such term: a step holds no bytes for it and no version of an engine "
      "changes that. An engine that joins the routers of all layers before it computes the loss "
      "holds masks of L T k E elements, 8 B each as integers and 4 B as floats, beside L T E "
      "logits; layer by layer it holds one layer's. Probabilities (fp32, T E a layer) are part of "
      "layer_saved and layer_working",
      "layer_saved, layer_working, --reserve",
      NULL },
    { { "reshard_after_forward", "shard_grad_op", "keep_gathered" },
      "whether gathered weights are given back between forward and backward",
      "sharding=fsdp gives every unit back after its use, forward and backward; prefetch_units "
      "more are there ahead of it, item gathered_weights. Weights that stay whole from forward "
      "to backward are sharding=zero2: item weights then is 2 N undivided, experts included",
      "sharding=fsdp, sharding=zero2, prefetch_units, gathered_weights",
      NULL },
    { { "kv_replication", "replicate_kv", "kv_repeat" },
      "more ranks than key/value heads, each head on several of them",
      "not done under tp: tp must divide the key/value heads (rule kv_heads). Under ulysses a "
      "head is sent to several ranks, and the exchanged keys and values grow (rule "
      "ulysses_repeat). An engine that replicates under tp holds the projection and its gradient "
      "tp / heads times",
      "kv_heads, ulysses_repeat, ulysses_heads",
      NULL },
    { { "fragmentation", "expandable_segments", "allocator", "inactive_blocks" },
      "device memory that an allocator holds and no tensor uses",
      "none of a caching allocator: one reservation, whose offsets are planned from a dry step. "
      "peak_by_metric tells allocated (live tensors), reserved (with the room for routed rows "
      "that did not come: item slack) and device (with context, libraries, communicators: what "
      "nvidia-smi shows). The upper bound adds 1 % of what comes and goes. There is no allocator "
      "setting that a rollout engine could forbid; --reserve keeps memory for one",
      "slack, runtime, --reserve, --headroom",
      NULL },
    { { "allocated", "reserved", "device", "nvidia-smi", "peak_by_metric" },
      "three figures of one peak: live tensors, what is reserved for them, what the device lost",
      "allocated is the arena's live bytes, reserved adds slack, device adds communicators and "
      "runtime. Compare nvidia-smi with device, a framework's reserved with reserved, never with "
      "allocated",
      "slack, communication, runtime",
      NULL },
    { { "vocab_padding", "padded_vocab", "make_vocab_size_divisible_by" },
      "rows added to a vocabulary so that ranks share it evenly",
      "none where tp divides the vocabulary; else up to the next multiple of 128 x tp, in "
      "embedding, head and logits (rule vocab). Rows beyond a checkpoint's are new. A recipe's "
      "vocabulary is the checkpoint's rows, not the tokenizer's entries: model.vocab sets it",
      "vocab, logits, loss_working",
      NULL },
    { { "max_tokens_per_gpu", "max_token_len_per_gpu", "use_dynamic_bsz", "dynamic_batch" },
      "tokens that a rank takes of one micro-batch, whatever samples they belong to",
      "tokens_per_gpu: the ranks of cp share a row, so that a micro-batch has tokens_per_gpu x cp "
      "tokens, and these must hold the longest prompt and response, --seq (rule token_budget). "
      "--global-batch counts samples then; rows tells how many micro-batches they make",
      "tokens_per_gpu, token_budget, --lengths",
      NULL },
    { { "sequence_packing", "sample_packing", "neat_packing", "remove_padding", "cu_seqlens" },
      "pieces of several lengths in one row, each attending to itself",
      "--lengths gives the mix, packing=row or packing=piece what each is padded to. rows tells "
      "pad "
      "tokens, the share of the throughput lost and how unequal the ranks of a step are",
      "packing, padding, --lengths",
      NULL },
    { { "gpu_memory_utilization", "mem_fraction_static", "rollout", "kv_cache" },
      "device memory that a rollout engine keeps while the step runs",
      "--reserve: taken off the limit, named in the report. What sleeps or is given back while "
      "training needs no reserve",
      "--reserve, --headroom, rl",
      NULL },
    { { "ref_policy", "ref_param_offload", "kl_loss", "log_prob" },
      "passes of a policy as it was and of a reference model, for ratios and divergence",
      "rl=old,reference: a forward each that keeps nothing, item log_probabilities of the step "
      "time "
      "and moment logprob of the peaks. reference_weights=resident or host says where the "
      "reference "
      "lives; under adapters it is the policy without them. rl=entropy adds a tile of fp32",
      "rl, reference_weights, log_probabilities, logprob",
      NULL },
    { { "balance", "imbalance", "expert_balance", "router_imbalance" },
      "rows of the fullest expert rank over the mean of all",
      "routing P:1 gives balance b where P = (b k / ep - k q) / (1 - q), q = (E / ep - 1) / "
      "(E - 1); P as a percentage. balanced is 1 exactly, and its upper bound that of random "
      "routing at the plan's quantile; moe=capped bounds it by moe_cap_tokens",
      "--routing, dispatch_recv, experts, moe_cap_tokens; with a plan: peak and step at 1, 1.5, 2",
      balances_of },
    { { "logits_copies", "unfused_loss", "chunked_loss", "fused_linear" },
      "how often the logits are there at once",
      "once under loss=full: the gradient overwrites them, in bf16 tiles where they are fp32 "
      "(logits_dtype). An engine that casts bf16 logits to fp32 and keeps both, or makes their "
      "gradient beside them, holds two or three such tensors. Under loss=linear_ce never: tiles of "
      "loss_tile_tokens, in strips of vocab_strip entries, in training as in scoring. tp divides "
      "them either way",
      "logits, loss_working, loss, logits_dtype, vocab_strip",
      NULL },
    { { "offload_params", "params_cpu", "cpu_offload", "zero_offload" },
      "weights, gradients or optimizer state in host memory",
      "offload=optimizer keeps master weights and moments there and streams them in buckets; "
      "offload=checkpoints keeps layer inputs there. Weights and gradients stay on the device: "
      "under sharding=fsdp divided by the shards, and a unit at a time whole",
      "offload, bucket_params, slots, sco_host_bytes",
      NULL },
    { { "speed_range", "range", "throughput_range" },
      "how far a step may be from its predicted time, and why",
      "a step's range subtracts what better software could hide (exchange, gathers, tensor and "
      "context collectives, launches) and adds the rows that the fullest rank receives at most. "
      "Published figures are near the fast end, first runs of other software near or beyond the "
      "slow one",
      "exposed_exchange, host, experts, --routing",
      NULL },
};

static const struct topic *find(const char *name)
{
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        for (int n = 0; n < TOPIC_NAMES && topics[i].names[n]; n++)
            if (strcmp(topics[i].names[n], name) == 0)
                return &topics[i];
    return NULL;
}

bool topic_explain(const char *name, const struct prediction *prediction, struct json *ret)
{
    const struct topic *topic = find(name);
    if (!topic)
        return false;
    json_put_text(ret, "kind", "topic");
    json_put_text(ret, "name", name);
    json_put_text(ret, "meaning", topic->meaning);
    json_put_text(ret, "here", topic->here);
    json_put_text(ret, "see", topic->see);
    if (topic->in_plan && prediction)
        json_put(ret, "in_this_plan", topic->in_plan(prediction));
    return true;
}

const char *topic_name(size_t i)
{
    for (size_t t = 0; t < sizeof topics / sizeof *topics; t++)
        for (int n = 0; n < TOPIC_NAMES && topics[t].names[n]; n++)
            if (i-- == 0)
                return topics[t].names[n];
    return NULL;
}
