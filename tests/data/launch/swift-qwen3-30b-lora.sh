# Ran with 62 GiB per GPU: ms-swift, examples/megatron/lora/moe.sh
NPROC_PER_NODE=2 megatron sft --model Qwen/Qwen3-30B-A3B --tuner_type lora --lora_rank 8 \
    --target_modules all-linear --expert_model_parallel_size 2 --micro_batch_size 8 \
    --global_batch_size 16 --max_length 2048 --sequence_parallel true \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1
