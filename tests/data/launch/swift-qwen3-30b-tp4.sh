# Ran with 76 GiB per GPU on eight GPUs: ms-swift, examples/megatron/mcore_bridge/full/moe.sh
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B-Instruct-2507 \
    --tensor_model_parallel_size 4 --pipeline_model_parallel_size 2 \
    --decoder_first_pipeline_num_layers 25 --expert_model_parallel_size 4 --micro_batch_size 1 \
    --global_batch_size 4 --max_length 8192 --sequence_parallel true \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 \
    --moe_expert_capacity_factor 2
