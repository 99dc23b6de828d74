#!/bin/sh
# Plans, runs and compares layouts on one or two GPUs and prints a line for each: predicted and measured device
# figure, their difference in percent of the device and of what comes and goes, predicted and measured seconds.
# Rows stay in OUT: NAME.command, NAME.plan.json, NAME.json. A row whose NAME.json is there is not run again, so
# that a matrix that was ended goes on where it was. GPUS 2: rows of one GPU run side by side, one a GPU, then those
# of two. GPUS 0: plans only, with what they predict. store.py makes OUT the stored rows of tests/data/measured.
#     tests/bench/cuda/matrix.sh BUILD OUT GPUS [NAME...]      (NAME: only these rows)
#     tests/bench/cuda/matrix.sh --names
# shellcheck disable=SC2086 # options are words
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
set -u
build=$1
out=${2:-}
gpus=${3:-names}
if [ $# -gt 3 ]; then shift 3; else set --; fi
only=$*
hardware=${HARDWARE:-h200}

steps=4
# shellcheck source=tests/bench/cuda/rows.sh
. "$(dirname "$0")/rows.sh"

moe="--model qwen3-30b-a3b"
small="$moe --set model.moe.experts=32"
dense="--model qwen3-0.6b"
oss="$moe --set model.hidden=2880 --set model.heads=64 --set model.kv_heads=8 --set model.head_dim=64"
oss="$oss --set model.moe.experts=32 --set model.top_k=4 --set model.moe.width=2880"
vocab="--set model.vocab"
hybrid="--model qwen3.5-35b-a3b $vocab=32768"
few="$hybrid --set model.moe.experts=32"
plain="--set moe=plain"
chunks="--set moe=chunked --set moe_chunks"
full="--set recompute=full --set keep_attention=0"
none="--set recompute=none"
ordered="--set attention_deterministic=1"
kept="--set recompute=full --set keep_attention=1"
layers="--set model.layers"

rows_of_one() {
    world=1
    row moe1-4k $moe $layers=4 --seq 4K $full
    row moe1-4k-micro4 $moe $layers=4 --seq 4K --global-batch 4 $full
    row moe1-16k-none $moe $layers=4 --seq 16K $none
    row moe1-32k $moe $layers=4 --seq 32K $full $plain
    row moe1-32k-chunks $moe $layers=4 --seq 32K $full $chunks=4
    row moe1-11layers $moe $layers=11 --seq 8K $full --set grad_dtype=bf16
    row moe1-natural $moe $layers=4 --seq 32K $full --routing natural
    row oss1-16k $oss $vocab=201088 $layers=3 --seq 16K $full
    row moe1-1layer-128k-batch2 $moe $layers=1 --seq 128K --micro-batch 2 $full $plain
    row moe1-1layer-64k-batch4-none $moe $layers=1 --seq 64K --micro-batch 4 $none $chunks=3
    row moe1-1layer-full-loss $moe $layers=1 --seq 32K --set loss=full $full
    row moe1-2layers-none-chunks $moe $layers=2 --seq 64K --micro-batch 2 $none $chunks=4
    row small1-64k $small $vocab=32768 $layers=2 --seq 64K $full $plain
    row small1-64k-natural $small $vocab=32768 $layers=2 --seq 64K --micro-batch 2 $full $chunks=2 --routing natural
    row small1-32k-none-bf16 $small $vocab=32768 $layers=4 --seq 32K $none $chunks=2 --set grad_dtype=bf16
    row small1-16k-micro4 $small $vocab=32768 $layers=3 --seq 16K --micro-batch 2 --global-batch 8 $none $chunks=3
    row small1-hot $small $vocab=32768 $layers=2 --seq 64K $full $plain --routing 80:4
    row small1-128k-half $small $vocab=32768 $layers=2 --seq 128K $full --set recompute_layers=1 $plain
    row oss1-128k $oss $vocab=201088 $layers=1 --seq 128K --micro-batch 2 $full $plain
    row oss1-32k-none $oss $vocab=32768 $layers=1 --seq 32K --micro-batch 4 $none $plain
    row moe1-64k-attention $moe $layers=4 --seq 64K $plain --set grad_dtype=bf16 $kept
    row moe1-32k-chunks-attention $moe $layers=2 --seq 32K $chunks=2 $kept --set recompute_layers=1
    row moe1-16k-ordered $moe $layers=2 --seq 16K $full $plain $ordered
    row moe1-32k-ordered $moe $layers=1 --seq 32K $full $plain $ordered
    row dense1-16k-none $dense --seq 16K $none
    row dense1-32k $dense --seq 32K $full
    row dense1-32k-none $dense --seq 32K $none
    row dense1-32k-full-loss $dense --seq 32K --set loss=full $full
    row dense1-64k $dense --seq 64K $full --set recompute_layers=14
    row dense1-4k-batch16 $dense --seq 4K --micro-batch 8 --global-batch 16 $none --set grad_dtype=bf16
    row hybrid1-32k $hybrid $layers=4 --seq 32K $full $plain
    row hybrid1-64k-attention $hybrid $layers=4 --seq 64K $kept --set grad_dtype=bf16
    row hybrid1-4k-micro2 $hybrid $layers=4 --seq 4K --micro-batch 4 --global-batch 8 $none
    row hybrid1-128k $hybrid $layers=2 --seq 128K $full $chunks=4
    row hybrid1-64k-half $hybrid $layers=4 --seq 64K --set recompute_layers=2 $full $chunks=2
    row hybrid1-32k-hot $hybrid $layers=3 --seq 32K $full $plain --routing 80:4
    row hybrid1-32k-natural $hybrid $layers=3 --seq 32K $none $chunks=2 --routing natural
    row hybrid1-8k-micro4 $hybrid $layers=3 --seq 8K --micro-batch 2 --global-batch 8 $none $plain
    row hybrid1-7layers $hybrid $layers=7 --seq 16K $full
    row hybrid1-8layers-bf16 $hybrid $layers=8 --seq 32K $full --set grad_dtype=bf16
    row hybrid1-1layer-64k-none $hybrid $layers=1 --seq 64K $none $plain
    row hybrid1-full-loss $hybrid $layers=4 --seq 16K $kept --set loss=full
    row few1-64k-none $few $layers=2 --seq 64K $none $plain
    row few1-128k-none $few $layers=1 --seq 128K $none $plain
    row few1-64k-4layers $few $layers=4 --seq 64K $none $chunks=2
    row few1-32k-micro4 $few $layers=4 --seq 32K --micro-batch 2 --global-batch 8 $none $plain
    row few1-64k-natural $few $layers=3 --seq 64K $none $chunks=2 --routing natural
    row few1-64k-hot $few $layers=3 --seq 64K $none $plain --routing 80:4
    row few1-128k-half $few $layers=4 --seq 128K --set recompute_layers=2 $full $plain
    row few1-128k $few $layers=4 --seq 128K $full $chunks=4
    row few1-128k-attention $few $layers=4 --seq 128K $kept $plain
    row few1-16k-8layers $few $layers=8 --seq 16K --micro-batch 4 $none $plain --set grad_dtype=bf16
    row few1-64k-full-loss $few $layers=2 --seq 64K --set loss=full $none $plain
    row few1-64k-batch2 $few $layers=2 --seq 64K --micro-batch 2 $full $chunks=2
    row hybriddense1-32k-none --model qwen3.5-27b $vocab=32768 $layers=2 --seq 32K $none
    row next1-64k-none --model qwen3-next-80b-a3b $vocab=32768 --set model.moe.experts=32 $layers=2 --seq 64K $none $plain
    row next1-16k --model qwen3-next-80b-a3b $vocab=32768 $layers=4 --seq 16K $full
    row hybriddense1-16k --model qwen3.5-27b $vocab=32768 $layers=4 --seq 16K $none
    row hybriddense1-64k --model qwen3.5-27b $vocab=32768 $layers=4 --seq 64K $full
}

rows_of_two() {
    world=2
    ep1="--set tp=1 --set pp=1 --set cp=1 --set ep=1"
    ep2="--set tp=1 --set pp=1 --set cp=1 --set ep=2"
    cp2="--set tp=1 --set pp=1 --set cp=2 --set ep"
    row moe2-32k $moe $layers=6 --seq 32K $ep2 $full $plain
    row moe2-32k-chunks $moe $layers=6 --seq 32K $ep2 $full $chunks=2 --set wgrad_delay=1
    row moe2-32k-copy $moe $layers=6 --seq 32K $ep2 $full $chunks=4 --set exchange=copy
    row moe2-32k-natural $moe $layers=6 --seq 32K $ep2 $full $plain --routing natural
    row moe2-zero1 $moe $layers=6 --seq 32K $ep1 --set sharding=zero1 $full $plain
    row moe2-ep1 $moe $layers=6 --seq 32K $ep1 --set sharding=fsdp $full $plain --set comm_streams=1
    row moe2-bf16 $moe $layers=6 --seq 32K $ep2 --set grad_dtype=bf16 $full
    row moe2-cp2 $moe $layers=6 --seq 64K $cp2=2 $full
    row moe2-cp2-128k $moe $layers=4 --seq 128K $cp2=2 $full $chunks=4
    row moe2-cp2-attention $moe $layers=3 --seq 128K $cp2=2 $plain $kept
    row moe2-cp2-ordered $moe $layers=2 --seq 64K $cp2=2 $full $plain $ordered
    row moe2-micro4 $moe $layers=6 --seq 8K --global-batch 8 $ep2 $none
    row moe2-22layers $moe $layers=22 --seq 16K $ep2 $full
    row oss2-16k $oss $vocab=201088 $layers=6 --seq 16K $ep2 $full
    row moe2-2layers-64k $moe $layers=2 --seq 64K $cp2=2 $full $chunks=4
    row moe2-2layers-none $moe $layers=2 --seq 64K --micro-batch 2 $ep2 $none $plain
    row moe2-2layers-full-loss $moe $layers=2 --seq 32K $ep2 --set loss=full $plain $full
    row moe2-2layers-hot $moe $layers=2 --seq 64K --micro-batch 2 $ep2 --routing 80:4 $plain $none
    row moe2-1layer-128k $moe $layers=1 --seq 128K --micro-batch 2 $ep2 $full $chunks=3
    row moe2-2layers-128k-cp2-none $moe $layers=2 --seq 128K $cp2=2 $none $plain
    row small2-64k-natural $small $vocab=32768 $layers=3 --seq 64K --micro-batch 2 $ep2 $full $chunks=2 --routing natural
    row small2-64k-hot-none $small $vocab=32768 $layers=2 --seq 64K $ep2 $none $plain --routing 80:4
    row small2-zero1-none $small $vocab=32768 $layers=4 --seq 32K $ep1 --set sharding=zero1 $none $chunks=2
    row small2-full-loss-cp2 $small $layers=2 --seq 64K $cp2=2 --set loss=full $full $plain
    row oss2-1layer-none $oss $vocab=201088 $layers=1 --seq 64K --micro-batch 2 $ep2 $none $plain
    row dense2-32k-attention $dense --seq 32K $ep1 --set sharding=fsdp $kept
    row dense2-8k-ordered $dense $layers=14 --seq 8K --micro-batch 2 $ep1 $none --set sharding=fsdp $ordered
    row dense2-32k $dense --seq 32K $ep1 $full --set sharding=fsdp
    row dense2-32k-none $dense --seq 32K $ep1 $none --set sharding=zero1
    row dense2-64k-cp2-none $dense --seq 64K $cp2=1 $none
    row dense2-16k-micro2 $dense --seq 16K --global-batch 4 $ep1 $none --set sharding=fsdp --set grad_dtype=bf16
}

# Rows side by side: a row is its who first makes its claim.
if [ "$gpus" = names ]; then
    rows_of_one
    rows_of_two
    exit
fi
mkdir -p "$out"
rm -rf "$out"/*.claim
for device in 0 1; do
    [ "$device" -lt "$gpus" ] || [ "$device$gpus" = 00 ] || continue
    (CUDA_VISIBLE_DEVICES=$device && export CUDA_VISIBLE_DEVICES && rows_of_one) &
done
wait
[ "$gpus" -eq 1 ] || rows_of_two
rm -rf "$out"/*.claim
