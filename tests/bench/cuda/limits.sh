#!/bin/sh
# Plans run within the memory limit that each is predicted to need, less and more: predicted peak -2b,
# -b, +b and +2b, b being the largest of 1 % of the peak, 3 % of what is not static, and 64 MiB. Every
# run is tried whatever its verdict. OUT/NAME.json has the plan and a row a run, as
# tests/paired/test_device_limits.c reads them from tests/data/measured/limits; a line a run is printed.
# On two GPUs (GPUS 2) plans of one GPU run side by side, then those of two.
#     tests/bench/cuda/limits.sh BUILD OUT GPUS [NAME...]      (NAME: only these plans)
# shellcheck disable=SC2086 # options are words
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
set -u
build=$1
out=$2
gpus=$3
shift 3
only=${*:-}
hardware=${HARDWARE:-h200}
mkdir -p "$out"

card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader -i 0 2>/dev/null)
device=${card%%,*}
driver=${card##*, }

# The first number behind a key of a JSON file.
number() {
    sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p" "$2" | head -n 1
}

quoted() {
    printf '%s' "$1" | sed 's/[\\"]/\\&/g'
}

# The plan of $name within a limit: the run's row, and its line.
try() {
    side=$1 limit=$2
    verdict=does_not_fit
    [ "$limit" -ge "$peak" ] && verdict=tight
    [ "$limit" -ge "$upper" ] && verdict=fits
    timeout 60 "$build/rankfit" run "$out/$name.plan.json" --steps 2 --memory-limit "$limit" --json \
        >"$out/$name.measured" 2>"$out/$name.log"
    status=$?
    completed=false
    [ $status -eq 0 ] && completed=true
    error=$(sed -n 's/^error: //p' "$out/$name.log" | head -n 1)
    used=$(grep -o '"device_bytes": *[0-9]*' "$out/$name.measured" | grep -o '[0-9]*$' | sort -n | tail -n 1)
    {
        printf '%s\n  { "limit_bytes": %s, "verdict": "%s", "completed": %s, "status": %s,\n' "$comma" \
            "$limit" $verdict $completed $status
        printf '    "device_bytes": %s, "error": "%s" }' "${used:-0}" "$(quoted "$error")"
    } >>"$out/$name.rows"
    comma=,
    rm -f "$out/$name.measured"
    printf '%-20s %s  limit %12s  %-12s %s  %s\n' "$name" "$side" "$limit" $verdict \
        "$([ $status -eq 0 ] && echo "ran, $used" || echo "ended with $status:")" "$error"
}

row() {
    name=$1
    shift
    case " $only " in "  " | *" $name "*) ;; *) return ;; esac
    command="--hardware $hardware --headroom 0 $*"
    "$build/rankfit" plan $command -o "$out/$name.plan.json" --json >"$out/$name.answer" 2>&1
    peak=$(number peak_bytes "$out/$name.answer")
    upper=$(number peak_upper_bytes "$out/$name.answer")
    static=$(number static_bytes "$out/$name.answer")
    [ -n "$peak" ] || { echo "$name: no plan"; return; }
    bound=$((64 << 20))
    [ $((peak / 100)) -gt $bound ] && bound=$((peak / 100))
    [ $(((peak - static) * 3 / 100)) -gt $bound ] && bound=$(((peak - static) * 3 / 100))
    : >"$out/$name.rows"
    comma=
    try -2b $((peak - 2 * bound))
    try -b $((peak - bound))
    try +b $((peak + bound))
    try +2b $((peak + 2 * bound))
    {
        printf '{ "date": "%s", "device": "%s", "driver": "%s",\n' "$(date +%F)" "$device" "$driver"
        printf '"command": "%s",\n' "$(quoted "rankfit plan $command")"
        printf '"peak_bytes": %s, "peak_upper_bytes": %s, "bound_bytes": %s,\n"runs": [' "$peak" \
            "$upper" "$bound"
        cat "$out/$name.rows"
        printf ' ],\n"plan": '
        cat "$out/$name.plan.json"
        printf '}\n'
    } >"$out/$name.json"
    rm -f "$out/$name.rows" "$out/$name.plan.json" "$out/$name.answer" "$out/$name.log"
}

moe="--model qwen3-30b-a3b"
dense="--model qwen3-0.6b"
full="--set recompute=full"
chunked="--set moe=chunked --set moe_chunks"

one_a() {
    row moe1-16k --gpus 1 $moe --set model.layers=2 --seq 16K $full --set moe=plain
    row dense1-16k-none --gpus 1 $dense --seq 16K --set recompute=none
    row moe1-full-loss --gpus 1 $moe --set model.layers=4 --seq 16K --set loss=full $full --set moe=plain
}

one_b() {
    row moe1-none --gpus 1 $moe --set model.layers=1 --seq 32K --set recompute=none --set moe=plain
    row moe1-none-chunks --gpus 1 $moe --set model.layers=2 --seq 32K --set recompute=none $chunked=4
    row moe1-8layers --gpus 1 $moe --set model.layers=8 --seq 8K $full
}

two() {
    row moe2-16k --gpus 2 --set tp=1 --set pp=1 $moe --set model.layers=6 --seq 16K --set ep=2 $full --set moe=plain
    row moe2-chunks --gpus 2 --set tp=1 --set pp=1 $moe --set model.layers=2 --seq 32K --set ep=2 $full $chunked=2
    row moe2-cp2-full-loss --gpus 2 --set tp=1 --set pp=1 $moe --set model.layers=2 --seq 32K --set ep=2 --set cp=2 \
        --set loss=full $full --set moe=plain
    row dense2-zero1-none --gpus 2 --set tp=1 --set pp=1 $dense --seq 16K --set recompute=none --set sharding=zero1
}

if [ "$gpus" -eq 1 ]; then
    one_a
    one_b
else
    # shellcheck disable=SC2030,SC2031 # each has its own
    (export CUDA_VISIBLE_DEVICES=0; one_a) &
    # shellcheck disable=SC2030,SC2031
    (export CUDA_VISIBLE_DEVICES=1; one_b) &
    wait
    two
fi
