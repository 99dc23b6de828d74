#!/bin/bash
# A launch of Megatron-LM as its examples write them: arrays, defaults, a variable from outside.
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"4"}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
DATA_PATH=$1

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
    --master_addr ${MASTER_ADDR:-"localhost"}
)
MODEL_ARGS=(
    --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144
    --num-attention-heads 32 --group-query-attention --num-query-groups 4 --kv-channels 128
    --qk-layernorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights
    --normalization RMSNorm --norm-epsilon 1e-6 --rotary-base 1000000
    --vocab-size 151936 --max-position-embeddings 40960
    --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 # no shared expert
)
TRAINING_ARGS=(
    --seq-length 4096
    --micro-batch-size 1
    --global-batch-size 256
    --lr 1e-4
    --bf16
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
    --cross-entropy-loss-fusion
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 2
    --expert-model-parallel-size 8
    --expert-tensor-parallel-size 1
    --use-distributed-optimizer
    --sequence-parallel
)
if [ -n "${WANDB_API_KEY}" ]; then
    LOGGING_ARGS=(--wandb-project moe)
fi

torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    ${PARALLEL_ARGS[@]} \
    ${LOGGING_ARGS[@]} \
    --data-path $DATA_PATH \
    --new-switch-of-tomorrow 3
