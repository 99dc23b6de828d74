#!/bin/sh
# What the CUDA backend computes, against what it should: transformers' stored logits, losses and gradients of two
# small models on one and two GPUs (ep 2, cp 2, fsdp, zero1, replicated); the same plans on the host and on GPUs; and a
# small step under compute-sanitizer (memory accesses; with --races, shared memory as well).
# GPUS 0: compute-sanitizer alone.
#     tests/bench/cuda/numerics.sh BUILD GPUS [--races]
# shellcheck disable=SC2086 # options are words
set -u
build=$1 gpus=$2 races=${3:-}
here=$(dirname "$0")
root=$(cd "$here/../../.." && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1
failed=0
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for world in 1 2; do
    [ "$world" -le "$gpus" ] || continue
    echo "== transformers, $world"
    RANKFIT_SOURCE_ROOT=$root mpirun -q --oversubscribe --bind-to none -np "$world" \
        "$build/tests/unit/cuda/test_transformers_cuda" >"$out/log" 2>&1 || failed=1
    grep -v '^\[ RUN\|^\[==' "$out/log"
    echo "== host and device, $world"
    sh "$here/first_run.sh" "$build" "$world" || failed=1
done

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
[ -n "$sanitizer" ] || { echo "no compute-sanitizer here"; exit $failed; }
# NAME of the tool, then what follows `rankfit plan`. Kernels of libraries wait for each other in ways that racecheck
# takes for races; what counts is ours.
sanitize() {
    tool=$1
    shift
    "$build/rankfit" plan --hardware h200 --gpus 1 "$@" -o "$out/plan.json" >"$out/log" 2>&1
    timeout 200 "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 1000 "$build/rankfit-cuda" \
        "$out/plan.json" --measurement "$out/m.json" --steps 2 >"$out/log" 2>&1
    status=$?
    if [ "$tool" = racecheck ] && [ $status -eq 9 ]; then
        grep -a 'Race reported' "$out/log" | grep -v 'cudnn_generated\|nvjet\|cutlass' >"$out/ours"
        echo "   races in libraries: $(grep -a 'Race reported' "$out/log" | grep -c 'cudnn_generated\|nvjet\|cutlass')"
        [ -s "$out/ours" ] || status=0
    fi
    [ $status -eq 0 ] || failed=1
    echo "== $tool: status $status; $(grep -a 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out/log" | tail -n 1)"
    [ $status -eq 0 ] || grep -a '=========' "$out/log" | head -n 20
}
small="--model tiny-shared-moe --seq 256 --set recompute=full"
sanitize memcheck $small --set moe=chunked --set moe_chunks=3 --set wgrad_delay=1
sanitize memcheck --model tiny-shared-moe --seq 2560 --set recompute=full --set keep_attention=1 \
    --set attention_deterministic=1
sanitize memcheck --model qwen3-0.6b --set model.layers=1 --set model.vocab=4096 --seq 512 --set recompute=none
[ "$races" = --races ] && sanitize racecheck $small && sanitize racecheck $small --set keep_attention=1 \
    --set attention_deterministic=1
exit $failed
