#!/bin/sh
# Plans, runs and compares layouts on one or two GPUs and prints a line for each: predicted and measured
# device figure, their difference in percent of the device and of what comes and goes, predicted and
# measured seconds. Plans and measurements stay in OUT as NAME.plan.json and NAME.json.
#     tests/bench/cuda/matrix.sh BUILD OUT GPUS
set -u
build=$1
out=$2
gpus=$3
hardware=${HARDWARE:-h200}
mkdir -p "$out"

row() {
    name=$1
    shift
    if ! "$build/rankfit" plan --hardware "$hardware" --gpus "$gpus" "$@" -o "$out/$name.plan.json" \
        >"$out/log" 2>&1; then
        grep -q does_not_fit "$out/$name.plan.json" 2>/dev/null || { echo "$name: $(head -n 1 "$out/log")"; return; }
    fi
    if ! timeout 90 "$build/rankfit" run "$out/$name.plan.json" --steps 4 -o "$out/$name.json" \
        >"$out/log" 2>&1; then
        echo "$name: $(grep -m 1 error "$out/log")"
        return
    fi
    "$build/rankfit" compare "$out/$name.plan.json" "$out/$name.json" >"$out/log"
    echo "$name: $(grep -m 1 '^ *device' "$out/log" | tr -s ' ') | $(grep -m 1 '^step' "$out/log" | cut -c 9-) | $(grep -m 1 verdict "$out/log")"
}

moe="--model qwen3-30b-a3b"
oss="--model qwen3-30b-a3b --set model.hidden=2880 --set model.heads=64 --set model.kv_heads=8 --set model.head_dim=64 --set model.experts=32 --set model.top_k=4 --set model.moe.width=2880 --set model.vocab=201088"
full="--set recompute=full"
if [ "$gpus" -eq 1 ]; then
    row moe1-4k $moe --set model.layers=4 --seq 4K $full
    row moe1-4k-micro4 $moe --set model.layers=4 --seq 4K --global-batch 4 $full
    row moe1-16k-none $moe --set model.layers=4 --seq 16K --set recompute=none
    row moe1-16k-full-loss $moe --set model.layers=4 --seq 16K --set loss=full $full
    row moe1-32k $moe --set model.layers=4 --seq 32K $full --set moe=plain
    row moe1-32k-chunks $moe --set model.layers=4 --seq 32K $full --set moe=chunked --set moe_chunks=4
    row moe1-64k $moe --set model.layers=4 --seq 64K $full --set moe=plain
    row moe1-128k $moe --set model.layers=2 --seq 128K $full
    row moe1-natural $moe --set model.layers=4 --seq 32K $full --routing natural
    row moe1-7layers $moe --set model.layers=7 --seq 16K $full --set grad_dtype=bf16
    row dense1-32k --model qwen3-0.6b --seq 32K $full
    row dense1-16k-none --model qwen3-0.6b --seq 16K --set recompute=none
    row oss1-16k $oss --set model.layers=3 --seq 16K $full
    row moe1-1layer-128k $moe --set model.layers=1 --seq 128K $full
    row moe1-1layer-64k-none $moe --set model.layers=1 --seq 64K --set recompute=none
    row moe1-1layer-full-loss $moe --set model.layers=1 --seq 32K --set loss=full $full
    row moe1-1layer-batch4 $moe --set model.layers=1 --seq 16K --micro-batch 4 $full
    row moe1-2layers-none-chunks $moe --set model.layers=2 --seq 64K --set recompute=none --set moe=chunked --set moe_chunks=4
    row oss1-1layer-64k $oss --set model.layers=1 --seq 64K $full
    row dense1-32k-none --model qwen3-0.6b --seq 32K --set recompute=none
    row dense1-32k-full-loss --model qwen3-0.6b --seq 32K --set loss=full $full
    row dense1-64k --model qwen3-0.6b --seq 64K --set recompute=full --set recompute_layers=14
    row moe1-8layers $moe --set model.layers=8 --seq 8K $full
else
    row moe2-32k $moe --set model.layers=6 --seq 32K --set ep=2 $full --set moe=plain
    row moe2-32k-chunks $moe --set model.layers=6 --seq 32K --set ep=2 $full --set moe=chunked --set moe_chunks=2
    row moe2-32k-hot $moe --set model.layers=6 --seq 32K --set ep=2 $full --routing 80:4
    row moe2-32k-natural $moe --set model.layers=6 --seq 32K --set ep=2 $full --routing natural
    row moe2-zero1 $moe --set model.layers=6 --seq 32K --set ep=1 --set sharding=zero1 $full --set moe=plain
    row moe2-ep1 $moe --set model.layers=6 --seq 32K --set ep=1 --set sharding=fsdp $full --set moe=plain
    row moe2-bf16 $moe --set model.layers=6 --seq 32K --set ep=2 --set grad_dtype=bf16 $full
    row moe2-cp2 $moe --set model.layers=6 --seq 64K --set ep=2 --set cp=2 $full
    row moe2-cp2-128k $moe --set model.layers=4 --seq 128K --set ep=2 --set cp=2 --set moe=chunked $full
    row moe2-micro4 $moe --set model.layers=6 --seq 8K --global-batch 8 --set ep=2 --set recompute=none
    row moe2-22layers $moe --set model.layers=22 --seq 16K --set ep=2 $full
    row moe2-full-loss $moe --set model.layers=6 --seq 16K --set ep=2 --set loss=full $full
    row dense2-32k --model qwen3-0.6b --seq 32K $full --set sharding=fsdp
    row oss2-16k $oss --set model.layers=6 --seq 16K --set ep=2 $full
    row moe2-2layers-64k $moe --set model.layers=2 --seq 64K --set ep=2 $full
    row moe2-2layers-128k-cp2 $moe --set model.layers=2 --seq 128K --set ep=2 --set cp=2 --set moe=plain $full
    row moe2-2layers-hot $moe --set model.layers=2 --seq 64K --set ep=2 --routing 80:4 --set moe=plain $full
    row moe2-2layers-none $moe --set model.layers=2 --seq 32K --set ep=2 --set recompute=none --set moe=plain
    row moe2-2layers-full-loss $moe --set model.layers=2 --seq 32K --set ep=2 --set loss=full --set moe=plain $full
    row dense2-64k-cp2 --model qwen3-0.6b --seq 64K --set cp=2 --set recompute=full
    row dense2-32k-none --model qwen3-0.6b --seq 32K --set recompute=none --set sharding=zero1
    row moe2-32k-natural-chunks $moe --set model.layers=6 --seq 32K --set ep=2 --set moe=chunked --set moe_chunks=2 $full --routing natural
    row moe2-32k-cp2 $moe --set model.layers=6 --seq 32K --set ep=2 --set cp=2 $full --set moe=plain
fi
