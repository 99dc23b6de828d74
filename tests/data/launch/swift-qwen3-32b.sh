# Ran on 8 GPUs of 80 GiB: ms-swift, examples/megatron/dense/qwen3_32b.sh
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-32B --tensor_model_parallel_size 8 \
    --sequence_parallel true --micro_batch_size 1 --global_batch_size 16 --max_length 8192 \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 \
    --cross_entropy_loss_fusion true --packing true
