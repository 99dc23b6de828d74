# Ran with 60 GiB per GPU on 16 GPUs: ms-swift, examples/megatron/moe/qwen3_moe.sh
NNODES=2 NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B-Base \
    --pipeline_model_parallel_size 2 --expert_model_parallel_size 8 --micro_batch_size 1 \
    --global_batch_size 16 --max_length 8192 --sequence_parallel true --packing true \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1
