#!/bin/bash
# Qwen3-30B-A3B on 32 x H100 SXM, plan 6059ec763717883f, for Megatron Core 0.15
# predicted peak 82.22 GB per rank
torchrun --nnodes 4 --nproc-per-node 8 --node-rank "${NODE_RANK:-0}" \
    --master-addr "${MASTER_ADDR:-localhost}" --master-port "${MASTER_PORT:-29500}" \
    pretrain_gpt.py \
    --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 1 \
    --context-parallel-size 1 \
    --expert-model-parallel-size 1 \
    --expert-tensor-parallel-size 1 \
    --micro-batch-size 1 \
    --global-batch-size 32 \
    --seq-length 16384 \
    --use-megatron-fsdp \
    --data-parallel-sharding-strategy optim_grads_params \
    --recompute-granularity full \
    --recompute-method block \
    --recompute-num-layers 13 \
    --moe-grouped-gemm \
    --moe-token-dispatcher-type alltoall \
    --normalization RMSNorm \
    --position-embedding-type rope \
    --bf16 \
    --num-layers 48 \
    --hidden-size 2048 \
    --vocab-size 151936 \
    --untie-embeddings-and-output-weights \
    --norm-epsilon 1e-06 \
    --max-position-embeddings 40960 \
    --swiglu \
    --disable-bias-linear \
    --num-attention-heads 32 \
    --group-query-attention \
    --num-query-groups 4 \
    --kv-channels 128 \
    --qk-layernorm \
    --rotary-base 1000000 \
    --num-experts 128 \
    --moe-router-topk 8 \
    --moe-ffn-hidden-size 768 \
    "$@"
