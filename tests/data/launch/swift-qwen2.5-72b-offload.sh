# Ran with 65 GiB per GPU: ms-swift, examples/megatron/dense/72b_offload.sh
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-72B-Instruct --tensor_model_parallel_size 8 \
    --sequence_parallel true --micro_batch_size 1 --global_batch_size 16 --max_length 8192 \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 \
    --optimizer_cpu_offload true --use_precision_aware_optimizer true \
    --optimizer_offload_fraction 1 --packing true
