#!/bin/sh
# Speed and memory of a training step on one GPU beside PyTorch's: Qwen3-30B-A3B's shapes with 4 layers, full
# recompute (kept: all but attention), 32,768 and 65,536 tokens, both in the same run on the same GPU. What each phase reached of its least time
# follows, and for a traced run each kind of work. Results stay in OUT: torch.json, and NAME.plan.json and NAME.json of
# each run. SPEED_ROWS: which of the rows below, in this order.
#     tests/bench/cuda/speed.sh BUILD OUT
# shellcheck disable=SC2086 # one word or none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
set -u
build=$1 out=$2
here=$(dirname "$0")
rows=${SPEED_ROWS:-"bf16-32K bf16-64K kept-32K kept-64K torch fp32-32K fp32-64K lean-64K traced-32K"}
mkdir -p "$out"

row() {
    name=$1 seq=$2
    shift 2
    "$build/rankfit" plan --hardware h200 --gpus 1 --model qwen3-30b-a3b --set model.layers=4 --seq "$seq" \
        --set recompute=full "$@" -o "$out/$name.plan.json" >"$out/$name.log" 2>&1 || tail -n 3 "$out/$name.log"
    timeout 120 "$build/rankfit" run "$out/$name.plan.json" --steps 5 -o "$out/$name.json" >>"$out/$name.log" 2>&1 ||
        grep -m 2 error "$out/$name.log"
}

for name in $rows; do
    case $name in
    traced-*) timeout 120 "$build/rankfit" run "$out/bf16-${name#*-}.plan.json" --steps 2 -o "$out/$name.json" \
        --trace "$out/$name.trace.json" >"$out/$name.log" 2>&1 || grep -m 2 error "$out/$name.log"
        cp "$out/bf16-${name#*-}.plan.json" "$out/$name.plan.json" ;;
    torch) python3 -W ignore "$here/torch_step.py" 32768 65536 >"$out/torch.json" 2>"$out/torch.log" ||
        tail -n 3 "$out/torch.log" ;;
    bf16-*) row "$name" "${name#*-}" --set keep_attention=0 --set grad_dtype=bf16 ;;
    fp32-*) row "$name" "${name#*-}" --set keep_attention=0 --set grad_dtype=fp32 ;;
    lean-*) row "$name" "${name#*-}" --set keep_attention=0 --set grad_dtype=bf16 --set moe=chunked \
        --set moe_chunks=4 ;;
    kept-*) row "$name" "${name#*-}" --set keep_attention=1 --set grad_dtype=bf16 ;;
    esac
done
python3 "$here/speed.py" "$out"
for name in $rows; do
    trace=$out/$name.trace.json
    [ -e "$trace" ] || trace=
    [ -e "$out/$name.json" ] && [ -e "$out/$name.plan.json" ] && echo "== $name" &&
        python3 "$here/limit.py" "$out/$name.plan.json" "$out/$name.json" $trace
done
