# Ran on eight GPUs of 80 GiB: ms-swift, examples/megatron/lora/qwen3_235b.sh
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-235B-A22B-Instruct-2507 --tuner_type lora \
    --lora_rank 8 --target_modules all-linear --tensor_model_parallel_size 4 \
    --expert_tensor_parallel_size 1 --expert_model_parallel_size 8 --micro_batch_size 8 \
    --global_batch_size 16 --max_length 2048 --sequence_parallel true \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1
