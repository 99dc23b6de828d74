# Ran on eight H100: slime, scripts/run-qwen3-30B-A3B.sh
PERF_ARGS=(
    --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 1
    --context-parallel-size 1 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
    # --micro-batch-size 1
    --use-dynamic-batch-size --max-tokens-per-gpu 20480
)
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py \
    --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate --hf-checkpoint /root/Qwen3-30B-A3B \
    --rollout-max-response-len 8192 --global-batch-size 256 --use-kl-loss \
    --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d --use-precision-aware-optimizer \
    ${PERF_ARGS[@]}
