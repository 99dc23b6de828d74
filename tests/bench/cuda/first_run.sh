#!/bin/sh
# The same small plans on the host backend and on the CUDA backend: losses of each step, and every
# gradient and hidden state of the first step; with NAMEs only those.
# usage: first_run.sh BUILD [GPUS [NAME...]]
# shellcheck disable=SC2086 # options are words
set -u
build=$1 gpus=${2:-1}
[ $# -gt 2 ] && shift 2 && only=" $* "
here=$(dirname "$0")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1
failed=0

losses() {
    tr -d '\n ' <"$1" | sed 's/.*"loss":\[\([^]]*\)\].*/\1/; s/\(\.[0-9]\{5\}\)[0-9]*/\1/g'
}

# NAME, then what follows `rankfit plan`
try() {
    name=$1
    shift
    case ${only:- $name } in *" $name "*) ;; *) return ;; esac
    if ! "$build/rankfit" plan --hardware host --gpus "$gpus" "$@" -o "$out/plan.json" >"$out/plan.txt" 2>&1; then
        [ -s "$out/plan.json" ] || { echo "$name: no plan"; tail -3 "$out/plan.txt"; failed=1; return; }
    fi
    for kind in host cuda; do
        if ! mpirun -q --oversubscribe --bind-to none -np "$gpus" "$build/rankfit-$kind" "$out/plan.json" \
            --measurement "$out/$kind.json" --steps 3 --dump "$out/$kind.st" >"$out/$kind.txt" 2>&1; then
            echo "$name: $kind failed"
            tail -4 "$out/$kind.txt"
            failed=1
            return
        fi
    done
    printf '%-14s host %s  cuda %s\n               ' "$name" "$(losses "$out/host.json")" "$(losses "$out/cuda.json")"
    python3 "$here/compare_dumps.py" "$out/host.st" "$out/cuda.st" || failed=1
}

moe="--model tiny-moe --seq 256"
hybrid="--model $here/tiny-hybrid.yaml --seq 304"
if [ "$gpus" -gt 1 ]; then
    try zero1 $moe --set sharding=zero1
    try replicated $moe --set sharding=replicated --set ep=1
    try ep $moe --set ep="$gpus"
    try ep-chunked $moe --set ep="$gpus" --set moe=chunked --set moe_chunks=2
    try cp $moe --set cp="$gpus"
    try states $hybrid --set cp="$gpus" --set linear_context=state_pass
    try heads $hybrid --set cp="$gpus" --set linear_context=head_split
    try streams $moe --set comm_streams=2 --set prefetch_units=2
fi
try plain $moe --set recompute=none
try recompute $moe --set recompute=full --set keep_attention=0
try kept $moe --set recompute=full --set keep_attention=1
try chunked $moe --set moe=chunked --set moe_chunks=3 --set wgrad_delay=1
try bf16-grads $moe --set grad_dtype=bf16
try full-loss $moe --set loss=full
try shared --model tiny-shared-moe --seq 256
try small --model small-moe --seq 512
try dense --model qwen3-0.6b --set model.layers=2 --set model.vocab=4096 --seq 512
try hybrid $hybrid --set recompute=none
try hybrid-again $hybrid --set recompute=full --set grad_dtype=bf16
try hybrid-pair $hybrid --set micro_batch=2 --global-batch $((2 * gpus)) --set moe=chunked --set moe_chunks=2
try batches $moe --global-batch $((2 * gpus))
exit $failed
