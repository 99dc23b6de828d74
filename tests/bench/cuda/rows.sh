# rows.sh - what matrix.sh and ranks.sh share: a row is planned, run and compared, and leaves NAME.command,
# NAME.plan.json and NAME.json in OUT. Sourced; the caller sets
#   build, out, gpus   where programs are, where results go; 0: plans only; names: their names only
#   only               rows asked for, all where it is empty
#   hardware, world    of the rows' plans
#   steps              of a run
# and may define may_run, which says whether there is time for the row that was just planned.
# shellcheck shell=sh disable=SC2154

say_plan() {
    python3 - "$name" "$out/$name.plan.json" "$build/rankfit" <<'P'
import json, subprocess, sys
name, path, program = sys.argv[1:]
verdict = json.load(open(path))["verdict"]
budget = json.loads(subprocess.run([program, "budget", path, "--json"], capture_output=True, text=True).stdout)
rank = max(budget["ranks"], key=lambda r: r["peak_bytes"])
moving = rank["dynamic_bytes"] + rank["logits_bytes"]
print(f"{name:<34} device {rank['peak_bytes'] / 1e9:8.3f} GB  dynamic and logits {100 * moving / rank['peak_bytes']:5.1f} %"
      f"  {verdict}")
P
}

may_run() {
    return 0
}

wanted() {
    case " $only " in "  " | *" $name "*) return 0 ;; *) return 1 ;; esac
}

# Plans a row unless it is not asked for, is there, or is under way on the other GPU.
plan() {
    wanted || return 1
    { [ ! -e "$out/$name.json" ] && mkdir "$out/$name.claim" 2>/dev/null; } || return 1
    echo "rankfit plan --hardware $hardware $*" >"$out/$name.command"
    "$build/rankfit" plan --hardware "$hardware" "$@" -o "$out/$name.plan.json" >"$out/$name.log" 2>&1 && return
    grep -q does_not_fit "$out/$name.plan.json" 2>/dev/null && return
    echo "$name: $(grep -m 1 error "$out/$name.log")"
    return 1
}

# row NAME PLAN_OPTIONS...
row() {
    name=$1
    shift
    [ "$gpus" = names ] && { echo "$name"; return; }
    plan --gpus "$world" "$@" || return
    may_run || return
    [ "$gpus" -eq 0 ] && { say_plan; return; }
    if ! timeout 90 "$build/rankfit" run "$out/$name.plan.json" --steps "$steps" -o "$out/$name.part.json" \
        >"$out/$name.log" 2>&1; then
        echo "$name: $(grep -m 1 error "$out/$name.log")"
        return
    fi
    mv "$out/$name.part.json" "$out/$name.json"
    "$build/rankfit" compare "$out/$name.plan.json" "$out/$name.json" >"$out/$name.log" 2>&1
    echo "$name: $(grep -m 1 '^ *device' "$out/$name.log" | tr -s ' ') | $(grep -m 1 '^step' "$out/$name.log" |
        cut -c 9-) | $(grep -m 1 verdict "$out/$name.log")"
}
