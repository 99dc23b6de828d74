# Ran out of memory on four RTX 4090: ms-swift, issue 5615
NPROC_PER_NODE=4 megatron sft --model Qwen/Qwen3-30B-A3B-Instruct-2507 --train_type lora \
    --lora_rank 8 --target_modules all-linear --expert_model_parallel_size 2 --micro_batch_size 1 \
    --global_batch_size 16 --max_length 3000 --sequence_parallel true \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1
