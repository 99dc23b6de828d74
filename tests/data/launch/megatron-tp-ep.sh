# Rejected by Megatron: experts under tensor parallelism without sequence parallelism, issue 1587
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \
    --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \
    --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --normalization RMSNorm \
    --vocab-size 32000 --num-experts 8 --moe-router-topk 2 --seq-length 2048 \
    --micro-batch-size 1 --global-batch-size 16 --bf16 --use-distributed-optimizer \
    --tensor-model-parallel-size 2 --expert-model-parallel-size 4
