# Ran with 75 GiB per GPU on four GPUs: ms-swift, examples/megatron/moe/qwen3_moe_offload.sh
NPROC_PER_NODE=4 megatron sft --model Qwen/Qwen3-30B-A3B-Base --expert_model_parallel_size 4 \
    --micro_batch_size 1 --global_batch_size 16 --max_length 8192 --sequence_parallel true \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 \
    --optimizer_cpu_offload true --use_precision_aware_optimizer true --optimizer_offload_fraction 1
