#!/bin/sh
# The gated delta net on one GPU, by importance: its operations against the host and their definition, the same under
# compute-sanitizer, small hybrids against transformers and the host; steps of Qwen3.5's shapes, predicted and measured;
# then speed against its limits, calibration, flash-linear-attention's times where python3 finds it, and the profiler.
# Nothing is begun that may not end within SECONDS (430). OUT/results.jsonl has a line for each part and each plan,
# OUT/log.txt all that was printed, OUT/runs.tgz plans and measurements; a table of results.jsonl is shown last.
#     tests/bench/cuda/delta.sh BUILD OUT [SECONDS [NAME...]]
# shellcheck disable=SC2086,SC2317 # options are words; parts are called by name
set -u
build=$1 out=$2 deadline=$(($(date +%s) + ${3:-430}))
if [ $# -gt 2 ]; then shift 3; else shift 2; fi
only=$*
here=$(dirname "$0")
root=$(cd "$here/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1 RANKFIT_SOURCE_ROOT="$root"
export PYTHONUNBUFFERED=1 PATH="$PATH:/usr/local/cuda/bin"
ops=$build/tests/unit/cuda/test_cuda_ops
mkdir -p "$out"
: >"$out/results.jsonl"
: >"$out/log.txt"

operations() { timeout 100 "$ops" delta_input delta_rule delta_long delta_lengths; }
memcheck() { timeout 110 compute-sanitizer --tool memcheck --error-exitcode 9 "$ops" delta_input delta_rule; }
racecheck() { timeout 110 compute-sanitizer --tool racecheck --error-exitcode 9 "$ops" delta_rule; }
transformers() { timeout 80 mpirun -q --bind-to none -np 1 "$build/tests/unit/cuda/test_transformers_cuda"; }
steps() { timeout 100 sh "$here/first_run.sh" "$build" 1 hybrid hybrid-again hybrid-pair; }
speed() { timeout 60 "$build/tests/bench/cuda/bench_delta"; }
points() { timeout 100 "$build/rankfit" calibrate --hardware h200 --points "$work/h200.points.json" -o "$work/h200.yaml"; }
beside() { timeout 80 python3 -W ignore "$here/fla_delta.py"; }

# One launch of each kernel at 4,096 tokens: outputs, then those of the backward.
profile() {
    timeout 45 ncu --clock-control none --section SpeedOfLight --section WarpStateStats --section Occupancy \
        -k 'regex:squares|forward|backward|gradient' -s 24 -c 6 "$build/tests/bench/cuda/bench_delta"
}

# due NAME SECONDS: whether it was asked for and can end in time.
due() {
    case " ${only:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
    [ $(($(date +%s) + $2)) -le "$deadline" ] && return 0
    echo "{\"part\": \"$1\", \"status\": \"not begun\"}" >>"$out/results.jsonl"
    return 1
}

part() {
    begun=$(date +%s)
    "$1" >"$work/$1.txt" 2>&1
    status=$?
    echo "{\"part\": \"$1\", \"status\": $status, \"seconds\": $(($(date +%s) - begun))}" >>"$out/results.jsonl"
    { echo "== $1: status $status"; cat "$work/$1.txt"; } >>"$out/log.txt"
}

# NAME run | RANK MODEL OPTIONS: planned, run or that rank rehearsed, and compared.
step() {
    name=$1 rank=$2 model=$3
    shift 3
    due "$name" 40 || return
    log=$work/$name.txt
    "$build/rankfit" plan --model "$model" "$@" -o "$work/$name.plan.json" >"$log" 2>&1
    case $rank in
    run) how="run" ;;
    *) how="rehearse --rank $rank" ;;
    esac
    timeout 40 "$build/rankfit" $how "$work/$name.plan.json" --steps 3 -o "$work/$name.json" >>"$log" 2>&1
    status=$?
    "$build/rankfit" compare "$work/$name.plan.json" "$work/$name.json" --json >"$work/$name.compared.json" 2>>"$log"
    { echo "== $name: $how $model $*: status $status"; tail -n 40 "$log"; } >>"$out/log.txt"
    python3 "$here/delta_rows.py" row "$name" $status "$work" >>"$out/results.jsonl"
}

checks=
for name in operations memcheck racecheck transformers steps; do
    due $name 120 && { part $name & checks="$checks $!"; }
done
[ -n "$checks" ] && wait $checks

qwen="qwen3.5-35b-a3b --hardware h200 --set model.vocab=32768"
one="$qwen --gpus 1"
four="$qwen --gpus 4 --set model.layers=4 --seq 32K --set cp=4 --set recompute=full"
step full-32K run $one --set model.layers=4 --seq 32K --set recompute=full --set keep_attention=0
step none-16K run $one --set model.layers=2 --seq 16K --set recompute=none
step kept-64K-bf16 run $one --set model.layers=4 --seq 64K --set recompute=full --set keep_attention=1 \
    --set grad_dtype=bf16
step state_pass 1 $four --set linear_context=state_pass
step head_split 1 $four --set linear_context=head_split
step pairs-4K run $one --set model.layers=4 --seq 4K --set micro_batch=4 --global-batch 8 --set recompute=none
due speed 60 && part speed
step full-128K run $one --set model.layers=2 --seq 128K --set recompute=full --set keep_attention=0
step dense-16K run qwen3.5-27b --hardware h200 --gpus 1 --set model.vocab=32768 --set model.layers=4 --seq 16K
due beside 80 && part beside
due points 100 && part points
due profile 45 && part profile

tar czf "$out/runs.tgz" -C "$work" .
grep -ahE 'FAILED|not ok|SUMMARY|results|ms|GiB|error:' "$work/operations.txt" "$work/memcheck.txt" "$work/racecheck.txt" \
    "$work/transformers.txt" "$work/steps.txt" "$work/speed.txt" "$work/beside.txt" 2>/dev/null | head -n 90
python3 "$here/delta_rows.py" table "$out/results.jsonl"
