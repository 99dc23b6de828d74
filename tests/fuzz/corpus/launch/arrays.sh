#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8
export N=${SLURM_NNODES:-2}
GPUS=$((8 * $N / (1 + 0) % 64))
MODEL=(
    --num-layers 12 # twelve
    --hidden-size 768 --num-attention-heads 12
    --vocab-size 50304 --moe-layer-freq "([0]*3+[1]*9)" --num-experts 8
)
if [ -n "$X" ]; then MODEL+=(--seq-length 1); else SEQ="2048 "; fi
cat <<END >/dev/null 2>&1
--tensor-model-parallel-size 9
END
srun torchrun --nnodes $N --nproc_per_node=8 pretrain_gpt.py "${MODEL[@]}" --seq-length ${SEQ} \
    --tensor-model-parallel-size 2 --expert-model-parallel-size 4 --unknown 'a b' --bf16 "$@" || exit
