#!/bin/sh
# The gated delta net on one GPU, by importance: its operations against the host and their definition, the same under
# compute-sanitizer, small hybrids against transformers and the host; then speed against its limits, calibration,
# flash-linear-attention's times where python3 finds it, and the profiler. matrix.sh runs steps of Qwen3.5's shapes.
# Nothing starts that may not end within SECONDS (430). OUT/log.txt has all that was printed, OUT/h200.* the calibration;
# the status of each part is shown last. Built before: ninja all tests/bench/cuda/bench_delta.
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
: >"$out/parts.txt"
: >"$out/log.txt"

operations() { timeout 100 "$ops" delta_input delta_rule delta_long delta_lengths; }
memcheck() { timeout 110 compute-sanitizer --tool memcheck --error-exitcode 9 "$ops" delta_input delta_rule; }
racecheck() { timeout 110 compute-sanitizer --tool racecheck --error-exitcode 9 "$ops" delta_rule; }
transformers() { timeout 80 mpirun -q --bind-to none -np 1 "$build/tests/unit/cuda/test_transformers_cuda"; }
steps() { timeout 100 sh "$here/first_run.sh" "$build" 1 hybrid hybrid-again hybrid-pair; }
speed() { timeout 60 "$build/tests/bench/cuda/bench_delta"; }
points() { timeout 100 "$build/rankfit" calibrate --hardware h200 --name h200-measured --points "$work/h200.points.json" -o "$work/h200.yaml"; }
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
    echo "$1: not started" >>"$out/parts.txt"
    return 1
}

part() {
    begun=$(date +%s)
    "$1" >"$work/$1.txt" 2>&1
    status=$?
    echo "$1: status $status after $(($(date +%s) - begun)) s" >>"$out/parts.txt"
    { echo "== $1: status $status"; cat "$work/$1.txt"; } >>"$out/log.txt"
}

checks=
for name in operations memcheck racecheck transformers steps; do
    due $name 120 && { part $name & checks="$checks $!"; }
done
[ -n "$checks" ] && wait $checks

due speed 60 && part speed
due beside 80 && part beside
due points 100 && part points
due profile 45 && part profile

cp "$work"/h200.* "$out"/ 2>/dev/null
grep -ahE 'FAILED|not ok|SUMMARY|results|ms|GiB|error:' "$work/operations.txt" "$work/memcheck.txt" "$work/racecheck.txt" \
    "$work/transformers.txt" "$work/steps.txt" "$work/speed.txt" "$work/beside.txt" 2>/dev/null | head -n 90
cat "$out/parts.txt"
