NPROC_PER_NODE=8 NNODES=2 bash -c "cd /x; megatron sft --model Qwen/Qwen3-8B --max_length 8192 \
 --tuner_type lora --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 --sequence_parallel true"
