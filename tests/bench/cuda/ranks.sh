#!/bin/sh
# Four or eight GPUs of one host: what communicators hold and collectives reach (rankfit calibrate, with all channels
# and with eight), steps of Qwen3-30B-A3B with as many expert ranks as GPUs, and ranks of some of them rehearsed alone.
# Prints a line for each row as matrix.sh does. What is in OUT already is not measured again, and nothing begins that
# would not end within SECONDS (540, below the ten minutes of a call): call it until it says that all is there.
# GPUS 0: plans only, for four and for eight, and how long all of it takes. store.py makes OUT stored results.
#     tests/bench/cuda/ranks.sh BUILD OUT [GPUS [SECONDS [NAME...]]]      (GPUS: what nvidia-smi lists)
#     tests/bench/cuda/ranks.sh --names
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
set -u
build=$1
out=${2:-}
gpus=${3:-}
limit=${4:-540}
if [ $# -gt 4 ]; then shift 4; else set --; fi
only=$*
hardware=${HARDWARE:-h200}
[ "$build" = --names ] && gpus=names
[ -n "$gpus" ] || gpus=$(nvidia-smi -L | wc -l)
# The step is built without multicast over NVLink: programs that use it can put a host's GPUs out of service.
export NCCL_NVLS_ENABLE=0
began=$(date +%s)
late=''
failed=''
steps=4
# shellcheck source=tests/bench/cuda/rows.sh
. "$(dirname "$0")/rows.sh"

# Seconds beside a run's steps: processes, communicators and arena come, the ranks agree; what a calibration takes.
START=6
CALIBRATION=60

# Whether SECONDS leave time for $1 more of them; GPUS 0: notes them.
in_time() {
    if [ "$gpus" -eq 0 ]; then
        echo "$world $1 $name" >>"$out/seconds"
    elif [ -n "$late" ] || [ $(($(date +%s) - began + $1)) -gt "$limit" ]; then
        late=1
        return 1
    fi
}

# What a plan's step takes, in whole milliseconds.
milliseconds() {
    python3 -c 'import json, sys; print(round(1000 * json.load(open(sys.argv[1]))["recommended"]["step"]["seconds"]))' \
        "$out/$name.plan.json"
}

# The hook of rows.sh: fewer steps of long ones, and of deep models, whose memory is asked for; the first warms up.
# What was tried twice is let be (remove NAME.tries).
may_run() {
    step=$(milliseconds)
    steps=4
    [ "$step" -gt 2000 ] && steps=3
    [ "$step" -gt 5000 ] && steps=2
    [ "$depth" = most ] && steps=2
    [ "$gpus" -eq 0 ] || [ "$(cat "$out/$name.tries" 2>/dev/null)" != "xx" ] || return
    in_time $((START + (step * (steps + 1) + 999) / 1000)) || return
    [ "$gpus" -eq 0 ] || printf x >>"$out/$name.tries"
}

# The most layers, up to all 48, with which the options that follow fit.
most_layers() {
    low=1
    high=48
    while [ "$low" -lt "$high" ]; do
        middle=$(((low + high + 1) / 2))
        if "$build/rankfit" plan --hardware "$hardware" --gpus "$world" "$@" --set "model.layers=$middle" \
            -o "$out/$name.plan.json" >"$out/$name.log" 2>&1 && grep -q '"verdict": "fits"' "$out/$name.plan.json"; then
            low=$middle
        else
            high=$((middle - 1))
        fi
    done
    echo "$low"
}

# step DEPTH SEQ CP SHARDING MOE ROUTING EXCHANGE: a row with one micro-batch, all ranks of which hold each its experts
# DEPTH: layers, or most.  MOE: plain or a number of chunks.  ROUTING: even or hot (80:4).  EXCHANGE: sm or copy
step() {
    depth=$1
    name=rows$world-$depth-$2-cp$3-$4-$5-$6-$7
    [ "$gpus" = names ] && { echo "$name"; return; }
    wanted || return
    [ ! -e "$out/$name.json" ] || return
    [ -z "$late" ] || return
    moe="--set moe=plain"
    [ "$5" = plain ] || moe="--set moe=chunked --set moe_chunks=$5"
    routing=balanced
    [ "$6" = even ] || routing=80:4
    options="--model qwen3-30b-a3b --seq $2 --global-batch $((world / $3)) --set tp=1 --set pp=1 --set ep=$world"
    options="$options --set cp=$3 --set sharding=$4 --set recompute=full --set loss=linear_ce $moe --routing $routing"
    options="$options --set exchange=$7"
    layers=$depth
    # shellcheck disable=SC2086
    [ "$depth" != most ] || layers=$(most_layers $options)
    # shellcheck disable=SC2086
    row "$name" $options --set "model.layers=$layers"
    [ -n "$late" ] || [ -e "$out/$name.json" ] || failed="$failed $name"
}

# rehearse STEP_ARGUMENTS...: that row's first and last rank, each alone on a GPU, with the rows that were measured
rehearse() {
    name=rows$world-$1-$2-cp$3-$4-$5-$6-$7
    [ "$gpus" = names ] && return
    wanted || return
    last=$((world - 1))
    [ "$gpus" -ne 0 ] && [ ! -e "$out/$name.json" ] && return
    [ ! -e "$out/$name.r0.json" ] || [ ! -e "$out/$name.r$last.json" ] || return
    in_time $((START + ($(milliseconds) * 5 + 999) / 1000)) || return
    [ "$gpus" -ne 0 ] || return
    for rank in 0 $last; do
        CUDA_VISIBLE_DEVICES=$rank timeout 90 "$build/rankfit" rehearse "$out/$name.plan.json" --rank "$rank" \
            --steps 4 -o "$out/$name.r$rank.json" >"$out/$name.r$rank.log" 2>&1 ||
            grep -h -m 2 -E "error:|hint:" "$out/$name.r$rank.log" &
    done
    wait
    echo "$name: ranks 0 and $last rehearsed (rehearsals.py tells)"
}

# calibration NAME [VARIABLE=VALUE...]: NAME.points.json, and in NAME.log what they say with the channels of HARDWARE
calibration() {
    name=$1
    shift
    [ "$gpus" = names ] && return
    wanted || return
    [ ! -e "$out/$name.points.json" ] || return
    in_time $CALIBRATION || return
    [ "$gpus" -ne 0 ] || return
    if ! env "$@" timeout 180 "$build/rankfit" calibrate --hardware "$hardware" --gpus "$world" \
        --points "$out/$name.part.json" >"$out/$name.log" 2>&1; then
        echo "$name: $(grep -m 1 error "$out/$name.log")"
        return
    fi
    mv "$out/$name.part.json" "$out/$name.points.json"
    echo "$name:"
    grep -E "^ +(gather|scatter|exchange|copy|collective|communicator|channel)[a-z_]* +[0-9]" "$out/$name.log"
}

# What matters most comes first, should time end.
all_of() {
    world=$1
    sizes="1 2 4"
    [ "$world" -eq 4 ] || sizes="1 2 4 8"
    calibration "$hardware-x$world"
    for cp in $sizes; do
        step 12 32K "$cp" fsdp plain even sm
        step 12 32K "$cp" fsdp 4 even copy
    done
    for cp in $sizes; do
        [ "$cp" -eq 1 ] || step 12 128K "$cp" fsdp 4 even sm
    done
    step most 32K "$world" fsdp plain even sm
    step most 128K "$world" fsdp plain even sm
    rehearse 12 32K "$world" fsdp plain even sm
    step 12 32K 1 fsdp plain hot sm
    step 12 32K "$world" fsdp plain hot sm
    rehearse 12 32K 1 fsdp plain hot sm
    step 12 32K 1 zero1 plain even sm
    step 12 32K "$world" zero1 4 even sm
    calibration "$hardware-x$world-8channels" NCCL_MAX_NCHANNELS=8 NCCL_MAX_P2P_NCHANNELS=8
    step 12 32K 1 fsdp 4 even sm
    step 12 32K "$world" fsdp 4 even sm
    rehearse 12 32K 1 fsdp 4 even copy
    step 12 128K "$world" fsdp plain hot sm
    step 12 128K "$world" fsdp 4 hot sm
    step 12 128K "$world" zero1 plain even sm
    step 12 128K "$world" fsdp 4 even copy
    step most 128K $((world / 2)) fsdp 4 hot sm
    step most 32K 1 zero1 4 even copy
    for cp in $sizes; do # little state, so that it cannot hide a wrong working set
        step 2 128K "$cp" fsdp plain even sm
        step 2 128K "$cp" fsdp 4 hot sm
        [ "$cp" -gt 2 ] && continue
        step 2 128K "$cp" fsdp 4 even copy
        step 2 128K "$cp" fsdp 4 even sm
        step 2 128K "$cp" fsdp plain hot sm
        step 2 128K "$cp" zero1 plain even sm
        step 2 128K "$cp" zero1 4 even copy
        step 2 128K "$cp" zero1 4 hot sm
    done
    step 12 128K 2 fsdp 4 even copy
    step 12 128K 1 fsdp plain even sm
    step 12 128K 1 fsdp 4 even copy
}

# GPUS 0: calls in which what is noted fits, and the whole.
say_seconds() {
    python3 - "$out/seconds" "$limit" <<'P'
import sys
path, limit = sys.argv[1], int(sys.argv[2])
for world in ("4", "8"):
    all_of = [int(line.split()[1]) for line in open(path) if line.split()[0] == world]
    calls = []
    for seconds in all_of:
        if not calls or calls[-1] + seconds > limit:
            calls.append(0)
        calls[-1] += seconds
    print(f"{world} GPUs: {len(all_of)} runs, about {sum(all_of) / 60:.1f} minutes in calls of "
          + ", ".join(f"{c} s" for c in calls))
P
}

if [ "$gpus" = names ]; then
    all_of 4
    all_of 8
    exit
fi
case $gpus in
0 | 4 | 8) ;;
*) echo "ranks.sh: $gpus GPUs; 4 or 8 are measured, 0 plans" >&2 && exit 2 ;;
esac
mkdir -p "$out"
rm -rf "$out"/*.claim "$out/seconds"
if [ "$gpus" -eq 0 ]; then
    all_of 4
    all_of 8
    say_seconds
else
    all_of "$gpus"
    if [ -n "$late" ]; then echo "time is up: call it again"; else echo "all is there${failed:+ but$failed}"; fi
fi
rm -rf "$out"/*.claim
