# Ran out of memory on eight A100 of 40 GB, sequences of 64 tokens: Megatron-LM, issue 606
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \
    --ffn-hidden-size 11008 --num-attention-heads 32 --swiglu --disable-bias-linear \
    --untie-embeddings-and-output-weights --normalization RMSNorm --vocab-size 32000 \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --seq-length 64 \
    --micro-batch-size 1 --global-batch-size 8 --bf16 --use-distributed-optimizer
