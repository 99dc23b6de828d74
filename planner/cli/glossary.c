#include "planner/cli/glossary.h"

static const char step_tables[] = "ARCHITECTURE.md, The training step, tensor by tensor";
static const char state_table[] = "ARCHITECTURE.md, State";
static const char units_section[] = "ARCHITECTURE.md, Units under fsdp";
static const char hardware_source[] = "the hardware file, measured";

const char *const formula_symbols =
    "N parameters of the rank's parts, n_shards ranks that share one copy of them, T local tokens "
    "of a micro-batch, H hidden, Q query width, K key and value width, V vocabulary, k experts a "
    "token, E experts, f expert width, F dense width, S = T k rows sent, R rows received, L layers "
    "of the stage, m micro-batches in flight, g bytes of grad_dtype";

const struct item_formula item_formulas[ITEM_COUNT] = {
    [ITEM_WEIGHTS] = { "2 N, divided by n_shards under fsdp", state_table },
    [ITEM_MASTER] = { "4 N / n_shards; undivided under replicated", state_table },
    [ITEM_MOMENTS] = { "8 N / n_shards; undivided under replicated", state_table },
    [ITEM_GRADIENTS] = { "g N, divided by n_shards under fsdp", state_table },
    [ITEM_REFERENCE_WEIGHTS] = { "2 N, divided by n_shards under fsdp; rl=reference only, none "
                                 "where its weights live on the host",
                                 "ARCHITECTURE.md, Reinforcement learning" },
    [ITEM_CHECKPOINTS] = { "2 T H L m", step_tables },
    [ITEM_LAYER_SAVED] = { "the kept tensors of layers without recompute, times m", step_tables },
    [ITEM_LAYER_WORKING] = { "the largest sum of tensors alive at one step of a layer, with the "
                             "gradient stream 2 T H",
                             step_tables },
    [ITEM_GATHERED_WEIGHTS] = { "2 N_unit of the current unit and of prefetch_units more",
                                units_section },
    [ITEM_GATHERED_GRADIENTS] = { "g N_unit (1 + 1 / n_shards), twice the full buffer with two "
                                  "streams",
                                  units_section },
    [ITEM_KV_GATHER] = { "2 x 2 seq K keys and values, and their gradients", step_tables },
    [ITEM_DISPATCH_SEND] = { "S (2 H + 4), or R 2 H on the way back; none when ep is 1",
                             step_tables },
    [ITEM_DISPATCH_RECV] = { "R (2 H + 4), or S 2 H on the way back; none when ep is 1",
                             step_tables },
    [ITEM_EXPERT_WORKING] = { "R (2 H + 8), 2 R 2 f, 2 R f and 2 R H as they are alive",
                              step_tables },
    [ITEM_PIPELINE_BUFFERS] = { "2 T H for each transfer in flight; none when pp is 1",
                                step_tables },
    [ITEM_INPUTS] = { "8 T m; under rl 4 T m more for advantages and for each pass", step_tables },
    [ITEM_LOGITS] = { "T V / tp x bytes of logits_dtype, loss=full only", step_tables },
    [ITEM_LOSS_WORKING] = { "3 x 2 T H, and tiles of t = min(T, 512) tokens: 6 t V; in strips of "
                            "w: 6 t w + 4 t H + 4 T; rl=entropy: 4 t V or 4 t w more",
                            step_tables },
    [ITEM_COMMUNICATORS] = { "first + (count - 1) next + channels channel_bytes + peers peer_bytes",
                             hardware_source },
    [ITEM_CONTEXT] = { "context_bytes", hardware_source },
    [ITEM_MODULES] = { "modules_bytes", hardware_source },
    [ITEM_WORKSPACE] = { "workspace_bytes, and the scratch of attention's backward", step_tables },
    [ITEM_SLACK] = { "extent less live bytes: room for routed rows that did not come, and what "
                     "packing "
                     "leaves between tensors",
                     "measured by the executor" },
};

const char *const category_meanings[CATEGORY_COUNT] = {
    [CATEGORY_STATIC] = "weights, master weights, moments and gradients: there for the whole step",
    [CATEGORY_DYNAMIC] = "what a step makes and releases: from checkpoints to dispatched rows",
    [CATEGORY_LOGITS] = "the loss side: logits and what computes the loss from them",
    [CATEGORY_COMMUNICATION] = "what communicators hold on the device",
    [CATEGORY_RUNTIME] = "context, modules, library workspaces, slack of the allocator",
};

const char *const moment_meanings[MOMENT_COUNT] = {
    [MOMENT_FIRST_STEP] = "the first step of an engine that makes the moments in its first "
                          "optimizer step: a steady one without them until then",
    [MOMENT_STEADY] = "every step from the second on: the peak of the budget",
    [MOMENT_SAVE] = "writing the weights: what stays between steps, and rank 0's copies, unit by "
                    "unit in host memory",
    [MOMENT_RESUME] = "reading weights and state, before the first step: what stays, and a buffer "
                      "for slices",
    [MOMENT_LOGPROB] =
        "log-probabilities of reinforcement learning: forward passes before the step, "
        "of the policy as it was and of the reference model",
};

