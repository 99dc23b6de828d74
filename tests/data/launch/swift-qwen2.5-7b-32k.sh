# Ran with 50 GB per GPU on four A100: ms-swift, examples/megatron/long_text.sh
NPROC_PER_NODE=4 megatron sft --model Qwen/Qwen2.5-7B --tensor_model_parallel_size 4 \
    --sequence_parallel true --micro_batch_size 1 --global_batch_size 8 --max_length 32768 \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 --packing true
