#!/bin/sh
# The gated delta net on one GPU: its operations against the host and their definition, the same under compute-sanitizer,
# steps of small hybrids against transformers and the host, ranks of a shared sequence rehearsed; then its speed beside
# its limits and beside flash-linear-attention where python3 finds it, and what the profiler says of the kernels. Each
# part ends by itself; what it printed stays in OUT/NAME.txt, and what matters of it is shown once it has ended.
#     tests/bench/cuda/delta.sh BUILD OUT [NAME...]
# shellcheck disable=SC2086,SC2317 # options are words; parts are called by name
set -u
build=$1 out=$2
shift 2
here=$(dirname "$0")
root=$(cd "$here/../../.." && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1 RANKFIT_SOURCE_ROOT="$root"
export PYTHONUNBUFFERED=1 PATH="$PATH:/usr/local/cuda/bin"
ops=$build/tests/unit/cuda/test_cuda_ops
mkdir -p "$out"

operations() { timeout 100 "$ops" delta_input delta_rule delta_long delta_lengths; }
memcheck() { timeout 100 compute-sanitizer --tool memcheck --error-exitcode 9 "$ops" delta_input delta_rule; }
racecheck() { timeout 100 compute-sanitizer --tool racecheck --error-exitcode 9 "$ops" delta_rule; }
transformers() { timeout 80 mpirun -q --bind-to none -np 1 "$build/tests/unit/cuda/test_transformers_cuda"; }
steps() { timeout 100 sh "$here/first_run.sh" "$build" 1 hybrid hybrid-again hybrid-pair; }
speed() { timeout 80 "$build/tests/bench/cuda/bench_delta"; }
beside() { timeout 110 python3 -W ignore "$here/fla_delta.py"; }

# Rank 1 of four that share sequences of Qwen3.5's shapes, each form.
ranks() {
    status=0
    for form in state_pass head_split; do
        "$build/rankfit" plan --hardware h200 --gpus 4 --model qwen3.5-35b-a3b --set model.layers=4 --seq 32K \
            --set model.vocab=32768 --set cp=4 --set linear_context=$form --set recompute=full \
            -o "$out/$form.plan.json" >/dev/null || status=1
        timeout 45 "$build/rankfit" rehearse "$out/$form.plan.json" --rank 1 --steps 2 | grep -v '^ \|^step  ' || status=1
        rm -f "$out/$form.plan.json"
    done
    return $status
}

# One launch of each kernel at 4,096 tokens: outputs, then what the backward runs.
profile() {
    timeout 60 ncu --clock-control none --section SpeedOfLight --section WarpStateStats --section Occupancy \
        --section MemoryWorkloadAnalysis -k 'regex:squares|forward|backward|gradient' -s 24 -c 6 \
        "$build/tests/bench/cuda/bench_delta"
}

# NAME: the part's output into its file, its status behind it.
part() {
    begun=$(date +%s)
    "$1" >"$out/$1.txt" 2>&1
    echo "status $? after $(($(date +%s) - begun)) s" >>"$out/$1.txt"
}

show() {
    echo "== $1: $(tail -n 1 "$out/$1.txt")"
    case $1 in
    operations) grep -a 'FAILED\|element\|results' "$out/$1.txt" | head -n 30 ;;
    memcheck | racecheck) grep -a 'FAILED\|SUMMARY\|results' "$out/$1.txt" | head -n 12 ;;
    profile) grep -a 'kernel_delta_args\|Throughput  \|Duration\|Registers\|Warp Cycles Per' "$out/$1.txt" |
        head -n 60 ;;
    *) grep -av '^\[ RUN\|^\[==\|^status' "$out/$1.txt" | head -n 80 ;;
    esac
}

together="operations memcheck racecheck transformers steps"
alone="speed beside ranks profile"
wanted=" ${*:-$together $alone} "
for name in $together; do
    case $wanted in *" $name "*) part "$name" & ;; esac
done
wait
for name in $together $alone; do
    case " $alone " in *" $name "*) case $wanted in *" $name "*) part "$name" ;; esac ;; esac
    case $wanted in *" $name "*) show "$name" ;; esac
done
