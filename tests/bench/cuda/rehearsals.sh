#!/bin/sh
# On two GPUs: layouts run by both, then each rank rehearsed alone, a GPU each; and ranks of worlds of 32, rehearsed
# within the memory of their machines; and rank 0 of every plan that ranks.sh has for eight GPUs, to know before there
# are eight how much it holds. Leaves NAME.plan.json, NAME.json (the run), NAME.rR.json (rank R rehearsed) and
# NAME.command in OUT. rehearsals.py reads them: where they differ, and with --store the rows of
# tests/data/measured/rehearsals.
#     tests/bench/cuda/rehearsals.sh BUILD OUT [NAME...]
# shellcheck disable=SC2086 # options are words
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
set -u
build=$1
out=$2
shift 2
only=$*
mkdir -p "$out"

wanted() {
    [ -z "$only" ] && return 0
    case " $only " in *" $1 "*) return 0 ;; *) return 1 ;; esac
}

# complain LOG...
complain() {
    grep -h -m 2 -E "error:|hint:" "$@"
}

# both NAME REHEARSAL_OPTIONS PLAN_OPTIONS...
both() {
    name=$1
    extra=$2
    shift 2
    wanted "$name" || return 0
    echo "rankfit plan $*; rankfit run --steps 5; rankfit rehearse --rank R --steps 5 $extra" >"$out/$name.command"
    "$build/rankfit" plan "$@" -o "$out/$name.plan.json" >"$out/$name.log" 2>&1
    timeout 90 "$build/rankfit" run "$out/$name.plan.json" --steps 5 -o "$out/$name.json" >>"$out/$name.log" 2>&1 ||
        complain "$out/$name.log"
    [ "$extra" = --replay-rows ] && extra="--replay-rows $out/$name.json"
    for rank in 0 1; do
        CUDA_VISIBLE_DEVICES=$rank timeout 90 "$build/rankfit" rehearse "$out/$name.plan.json" --rank $rank $extra \
            --steps 5 -o "$out/$name.r$rank.json" >"$out/$name.r$rank.log" 2>&1 || complain "$out/$name.r$rank.log" &
    done
    wait
}

# one GPU NAME RANK PLAN_OPTIONS...: an own world's memory is the limit
one() {
    gpu=$1
    name=$2
    rank=$3
    shift 3
    wanted "$name" || return 0
    echo "rankfit plan $*; rankfit rehearse --rank $rank --steps 2 --memory-limit h100-sxm" >"$out/$name.command"
    "$build/rankfit" plan "$@" -o "$out/$name.plan.json" >"$out/$name.log" 2>&1
    CUDA_VISIBLE_DEVICES=$gpu timeout 180 "$build/rankfit" rehearse "$out/$name.plan.json" --rank "$rank" --steps 2 \
        --memory-limit h100-sxm -o "$out/$name.r$rank.json" >"$out/$name.r$rank.log" 2>&1 ||
        complain "$out/$name.r$rank.log"
}

# eight GPU: the GPU takes plan after plan. One step of long ones, of the others the second counts.
eight() {
    gpu=$1
    for name in $eights; do
        wanted "$name" || continue
        mkdir "$out/$name.claim" 2>/dev/null || continue
        cp "$plans/$name.plan.json" "$out/"
        steps=$(python3 -c 'import json, sys; s = json.load(open(sys.argv[1]))["recommended"]["step"]["seconds"]
print(2 if s < 4 else 1)' "$out/$name.plan.json")
        echo "$(cat "$plans/$name.command"); rankfit rehearse --rank 0 --steps $steps" >"$out/$name.command"
        CUDA_VISIBLE_DEVICES=$gpu timeout 120 "$build/rankfit" rehearse "$out/$name.plan.json" --rank 0 \
            --steps "$steps" -o "$out/$name.r0.json" >"$out/$name.log" 2>&1 || complain "$out/$name.log"
        rmdir "$out/$name.claim"
    done
}

moe="--model qwen3-30b-a3b --hardware h200 --gpus 2 --set tp=1 --set pp=1 --set ep=2 --set recompute=full"
both serial "" $moe --set model.layers=6 --seq 32K --set moe=plain --set prefetch_units=0 --set comm_streams=1 \
    --set exchange=sm
both zero1 "" $moe --set model.layers=4 --seq 16K --global-batch 4 --set sharding=zero1 --set moe=plain \
    --set prefetch_units=0 --set comm_streams=1 --set exchange=sm
both chunks --replay-rows $moe --set model.layers=6 --seq 32K --set moe=chunked --set moe_chunks=4 --routing natural \
    --set exchange=sm
both cp2 "" $moe --set model.layers=3 --seq 64K --set cp=2 --set moe=plain --routing 80:4 --set exchange=sm
both copy "" $moe --set model.layers=4 --seq 32K --set moe=chunked --set moe_chunks=2 --set exchange=copy

world="--model qwen3-30b-a3b --hardware h100-sxm --gpus 32 --seq 128K --global-batch 8 --set tp=1 --set pp=1"
world="$world --set ep=8 --set cp=4 --set recompute=full"
one 0 world32 31 $world &
one 1 world32-hot 0 $world --routing 80:4 &
wait

# Qwen3.5-35B-A3B, all 40 layers, 32 GPUs at 128K: as planned, both forms of its delta nets' context, and other layouts
article="--model qwen3.5-35b-a3b --hardware h100-sxm --gpus 32 --seq 128K --set tp=1 --set pp=1"
one 0 article-heads 31 $article --set ep=8 --set cp=4 --set linear_context=head_split
one 0 article-states 31 $article --set ep=8 --set cp=4 --set linear_context=state_pass
one 0 article-one 31 $article --set ep=1 --set cp=1
one 0 article-full 31 $article --set ep=8 --set cp=4 --set recompute=full --set keep_attention=0
one 0 article-fullest 0 $article --set ep=8 --set cp=4

here=$(dirname "$0")
plans=$(mktemp -d)
eights=$(sh "$here/ranks.sh" --names | grep '^rows8-')
wants=
for name in $eights; do
    wanted "$name" && wants="$wants $name"
done
if [ -n "$wants" ]; then
    # shellcheck disable=SC2086
    sh "$here/ranks.sh" "$build" "$plans" 0 540 $wants >"$out/eight.log" 2>&1
    eight 0 &
    eight 1 &
    wait
fi
rm -rf "$plans"