const char *const time_item_meanings[TIME_ITEM_COUNT] = {
    [TIME_MATMUL] = "dense matrix products: forward, replay and backward",
    [TIME_EXPERTS] = "expert matrix products at the fullest rank",
    [TIME_ATTENTION] = "softmax attention, forward, replay and backward",
    [TIME_LINEAR_ATTENTION] = "gated delta net, forward, replay and backward",
    [TIME_ELEMENTWISE] = "norms, activations, permutations, router: bound by memory bandwidth",
    [TIME_LOSS] = "head and loss, logits computed again where they are streamed",
    [TIME_EXPOSED_GATHER] = "gathers and reduce-scatters of units that do not hide behind compute",
    [TIME_EXPOSED_EXCHANGE] = "dispatch and combine that do not hide behind expert products",
    [TIME_EXPOSED_CONTEXT] = "gathers of keys and values, head splits, passing of states, reorder",
    [TIME_EXPOSED_TENSOR] = "collectives of tensor parallelism",
    [TIME_EXPOSED_OFFLOAD] =
        "checkpoints on their way to host memory and back, beyond what a layer's computation hides",
    [TIME_PIPELINE] = "transfers between pipeline stages",
    [TIME_BUBBLE] = "stages that wait: (P - 1) / (m + P - 1) of the step",
    [TIME_REDUCE] = "reduction of gradients at the end of the step",
    [TIME_OPTIMIZER] = "AdamW over the rank's shard: bound by memory bandwidth",
    [TIME_LOGPROBS] = "log-probabilities by the policy as it was and by the reference model",
    [TIME_HOST] = "kernel launches that outlast the kernels they start",
};

const struct primitive_info primitive_infos[] = {
    { "sharding", "replicated", "every rank of a data-parallel group holds all state" },
    { "sharding", "zero1",
      "master weights and moments are split over the shard group; weights and "
      "gradients are resident" },
    { "sharding", "zero2",
      "as zero1, and gradients are split too; weights stay whole, as where an engine does not "
      "reshard after forward" },
    { "sharding", "fsdp",
      "all state is split; a unit (a layer, the embedding, the head) is "
      "gathered when it is needed" },
    { "recompute", "none", "what backward needs is kept from forward" },
    { "recompute", "selective",
      "core attention is computed again in backward, which saves nothing: fused attention keeps no "
      "scores, so 5 a s / h of the sum 34 + 5 a s / h (heads a, sequence s, hidden h; Korthikanti "
      "et al. 2022) is not there to save, and what norms and activations made is made again "
      "without it" },
    { "recompute", "full", "only each layer's input is kept; backward replays the layer" },
    { "keep_attention", "1",
      "of a recomputed layer attention's outputs and log-sum-exps are kept as well, and its replay "
      "does not attend again: what grows with the square of the sequence is computed once" },
    { "loss", "full", "logits of all local tokens are materialized" },
    { "loss", "linear_ce", "logits are streamed in tiles and never whole" },
    { "loss", "ring_dtp",
      "the vocabulary is split over ranks with distinct batches; its shards "
      "circulate" },
    { "moe", "plain", "dispatch, expert products, combine, one after the other" },
    { "moe", "chunked", "token chunks on two streams, so that exchanges hide behind products" },
    { "moe", "capped", "tokens a source sends per chunk are bounded" },
    { "context", "none", "one rank holds the whole sequence" },
    { "context", "allgather_kv", "every rank gathers the keys and values of the sequence" },
    { "context", "ulysses", "an exchange turns a split of the sequence into a split of heads" },
    { "context", "ring", "keys and values travel around the ranks" },
    { "context", "hierarchical", "heads are split inside a domain, the ring runs between domains" },
    { "linear_context", "none", "one rank holds the whole sequence" },
    { "linear_context", "head_split", "an exchange gives each rank some heads of all tokens" },
    { "linear_context", "state_pass", "each rank hands the recurrent state to the next" },
    { "optimizer", "adamw", "two moments a trained weight" },
    { "optimizer", "muon",
      "matrices of the layers have one moment, which five Newton-Schulz iterations orthogonalize; "
      "embedding, head, norms, vectors and router stay with AdamW" },
    { "master", "fp32", "trained weights are kept in fp32 beside their bf16 copies" },
    { "master", "none", "updates are rounded, stochastically, into the bf16 weights" },
    { "lora_targets", "attention", "adapters beside the projections of all mixers" },
    { "lora_targets", "mlp", "adapters beside dense MLPs and shared experts" },
    { "lora_targets", "experts", "adapters beside every routed expert, each its own" },
    { "offload", "checkpoints", "layer inputs wait in pinned host memory" },
    { "offload", "optimizer",
      "master weights and moments live in host memory and are streamed in "
      "buckets" },
    { "rl", "old",
      "a forward before the step gives the log-probabilities of the policy as it was" },
    { "rl", "reference", "a forward of the reference model gives its log-probabilities" },
    { "rl", "entropy",
      "those passes and the loss also make the entropy over the whole vocabulary, by tiles" },
    { "reference_weights", "resident",
      "the reference model stays on the device, sharded as the policy" },
    { "reference_weights", "host",
      "the host holds the reference model; its units pass through room for two" },
    { "packing", "row", "each piece to a multiple of 2 x cp (of 1 without cp), the row to tp" },
    { "packing", "piece", "each piece to a multiple of cp x lcm(2, tp) (of tp without cp)" },
};
const size_t primitive_info_count = sizeof primitive_infos / sizeof *primitive_infos;
